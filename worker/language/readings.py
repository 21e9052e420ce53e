"""How a text would be read at a place of a program: the formatter's questions to the parser.

A Place follows the bindings as the parser does and runs the parser's own rules on a text, so that
the formatter never has rules of its own about commands and expressions.

Failure: none; a text that would not parse reads as neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from worker.language import ast
from worker.language.ast import Expr, Pattern
from worker.language.diagnostics import ParseError
from worker.language.parser import ParseContext
from worker.language.statements import Parser

LOGICAL: Final = frozenset(("and", "or"))


class Place:
    # Names bound here: only the scope of this parser is used.
    _scope: Parser

    def __init__(self, context: ParseContext) -> None:
        self._scope = Parser("", context.repl, context.values)

    # --- how a text would be read ----------------------------------------------------------------

    def _probe(self, text: str) -> Parser:
        """A parser at the first token of `text`, with the names of this place."""
        probe = Parser(text, self._scope.repl, frozenset())
        probe.bound = self._scope.bound
        probe.advance()
        return probe

    def reads_as_command(self, text: str) -> bool:
        """In a group or as a right operand of `&&`."""
        return self._probe(text).begins_command()

    def opens_record(self, text: str) -> bool:
        """Would this block be a record where both can stand?"""
        return self._probe(text).opens_record()

    def states_command(self, text: str) -> bool:
        """As a statement."""
        try:
            return self._probe(text).begins_command_statement()
        except ParseError:
            return False

    def states_expression(self, text: str) -> bool:
        """As a statement."""
        try:
            return self._probe(text).begins_expression_statement()
        except ParseError:
            return False

    def group(self, expr: Expr, text: str) -> str:
        """In parentheses, unless those would make a command of an expression or the reverse."""
        begins_bare = leads_with_command(expr) and not text.startswith("(")
        reads_otherwise = self.reads_as_command(text) != begins_bare
        return text if reads_otherwise or self._needs_arrow(expr) else f"({text})"

    def _needs_arrow(self, expr: Expr) -> bool:
        """Does it end in a name that only an arm's arrow after it keeps from being a command?"""
        while isinstance(expr, ast.Binary):
            logical, expr = expr.op in LOGICAL, expr.rhs
            if logical and isinstance(expr, ast.Var) and self.reads_as_command(expr.name):
                return True
        return False

    # --- scopes ----------------------------------------------------------------------------------

    def bind(self, pattern: Pattern) -> None:
        for name in binders(pattern):
            self._scope.bind(name)

    def with_names(self, names: list[str], write: Callable[[], str]) -> str:
        mark = len(self._scope.trail)
        for name in names:
            self._scope.bind(name)
        text = write()
        self._scope.leave_scope(mark)
        return text

    def with_patterns(self, patterns: list[Pattern], write: Callable[[], str]) -> str:
        return self.with_names([name for found in patterns for name in binders(found)], write)


def binders(pattern: Pattern) -> list[str]:
    """Names a pattern binds, in source order."""
    match pattern:
        case ast.BindPat(name=name):
            return [name]
        case ast.TypePat(name=bound):
            return [bound] if bound is not None else []
        case ast.RecordPat(fields=fields):
            return [
                name
                for field in fields
                for name in ([field.name] if field.pattern is None else binders(field.pattern))
            ]
        case ast.ListPat(items=items, rest=rest):
            names = [name for item in items for name in binders(item)]
            return names if rest is None else [*names, rest]
    return []


def leads_with_command(expr: Expr) -> bool:
    """Is the first thing in this expression a command?"""
    while True:
        match expr:
            case ast.Binary(lhs=first) | ast.RangeExpr(start=first) | ast.Catch(expr=first):
                expr = first
            case _:
                return isinstance(expr, ast.Cmd)
