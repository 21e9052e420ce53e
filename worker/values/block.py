"""The block form: what people see of a value (chapter 20 §7). Always with colour.

`block` never pulls a stream and never loads stored content. Widths are display columns: East Asian
wide characters count two, combining and control characters none.

Failure: TypeError for an object that is no value, which is a programming error.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

from wcwidth import wcwidth

from worker.values.access import decoded_out, stdout_text
from worker.values.content import lossy
from worker.values.inline import inline
from worker.values.types import (
    MISSING,
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Record,
    Regex,
    Size,
    Table,
    TimeOfDay,
    Value,
)
from worker.values.units import render_size

CELL_COLUMNS_MAX: Final = 60
COLUMN_SHRUNK_MIN: Final = 8
_GAP: Final = "  "

_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_DIM: Final = "\x1b[2m"
_KEY: Final = "\x1b[34;1m"
_GOOD: Final = "\x1b[32m"
_BAD: Final = "\x1b[31;1m"
_HINT_LABEL: Final = "\x1b[33;1m"
_HINT_TEXT: Final = "\x1b[33m"

_NUMERIC: Final = "\x1b[36m"
_COLOURS: Final[dict[type, str]] = {
    **dict.fromkeys((int, float, Size, Duration, DateTime, TimeOfDay, Path), _NUMERIC),
    bool: "\x1b[96m",
    type(None): "\x1b[96m",
    str: "\x1b[32m",
    Glob: "\x1b[95m",
    Regex: "\x1b[95m",
    ErrorValue: "\x1b[31m",
}

# --- columns --------------------------------------------------------------------------------------

_CHAR_COLUMNS: Final[dict[str, int]] = {}


def _char_columns(char: str) -> int:
    columns = _CHAR_COLUMNS.get(char)
    if columns is None:
        # wcwidth gives -1 for control characters, which take no column.
        columns = _CHAR_COLUMNS[char] = max(wcwidth(char), 0)
    return columns


def display_width(text: str) -> int:
    """Columns of a text on a terminal."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(map(_char_columns, text))


def truncated(text: str, columns: int) -> str:
    """The text in at most `columns` columns; a cut one keeps columns - 1 and ends in `…`."""
    if display_width(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += _char_columns(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - display_width(text))


# --- cells ----------------------------------------------------------------------------------------


def _raw_cell(text: str) -> str:
    return text.replace("\n", "␤") if "\n" in text else text


def _path_cell(value: Path) -> str:
    return value.display


_CELLS: Final[dict[type, Callable[[Any], str]]] = {
    str: _raw_cell,
    Path: _path_cell,
    type(None): lambda value: "",
}


def cell(value: Value) -> str:
    """The form of a value inside a line of a list, record or table."""
    form = _CELLS.get(type(value))
    return inline(value) if form is None else form(value)


# --- tables ---------------------------------------------------------------------------------------


def column_names(rows: list[Record]) -> list[str]:
    """Every key of the rows, in first-seen order."""
    names: dict[str, None] = {}
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        keys = tuple(row)
        if keys not in seen:
            seen.add(keys)
            names.update(dict.fromkeys(keys))
    return list(names)


def _column(rows: list[Record], name: str) -> tuple[list[str], list[str]]:
    """Cell texts, at most CELL_COLUMNS_MAX wide, and the colour of each (`""` for none)."""
    texts, colours = [], []
    for row in rows:
        value = row.get(name, MISSING)
        if value is MISSING:
            texts.append("")
            colours.append("")
        else:
            texts.append(truncated(cell(value), CELL_COLUMNS_MAX))
            colours.append(_COLOURS.get(type(value), ""))
    return texts, colours


def _painted(texts: list[str], colours: list[str], columns: int) -> list[str]:
    """Cells padded to the column and coloured; the padding of a coloured cell lies inside."""
    result = []
    for text, colour in zip(texts, colours, strict=True):
        width = len(text) if text.isascii() and text.isprintable() else display_width(text)
        if width > columns:
            text = truncated(text, columns)
            width = display_width(text)
        padded = text + " " * (columns - width)
        result.append(f"{colour}{padded}{_RESET}" if colour else padded)
    return result


def _fit(widths: list[int], screen: int) -> list[int]:
    """Shrink the widest column (the last among equals) when the table is wider than the screen."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - screen
    if excess <= 0 or screen <= 4 * len(widths):
        return widths
    widest = max(widths)
    at = len(widths) - 1 - widths[::-1].index(widest)
    return [*widths[:at], max(widest - excess, COLUMN_SHRUNK_MIN), *widths[at + 1 :]]


def _table(rows: list[Record], screen: int) -> str:
    if not rows:
        return "(empty table)"
    names = column_names(rows)
    headers = [_raw_cell(name) for name in names]
    columns = [_column(rows, name) for name in names]
    natural = [
        max(display_width(header), max(map(display_width, texts)))
        for header, (texts, _) in zip(headers, columns, strict=True)
    ]
    widths = _fit(natural, screen)
    header = _GAP.join(
        _padded(truncated(header, width), width)
        for header, width in zip(headers, widths, strict=True)
    )
    total = sum(widths) + len(_GAP) * max(len(widths) - 1, 0)
    painted = [
        _painted(texts, colours, width)
        for (texts, colours), width in zip(columns, widths, strict=True)
    ]
    lines = [f"{_BOLD}{header}{_RESET}", f"{_DIM}{'─' * min(total, screen)}{_RESET}"]
    # A table without columns still has a line per row.
    cells_by_row = zip(*painted, strict=True) if painted else repeat((), len(rows))
    lines.extend(_GAP.join(cells).rstrip(" ") for cells in cells_by_row)
    return "\n".join(lines)


# --- the other forms ------------------------------------------------------------------------------


def _list(items: list[Value], screen: int) -> str:
    if items and set(map(type, items)) == {dict}:
        return _table(items, screen)
    return "\n".join(map(cell, items))


def _record(record: Record, screen: int) -> str:
    keys = [_raw_cell(key) for key in record]
    columns = max(map(display_width, keys), default=0)
    lines = []
    for key, value in zip(keys, record.values(), strict=True):
        colour = _COLOURS.get(type(value), "")
        painted = f"{_KEY}{_padded(key, columns)}{_RESET}"
        lines.append(f"{painted}{_GAP}{colour}{cell(value)}{_RESET}")
    return "\n".join(lines)


def _outcome(outcome: Outcome, screen: int) -> str:
    if outcome.ok:
        out = decoded_out(outcome)
        if type(out) in (Table, dict, list):
            return block(out, screen)
    if type(outcome.stdout) is LazyBytes:
        return _stored(outcome.stdout, screen)
    text = stdout_text(outcome)
    if text:
        return text
    if not outcome.ok:
        status = -1 if outcome.status is None else outcome.status
        return f"{_BAD}[❌ status {status}]{_RESET}"
    if type(outcome.structured) is str:
        return outcome.structured
    return f"{_GOOD}[✅ success]{_RESET}"


def _stored(data: LazyBytes, screen: int) -> str:
    preview = lossy(data.preview)
    if len(data.preview) >= data.length:
        return preview
    shown, total = render_size(len(data.preview)), render_size(data.length)
    if data.truncated:
        extent, end = f"≥{total}", " (truncated at spill cap)"
    else:
        extent, end = total, ""
    marker = f"[shoal: showing first {shown} of {extent} — {data.reference}{end}]"
    return f"{preview}\n{_DIM}{marker}{_RESET}"


def _error(error: ErrorValue, screen: int) -> str:
    head = f"{_BAD}error({error.code}):{_RESET} {_BOLD}{error.msg}{_RESET}"
    if error.hint is None:
        return head
    return f"{head}\n  {_HINT_LABEL}hint:{_RESET} {_HINT_TEXT}{error.hint}{_RESET}"


_FORMS: Final[dict[type, Callable[[Any, int], str]]] = {
    type(None): lambda value, screen: "",
    str: lambda value, screen: value,
    bytes: lambda value, screen: lossy(value),
    LazyBytes: _stored,
    Table: lambda value, screen: _table(value.rows, screen),
    list: _list,
    dict: _record,
    Outcome: _outcome,
    ErrorValue: _error,
}


def block(value: Value, width: int = 80) -> str:
    """The block form of any value on a screen of `width` columns, with SGR colour sequences."""
    form = _FORMS.get(type(value))
    return inline(value) if form is None else form(value, width)
