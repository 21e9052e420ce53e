"""Parts of a stored value: paths, slices and raw pages of `value.get` (chapter 60 §5.10).

Nothing here evaluates, raises language errors for shape, or checks whether an outcome is ok; stored
content is read in pieces.

Failure: `BadPath` with the message for the client; a Raised `io_error` when stored content is gone
or damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from worker.values.access import decoded_out
from worker.values.content import byte_length, piece
from worker.values.types import (
    Duration,
    LazyBytes,
    Outcome,
    Table,
    Value,
    type_name,
)
from worker.values.wire_forms import base64_text

PAGE_UNITS_MAX: Final = 49_152
PAGE_TEXT_BYTES_MAX: Final = 65_536
_U64_MAX: Final = 2**64 - 1


class BadPath(Exception):
    """A selector, slice or format that the value does not have; the text is for the client."""

    @property
    def message(self) -> str:
        return str(self)


# --- parsing --------------------------------------------------------------------------------------


class Field(NamedTuple):
    name: str


class Index(NamedTuple):
    at: int


class Slice(NamedTuple):
    start: int
    end: int


Step = Field | Index | Slice


def _unsigned(text: str) -> int | None:
    """Unsigned decimal without sign or blanks, at most 64 bits."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) <= 20 else _U64_MAX + 1
    return number if number <= _U64_MAX else None


def _bracket_step(inner: str, path: str) -> Step:
    if ".." in inner:
        start_text, _, end_text = inner.partition("..")
        start, end = _unsigned(start_text), _unsigned(end_text)
        if start is None:
            raise BadPath(f"bad range start `{start_text}` in path `{path}`")
        if end is None:
            raise BadPath(f"bad range end `{end_text}` in path `{path}`")
        return Slice(start, end)
    at = _unsigned(inner)
    if at is None:
        raise BadPath(f"bad index `{inner}` in path `{path}`")
    return Index(at)


def parse_path(path: str) -> list[Step]:
    """The steps of a path; dots separate and may be repeated or lead."""
    steps: list[Step] = []
    at = 0
    while at < len(path):
        if path[at] == ".":
            at += 1
        elif path[at] == "[":
            end = path.find("]", at)
            if end < 0:
                raise BadPath(f"unterminated `[` in path `{path}`")
            steps.append(_bracket_step(path[at + 1 : end], path))
            at = end + 1
        else:
            end = at
            while end < len(path) and path[end] not in ".[":
                end += 1
            steps.append(Field(path[at:end]))
            at = end
    return steps


# --- steps ----------------------------------------------------------------------------------------

_Members = dict[str, Callable[[Any], Value]]

_OUTCOME: Final[_Members] = {
    "status": lambda outcome: outcome.status,
    "ok": lambda outcome: outcome.ok,
    "signal": lambda outcome: outcome.signal,
    "out": decoded_out,
    "stdout": lambda outcome: outcome.stdout,
    "stderr": lambda outcome: outcome.stderr,
    "dur_ns": lambda outcome: Duration(outcome.dur_ns),
    "pid": lambda outcome: outcome.pid,
    "cmd": lambda outcome: outcome.cmd,
}
_ERROR: Final[_Members] = {
    "code": lambda error: error.code,
    "msg": lambda error: error.msg,
    "hint": lambda error: error.hint,
    "stderr": lambda error: error.stderr,
    "status": lambda error: error.status,
}
_RANGE: Final[_Members] = {
    "start": lambda span: span.start,
    "end": lambda span: span.end,
    "inclusive": lambda span: span.inclusive,
}
_TASK: Final[_Members] = {"id": lambda task: task.id, "done": lambda task: bool(task.done)}
_MEMBERS: Final[dict[str, _Members]] = {"error": _ERROR, "range": _RANGE, "task": _TASK}


def _column(table: Table, name: str) -> list[Value]:
    if name == "rows":
        return list(table.rows)
    if not any(name in row for row in table.rows):
        raise BadPath(f"table has no column `{name}`")
    return [row.get(name) for row in table.rows]


def _field(value: Value, name: str) -> Value:
    kind = type(value)
    if kind is dict:
        if name not in value:
            raise BadPath(f"record has no field `{name}`")
        return value[name]
    if kind is Outcome:
        member = _OUTCOME.get(name)
        return _field(decoded_out(value), name) if member is None else member(value)
    if kind is Table:
        return _column(value, name)
    what = type_name(value)
    members = _MEMBERS.get(what)
    if members is None:
        raise BadPath(f"cannot access field `{name}` on {what}")
    if name not in members:
        raise BadPath(f"{what} has no field `{name}`")
    return members[name](value)


def _index(value: Value, at: int) -> Value:
    kind = type(value)
    if kind is not list and kind is not Table:
        raise BadPath(f"cannot index {type_name(value)} with [{at}]")
    items = value if kind is list else value.rows
    if at >= len(items):
        raise BadPath(f"index [{at}] out of bounds (len {len(items)})")
    return items[at]


def _range_slice(value: Value, start: int, end: int) -> Value:
    kind = type(value)
    if kind is list:
        return value[start:end]
    if kind is Table:
        return Table(value.rows[start:end])
    raise BadPath(f"cannot range-slice {type_name(value)}")


def select(value: Value, path: str | None) -> Value:
    """The part of a value a path names; no path, an empty one or dots only name the whole."""
    for step in parse_path(path or ""):
        if type(step) is Field:
            value = _field(value, step.name)
        elif type(step) is Index:
            value = _index(value, step.at)
        elif type(step) is Slice:
            value = _range_slice(value, step.start, step.end)
    return value


def slice_value(value: Value, start: int, end: int) -> Value:
    """The half-open range of a list, table, str or bytes, both ends clamped."""
    kind = type(value)
    if kind is LazyBytes:
        start, end = min(start, value.length), min(end, value.length)
        return piece(value, start, end - start) if start < end else b""
    if kind is list or kind is str or kind is bytes:
        return value[start:end]
    if kind is Table:
        return Table(value.rows[start:end])
    raise BadPath(f"cannot slice a {type_name(value)}")


# --- raw pages ------------------------------------------------------------------------------------


def _text_piece(text: str, start: int, count: int) -> str:
    """At most `count` characters from `start`, and at most PAGE_TEXT_BYTES_MAX bytes of UTF-8."""
    page = text[start : start + count]
    if page.isascii():
        return page
    return page.encode()[:PAGE_TEXT_BYTES_MAX].decode("utf-8", "ignore")


def raw_page(value: Value, offset: int | None, length: int | None) -> dict[str, Any]:
    """The members of a raw answer beside `ref`: one page of a str (`raw`) or bytes (`raw_base64`).

    Without a range and with content that fits the page, only the content; else also `offset`,
    `len`, `total` and, while more follows, `next`, in characters of a str and bytes of bytes.
    """
    start = 0 if offset is None else offset
    count = PAGE_UNITS_MAX if length is None else min(length, PAGE_UNITS_MAX)
    result: dict[str, Any]
    if type(value) is str:
        total = len(value)
        text = _text_piece(value, start, count)
        taken, result = len(text), {"raw": text}
    elif type(value) is bytes or type(value) is LazyBytes:
        total = byte_length(value)
        data = piece(value, start, count) if start < total and count else b""
        taken, result = len(data), {"raw_base64": base64_text(data)}
    else:
        raise BadPath(f'format "raw" applies to str/bytes, not {type_name(value)}')
    if offset is None and length is None and taken == total:
        return result
    result |= {"offset": start, "len": taken, "total": total}
    if start + taken < total:
        result["next"] = start + taken
    return result
