"""Arguments of commands and calls as the planner sees them.

Failure: none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from worker.commands.site import expand_home
from worker.language import ast
from worker.planning.known import DYNAMIC, Known
from worker.planning.walk import Walk
from worker.values.types import Glob, Path

LONG: Final = "long"
SHORT: Final = "short"


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument. `flag` is empty for a value, LONG or SHORT for flags and `--`, `name` their
    name or letters; `text` is the word as written, when it is a plain word; `dash` a lone `-`;
    `given` whether a flag has a value of its own."""

    known: Known
    flag: str = ""
    name: str = ""
    text: str | None = None
    dash: bool = False
    given: bool = True


def argument(walk: Walk, node: Any) -> Operand:
    """Evaluate one command argument as far as it is known."""
    return _ARGUMENTS[type(node)](walk, node)


def _word(walk: Walk, node: ast.WordArg) -> Operand:
    return Operand((node.text,), text=node.text)


def _path(walk: Walk, node: ast.PathArg) -> Operand:
    return Operand((Path(expand_home(walk.ev, node.text)),), text=node.text)


def _glob(walk: Walk, node: ast.GlobArg) -> Operand:
    if walk.cwd is None and not node.pattern.startswith("/"):
        return Operand(DYNAMIC)
    return Operand((Glob(node.pattern, walk.cwd or "/"),))


def _expression(walk: Walk, node: Any) -> Operand:
    return Operand(walk.visit(node.expr))


def _long(walk: Walk, node: ast.FlagLong) -> Operand:
    if node.value is None:
        return Operand(DYNAMIC, LONG, node.name, given=False)
    return Operand(argument(walk, node.value).known, LONG, node.name)


def _short(walk: Walk, node: ast.FlagShort) -> Operand:
    return Operand(DYNAMIC, SHORT, node.chars)


def _end_of_flags(walk: Walk, node: ast.DashDash) -> Operand:
    return Operand(DYNAMIC, LONG)


def _dash(walk: Walk, node: ast.Dash) -> Operand:
    return Operand(("-",), dash=True)


_ARGUMENTS: Final[dict[type, Callable[[Walk, Any], Operand]]] = {
    ast.WordArg: _word,
    ast.PathArg: _path,
    ast.GlobArg: _glob,
    ast.StrArg: _expression,
    ast.ExprArg: _expression,
    ast.FlagLong: _long,
    ast.FlagShort: _short,
    ast.DashDash: _end_of_flags,
    ast.Dash: _dash,
}


def call_operands(positional: Iterable[Known], named: Iterable[tuple[str, Known]]) -> list[Operand]:
    """Values of a call as operands; named ones are long flags."""
    found = [Operand(known) for known in positional]
    return found + [Operand(known, LONG, name) for name, known in named]


def values_of(operands: Iterable[Operand]) -> list[Operand]:
    """The positional values, without flags and `--`."""
    return [operand for operand in operands if not operand.flag]


def has_flag(operands: Iterable[Operand], flags: Iterable[str]) -> bool:
    """Whether one of the flags is given: one letter as a short one, more as a long one."""
    long = {flag for flag in flags if len(flag) > 1}
    short = {flag for flag in flags if len(flag) == 1}
    return any(
        operand.name in long if operand.flag == LONG else not short.isdisjoint(operand.name)
        for operand in operands
        if operand.flag
    )
