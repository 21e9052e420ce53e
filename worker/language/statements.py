"""Reading statements: which kind begins here, and each kind's grammar (chapter 10 §6, §7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from worker.language import diagnostics
from worker.language.ast import (
    Alias,
    Assign,
    BindPat,
    Break,
    Continue,
    Expr,
    ExprStmt,
    FieldExpr,
    Fn,
    FnDecl,
    For,
    Let,
    Pattern,
    Program,
    Return,
    Span,
    Stmt,
    Use,
    Var,
    While,
)
from worker.language.cursor import LEAF_HEIGHT
from worker.language.diagnostics import ParseError
from worker.language.expressions import ExpressionReader
from worker.language.tokens import (
    ACCESS_GLUED,
    ASSIGN_AHEAD,
    ASSIGN_OPS,
    ENV_ASSIGN_AHEAD,
    EOF,
    EXPRESSION_WORDS,
    IDENT,
    INTERPRETERS,
    REPL_ONLY,
)

BETWEEN_STATEMENTS = "expected newline or `;` between statements"
ENVIRONMENT = "env"
REPL_RESULT = "it"


class Parser(ExpressionReader):
    """The whole grammar over one text."""

    __slots__ = ()

    def program(self) -> Program:
        self.reject_surrogates()
        self.advance()
        return Program(self.statements(EOF))

    def reject_surrogates(self) -> None:
        """Text that has no UTF-8 form has no byte offsets and no place in an AST."""
        try:
            self.src.encode()
        except UnicodeEncodeError as error:
            raise ParseError(
                f"unexpected character `\\u{{{ord(self.src[error.start]):x}}}`",
                self.span(error.start, error.start + 1),
            ) from None

    # --- sequences -------------------------------------------------------------------------------

    def statements(self, closer: str) -> list[Stmt]:
        """Statements up to `closer`, which stays the current token."""
        found: list[Stmt] = []
        height = LEAF_HEIGHT
        while True:
            self.skip_terminators()
            if self.kind == closer:
                self.height = height
                return found
            if self.kind is EOF:
                raise self.misfit(f"expected `{closer}`")
            statement = self.statement()
            found.append(statement)
            if self.height > height:
                height = self.height
            kind = self.kind
            if not (kind == "\n" or kind == ";" or kind == "}" or kind is EOF):
                raise self.misfit(BETWEEN_STATEMENTS, _command_hint(statement))

    def statement(self) -> Stmt:
        """One statement, by its head (chapter 10 §6.1)."""
        start = self.start
        if self.kind is IDENT:
            reader = _STATEMENTS.get(self.text)
            if reader is not None:
                return reader(self)
            if self.text not in EXPRESSION_WORDS:
                target = self._assignment_target()
                if target is not None:
                    return self._assignment(target)
                if self._head_is_command():
                    return self._command_statement()
            node = self.expression()
        elif self.kind == "^" or self.begins_path_head():
            return self._command_statement()
        elif self.kind == "." and self.repl:
            dot = self.span(start, start)
            self.height = LEAF_HEIGHT
            node = self.rest(self.postfix(Var(REPL_RESULT, dot)))
        else:
            node = self.expression()
        self.height += 1
        return ExprStmt(node, self.span(start, self.last))

    def begins_command_statement(self) -> bool:
        """At the first token of a statement: is it a command? May raise for `it` and `out`."""
        if self.kind is IDENT:
            return (
                self.text not in _STATEMENTS
                and self.text not in EXPRESSION_WORDS
                and self._assignment_target() is None
                and self._head_is_command()
            )
        return self.kind == "^" or self.begins_path_head()

    def begins_expression_statement(self) -> bool:
        """At the first token of a statement: is it an expression? May raise as above."""
        if self.kind is IDENT:
            if self.text in EXPRESSION_WORDS:
                return True
            if self.text in _STATEMENTS or self._assignment_target() is not None:
                return False
        return not self.begins_command_statement()

    def _command_statement(self) -> Stmt:
        start = self.start
        node = self.rest(self.command(start))
        self.height += 1
        return ExprStmt(node, self.span(start, self.last))

    def _head_is_command(self) -> bool:
        """At an identifier that is neither a keyword nor assigned to."""
        name, src, end, limit = self.text, self.src, self.end, self.limit
        if name in INTERPRETERS and self.opens_interpreter():
            return False
        if src.startswith("=", end, limit) and self.begins_prefixed_command():
            return True
        if ACCESS_GLUED(src, end, limit) or name in self.bound:
            return False
        if name in REPL_ONLY:
            raise self.lesson(diagnostics.repl_only(name), self.start, end)
        return True

    # --- assignment ------------------------------------------------------------------------------

    def _assignment_target(self) -> Expr | None:
        """At an identifier: read what is assigned to and stop at the operator, if it is one."""
        src, end, limit = self.src, self.end, self.limit
        name = self.text
        if name in INTERPRETERS and self.opens_interpreter():
            return None
        if src.startswith("=", end, limit) and self.begins_prefixed_command():
            return None
        if name == ENVIRONMENT and ENV_ASSIGN_AHEAD(src, end, limit):
            start = self.start
            recv = Var(name, self.span(start, end))
            self.advance()
            self.advance()
            field = self.identifier()
            return FieldExpr(recv, field, False, self.span(start, self.last))
        if not ASSIGN_AHEAD(src, end, limit):
            return None
        if name in REPL_ONLY and not self.repl:
            raise self.lesson(diagnostics.repl_only(name), self.start, end)
        target = Var(name, self.span(self.start, end))
        self.advance()
        return target

    def _assignment(self, target: Expr) -> Stmt:
        op = ASSIGN_OPS[self.kind]
        self.advance()
        value = self.expression()
        self.height = max(self.height, LEAF_HEIGHT + 1) + 1
        return Assign(target, op, value, self._through(target.span))

    def _through(self, start: Span) -> Span:
        """From the start of a span to the end of the last token."""
        return Span(start.start, self.span(self.last, self.last).end)

    # --- declarations ----------------------------------------------------------------------------

    def _let(self, exported: bool = False) -> Stmt:
        start = self.start
        mutable = self.text == "var"
        self.advance()
        pattern = self.binder()
        ty = self.optional_type()
        self.expect("=")
        init = self.expression()
        self._bind_pattern(pattern)
        self.height += 1
        return Let(pattern, init, mutable, exported, self.span(start, self.last), ty)

    def _bind_pattern(self, pattern: Pattern) -> None:
        if isinstance(pattern, BindPat):
            self.bind(pattern.name)

    def _export(self) -> Stmt:
        self.advance()
        if self.kind is IDENT:
            if self.text == "fn":
                return self._fn(exported=True)
            if self.text in ("let", "var"):
                return self._let(exported=True)
        raise self.misfit(*diagnostics.EXPORT)

    def _fn(self, exported: bool = False) -> Stmt:
        start = self.start
        self.advance()
        name = self.identifier()
        params, rest = self.parameters()
        height = self.height
        ret = None
        if self.kind == "->":
            self.advance()
            ret = self.type_ref()
        mark = len(self.trail)
        for param in params:
            self.bind(param.name)
        if rest is not None:
            self.bind(rest.name)
        body = self.block()
        self.leave_scope(mark)
        self.height = max(height + 2, self.height) + 2
        where = self.span(start, self.last)
        return Fn(FnDecl(name, params, body, exported, where, rest, ret))

    def _alias(self) -> Stmt:
        start = self.start
        self.advance()
        name = self.identifier()
        if self.kind != "=":
            raise self.misfit("expected `=`")
        target = self.command(self.end).call
        self.height += 1
        return Alias(name, target, self.span(start, self.last))

    def _use(self) -> Stmt:
        start = self.start
        path, end = self.module_path(self.end)
        self.seek(end)
        self.height = LEAF_HEIGHT
        return Use(path, self.span(start, end))

    # --- control ---------------------------------------------------------------------------------

    def _return(self) -> Stmt:
        start = self.start
        self.advance()
        value = None
        self.height = LEAF_HEIGHT
        if not (self.kind in ("\n", ";", "}") or self.kind is EOF):
            value = self.expression()
        self.height += 1
        return Return(self.span(start, self.last), value)

    def _break(self) -> Stmt:
        node = Break(self.span(self.start, self.end))
        self.height = LEAF_HEIGHT
        self.advance()
        return node

    def _continue(self) -> Stmt:
        node = Continue(self.span(self.start, self.end))
        self.height = LEAF_HEIGHT
        self.advance()
        return node

    def _for(self) -> Stmt:
        start = self.start
        self.advance()
        pattern = self.binder()
        if self.kind is not IDENT or self.text != "in":
            raise self.misfit("expected `in`")
        self.advance()
        items = self.blockless()
        height = self.height
        mark = len(self.trail)
        self._bind_pattern(pattern)
        body = self.block()
        self.leave_scope(mark)
        self.height = max(height, self.height) + 1
        return For(pattern, items, body, self.span(start, self.last))

    def _while(self) -> Stmt:
        start = self.start
        self.advance()
        condition = self.header()
        height = self.height
        body = self.block()
        self.height = max(height, self.height) + 1
        return While(condition, body, self.span(start, self.last))


def _command_hint(statement: Stmt) -> str | None:
    """After a value's name alone a command of that name was probably meant."""
    if isinstance(statement, ExprStmt) and isinstance(statement.expr, Var):
        return diagnostics.force_command(statement.expr.name)
    return None


Reader = Callable[[Parser], Stmt]

_STATEMENTS: Final[dict[str, Reader]] = {
    "let": Parser._let,
    "var": Parser._let,
    "export": Parser._export,
    "fn": Parser._fn,
    "alias": Parser._alias,
    "use": Parser._use,
    "return": Parser._return,
    "break": Parser._break,
    "continue": Parser._continue,
    "for": Parser._for,
    "while": Parser._while,
}
