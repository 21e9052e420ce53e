"""JSON texts of values, both ways (chapter 20 §5.5, §5.7).

Object keys are written in ascending order of their UTF-8 bytes, which for Unicode text is the order
of code points; records read from JSON have their keys in that same order. Content-addressed bytes
are written as a reference without loading them. Non-empty arrays of objects are read as tables.

Failure: `from_json` and `from_plain` raise `arg_error` "WHAT: reason" for invalid text and for
nesting deeper than JSON_DEPTH_MAX. `to_json` raises `io_error` only for an outcome whose stored
output cannot be loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring as json_string
from typing import Any, Final

import orjson

from worker.errors import Raised, arg_error
from worker.values import temporal
from worker.values.content import lossy
from worker.values.inline import inline, time_text
from worker.values.numbers import json_float
from worker.values.types import (
    INT_MAX,
    INT_MIN,
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Range,
    Regex,
    Secret,
    Size,
    Table,
    TimeOfDay,
    Value,
)

JSON_DEPTH_MAX: Final = 128

# An integer token `-0`, which is a float in the language and an int for the parser.
_NEGATIVE_ZERO: Final = re.compile(r"-0(?![0-9.eE])")
_INT_DIGITS_MAX: Final = 20

# --- writing --------------------------------------------------------------------------------------

_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda value: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: json_float,
    str: json_string,
    bytes: lambda value: json_string(lossy(value)),
    Path: lambda value: json_string(value.display),
    Glob: lambda value: json_string(value.pattern),
    Regex: lambda value: json_string(value.src),
    Size: lambda value: str(value.bytes),
    Duration: lambda value: str(value.ns),
    DateTime: lambda value: json_string(temporal.zoned_text(value)),
    TimeOfDay: lambda value: json_string(time_text(value)),
    Secret: lambda value: json_string(inline(value)),
}

# Types written through a plainer value.
_REDUCED: Final[dict[type, Callable[[Any], Value]]] = {
    Table: lambda value: value.rows,
    Range: lambda value: list(value.python_range()),
    LazyBytes: lambda value: {
        "$": "bytes_ref",
        "ref": value.reference,
        "len": value.length,
        "truncated": value.truncated,
        "preview": lossy(value.preview),
    },
    Outcome: lambda value: {
        "status": value.status,
        "ok": value.ok,
        "out": lossy(value.stdout),
        "err": lossy(value.stderr),
    },
    ErrorValue: lambda value: {"code": value.code, "msg": value.msg},
}


def _bracketed(opening: str, members: list[str], closing: str, depth: int | None) -> str:
    """A container's text; `depth` is its nesting level in the pretty form, None in the compact."""
    if depth is None or not members:
        return f"{opening}{','.join(members)}{closing}"
    margin = "\n" + "  " * (depth + 1)
    return f"{opening}{margin}{f',{margin}'.join(members)}\n{'  ' * depth}{closing}"


def _array(items: list[Value], depth: int | None) -> str:
    kinds = set(map(type, items))
    scalar = _SCALARS.get(kinds.pop()) if len(kinds) == 1 else None
    if scalar is not None:
        members = list(map(scalar, items))
    else:
        inner = None if depth is None else depth + 1
        members = []
        for item in items:
            members.append(_write(item, inner))
    return _bracketed("[", members, "]", depth)


def _object(record: dict[str, Value], depth: int | None) -> str:
    inner, colon = (None, ":") if depth is None else (depth + 1, ": ")
    members = []
    for key in sorted(record):
        members.append(f"{json_string(key)}{colon}{_write(record[key], inner)}")
    return _bracketed("{", members, "}", depth)


def _write(value: Value, depth: int | None) -> str:
    kind = type(value)
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value)
    if kind is list:
        return _array(value, depth)
    if kind is dict:
        return _object(value, depth)
    reduced = _REDUCED.get(kind)
    if reduced is not None:
        return _write(reduced(value), depth)
    return json_string(inline(value))


def to_json(value: Value, pretty: bool = False) -> str:
    """The JSON text of any value, compact or with two spaces per level."""
    return _write(value, 0 if pretty else None)


# --- reading --------------------------------------------------------------------------------------


def _too_deep(what: str) -> Raised:
    return arg_error(f"{what}: nesting deeper than {JSON_DEPTH_MAX} levels")


def _integer(token: str) -> int | float:
    if token == "-0":
        return -0.0
    return int(token) if len(token) <= _INT_DIGITS_MAX else float(token)


def _parse(text: str, what: str) -> Any:
    try:
        plain = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
        raise arg_error(f"{what}: {error}") from None
    if _NEGATIVE_ZERO.search(text) is None:
        return plain
    # Rare: parse again, token by token. The text is known to be valid here.
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise _too_deep(what) from None


def _read(plain: Any, depth: int, what: str) -> Value:
    kind = type(plain)
    if kind is int:
        return plain if INT_MIN <= plain <= INT_MAX else float(plain)
    if kind is dict:
        if depth == JSON_DEPTH_MAX:
            raise _too_deep(what)
        record = {}
        for key in sorted(plain):
            record[key] = _read(plain[key], depth + 1, what)
        return record
    if kind is list:
        if depth == JSON_DEPTH_MAX:
            raise _too_deep(what)
        items = []
        for item in plain:
            items.append(_read(item, depth + 1, what))
        if items and set(map(type, items)) == {dict}:
            return Table(items)
        return items
    return plain


def from_plain(plain: Any, what: str = "json") -> Value:
    """The value of plain parsed data (None, bool, int, float, str, list, dict with str keys)."""
    return _read(plain, 0, what)


def from_json(text: str, what: str) -> Value:
    """The value of a JSON text; `what` names the reader in the error message (`json.parse`)."""
    return _read(_parse(text, what), 0, what)
