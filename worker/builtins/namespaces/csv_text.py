"""CSV text to a table and back (chapter 31 §10.3).

Failure: `arg_error` `WHAT: ...` for a row that is not as long as the header, `type_error` for a
value that is not made of records.
"""

from __future__ import annotations

import csv
import io
import sys
from typing import Final

from worker.errors import arg_error, type_error
from worker.values.inline import inline
from worker.values.types import Record, Table, Value, type_name

# The parser's own limit on a field is for untrusted files; ours is the memory of the worker.
csv.field_size_limit(sys.maxsize)

_QUOTED: Final = frozenset(',"\r\n')


def parse(text: str, what: str) -> Table:
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    header: list[str] | None = None
    records: list[Record] = []
    try:
        for row in rows:
            if not row:
                continue
            if header is None:
                header = row
            elif len(row) != len(header):
                raise arg_error(
                    f"{what}: line {rows.line_num}: expected {len(header)} fields, found {len(row)}"
                )
            else:
                records.append(dict(zip(header, row, strict=True)))
    except csv.Error as error:
        raise arg_error(f"{what}: {error}") from None
    return Table(records)


def render(value: Value) -> str:
    rows = _rows(value)
    if not rows or not rows[0]:
        return ""
    header = list(rows[0])
    lines = [_line(header)]
    lines.extend(_line([_cell(row[key]) if key in row else "" for key in header]) for row in rows)
    return "".join(lines)


def _rows(value: Value) -> list[Record]:
    if type(value) is Table:
        return value.rows
    if type(value) is dict:
        return [value]
    if type(value) is not list:
        raise type_error(f"csv.stringify expects a table or records, found {type_name(value)}")
    for item in value:
        if type(item) is not dict:
            raise type_error(f"csv.stringify expects records, found {type_name(item)}")
    return value


def _cell(value: Value) -> str:
    return value if type(value) is str else inline(value)


def _line(cells: list[str]) -> str:
    # A lone empty cell would read back as a blank line.
    if cells == [""]:
        return '""\n'
    return ",".join(_quoted(cell) for cell in cells) + "\n"


def _quoted(cell: str) -> str:
    if _QUOTED.isdisjoint(cell):
        return cell
    return '"' + cell.replace('"', '""') + '"'
