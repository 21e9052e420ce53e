"""The twelve output parsers of adapters (chapter 41 §A6, §A7): the bytes of one program's standard
output as a value.

Failure: `parse` gives MISSING for output that does not fit; nothing is raised, and there never is a
part of a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from worker.commands.adapters.hints import Field, Unfit, cell, fields_of
from worker.errors import Raised
from worker.values.json_codec import from_json
from worker.values.types import MISSING, Path, Record, Table, Value

# The parser's input and the declared type hint.
Parser = Callable[[str, str | None], Value]

_STATES: Final = {
    "M": "modified",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "typechange",
    "U": "unmerged",
}
# Fields of a changed line and of a renamed one in `git status --porcelain=v2`.
_CHANGED_FIELDS: Final = 9
_RENAMED_FIELDS: Final = 10


def parse(name: str, data: bytes, hint: str | None) -> Value:
    """The structured result, MISSING when the output does not fit the declaration."""
    parser = PARSERS[name]
    if parser is None:
        return MISSING
    try:
        return parser(data.decode("utf-8"), hint)
    except (UnicodeDecodeError, Unfit, Raised):
        return MISSING


def _json(text: str, _hint: str | None) -> Value:
    return from_json(text, "stdout")


def _ndjson(text: str, _hint: str | None) -> Value:
    items = [from_json(line, "stdout") for line in text.split("\n") if line.strip()]
    if all(type(item) is dict for item in items):
        return Table(items)
    return items


def _lines(text: str, hint: str | None) -> Value:
    lines = _text_lines(text)
    if hint is not None and "".join(hint.split()) == "list<path>":
        return [Path(line) for line in lines]
    return list(lines)


def _text_lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _kv(text: str, _hint: str | None) -> Value:
    record: Record = {}
    for line in _text_lines(text):
        if not line.strip():
            continue
        separator = "=" if "=" in line else ":"
        name, found, value = line.partition(separator)
        if not found:
            raise Unfit(line)
        record[name.strip()] = value.strip()
    return record


def _delimited(delimiter: str) -> Parser:
    def parser(text: str, hint: str | None) -> Value:
        rows = _quoted_rows(text, delimiter)
        if not rows:
            raise Unfit("no header")
        header, *body = rows
        types = {field.name: field.type for field in fields_of(hint) or ()}
        columns = [Field(name, types.get(name, "str")) for name in header]
        return Table([_record(row, columns) for row in body])

    return parser


def _quoted_rows(text: str, delimiter: str) -> list[list[str]]:
    """Rows of cells; quotes protect delimiters and line ends, and stand doubled for themselves."""
    rows: list[list[str]] = []
    cells: list[str] = []
    piece: list[str] = []
    quoted = False
    place = 0
    while place < len(text):
        char = text[place]
        place += 1
        if char == '"':
            if quoted and text[place : place + 1] == '"':
                piece.append('"')
                place += 1
            else:
                quoted = not quoted
        elif quoted:
            piece.append(char)
        elif char == delimiter:
            cells.append("".join(piece))
            piece = []
        elif char == "\n":
            rows.append([*cells, "".join(piece)])
            cells, piece = [], []
        elif char != "\r":
            piece.append(char)
    if quoted:
        raise Unfit("an open quote")
    if cells or piece:
        rows.append([*cells, "".join(piece)])
    return rows


def _record(row: list[str], fields: list[Field]) -> Record:
    if len(row) != len(fields):
        raise Unfit("another number of cells")
    return {field.name: cell(text, field.type) for field, text in zip(fields, row, strict=True)}


def _fields(hint: str | None) -> list[Field]:
    fields = fields_of(hint)
    if not fields:
        raise Unfit("no fields declared")
    return fields


def _headerless(text: str, hint: str | None) -> Value:
    fields = _fields(hint)
    rows = [line.split("\t") for line in _text_lines(text) if line]
    return Table([_record(row, fields) for row in rows])


def _columns(dropped: int) -> Parser:
    def parser(text: str, hint: str | None) -> Value:
        fields = _fields(hint)
        rows = []
        for line in _text_lines(text)[dropped:]:
            words = line.split()
            if not words:
                continue
            last = len(fields) - 1
            if len(words) > last + 1:
                words[last:] = [" ".join(words[last:])]
            rows.append(_record(words, fields))
        return Table(rows)

    return parser


def _z_records(text: str, hint: str | None) -> Value:
    fields = _fields(hint)
    if not text.strip("\0"):
        return Table([])
    cells = text.split("\0")
    width = len(fields)
    if not cells[-1] and (len(cells) - 1) % width == 0:
        cells.pop()
    if len(cells) % width:
        raise Unfit("a partial record")
    return Table([_record(cells[at : at + width], fields) for at in range(0, len(cells), width)])


def _porcelain_v2(text: str, _hint: str | None) -> Value:
    rows = [_status_row(line) for line in _text_lines(text) if line and not line.startswith("#")]
    return Table(rows)


def _status_row(line: str) -> Record:
    kind, _, rest = line.partition(" ")
    if kind in ("?", "!") and rest:
        state = "untracked" if kind == "?" else "ignored"
        return {"status": kind, "state": state, "path": Path(rest)}
    if kind == "1":
        parts = line.split(" ", _CHANGED_FIELDS - 1)
        if len(parts) == _CHANGED_FIELDS:
            return {"status": parts[1], "state": _state(parts[1]), "path": Path(parts[-1])}
    if kind == "2":
        parts = line.split(" ", _RENAMED_FIELDS - 1)
        new, tab, old = parts[-1].partition("\t")
        if len(parts) == _RENAMED_FIELDS and tab:
            return {
                "status": parts[1],
                "state": _state(parts[1]),
                "path": Path(new),
                "orig": Path(old),
            }
    raise Unfit(line)


def _state(xy: str) -> str:
    """What happened to a file: its state in the work tree, else in the index."""
    if len(xy) != len("XY"):
        raise Unfit(xy)
    return _STATES.get(xy[1] if xy[1] != "." else xy[0], "unmodified")


PARSERS: Final[dict[str, Parser | None]] = {
    "none": None,
    "json": _json,
    "ndjson": _ndjson,
    "lines": _lines,
    "kv": _kv,
    "csv": _delimited(","),
    "tsv": _delimited("\t"),
    "tsv-headerless": _headerless,
    "cols": _columns(1),
    "cols2": _columns(2),
    "z-records": _z_records,
    "porcelain-v2": _porcelain_v2,
}
