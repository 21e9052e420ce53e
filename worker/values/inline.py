"""The inline form: one canonical line per value (chapter 20 §6).

`inline` never pulls a stream, waits for a task or loads stored bytes. Streams, tasks, closures and
commands are known here by their `TYPE_NAME` and these attributes only: stream `label`, task `id`,
closure `signature()`, command `head`.

Failure: TypeError for an object that is no value, which is a programming error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from worker.values import temporal
from worker.values.numbers import positional
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
    Table,
    TimeOfDay,
    Value,
    type_name,
)
from worker.values.units import render_duration, render_size

_ESCAPES: Final = str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
)
_BARE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quoted(text: str) -> str:
    """A string in double quotes with the escapes of the language."""
    return f'"{text.translate(_ESCAPES)}"'


def record_key(key: str) -> str:
    """A key of a record: bare when it looks like an identifier, else quoted."""
    return key if _BARE_KEY.match(key) else quoted(key)


def _path(value: Path) -> str:
    text = value.display
    return f'"{text}"' if " " in text else text


def time_text(value: TimeOfDay) -> str:
    text = f"{value.hour:02}:{value.minute:02}"
    return f"{text}:{value.second:02}" if value.second else text


def _list(value: list[Value]) -> str:
    parts = []
    for item in value:
        parts.append(inline(item))
    return f"[{', '.join(parts)}]"


def _record(value: Record) -> str:
    parts = []
    for key, item in value.items():
        parts.append(f"{record_key(key)}: {inline(item)}")
    return f"{{{', '.join(parts)}}}"


def _table(value: Table) -> str:
    parts = []
    for row in value.rows:
        parts.append(_record(row))
    return f"[{', '.join(parts)}]"


def _outcome(value: Outcome) -> str:
    ok = "true" if value.ok else "false"
    if value.signal is not None:
        return f"outcome(signal: {value.signal}, ok: {ok})"
    status = -1 if value.status is None else value.status
    return f"outcome(status: {status}, ok: {ok})"


_FORMS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda value: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: positional,
    str: quoted,
    bytes: lambda value: f"bytes({render_size(len(value))})",
    LazyBytes: lambda value: f"bytes({render_size(value.length)}) {value.reference}",
    list: _list,
    dict: _record,
    Table: _table,
    Path: _path,
    Glob: lambda value: value.pattern,
    Regex: lambda value: f're"{value.src}"',
    Size: lambda value: render_size(value.bytes),
    Duration: lambda value: render_duration(value.ns),
    DateTime: lambda value: temporal.rfc3339(value.ns),
    TimeOfDay: time_text,
    Range: lambda value: f"{value.start}..{'=' if value.inclusive else ''}{value.end}",
    ErrorValue: lambda value: f"error({value.code}: {value.msg})",
    Outcome: _outcome,
    Secret: lambda value: f"secret({value.name})",
}

# The types that live outside this package, by their language name.
_HANDLE_FORMS: Final[dict[str, Callable[[Any], str]]] = {
    "stream": lambda value: f"stream<{value.label}>",
    "task": lambda value: f"task({value.id})",
    "closure": lambda value: value.signature(),
    "command": lambda value: f"command({value.head})",
}


def inline(value: Value) -> str:
    """The canonical one-line text of any value."""
    form = _FORMS.get(type(value))
    if form is None:
        form = _HANDLE_FORMS[type_name(value)]
    return form(value)
