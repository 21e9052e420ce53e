"""What the planner knows about a value before the program runs (chapter 50 §4.2).

A `Known` is a tuple of the values an expression may have, at most KNOWN_MAX of them, or None when
it is dynamic. Values are those of the language; a function or alias of the program itself is a
`Routine`, since nothing of it exists yet.

Failure: none; what cannot be computed is dynamic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from worker.evaluate.callables import Closure, Command
from worker.values.types import Glob, Path, Range, Value

KNOWN_MAX: Final = 256

Known = tuple[Value, ...] | None

DYNAMIC: Final[Known] = None


class Names:
    """A scope of the program while it is walked: what is bound in it, and the scope around it.

    An `isolated` scope belongs to a script or module: names of the session are not seen there.
    """

    __slots__ = ("around", "bound", "isolated")

    def __init__(self, around: Names | None = None, *, isolated: bool = False) -> None:
        self.around: Names | None = around
        self.isolated: bool = isolated or (around is not None and around.isolated)
        self.bound: dict[str, Known] = {}

    def find(self, name: str) -> tuple[Known] | None:
        """The binding of a name, in a tuple of one; None when the program binds no such name."""
        scope: Names | None = self
        while scope is not None:
            if name in scope.bound:
                return (scope.bound[name],)
            scope = scope.around
        return None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Routine:
    """A function, lambda or alias of the program and the scope it was made in."""

    node: Any
    names: Names


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Module:
    """A module of the program: the scope its statements were walked in."""

    names: Names


_CALLABLE: Final = (Routine, Closure, Command)
_PLAIN: Final = (str, Path, int)


def is_routine(value: Value) -> bool:
    return type(value) in _CALLABLE


def routines(known: Known) -> list[Any]:
    """The callables among known values."""
    return [] if known is None else [value for value in known if type(value) in _CALLABLE]


def union(parts: Iterable[Known]) -> Known:
    """The values of alternatives."""
    found: list[Value] = []
    for part in parts:
        if part is None:
            return None
        found.extend(part)
        if len(found) > KNOWN_MAX:
            return None
    return tuple(found)


def combined(parts: Iterable[Known], combine: Callable[..., Value]) -> Known:
    """The results of a function over every combination of known arguments; `combine` raises
    ValueError for arguments it does not know about."""
    lists: list[tuple[Value, ...]] = []
    size = 1
    for part in parts:
        if part is None:
            return None
        size *= len(part)
        if size > KNOWN_MAX:
            return None
        lists.append(part)
    try:
        return tuple(combine(*values) for values in itertools.product(*lists))
    except ValueError:
        return None


def session_value(value: Value) -> Known:
    """What counts as known of a binding of the session."""
    kind = type(value)
    if kind in _PLAIN or kind in _CALLABLE:
        return (value,)
    if kind is list and all(type(item) in _PLAIN for item in value):
        return (value,)
    if kind is dict and any(is_routine(item) for item in value.values()):
        # A used module, or a record of functions.
        return (value,)
    return None


def elements(known: Known, expand: Callable[[Glob], list[Path] | None]) -> Known:
    """The values a loop over known values may see."""
    if known is None:
        return None
    found: list[Value] = []
    for value in known:
        part: Any = None
        if type(value) is list:
            part = value
        elif type(value) is Range:
            part = value.python_range()
        elif type(value) is Glob:
            part = expand(value)
        if part is None or len(found) + len(part) > KNOWN_MAX:
            return None
        found.extend(part)
    return tuple(found)
