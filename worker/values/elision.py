"""Answers that fit: a value inline, or a `ref` object with a preview in its place (chapter 60 §6).

A value is inline when its complete encoding and its counts are within the budget; nothing inside a
value is elided on its own, except the `out` of an ok outcome. Whether a value is too large is
usually known from a lower bound of its encoding (`_spend`), which stops as soon as the budget is
used up, so a huge value is never encoded for an answer.

Failure: TypeError for an object that is no value, which is a programming error. A `ref` object is
below REF_BYTES_MAX whatever the value holds (a longer `uri` comes from the caller).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring as json_string
from typing import Any, Final, NamedTuple

from worker.values.access import decoded_out
from worker.values.block import block, column_names
from worker.values.terminal import cut_bytes, strip_terminal, uri_with_step
from worker.values.types import (
    ErrorValue,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Record,
    Regex,
    Table,
    Value,
    type_name,
)
from worker.values.wire_forms import (
    NULL,
    PREVIEW_UNITS,
    bytes_ref,
    encode_text,
    envelope,
    err_text,
)

ELIDE_BYTES_CEILING: Final = 65_536
REF_BYTES_MAX: Final = 65_535
PREVIEW_ITEMS: Final = 5
PREVIEW_BYTES_FLOOR: Final = 4096
RENDER_HEAD_LINES: Final = 10
RENDER_HEAD_CHARS: Final = 4096
CMD_CHARS_MAX: Final = 4096


class Budget(NamedTuple):
    """What may stand inline; equal to a limit is still inline."""

    max_bytes: int = 8192
    max_bytes_raw: int = 4096
    max_rows: int = 100
    max_items: int = 500

    @classmethod
    def asked(
        cls,
        max_bytes: int | None = None,
        max_rows: int | None = None,
        max_items: int | None = None,
    ) -> Budget:
        """The budget of a caller's `elide` members; absent ones keep their default."""
        budget = cls()
        if max_bytes is not None:
            ceiling = min(max_bytes, ELIDE_BYTES_CEILING)
            budget = budget._replace(max_bytes=ceiling, max_bytes_raw=ceiling)
        if max_rows is not None:
            budget = budget._replace(max_rows=max_rows)
        if max_items is not None:
            budget = budget._replace(max_items=max_items)
        return budget


# --- a lower bound of the encoded size ------------------------------------------------------------

_NULL_BYTES: Final = len(NULL)  # no value encodes shorter
_ELEMENT_BYTES: Final = _NULL_BYTES + 1
_LIST_BYTES: Final = len('{"$":"list","v":[]}')


def _spend_list(items: list[Value], left: int) -> int:
    left -= _LIST_BYTES + _ELEMENT_BYTES * len(items) - 1
    for item in items:
        if left < 0:
            break
        left = _spend(item, left + _NULL_BYTES)
    return left


def _spend_record(record: Record, left: int) -> int:
    left -= _NULL_BYTES
    for key, item in record.items():
        if left < 0:
            break
        left = _spend(item, left - len(key) - 3)
    return left


def _spend_table(table: Table, left: int) -> int:
    rows = table.rows
    left -= _NULL_BYTES
    for name in column_names(rows):
        left -= len(name) + 5 + _ELEMENT_BYTES * len(rows) - 1
        if left < 0:
            return left
    for row in rows:
        for item in row.values():
            left = _spend(item, left + _NULL_BYTES)
            if left < 0:
                return left
    return left


def _spend_outcome(outcome: Outcome, left: int) -> int:
    left -= _NULL_BYTES + len(outcome.cmd)
    # Lossy decoding never makes fewer characters than a third of the bytes.
    left -= len(outcome.stderr) // 4
    return left if left < 0 else _spend(decoded_out(outcome), left)


def _spend_error(error: ErrorValue, left: int) -> int:
    texts = (error.msg, error.hint or "", error.stderr or "")
    return left - _NULL_BYTES - sum(map(len, texts))


_SPENDERS: Final[dict[type, Callable[[Any, int], int]]] = {
    str: lambda value, left: left - _NULL_BYTES - len(value),
    bytes: lambda value, left: left - _NULL_BYTES - len(value) * 4 // 3,
    Path: lambda value, left: left - _NULL_BYTES - len(value.raw) // 4,
    Glob: lambda value, left: left - _NULL_BYTES - len(value.pattern),
    Regex: lambda value, left: left - _NULL_BYTES - len(value.src),
    list: _spend_list,
    dict: _spend_record,
    Table: _spend_table,
    Outcome: _spend_outcome,
    ErrorValue: _spend_error,
}


def _spend(value: Value, left: int) -> int:
    """What is left of `left` bytes after a lower bound of the encoding; negative: too large."""
    spender = _SPENDERS.get(type(value))
    return left - _NULL_BYTES if spender is None else spender(value, left)


def _encode_within(value: Value, limit: int) -> str | None:
    """The encoding of a value, or None when it is longer than `limit` bytes."""
    if _spend(value, limit) < 0:
        return None
    text = encode_text(value)
    size = len(text) if text.isascii() else len(text.encode())
    return text if size <= limit else None


# --- previews -------------------------------------------------------------------------------------

_CONTAINERS: Final = frozenset({list, dict, Table, Outcome})


def _cut_cell(value: Value) -> Value:
    if type(value) in (str, bytes) and len(value) > PREVIEW_UNITS:
        return value[:PREVIEW_UNITS]
    return value


def _flat_cell(value: Value) -> Value:
    return None if type(value) in _CONTAINERS else _cut_cell(value)


def _sample(value: Value, cell: Callable[[Value], Value]) -> Value:
    """The preview as a value, each cell passed through `cell`; None (null) for most types."""
    kind = type(value)
    if kind is Table:
        return Table(
            [{key: cell(item) for key, item in row.items()} for row in value.rows[:PREVIEW_ITEMS]]
        )
    if kind is list:
        return [cell(item) for item in value[:PREVIEW_ITEMS]]
    if kind is dict:
        return dict.fromkeys(list(value)[:PREVIEW_ITEMS])
    return value[:PREVIEW_UNITS] if kind in (str, bytes) else None


def render_head(preview: Value, tty: bool) -> str:
    """The first lines of the block rendering of a preview; empty for null."""
    text = "\n".join(block(preview).split("\n", RENDER_HEAD_LINES)[:RENDER_HEAD_LINES])
    return (text if tty else strip_terminal(text))[:RENDER_HEAD_CHARS]


def _previews(value: Value, budget: Budget, tty: bool) -> Iterator[tuple[str, str]]:
    """Encoded preview and render head, from the fullest that is within bounds to the emptiest."""
    limit = max(budget.max_bytes, PREVIEW_BYTES_FLOOR)
    for cell in (_cut_cell, _flat_cell):
        sample = _sample(value, cell)
        text = _encode_within(sample, limit)
        if text is not None:
            yield text, render_head(sample, tty)
    yield NULL, ""


_COUNTS: Final[dict[type, Callable[[Any], int]]] = {
    Table: lambda value: len(value.rows),
    list: len,
    bytes: len,
    str: lambda value: len(value.encode()),
    dict: len,
}


def _column_members(rows: list[Record]) -> list[str]:
    """`"NAME":"TYPE"` of every column, sorted; the type is that of the first row that has it."""
    types: dict[str, str] = {}
    for row in rows:
        if not row.keys() <= types.keys():
            for key, item in row.items():
                types.setdefault(key, type_name(item))
    return [f"{json_string(name)}:{json_string(types[name])}" for name in sorted(types)]


def _ref_text(value: Value, uri: str, cols: str, preview: str, head: str) -> str:
    count = _COUNTS.get(type(value), lambda _: 1)(value)
    return (
        f'{{"$":"ref","uri":{json_string(uri)},"of":"{type_name(value)}","n":{count},'
        f'{cols}"preview":{preview},"render_head":{json_string(head)}}}'
    )


def _cols(members: list[str]) -> str:
    return f'"cols":{{{",".join(members)}}},'


def _ref(value: Value, uri: str, budget: Budget, tty: bool) -> str:
    if type(value) is LazyBytes:
        head = render_head(value.preview[:PREVIEW_UNITS], tty)
        return bytes_ref(value, uri, head)
    members = _column_members(value.rows) if type(value) is Table else []
    cols = _cols(members) if type(value) is Table else ""
    text = ""
    for preview, head in _previews(value, budget, tty):
        text = _ref_text(value, uri, cols, preview, head)
        if len(text.encode()) <= REF_BYTES_MAX:
            return text
    # Only the columns can still be too many: keep as many as fit, in order.
    room = REF_BYTES_MAX - len(_ref_text(value, uri, _cols([]), NULL, "").encode())
    kept = []
    for member in members:
        room -= len(member.encode()) + 1
        if room < 0:
            break
        kept.append(member)
    return _ref_text(value, uri, _cols(kept) if cols else "", NULL, "")


# --- the answer -----------------------------------------------------------------------------------


def _bounded_err(outcome: Outcome, uri: str, max_bytes: int) -> str:
    text = err_text(outcome)
    size = len(text.encode())
    if size <= max_bytes:
        return text
    kept = cut_bytes(text, max_bytes)
    more = size - len(kept.encode())
    return f"{kept}…({more} more bytes, fetch via {uri_with_step(uri, 'stderr')})"


def _over_counts(value: Value, budget: Budget) -> bool:
    kind = type(value)
    if kind is Table:
        return len(value.rows) > budget.max_rows
    if kind is list:
        return len(value) > budget.max_items
    return kind is bytes and len(value) > budget.max_bytes_raw


def elide_text(value: Value, uri: str, budget: Budget, tty: bool) -> str:
    """The wire value of an answer, as text; `uri` is where the whole value can be read."""
    kind = type(value)
    if kind is Outcome and value.ok:
        out = elide_text(decoded_out(value), uri_with_step(uri, "out"), budget, tty)
        err = _bounded_err(value, uri, budget.max_bytes)
        return envelope(value, out, err, value.cmd[:CMD_CHARS_MAX])
    if kind is not LazyBytes and not _over_counts(value, budget):
        text = _encode_within(value, budget.max_bytes)
        if text is not None:
            return text
    return _ref(value, uri, budget, tty)
