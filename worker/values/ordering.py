"""The order within kinds: `<`, `<=`, `>`, `>=`, and what sort, min and max use (chapter 20 §2.3).

Defined within a kind only; int and float mix, the int becoming binary64 first. Each operator checks
the exact types of the hot pairs (int, str, float) before it looks anything up.

Failure: `type_error` "cannot compare X with Y" for unordered or mixed kinds, and for nan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from worker.errors import Raised, type_error
from worker.values import paths
from worker.values.types import DateTime, Duration, Path, Size, TimeOfDay, Value, type_name

# From a value to a Python object whose `<` and `==` are the language's order within that type.
ORDER_KEYS: Final[dict[type, Callable[[Any], Any]]] = {
    int: lambda value: value,
    float: lambda value: value,
    str: lambda value: value,
    bool: lambda value: value,
    Path: lambda value: paths.sort_key(value.raw),
    Size: lambda value: value.bytes,
    Duration: lambda value: value.ns,
    DateTime: lambda value: value.ns,
    TimeOfDay: lambda value: (value.hour, value.minute, value.second),
}


def incomparable(a: Value, b: Value) -> Raised:
    return type_error(f"cannot compare {type_name(a)} with {type_name(b)}")


def _keys(a: Value, b: Value) -> tuple[Any, Any]:
    """Python-comparable keys of two values of one kind; raises for every other pair."""
    kind, other = type(a), type(b)
    if kind is other:
        key = ORDER_KEYS.get(kind)
        if key is None:
            raise incomparable(a, b)
        if kind is float and (a != a or b != b):
            raise incomparable(a, b)
        return key(a), key(b)
    if (kind is int and other is float) or (kind is float and other is int):
        left, right = float(a), float(b)
        if left != left or right != right:
            # Mixed pairs are compared as floats, so the message names what was compared.
            raise type_error("cannot compare float with float")
        return left, right
    raise incomparable(a, b)


def compare(a: Value, b: Value) -> int:
    """-1, 0 or 1. Raises type_error for a pair that has no order."""
    kind = type(a)
    if kind is type(b) and (kind is int or kind is str):
        return -1 if a < b else int(a != b)
    left, right = _keys(a, b)
    return -1 if left < right else int(left != right)


def lt(a: Value, b: Value) -> bool:
    kind = type(a)
    if kind is type(b) and (kind is int or kind is str):
        return a < b  # type: ignore[no-any-return]
    left, right = _keys(a, b)
    return left < right  # type: ignore[no-any-return]


def le(a: Value, b: Value) -> bool:
    kind = type(a)
    if kind is type(b) and (kind is int or kind is str):
        return a <= b  # type: ignore[no-any-return]
    left, right = _keys(a, b)
    return left <= right  # type: ignore[no-any-return]


def gt(a: Value, b: Value) -> bool:
    kind = type(a)
    if kind is type(b) and (kind is int or kind is str):
        return a > b  # type: ignore[no-any-return]
    left, right = _keys(a, b)
    return left > right  # type: ignore[no-any-return]


def ge(a: Value, b: Value) -> bool:
    kind = type(a)
    if kind is type(b) and (kind is int or kind is str):
        return a >= b  # type: ignore[no-any-return]
    left, right = _keys(a, b)
    return left >= right  # type: ignore[no-any-return]
