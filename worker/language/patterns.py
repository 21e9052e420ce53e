"""Reading types, parameters and patterns (chapter 10 §7, §8.4, §9)."""

from __future__ import annotations

from worker.language.ast import (
    BindPat,
    Bool,
    Expr,
    FieldPat,
    Int,
    ListPat,
    LitPat,
    Param,
    Pattern,
    RangePat,
    RecordPat,
    RestParam,
    Span,
    Str,
    TypePat,
    TypeRef,
    WildcardPat,
)
from worker.language.cursor import MODE_PLAIN, TYPE_WEIGHT
from worker.language.diagnostics import ParseError
from worker.language.strings import StringReader
from worker.language.tokens import IDENT, INT, NUMBER, QUOTE, RANGE_OPS, TYPE_PATTERNS

WILDCARD = "_"


class PatternReader(StringReader):
    __slots__ = ()

    # --- types and parameters --------------------------------------------------------------------

    def type_ref(self) -> TypeRef:
        """NAME, optional `<TYPE, …>`, optional `?`."""
        self.enter(TYPE_WEIGHT)
        start = self.start
        name = self.identifier()
        args: list[TypeRef] = []
        if self.kind == "<":
            self.advance()
            args.append(self.type_ref())
            while self.kind == ",":
                self.advance()
                args.append(self.type_ref())
            self.expect(">")
        optional = self.kind == "?"
        if optional:
            self.advance()
        self.levels -= TYPE_WEIGHT
        return TypeRef(name, args, optional, self.span(start, self.last))

    def optional_type(self) -> TypeRef | None:
        if self.kind != ":":
            return None
        self.advance()
        return self.type_ref()

    def parameters(self) -> tuple[list[Param], RestParam | None]:
        """Parameters of `fn` with their parentheses. Defaults do not see the parameters."""
        mode, self.mode = self.mode, MODE_PLAIN
        height = 0
        params: list[Param] = []
        rest: RestParam | None = None
        self.expect("(")
        while self.kind != ")":
            if self.kind == "...":
                self.advance()
                name = self.identifier()
                rest = RestParam(name, self.optional_type())
                break
            start = self.start
            name = self.identifier()
            ty = self.optional_type()
            where = self.span(start, self.last)
            default: Expr | None = None
            if self.kind == "=":
                self.advance()
                default = self.expression()
                where = Span(where.start, default.span.end)
                height = max(height, self.height)
            params.append(Param(name, where, ty, default))
            if self.kind != ",":
                break
            self.advance()
        self.expect(")")
        self.mode = mode
        self.height = height
        return params, rest

    def lambda_parameters(self) -> list[Param] | None:
        """`(NAME (: TYPE)?, …) =>` up to and with the arrow, or None (then nothing is read).

        A probe: whatever does not fit, lexical trouble included, only means that this is no lambda.
        """
        state = self.save()
        params: list[Param] = []
        try:
            self.advance()
            while self.kind is IDENT:
                where = self.span(self.start, self.end)
                name = self.text
                self.advance()
                params.append(Param(name, where, self.optional_type()))
                if self.kind != ",":
                    break
                self.advance()
                if self.kind is not IDENT:
                    raise self.misfit("expected identifier")
            self.expect(")")
            self.expect("=>")
        except ParseError:
            self.restore(state)
            return None
        return params

    # --- patterns --------------------------------------------------------------------------------

    def binder(self) -> Pattern:
        """NAME or `_`, as `let`, `for` and `try … catch` have it."""
        where = self.span(self.start, self.end)
        name = self.identifier()
        return WildcardPat(where) if name == WILDCARD else BindPat(name, where)

    def pattern(self) -> Pattern:
        """One alternative of a match arm; its names are bound from here on."""
        kind = self.kind
        if kind is IDENT:
            return self._name_pattern()
        if kind is INT or kind is NUMBER:
            return self._int_pattern()
        if kind is QUOTE:
            return self._str_pattern()
        if kind == "{" or kind == "[":
            self.enter(TYPE_WEIGHT)
            found = self._record_pattern() if kind == "{" else self._list_pattern()
            self.levels -= TYPE_WEIGHT
            return found
        raise self.misfit("expected match pattern")

    def _name_pattern(self) -> Pattern:
        start, end = self.start, self.end
        where = self.span(start, end)
        name = self.identifier()
        if name == WILDCARD:
            return WildcardPat(where)
        if name in ("true", "false"):
            return LitPat(Bool(name == "true", where), where)
        if name in TYPE_PATTERNS and self.kind is IDENT and self.text != "if":
            bound = self.identifier()
            self.bind(bound)
            return TypePat(TypeRef(name, [], False, where), self.span(start, self.last), bound)
        self.bind(name)
        return BindPat(name, where)

    def _int(self, message: str) -> Int:
        """A plain int literal, or fail."""
        if self.kind is INT or self.kind is NUMBER:
            node = self.number()
            if isinstance(node, Int):
                self.advance()
                return node
        raise self.misfit(message)

    def _int_pattern(self) -> Pattern:
        first = self._int("expected match pattern")
        if self.kind not in RANGE_OPS:
            return LitPat(first, first.span)
        inclusive = self.kind == "..="
        self.advance()
        last = self._int("expected an integer after `..` in a range pattern")
        return RangePat(first, last, inclusive, Span(first.span.start, last.span.end))

    def _str_pattern(self) -> Pattern:
        node, end = self.string_at(self.start)
        if not isinstance(node, Str):
            raise ParseError("expected match pattern", node.span)
        self.seek(end)
        return LitPat(node, node.span)

    def _record_pattern(self) -> Pattern:
        start = self.start
        fields: list[FieldPat] = []
        self.advance()
        self.skip_newlines()
        while self.kind != "}":
            name = self.identifier()
            if self.kind == ":":
                self.advance()
                fields.append(FieldPat(name, self.pattern()))
            else:
                self.bind(name)
                fields.append(FieldPat(name))
            self.skip_newlines()
            if self.kind != ",":
                break
            self.advance()
            self.skip_newlines()
        self.expect("}")
        return RecordPat(fields, self.span(start, self.last))

    def _list_pattern(self) -> Pattern:
        start = self.start
        items: list[Pattern] = []
        rest: str | None = None
        self.advance()
        self.skip_newlines()
        while self.kind != "]":
            if self.kind == "...":
                self.advance()
                rest = self.identifier()
                self.bind(rest)
                self.skip_newlines()
                break
            items.append(self.pattern())
            self.skip_newlines()
            if self.kind != ",":
                break
            self.advance()
            self.skip_newlines()
        self.expect("]")
        return ListPat(items, self.span(start, self.last), rest)
