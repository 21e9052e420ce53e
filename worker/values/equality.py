"""Equality and membership of values (chapter 20 §2.1, §3.3).

`equal` is total: it gives a bool for every pair, never raises, never pulls a stream, waits or does
I/O. The one exception of the `==` operator (a stream against a value) lives in `operators.eq`, so
that streams inside containers simply compare unequal. Language equality is not Python equality: a
bool is never an int, an int meets a float as binary64, paths compare by components.

The loops are written out because values nest as deep as a program likes: plain Python calls cost no
C stack, calls through `all` or `any` would.

Failure: `contains` raises `type_error` for a pair that has no membership.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from worker.errors import type_error
from worker.values import paths
from worker.values.types import (
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    LazyBytes,
    Path,
    Range,
    Record,
    Regex,
    Secret,
    Size,
    Table,
    TimeOfDay,
    Value,
    type_name,
)

# Types whose Python equality is the language's, as long as both sides have the same exact type.
_PLAIN: Final = frozenset(
    {int, str, float, bool, bytes, type(None), Size, Duration, TimeOfDay, Range}
)


def _lists(a: list[Value], b: list[Value]) -> bool:
    if len(a) != len(b):
        return False
    for left, right in zip(a, b, strict=True):  # noqa: SIM110
        if not equal(left, right):
            return False
    return True


def _records(a: Record, b: Record) -> bool:
    if len(a) != len(b):
        return False
    for key, left in a.items():  # noqa: SIM110
        if key not in b or not equal(left, b[key]):
            return False
    return True


def _rows(a: list[Record], b: list[Record]) -> bool:
    if len(a) != len(b):
        return False
    for left, right in zip(a, b, strict=True):  # noqa: SIM110
        if not _records(left, right):
            return False
    return True


def _table_list(table: Table, items: list[Value]) -> bool:
    if len(table.rows) != len(items):
        return False
    for row, item in zip(table.rows, items, strict=True):
        if type(item) is not dict or not _records(row, item):
            return False
    return True


def _errors(a: ErrorValue, b: ErrorValue) -> bool:
    return (a.code, a.msg, a.hint, a.stderr, a.status, a.span) == (
        b.code,
        b.msg,
        b.hint,
        b.stderr,
        b.status,
        b.span,
    )


_SAME: Final[dict[type, Callable[[Any, Any], bool]]] = {
    list: _lists,
    dict: _records,
    Table: lambda a, b: _rows(a.rows, b.rows),
    Path: lambda a, b: paths.same(a.raw, b.raw),
    Glob: lambda a, b: a.pattern == b.pattern,
    Regex: lambda a, b: a.src == b.src,
    DateTime: lambda a, b: a.ns == b.ns,
    LazyBytes: lambda a, b: a.hash == b.hash and a.length == b.length,
    ErrorValue: _errors,
    Secret: lambda a, b: a.name == b.name and a.reveal() == b.reveal(),
}

_CROSS: Final[dict[tuple[type, type], Callable[[Any, Any], bool]]] = {
    (int, float): lambda a, b: float(a) == b,
    (float, int): lambda a, b: a == float(b),
    (Path, str): lambda a, b: a.display == b,
    (str, Path): lambda a, b: a == b.display,
    (Table, list): _table_list,
    (list, Table): lambda a, b: _table_list(b, a),
}


def equal(a: Value, b: Value) -> bool:
    """Whether two values are equal, for every pair of types."""
    kind = type(a)
    if kind is type(b):
        if kind in _PLAIN:
            return bool(a == b)
        same = _SAME.get(kind)
        if same is not None:
            return same(a, b)
        if a is b:
            return True
        # Stored command calls compare by structure; every other handle is its identity.
        return getattr(kind, "TYPE_NAME", None) == "command" and bool(a.same_call(b))
    cross = _CROSS.get((kind, type(b)))
    return cross is not None and cross(a, b)


def _in_list(needle: Value, items: list[Value]) -> bool:
    kind = type(needle)
    if kind is str or kind is int:
        # The common needles: skip the dispatch for elements of the same exact type.
        for item in items:
            if type(item) is kind:
                if item == needle:
                    return True
            elif equal(needle, item):
                return True
        return False
    for item in items:  # noqa: SIM110
        if equal(needle, item):
            return True
    return False


def _in_table(needle: Record, table: Table) -> bool:
    for row in table.rows:  # noqa: SIM110
        if _records(needle, row):
            return True
    return False


_MEMBERSHIP: Final[dict[tuple[type, type], Callable[[Any, Any], bool]]] = {
    (dict, Table): _in_table,
    (str, str): lambda needle, text: needle in text,
    (str, dict): lambda needle, record: needle in record,
    (int, Range): lambda needle, span: needle in span.python_range(),
}


def contains(needle: Value, haystack: Value) -> bool:
    """The `in` operator. Raises type_error for a pair without membership."""
    if type(haystack) is list:
        return _in_list(needle, haystack)
    member = _MEMBERSHIP.get((type(needle), type(haystack)))
    if member is None:
        raise type_error(f"cannot test {type_name(needle)} membership in {type_name(haystack)}")
    return member(needle, haystack)
