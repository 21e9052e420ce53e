"""Reading expressions: operands, postfix forms, operators by binding power (chapter 10 §8).

Chains of operators, postfix forms and prefixes are loops, so a long chain costs no recursion; what
nests is counted, and so is the height of the tree that a chain makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from worker.language import diagnostics
from worker.language.ast import (
    IIFE_NAME,
    ITEM_NAME,
    Args,
    Binary,
    BindPat,
    Block,
    BlockExpr,
    Bool,
    Catch,
    Expr,
    ExprStmt,
    FieldExpr,
    FnCall,
    Index,
    Int,
    Lambda,
    Let,
    ListExpr,
    MethodCall,
    NamedArg,
    Null,
    Param,
    RangeExpr,
    RecordExpr,
    RecordField,
    Span,
    Str,
    Unary,
    UnaryOp,
    Var,
)
from worker.language.control import ControlReader
from worker.language.cursor import (
    HEIGHT_MAX,
    LEAF_HEIGHT,
    MODE_NO_LAMBDA,
    MODE_PLAIN,
)
from worker.language.diagnostics import ParseError
from worker.language.literals import int_value
from worker.language.tokens import (
    ARROW_AHEAD,
    BINARY,
    COLON_AHEAD,
    COMPARISONS,
    CONTINUES_CATCH,
    CONTINUES_CHAIN,
    EMPTY_AHEAD,
    ENTRY_AHEAD,
    GROUP_END_AHEAD,
    IDENT,
    IN_OPERATOR,
    INT,
    INTERPRETERS,
    NUMBER,
    PARAMS_AHEAD,
    POSTFIX_STARTS,
    POWER_COMPARISON,
    POWER_MIN,
    QUOTE,
    REPL_ONLY,
    SPECIAL_WORDS,
    TAGGED,
)

# JSON levels between a node and its children.
BLOCK_HEIGHT = 2
ARGS_HEIGHT = 3
IIFE_HEIGHT = 6

PREFIX_OPS: Final[dict[str, UnaryOp]] = {"-": "neg", "!": "not"}


class ExpressionReader(ControlReader):
    __slots__ = ()

    # --- whole expressions -----------------------------------------------------------------------

    def expression(self) -> Expr:
        """A full expression: the only place where `NAME =>` begins a lambda."""
        self.enter()
        if self.kind is IDENT:
            if self.text in SPECIAL_WORDS and ARROW_AHEAD(self.src, self.end, self.limit):
                left = self._arrow_lambda()
            else:
                left = self.operand()
                if self.kind == "=>" and type(left) is Var:
                    left = self._lambda_body(left.span, [Param(left.name, left.span)])
        else:
            left = self.operand()
        left = self.rest(left)
        self.levels -= 1
        return left

    def rest(self, left: Expr) -> Expr:
        """Operators and postfix `catch` after an operand."""
        kind = self.kind
        if kind in BINARY or (kind is IDENT and self.text == "in"):
            left = self.operators(left, POWER_MIN)
        while True:
            kind = self.kind
            if kind is IDENT:
                if self.text != "catch":
                    return left
                self.advance()
            elif kind == "\n" and self.continues() == CONTINUES_CATCH:
                self.seek(self.newline_target)
                self.advance()
            else:
                return left
            left = self._catch(left)

    def operand_or_command(self) -> Expr:
        """Content of a group: one expression or command, with operators (chapter 10 §6.2)."""
        if self.begins_command():
            return self.rest(self.command(self.start))
        return self.expression()

    def operators(self, left: Expr, power_min: int) -> Expr:
        """Binary operators of at least this power after `left`."""
        while True:
            if self.kind is IDENT:
                if self.text != "in":
                    return left
                power, op = IN_OPERATOR
            else:
                entry = BINARY.get(self.kind)
                if entry is None:
                    return left
                power, op = entry
            if power < power_min:
                return left
            if power == POWER_COMPARISON and type(left) is Binary and left.op in COMPARISONS:
                raise self.lesson(diagnostics.CHAINED_COMPARISON, self.start, self.end)
            height = self.height
            token = self.kind
            self.advance()
            self.skip_newlines()
            if op in ("and", "or") and self.begins_command():
                right: Expr = self.command(self.start)
            else:
                right = self.operand()
            if self.kind in BINARY or self.kind is IDENT:
                right = self.operators(right, power + 1)
            where = Span(left.span.start, right.span.end)
            if op is None:
                left = RangeExpr(left, right, token == "..=", where)
            else:
                left = Binary(op, left, right, where)
            if height < self.height:
                height = self.height
            self.height = height = height + 1
            if height > HEIGHT_MAX:
                raise self.too_deep()

    def _catch(self, guarded: Expr) -> Expr:
        """After `catch`: optional name, then a block or an expression."""
        height = self.height
        binder = None
        if self.kind is IDENT:
            binder = self.text
            self.advance()
        handler = self.block_expression() if self.kind == "{" else self.expression()
        self.grow(max(height, self.height) + 1)
        return Catch(guarded, handler, Span(guarded.span.start, handler.span.end), binder)

    # --- operands --------------------------------------------------------------------------------

    def operand(self) -> Expr:
        """Prefix operators, a primary expression, its postfix forms."""
        kind = self.kind
        node: Expr
        if kind is IDENT:
            if self.text in SPECIAL_WORDS:
                node = self._special_word()
            else:
                node = Var(self.text, self.span(self.start, self.end))
                self.height = LEAF_HEIGHT
                self.advance()
        elif kind is INT:
            start, end = self.start, self.end
            where = self.span(start, end)
            node = Int(int_value(self.src[start:end], start, end, self.span), where)
            self.height = LEAF_HEIGHT
            self.advance()
        else:
            reader = _PRIMARIES.get(kind)
            if reader is None:
                self.examine()
                raise self.misfit(f"expected expression, found {self.token_name()}")
            node = reader(self)
        kind = self.kind
        if kind in POSTFIX_STARTS and (kind != "\n" or self.continues() == CONTINUES_CHAIN):
            return self.postfix(node)
        return node

    def _special_word(self) -> Expr:
        word = self.text
        reader = _WORDS.get(word)
        if reader is not None:
            return reader(self)
        if word in INTERPRETERS and self.opens_interpreter():
            return self.interpreter_block()
        if word in REPL_ONLY and not self.repl:
            raise self.lesson(diagnostics.repl_only(word), self.start, self.end)
        return self._variable()

    def _variable(self) -> Expr:
        node = Var(self.text, self.span(self.start, self.end))
        self.height = LEAF_HEIGHT
        self.advance()
        return node

    def _null(self) -> Expr:
        node = Null(self.span(self.start, self.end))
        self.height = LEAF_HEIGHT
        self.advance()
        return node

    def _bool(self) -> Expr:
        node = Bool(self.text == "true", self.span(self.start, self.end))
        self.height = LEAF_HEIGHT
        self.advance()
        return node

    def _number(self) -> Expr:
        node = self.number()
        self.advance()
        return node

    def _tagged(self) -> Expr:
        node = self.tagged()
        self.advance()
        return node

    def _string_literal(self) -> Expr:
        node, end = self.string_at(self.start)
        self.seek(end)
        return node

    def _leading_dot(self) -> Expr:
        raise self.lesson(diagnostics.LEADING_DOT, self.start, self.end)

    def _prefixed(self) -> Expr:
        """A run of prefix operators and what they apply to."""
        prefixes: list[tuple[UnaryOp, int]] = []
        while (op := PREFIX_OPS.get(self.kind)) is not None:
            prefixes.append((op, self.span(self.start, self.start).start))
            if len(prefixes) > HEIGHT_MAX:
                raise self.too_deep()
            self.advance()
        node = self.operand()
        for op, start in reversed(prefixes):
            node = Unary(op, node, Span(start, node.span.end))
        self.grow(self.height + len(prefixes))
        return node

    def _parenthesised(self) -> Expr:
        """`( … )`: lambda parameters, or one expression or command that adds no node."""
        if PARAMS_AHEAD(self.src, self.start, self.limit) and self._may_be_lambda():
            start = self.span(self.start, self.end)
            params = self.lambda_parameters()
            if params is not None:
                return self._parenthesised_lambda(start, params)
        mode, self.mode = self.mode, MODE_PLAIN
        self.advance()
        self.skip_newlines()
        if (
            self.kind is IDENT
            and self.text in REPL_ONLY
            and not self.repl
            and GROUP_END_AHEAD(self.src, self.end, self.limit)
        ):
            raise self.lesson(diagnostics.repl_only(self.text), self.start, self.end)
        node = self.operand_or_command()
        self.skip_newlines()
        self.mode = mode
        self.expect(")")
        return node

    def _may_be_lambda(self) -> bool:
        """At what looks like parameters and an arrow."""
        if self.mode == MODE_NO_LAMBDA:
            self.mode_mattered = True
            return False
        return True

    def _list(self) -> Expr:
        mode, self.mode = self.mode, MODE_PLAIN
        start = self.start
        items: list[Expr] = []
        height = LEAF_HEIGHT
        self.advance()
        self.skip_newlines()
        while self.kind != "]":
            items.append(self.expression())
            if self.height > height:
                height = self.height
            self.skip_newlines()
            if self.kind != ",":
                break
            self.advance()
            self.skip_newlines()
        self.mode = mode
        self.expect("]")
        self.grow(height + 2)
        return ListExpr(items, self.span(start, self.last))

    # --- braces ----------------------------------------------------------------------------------

    def _braces(self) -> Expr:
        return self._record() if self.opens_record() else self.block_expression()

    def opens_record(self) -> bool:
        """At `{`: a record rather than a block? Decided by the first entry."""
        ahead = ENTRY_AHEAD(self.src, self.end, self.limit)
        if ahead is None:
            return EMPTY_AHEAD(self.src, self.end, self.limit) is not None
        if ahead[1]:
            return True
        end = self.string_end(ahead.start(2))
        return end >= 0 and COLON_AHEAD(self.src, end, self.limit) is not None

    def _record(self) -> Expr:
        mode, self.mode = self.mode, MODE_PLAIN
        start = self.start
        fields: list[RecordField] = []
        height = LEAF_HEIGHT
        self.advance()
        self.skip_newlines()
        while self.kind != "}":
            name, where = self._record_key()
            self.expect(":")
            fields.append(RecordField(name, self.expression(), where))
            if self.height > height:
                height = self.height
            self.skip_newlines()
            if self.kind != ",":
                break
            self.advance()
            self.skip_newlines()
        self.mode = mode
        self.expect("}")
        self.grow(height + 3)
        return RecordExpr(fields, self.span(start, self.last))

    def _record_key(self) -> tuple[str, Span]:
        if self.kind is IDENT:
            where = self.span(self.start, self.end)
            return self.identifier(), where
        if self.kind is QUOTE:
            node, end = self.string_at(self.start)
            if not isinstance(node, Str):
                raise ParseError("expected record field", node.span)
            self.seek(end)
            return node.value, node.span
        raise self.misfit("expected record field")

    # --- postfix ---------------------------------------------------------------------------------

    def postfix(self, node: Expr) -> Expr:
        """Field, call and index forms after `node`, also on following lines that begin with `.`."""
        while True:
            kind = self.kind
            if kind == "." or kind == "?.":
                node = self._member(node, optional=kind == "?.")
            elif kind == "(":
                node = self._call(node)
            elif kind == "[":
                node = self._index(node)
            elif kind == "\n" and self.continues() == CONTINUES_CHAIN:
                self.seek(self.newline_target)
            else:
                return node

    def _member(self, node: Expr, *, optional: bool) -> Expr:
        height = self.height
        self.advance()
        name = self.identifier()
        if self.kind == "(":
            if name == "feed":
                args = self._feed_arguments()
            else:
                args = self._arguments()
            self.grow(max(height + 1, self.height + ARGS_HEIGHT))
            return MethodCall(node, name, args, optional, self.since(node))
        if not optional and self.takes_block(self.mode):
            args = Args([self._block_argument()], [])
            self.grow(max(height + 1, self.height + ARGS_HEIGHT))
            return MethodCall(node, name, args, False, self.since(node))
        self.grow(height + 1)
        return FieldExpr(node, name, optional, self.since(node))

    def _call(self, callee: Expr) -> Expr:
        height = self.height
        args = self._arguments()
        if isinstance(callee, Var):
            self.grow(self.height + ARGS_HEIGHT)
            return FnCall(callee.name, args, self.since(callee))
        self.grow(max(height, self.height + ARGS_HEIGHT) + IIFE_HEIGHT)
        where = self.since(callee)
        binding = Let(BindPat(IIFE_NAME, callee.span), callee, False, False, callee.span)
        call = ExprStmt(FnCall(IIFE_NAME, args, where), where)
        return BlockExpr(Block([binding, call], where), where)

    def _index(self, node: Expr) -> Expr:
        height = self.height
        mode, self.mode = self.mode, MODE_PLAIN
        self.advance()
        index = self.expression()
        self.mode = mode
        self.expect("]")
        self.grow(max(height, self.height) + 1)
        return Index(node, index, self.since(node))

    def _block_argument(self) -> Expr:
        block = self.trailing_block()
        self.height += 2
        return Lambda([], BlockExpr(block, block.span), block.span)

    def _arguments(self) -> Args:
        """`( … )` and a trailing block."""
        mode, self.mode = self.mode, MODE_PLAIN
        positional: list[Expr] = []
        named: list[NamedArg] = []
        height = LEAF_HEIGHT
        self.advance()
        self.skip_newlines()
        while self.kind != ")":
            if self.kind == ".":
                positional.append(self._item_shorthand())
            elif self.kind is IDENT and COLON_AHEAD(self.src, self.end, self.limit):
                start = self.span(self.start, self.start).start
                name = self.identifier()
                self.advance()
                value = self.expression()
                named.append(NamedArg(name, value, Span(start, value.span.end)))
                self.height += 1
            else:
                positional.append(self.expression())
            if self.height > height:
                height = self.height
            self.skip_newlines()
            if self.kind != ",":
                break
            self.advance()
            self.skip_newlines()
        self.mode = mode
        self.expect(")")
        if self.takes_block(mode):
            positional.append(self._block_argument())
            height = max(height, self.height)
        self.height = height
        return Args(positional, named)

    def _feed_arguments(self) -> Args:
        """Arguments of `.feed`: one bare command, or ordinary arguments."""
        state = self.save()
        self.advance()
        if not self.begins_command():
            self.restore(state)
            return self._arguments()
        mode, self.mode = self.mode, MODE_PLAIN
        command = self.command(self.start)
        self.mode = mode
        self.expect(")")
        args: list[Expr] = [command]
        height = self.height
        if self.takes_block(mode):
            args.append(self._block_argument())
        self.height = max(height, self.height)
        return Args(args, [])

    def _item_shorthand(self) -> Expr:
        """`.size > 4kb` as a whole argument: a lambda of one made-up parameter."""
        dot = self.span(self.start, self.end)
        self.height = LEAF_HEIGHT
        body = self.rest(self.postfix(Var(ITEM_NAME, dot)))
        self.height += 1
        return Lambda([Param(ITEM_NAME, dot)], body, Span(dot.start, body.span.end))

    # --- lambdas ---------------------------------------------------------------------------------

    def _arrow_lambda(self) -> Expr:
        """`WORD => …` where WORD means something else without the arrow."""
        where = self.span(self.start, self.end)
        name = self.identifier()
        return self._lambda_body(where, [Param(name, where)])

    def _lambda_body(self, start: Span, params: list[Param]) -> Expr:
        """At the arrow of `NAME =>`: braces may be a record."""
        self.advance()
        mark = len(self.trail)
        for param in params:
            self.bind(param.name)
        body = self.expression()
        self.leave_scope(mark)
        self.grow(self.height + 1)
        return Lambda(params, body, Span(start.start, body.span.end))

    def _parenthesised_lambda(self, start: Span, params: list[Param]) -> Expr:
        """After `( … ) =>`: braces are always a block."""
        mark = len(self.trail)
        for param in params:
            self.bind(param.name)
        if self.kind == "{":
            body = self.rest(self.postfix(self.block_expression()))
        else:
            body = self.expression()
        self.leave_scope(mark)
        self.grow(self.height + 1)
        return Lambda(params, body, Span(start.start, body.span.end))


Reader = Callable[[ExpressionReader], Expr]

_WORDS: Final[dict[str, Reader]] = {
    "null": ExpressionReader._null,
    "true": ExpressionReader._bool,
    "false": ExpressionReader._bool,
    "if": ExpressionReader.if_expression,
    "match": ExpressionReader.match_expression,
    "try": ExpressionReader.try_expression,
    "with": ExpressionReader.with_expression,
    "spawn": ExpressionReader.spawn_expression,
}
_PRIMARIES: Final[dict[str, Reader]] = {
    NUMBER: ExpressionReader._number,
    QUOTE: ExpressionReader._string_literal,
    TAGGED: ExpressionReader._tagged,
    "(": ExpressionReader._parenthesised,
    "[": ExpressionReader._list,
    "{": ExpressionReader._braces,
    "-": ExpressionReader._prefixed,
    "!": ExpressionReader._prefixed,
    ".": ExpressionReader._leading_dot,
}
