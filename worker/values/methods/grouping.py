"""Collection methods that look for equal values: uniq, group, contains (chapter 21 §4).

Equality is that of `==`, found as if every value were compared with every earlier one.

Failure: what the key callback raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from worker.values.equality_index import PLAIN_KEYS, EqualityIndex, holds, unique
from worker.values.methods.arguments import KEY, VALUE
from worker.values.methods.collections import elements
from worker.values.methods.registry import COLLECTION, method
from worker.values.types import INT_MAX, INT_MIN, Range, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


@method("uniq", on=COLLECTION, result="list", doc="The first of every class of equal elements.")
def uniq(ev: Evaluator, recv: Value) -> Value:
    if type(recv) is Range:
        return list(recv.python_range())
    return unique(elements(recv))


@method(
    "group",
    "group_by",
    on=COLLECTION,
    params=(KEY,),
    result="list of {key, values}",
    doc="The elements by equal key, keys in the order they were first seen.",
)
def group(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    items = elements(recv)
    keys = [call(item) for item in items]
    kinds = set(map(type, keys))
    if len(kinds) == 1 and kinds <= PLAIN_KEYS:
        return _grouped_plainly(items, keys)
    index = EqualityIndex()
    members: list[list[Value]] = []
    groups: list[Value] = []
    for item, key in zip(items, keys, strict=True):
        position = index.find_or_add(key)
        if position is None:
            members.append([item])
            groups.append({"key": key, "values": members[-1]})
        else:
            members[position].append(item)
    return groups


def _grouped_plainly(items: Sequence[Value], keys: list[Value]) -> list[Value]:
    """Keys of one plain type: equal for the language exactly when equal for Python."""
    members: dict[Value, list[Value]] = {}
    for item, key in zip(items, keys, strict=True):
        found = members.get(key)
        if found is None:
            members[key] = [item]
        else:
            found.append(item)
    return [{"key": key, "values": values} for key, values in members.items()]


@method(
    "contains",
    on=COLLECTION,
    params=(VALUE,),
    result="bool",
    doc="Whether some element equals the value.",
)
def contains(ev: Evaluator, recv: Value, wanted: Value) -> Value:
    if type(recv) is Range:
        return _range_holds(recv.python_range(), wanted)
    return holds(elements(recv), wanted)


def _range_holds(members: range, wanted: Value) -> bool:
    if type(wanted) is int:
        return wanted in members
    if type(wanted) is not float or not INT_MIN <= wanted <= INT_MAX:
        return False
    # An int equals a float when its nearest binary64 is that float: within one unit in the last
    # place, which is less than one below 2^53.
    reach = int(math.ulp(wanted))
    nearest = int(wanted)
    return any(
        candidate in members and float(candidate) == wanted
        for candidate in range(nearest - reach, nearest + reach + 1)
    )
