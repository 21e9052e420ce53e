"""Collection methods that order or add: sort, min, max, sum (chapter 21 §4, chapter 20 §2.3).

Keys are taken once per element. Neighbouring keys are compared in input order before anything is
sorted, so incomparable keys fail with no partial result. Keys of one plain kind are then sorted by
Python itself on a payload with the same order; the rest by the language's comparison.

Failure: type_error "cannot compare X with Y"; `sum` fails like `+`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key, partial, reduce
from itertools import chain, pairwise
from operator import add
from typing import TYPE_CHECKING, Any, Final

from worker.errors import overflow
from worker.values.methods.arguments import ABSENT, KEY, OPTIONAL_KEY
from worker.values.methods.collections import elements
from worker.values.methods.registry import AGGREGATE_TAKES_NOTHING, COLLECTION, method
from worker.values.operators import add as plus
from worker.values.ordering import ORDER_KEYS, compare
from worker.values.types import INT_MAX, INT_MIN, Range, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_EXACT_INT_MAX: Final = 2**53

# Kinds that are their own order for Python; the others are sorted by their `ORDER_KEYS`.
_PLAIN: Final = frozenset((int, str, bool))


def _payloads(keys: Sequence[Value]) -> Sequence[Any] | None:
    """Python values in the same order as the keys, or None when there are none."""
    kinds = set(map(type, keys))
    if kinds <= {int, float} and float in kinds:
        # The language rounds ints to binary64 when a float meets them: the same as Python's exact
        # comparison while every int is exact. A nan is comparable with nothing.
        if any(key != key for key in keys):
            return None
        exact = all(-_EXACT_INT_MAX <= key <= _EXACT_INT_MAX for key in keys if type(key) is int)
        return keys if exact else None
    if len(kinds) > 1:
        return None
    kind = kinds.pop()
    if kind in _PLAIN:
        return keys
    payload = ORDER_KEYS.get(kind)
    return None if payload is None else list(map(payload, keys))


def _check_neighbours(keys: Sequence[Value]) -> None:
    for left, right in pairwise(keys):
        compare(left, right)


def sorted_by(items: Sequence[Value], keys: Sequence[Value]) -> list[Value]:
    """The items in ascending order of their keys, equal ones in input order."""
    if len(items) < 2:
        return list(items)
    payloads = _payloads(keys)
    if payloads is None:
        _check_neighbours(keys)
        payloads = list(map(cmp_to_key(compare), keys))
    # `sorted` asks for the key of each item once, in order: hand it the keys in that order.
    return sorted(items, key=partial(next, iter(payloads)))


@method(
    "sort",
    on=COLLECTION,
    params=(OPTIONAL_KEY,),
    result="list",
    doc="Ascending, by the element or a key; equal ones keep their order.",
)
def sort(ev: Evaluator, recv: Value, f: Value) -> Value:
    if f is not ABSENT:
        return sort_by(ev, recv, f)
    items = elements(recv)
    if type(recv) is Range:
        return list(items)
    if items and type(items[0]) in _PLAIN and len(set(map(type, items))) == 1:
        return sorted(items)
    return sorted_by(items, items)


@method(
    "sort_by",
    on=COLLECTION,
    params=(KEY,),
    result="list",
    doc="Ascending by the key that `f` gives; equal keys keep their order.",
)
def sort_by(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    items = elements(recv)
    return sorted_by(items, [call(item) for item in items])


def _extreme(items: Sequence[Value], pick: Callable[..., int], sign: int) -> Value:
    if len(items) < 2:
        return items[0] if items else None
    if isinstance(items, range):
        return items[0] if sign < 0 else items[-1]
    payloads = _payloads(items)
    if payloads is not None:
        return items[pick(range(len(items)), key=payloads.__getitem__)]
    _check_neighbours(items)
    best = items[0]
    for item in items:
        if compare(item, best) * sign > 0:
            best = item
    return best


@method(
    "min",
    on=COLLECTION,
    result="element or null",
    doc="The least element, the first of equals.",
    refuses=AGGREGATE_TAKES_NOTHING,
)
def minimum(ev: Evaluator, recv: Value) -> Value:
    return _extreme(elements(recv), min, -1)


@method(
    "max",
    on=COLLECTION,
    result="element or null",
    doc="The greatest element, the first of equals.",
    refuses=AGGREGATE_TAKES_NOTHING,
)
def maximum(ev: Evaluator, recv: Value) -> Value:
    return _extreme(elements(recv), max, 1)


def _range_sum(items: range) -> int:
    """The sum of a range without visiting it; partial sums fall, then rise."""
    negatives = range(items[0], min(items[-1], -1) + 1)
    lowest = (negatives[0] + negatives[-1]) * len(negatives) // 2 if negatives else 0
    total = (items[0] + items[-1]) * len(items) // 2
    if lowest < INT_MIN or total > INT_MAX:
        raise overflow("integer overflow in sum")
    return total


def _int_sum(items: Sequence[int]) -> int | None:
    """The sum of ints, None when a partial sum may have left the range on the way."""
    least = min(items)
    total = sum(items)
    if least >= 0:
        # Partial sums only grow, so the last one is the largest.
        return total if total <= INT_MAX else None
    return total if max(max(items), -least) * len(items) <= INT_MAX else None


@method(
    "sum",
    on=COLLECTION,
    result="the elements added with `+`; 0 when empty",
    doc="Adds from the first element on, in its own type.",
    refuses=AGGREGATE_TAKES_NOTHING,
)
def sum_(ev: Evaluator, recv: Value) -> Value:
    items = elements(recv)
    if len(items) < 2:
        return items[0] if items else 0
    if isinstance(items, range):
        return _range_sum(items)
    kinds = set(map(type, items))
    if len(kinds) == 1:
        kind = kinds.pop()
        if kind is int and (total := _int_sum(items)) is not None:
            return total
        if kind is float:
            # Not `sum`: newer Pythons compensate for rounding, `+` does not.
            return reduce(add, items)
        if kind is str:
            return "".join(items)
        if kind is list:
            return list(chain.from_iterable(items))
    total = items[0]
    for item in items[1:]:
        total = plus(total, item)
    return total
