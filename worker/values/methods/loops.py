"""The inner loops of methods that call a closure for every element.

Most callbacks are small: `.name`, `n => n % 2 == 0`. Such a closure calls nothing itself (`leaf`),
so its compiled body can be run on a fresh frame per element without the bookkeeping of a call;
cancellation is then looked at once per slab. Every other callable goes through `ev.callback`, which
does all of it. Both ways give the same values and the same errors.

Failure: whatever the callable raises; Cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from worker.evaluate.callables import Closure
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# Elements between two looks at the cancel token: well under a millisecond's work.
_SLAB: Final = 2048

_Body = Callable[[list[Any]], Value]


def _leaf(ev: Evaluator, f: Value, arity: int) -> tuple[_Body, tuple[Any, ...]] | None:
    """The body and cells of a closure whose frame is just its arguments; None for the rest."""
    if type(f) is not Closure:
        return None
    code = f.code
    if code.positional != arity or not code.leaf or code.padding or code.boxed:
        return None
    return code.body, f.captured


def _slabs(ev: Evaluator, items: Sequence[Value]) -> Iterator[Sequence[Value]]:
    for start in range(0, len(items), _SLAB):
        ev.cancel.check()
        yield items[start : start + _SLAB]


def results(ev: Evaluator, f: Value, items: Sequence[Value]) -> list[Value]:
    """`f(item)` for every item."""
    leaf = _leaf(ev, f, 1)
    if leaf is None:
        call = ev.callback(f)
        return [call(item) for item in items]
    body, captured = leaf
    found: list[Value] = []
    for slab in _slabs(ev, items):
        found += [body([ev, captured, item]) for item in slab]
    return found


def kept(ev: Evaluator, f: Value, items: Sequence[Value]) -> list[Value]:
    """The items for which the condition `f(item)` holds."""
    holds = ev.condition
    leaf = _leaf(ev, f, 1)
    if leaf is None:
        call = ev.callback(f)
        return [
            item
            for item in items
            if (verdict := call(item)) is True or (verdict is not False and holds(verdict))
        ]
    body, captured = leaf
    found: list[Value] = []
    for slab in _slabs(ev, items):
        found += [
            item
            for item in slab
            if (verdict := body([ev, captured, item])) is True
            or (verdict is not False and holds(verdict))
        ]
    return found


def first_position(ev: Evaluator, f: Value, items: Sequence[Value], wanted: bool) -> int:
    """The position of the first item for which the condition is as wanted, -1 without one."""
    unwanted = not wanted
    position = 0
    leaf = _leaf(ev, f, 1)
    if leaf is None:
        call = ev.callback(f)
        for item in items:
            verdict = call(item)
            if verdict is wanted or (verdict is not unwanted and ev.condition(verdict) is wanted):
                return position
            position += 1
        return -1
    body, captured = leaf
    for slab in _slabs(ev, items):
        for item in slab:
            verdict = body([ev, captured, item])
            if verdict is wanted or (verdict is not unwanted and ev.condition(verdict) is wanted):
                return position
            position += 1
    return -1


def folded(ev: Evaluator, f: Value, init: Value, items: Sequence[Value]) -> Value:
    """The last of `acc = f(acc, item)`."""
    accumulator = init
    leaf = _leaf(ev, f, 2)
    if leaf is None:
        call = ev.callback(f)
        for item in items:
            accumulator = call(accumulator, item)
        return accumulator
    body, captured = leaf
    for slab in _slabs(ev, items):
        for item in slab:
            accumulator = body([ev, captured, accumulator, item])
    return accumulator
