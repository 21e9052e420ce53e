"""Finding equal values among many without comparing every pair.

Values are never hashed by the language: membership is a linear scan with `==`. An
`EqualityIndex` gives exactly the answers of that scan, but looks values up by a token wherever
equal tokens mean equal values and nothing else. Three things break that: a path equals the str of
its text, while two differently spelled paths are equal too; ints beyond 2^53 equal floats they are
not equal to each other through; secrets, errors and commands are compared part by part. As soon as
such values meet in one index, it scans.

Failure: none of its own; values that cannot be compared do not exist.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

from worker.values.operators import equal
from worker.values.paths import components
from worker.values.types import (
    DateTime,
    Duration,
    Glob,
    LazyBytes,
    Path,
    Range,
    Regex,
    Size,
    Table,
    TimeOfDay,
    Value,
)

_EXACT_INT_MAX: Final = 2**53

# Types whose values, among themselves, are equal and hashed as Python has it.
PLAIN_KEYS: Final = frozenset((str, int, bool))

# What an index has seen so far, one bit each; these pairs may not meet.
_SEEN_STR: Final = 1
_SEEN_PATH: Final = 2
_SEEN_FLOAT: Final = 4
_SEEN_BIG_INT: Final = 8
_SEEN_OTHER: Final = 16


def _unsafe(seen: int) -> bool:
    return bool(
        seen & _SEEN_OTHER
        or seen & (_SEEN_STR | _SEEN_PATH) == _SEEN_STR | _SEEN_PATH
        or seen & (_SEEN_FLOAT | _SEEN_BIG_INT) == _SEEN_FLOAT | _SEEN_BIG_INT
    )


# Types whose equality is one Python value of the type itself.
_PAYLOADS: Final[dict[type, Any]] = {
    bool: lambda v: v,
    bytes: lambda v: v,
    Size: lambda v: v.bytes,
    Duration: lambda v: v.ns,
    DateTime: lambda v: v.ns,
    TimeOfDay: lambda v: (v.hour, v.minute, v.second),
    Range: lambda v: (v.start, v.end, v.inclusive),
    Glob: lambda v: v.pattern,
    Regex: lambda v: v.src,
    LazyBytes: lambda v: (v.hash, v.length),
}


class EqualityIndex:
    """Positions of values in the order they were added, found by `==`."""

    # `_values` holds everything added. `_by_token` holds the position of the first value per token
    # and is used only while `_scanning` is False; `_seen` only ever gains bits.

    __slots__ = ("_by_token", "_scanning", "_seen", "_values")

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._by_token: dict[Hashable, int] = {}
        self._seen = 0
        self._scanning = False

    def find_or_add(self, value: Value) -> int | None:
        """The position of the first equal value, or None after adding this one at the end."""
        if not self._scanning:
            token = self._token(value)
            if not _unsafe(self._seen):
                position = self._by_token.setdefault(token, len(self._values))
                if position < len(self._values):
                    return position
                self._values.append(value)
                return None
            self._scanning = True
        for position, known in enumerate(self._values):
            if equal(known, value):
                return position
        self._values.append(value)
        return None

    def _token(self, value: Value) -> Any:
        """A token that equals another one exactly when the values are equal, unless `_unsafe`."""
        kind = type(value)
        if kind is str:
            self._seen |= _SEEN_STR
            return value
        if kind is int:
            if not -_EXACT_INT_MAX <= value <= _EXACT_INT_MAX:
                self._seen |= _SEEN_BIG_INT
            return value
        if kind is float:
            self._seen |= _SEEN_FLOAT
            # A nan equals nothing, not even itself; Python finds the same object in a dict.
            return value if value == value else _Unequal()
        if value is None:
            return None
        payload = _PAYLOADS.get(kind)
        if payload is not None:
            return (kind, payload(value))
        if kind is dict:
            return (dict, frozenset([(key, self._token(item)) for key, item in value.items()]))
        if kind is list:
            return (list, tuple([self._token(item) for item in value]))
        if kind is Table:
            # A table equals the list of its rows.
            return (list, tuple([self._token(row) for row in value.rows]))
        if kind is Path:
            self._seen |= _SEEN_PATH
            return (Path, tuple(components(value.raw)))
        self._seen |= _SEEN_OTHER
        return None


class _Unequal:
    """Equal to nothing but itself, made anew each time."""

    __slots__ = ()


def unique(items: Iterable[Value]) -> list[Value]:
    """The first of every class of equal values, in order."""
    kept = items if type(items) is list else list(items)
    kinds = set(map(type, kept))
    if len(kinds) == 1 and kinds <= PLAIN_KEYS:
        return list(dict.fromkeys(kept))
    index = EqualityIndex()
    return [item for item in kept if index.find_or_add(item) is None]


def holds(items: Iterable[Value], wanted: Value) -> bool:
    """Whether some item equals `wanted`."""
    kind = type(wanted)
    if kind is str or kind is bool or wanted is None:
        # Nothing but a path equals a str of another type; nothing at all the others.
        for item in items:
            if type(item) is kind:
                if item == wanted:
                    return True
            elif kind is str and type(item) is Path and equal(item, wanted):
                return True
        return False
    return any(equal(item, wanted) for item in items)
