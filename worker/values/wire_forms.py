"""The tagged wire form of values: one JSON object per value, member `$` first (chapter 60 §8).

`encode_text` writes JSON directly, without intermediate structures: lists and columns of one scalar
type are one join, and every container appends its pieces to one list, so that the cost of a deeply
nested value grows with its size alone. Record fields and table columns are sorted by name. Stored
bytes are written as a reference to the content store and never loaded; secrets show their name.

Failure: TypeError for an object that is no value, which is a programming error.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from json.encoder import encode_basestring as json_string
from typing import Any, Final

from worker.values import temporal
from worker.values.access import decoded_out
from worker.values.numbers import wire_float
from worker.values.types import (
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Range,
    Record,
    Regex,
    Secret,
    Size,
    Span,
    Table,
    TimeOfDay,
    Value,
    type_name,
)

PREVIEW_UNITS: Final = 256
NULL: Final = '{"$":"null"}'


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _bytes(value: bytes) -> str:
    return f'{{"$":"bytes","v":"{base64_text(value)}"}}'


def _path(value: Path) -> str:
    try:
        text = value.raw if value.raw.isascii() else os.fsencode(value.raw).decode()
    except UnicodeDecodeError:
        lossy, raw = json_string(value.display), base64_text(os.fsencode(value.raw))
        return f'{{"$":"path","v":{lossy},"raw":"{raw}"}}'
    return f'{{"$":"path","v":{json_string(text)}}}'


def _datetime(value: DateTime) -> str:
    seconds = value.ns // temporal.NS_PER_S
    return f'{{"$":"datetime","v":"{seconds}","rfc3339":"{temporal.rfc3339(value.ns)}"}}'


def _time(value: TimeOfDay) -> str:
    return f'{{"$":"time","v":"{value.hour:02}:{value.minute:02}:{value.second:02}"}}'


def _range(value: Range) -> str:
    inclusive = "true" if value.inclusive else "false"
    return f'{{"$":"range","start":{value.start},"end":{value.end},"inclusive":{inclusive}}}'


def span_text(span: Span) -> str:
    return f'{{"start":{span.start},"end":{span.end}}}'


def _error(value: ErrorValue) -> str:
    parts = [f'{{"$":"error","code":{json_string(value.code)},"msg":{json_string(value.msg)}']
    if value.span is not None:
        parts.append(f'"span":{span_text(value.span)}')
    if value.hint is not None:
        parts.append(f'"hint":{json_string(value.hint)}')
    if value.stderr is not None:
        parts.append(f'"stderr":{json_string(value.stderr)}')
    return ",".join(parts) + "}"


def ref_uri(value: LazyBytes) -> str:
    """The address of stored bytes that have no other: their hash in the content store."""
    return f"shoal://val/blake3:{value.hash}"


def bytes_ref(value: LazyBytes, uri: str, render_head: str) -> str:
    """The `ref` object of stored bytes: true length, first bytes of the preview."""
    return (
        f'{{"$":"ref","uri":{json_string(uri)},"of":"bytes","n":{value.length},'
        f'"preview":{_bytes(value.preview[:PREVIEW_UNITS])},'
        f'"render_head":{json_string(render_head)}}}'
    )


def _stored(value: LazyBytes) -> str:
    from worker.values.elision import render_head

    return bytes_ref(value, ref_uri(value), render_head(value.preview[:PREVIEW_UNITS], tty=False))


_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda value: NULL,
    bool: lambda value: '{"$":"bool","v":true}' if value else '{"$":"bool","v":false}',
    int: lambda value: f'{{"$":"int","v":{value}}}',
    float: lambda value: f'{{"$":"float","v":{wire_float(value)}}}',
    str: lambda value: f'{{"$":"str","v":{json_string(value)}}}',
    Size: lambda value: f'{{"$":"size","v":{value.bytes}}}',
    Duration: lambda value: f'{{"$":"duration","v":{value.ns}}}',
    bytes: _bytes,
    LazyBytes: _stored,
    Path: _path,
    DateTime: _datetime,
    TimeOfDay: _time,
    Glob: lambda value: f'{{"$":"glob","pattern":{json_string(value.pattern)}}}',
    Regex: lambda value: f'{{"$":"regex","src":{json_string(value.src)}}}',
    Range: _range,
    ErrorValue: _error,
    Secret: lambda value: f'{{"$":"secret","name":{json_string(value.name)}}}',
}


# --- containers -----------------------------------------------------------------------------------


Pieces = list[str]


def _column(items: list[Value]) -> str | None:
    """The wire values of all items with commas between, when all are of one scalar type."""
    kinds = set(map(type, items))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    # The hot columns: the constant parts become the separator of one join.
    if kind is int:
        return '{"$":"int","v":' + '},{"$":"int","v":'.join(map(str, items)) + "}"
    if kind is str:
        return '{"$":"str","v":' + '},{"$":"str","v":'.join(map(json_string, items)) + "}"
    scalar = _SCALARS.get(kind)
    return None if scalar is None else ",".join(map(scalar, items))


def _items(items: list[Value], out: Pieces) -> None:
    joined = _column(items)
    if joined is not None:
        out.append(joined)
        return
    comma = ""
    for item in items:
        out.append(comma)
        _write(item, out)
        comma = ","


def _list(items: list[Value], out: Pieces) -> None:
    out.append('{"$":"list","v":[')
    _items(items, out)
    out.append("]}")


def _record(record: Record, out: Pieces) -> None:
    out.append('{"$":"record","v":{')
    comma = ""
    for key in sorted(record):
        out.append(f"{comma}{json_string(key)}:")
        _write(record[key], out)
        comma = ","
    out.append("}}")


def _table(table: Table, out: Pieces) -> None:
    """The columnar form: every column has one wire value per row, null where a row lacks it."""
    rows = table.rows
    names = sorted(set().union(*rows)) if rows else []
    out.append('{"$":"table","cols":{')
    comma = ""
    for name in names:
        out.append(f"{comma}{json_string(name)}:[")
        _items([row.get(name) for row in rows], out)
        out.append("]")
        comma = ","
    out.append(f'}},"n":{len(rows)}}}')


def envelope(outcome: Outcome, out: str, err: str, cmd: str) -> str:
    """The form of an outcome around an already encoded `out`."""
    status = "null" if outcome.status is None else str(outcome.status)
    signal = "null" if outcome.signal is None else json_string(outcome.signal)
    span = "" if outcome.span is None else f',"span":{span_text(outcome.span)}'
    return (
        f'{{"$":"outcome","status":{status},"ok":{"true" if outcome.ok else "false"},'
        f'"signal":{signal},"out":{out},"err":{json_string(err)},'
        f'"dur_ns":{outcome.dur_ns},"pid":{outcome.pid},"cmd":{json_string(cmd)}{span}}}'
    )


def err_text(outcome: Outcome) -> str:
    return outcome.stderr.decode("utf-8", "replace")


def _outcome(outcome: Outcome, out: Pieces) -> None:
    text = encode_text(decoded_out(outcome))
    out.append(envelope(outcome, text, err_text(outcome), outcome.cmd))


_CONTAINERS: Final[dict[type, Callable[[Any, Pieces], None]]] = {
    list: _list,
    dict: _record,
    Table: _table,
    Outcome: _outcome,
}

# The types that live outside this package, by their language name.
_HANDLES: Final[dict[str, Callable[[Any], str]]] = {
    "task": lambda value: (
        f'{{"$":"task","id":{value.id},"done":{"true" if value.done else "false"}}}'
    ),
    "closure": lambda value: f'{{"$":"closure","repr":{json_string(value.signature())}}}',
    "command": lambda value: f'{{"$":"cmd","repr":{json_string(f"command({value.head})")}}}',
    "stream": lambda value: f'{{"$":"stream","label":{json_string(value.label)}}}',
}


def _write(value: Value, out: Pieces) -> None:
    kind = type(value)
    container = _CONTAINERS.get(kind)
    if container is not None:
        container(value, out)
        return
    form = _SCALARS.get(kind) or _HANDLES[type_name(value)]
    out.append(form(value))


def encode_text(value: Value) -> str:
    """The complete compact encoding of any value, as text."""
    kind = type(value)
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value)
    out: Pieces = []
    _write(value, out)
    return "".join(out)
