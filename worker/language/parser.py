"""`parse`: source text and context in, syntax tree out. Pure: no evaluation, files or storage.

Failure: raises ParseError, and nothing else, for any text. Source that nests deeper than the
parser's limits, or whose tree would be too high to walk recursively, is `nesting too deep`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from worker.language.ast import Program
from worker.language.statements import Parser

# Python frames for the deepest source the parser accepts, and for encoding its tree, on top of
# whatever stack the caller has. Raised once for the process; never lowered.
RECURSION_LIMIT = 25_000


@dataclass(frozen=True, slots=True)
class ParseContext:
    """What the grammar depends on besides the text (chapter 10 §1).

    `values` and `commands` are names known to be bound: to values that are not callable, and to
    callables. Only the former change how a statement is read; a name in neither is a command too.
    """

    repl: bool = False
    values: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()


SCRIPT = ParseContext()


def ensure_recursion_limit() -> None:
    """Make room for the deepest tree that parses; whoever walks one recursively needs it."""
    if sys.getrecursionlimit() < RECURSION_LIMIT:
        sys.setrecursionlimit(RECURSION_LIMIT)


def parse(src: str, context: ParseContext = SCRIPT) -> Program:
    """Parse a whole source text. Raises ParseError for the first thing that does not fit."""
    ensure_recursion_limit()
    return Parser(src, context.repl, context.values).program()
