"""Compiled functions: what all closures made at one place of a program share.

`Code` holds the parameters, the body thunk, the size of the frame and where the captured cells come
from, together with the AST node and the source text it was made of: those are what is saved when a
closure is stored, the rest is compiled again.

Failure: nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from worker.evaluate.scopes import Cell
from worker.language import ast
from worker.values.types import MISSING, Span, Value

if TYPE_CHECKING:
    from worker.evaluate.direct import Direct
    from worker.evaluate.evaluator import Evaluator
    from worker.evaluate.static import StaticScope

Frame = list[Any]
Thunk = Callable[[Frame], Value]


class Jump:
    """`return`, `break` or `continue` on its way through statements. Never a value."""

    __slots__ = ("kind", "value")

    def __init__(self, kind: str, value: Value = None) -> None:
        self.kind = kind
        self.value = value


BREAK = Jump("break")
CONTINUE = Jump("continue")


class Param(NamedTuple):
    """`element` is the declared T of a `list<T>` whose elements convert in every call form."""

    name: str
    type: ast.TypeRef | None
    default: Thunk | None
    element: str | None
    slot: int


class Rest(NamedTuple):
    name: str
    type: ast.TypeRef | None
    slot: int


class CaptureSource(NamedTuple):
    """Where a captured cell is when the closure is made: a slot of the frame, or its captured."""

    local: bool
    place: int


class Code:
    """`positional` is the number of arguments of the plain case (fixed parameters, nothing to
    convert), else -1; `plain` is the same number when moreover no slots follow the parameters and
    none of them lives in a cell. `parameters` and `padding` are the unbound slots of a fresh frame:
    those of the parameters and those behind them. `boxed` are the parameters that live in cells, by
    slot and name. `direct` makes plain Python functions of a small lambda (worker.evaluate.direct).
    """

    __slots__ = (
        "body",
        "boxed",
        "captures",
        "direct",
        "name",
        "node",
        "padding",
        "parameters",
        "params",
        "plain",
        "positional",
        "rest",
        "scope",
        "site",
        "src",
        "variables",
    )

    def __init__(self, node: Any, src: str | None, name: str | None) -> None:
        self.node = node
        self.src = src
        self.name = name
        self.params: tuple[Param, ...] = ()
        self.rest: Rest | None = None
        self.body: Thunk = _no_body
        self.captures: tuple[CaptureSource, ...] = ()
        # Names of the captured cells, in the same order.
        self.variables: tuple[str, ...] = ()
        self.parameters: list[Any] = []
        self.padding: list[Any] = []
        self.boxed: tuple[tuple[int, str], ...] = ()
        self.positional = -1
        self.plain = -1
        self.direct: Direct | None = None
        # The compiled call of an alias.
        self.site: Any = None
        # The scope inside the function, for what is looked up while it runs.
        self.scope: StaticScope | None = None

    def capture(self, frame: Frame) -> tuple[Cell, ...]:
        """The cells a closure made in this frame keeps."""
        captured = frame[1]
        return tuple([frame[place] if local else captured[place] for local, place in self.captures])

    def new_frame(self, ev: Evaluator, captured: tuple[Cell, ...]) -> Frame:
        """A frame without parameters, for code that has none."""
        return [ev, captured, *self.padding]

    def box(self, frame: Frame) -> None:
        """Move the parameters that closures capture into cells."""
        for slot, name in self.boxed:
            frame[slot] = Cell(name, frame[slot])


def _no_body(frame: Frame) -> Value:
    raise AssertionError("the body of a function is set before it can be called")


def frame_padding(size: int, used: int) -> list[Any]:
    return [MISSING] * (size - used)


def span_of(node: Any) -> Span:
    """The span of an AST node as a value span."""
    span = node.span
    return Span(span.start, span.end)


def without_spans(node: Any) -> Any:
    """A node as plain data without its spans, for structural comparison."""
    if isinstance(node, list):
        return [without_spans(item) for item in node]
    if isinstance(node, msgspec.Struct):
        fields = [
            without_spans(getattr(node, name)) for name in node.__struct_fields__ if name != "span"
        ]
        return (type(node).__name__, *fields)
    return node
