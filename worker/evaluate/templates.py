"""Specialised thunks from short Python templates.

A closure over other closures pays a Python call for every operand. For the shapes that programs
spend their time in (arithmetic, comparison and assignment of variables and constants, blocks,
calls) the operands are written into the body of one function instead. A body is compiled once per
process and shape, then only bound to its values.

Bodies are made of fixed text in this package; nothing of a user's program is ever part of one:
names and values reach them as arguments.

Failure: a template with an error in it is a programming error and shows in the first test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from worker.errors import Cancelled, Raised
from worker.evaluate.code import Jump
from worker.evaluate.scopes import Cell
from worker.values.types import INT_MAX, INT_MIN, MISSING, Outcome, Value

Thunk = Callable[[list[Any]], Value]

SHAPES_KEPT: Final = 4096

_GLOBALS: Final[dict[str, Any]] = {
    "MISSING": MISSING,
    "INT_MIN": INT_MIN,
    "INT_MAX": INT_MAX,
    "Raised": Raised,
    "Cancelled": Cancelled,
    "Cell": Cell,
    "Jump": Jump,
    "Outcome": Outcome,
}


def specialise(body: str, values: dict[str, Any]) -> Thunk:
    """The thunk whose body is `body`; `values` are the names it may use."""
    thunk: Thunk = _factory(body, tuple(values))(*values.values())
    return thunk


def indented(lines: str, width: int = 4) -> str:
    return "".join(f"{' ' * width}{line}\n" for line in lines.splitlines())


@lru_cache(maxsize=SHAPES_KEPT)
def _factory(body: str, names: tuple[str, ...]) -> Callable[..., Thunk]:
    lines = indented(body, 8)
    text = f"def make({', '.join(names)}):\n    def thunk(frame):\n{lines}    return thunk\n"
    return define(text)


@lru_cache(maxsize=SHAPES_KEPT)
def define(text: str) -> Callable[..., Any]:
    """The function `make` that a text defines."""
    namespace: dict[str, Any] = {}
    exec(compile(text, "<thunk>", "exec"), _GLOBALS, namespace)
    make: Callable[..., Any] = namespace["make"]
    return make
