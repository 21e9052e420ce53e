"""Rows of cells: what a terminal remembers of one line.

A row maps columns to pyte's `Char`. A cell that was never written or was erased is not in the map:
that is how a blank a program wrote differs from a cell that holds nothing, and why a large empty
screen costs nothing. Behind a wide character stands a cell with no text.

Failure: none; columns outside the row simply are not there.
"""

from __future__ import annotations

from typing import Any, Final

from pyte.screens import Char, StaticDefaultDict

Row = StaticDefaultDict[int, Char]

DEFAULT: Final = Char(" ")
# Colours come in any number; beyond this many styles the cached cells are made anew.
STYLES_MAX: Final = 256


class Styled(dict[str, Char]):
    """The cells of one style by their text, made when they are first needed."""

    def __init__(self, attributes: Char) -> None:
        super().__init__()
        self._attributes = attributes

    def __missing__(self, text: str) -> Char:
        cell = self[text] = self._attributes._replace(data=text)
        return cell


class Styles(dict[Any, Styled]):
    """The cached cells of every style in use."""

    def __missing__(self, attributes: Char) -> Styled:
        if len(self) >= STYLES_MAX:
            self.clear()
        styled = self[attributes] = Styled(attributes)
        return styled


def new_row() -> Row:
    return StaticDefaultDict(DEFAULT)


def text_of(row: Row) -> str:
    """The row up to its last used cell; cells that hold nothing are blanks."""
    return "".join([row[column].data for column in range(max(row) + 1)]) if row else ""


def split_wide(row: Row, column: int) -> None:
    """Before cells from `column` on change: a wide character across it is gone as a whole."""
    if column in row and not row[column].data:
        del row[column]
        row.pop(column - 1, None)


def erase(row: Row, start: int, end: int) -> None:
    split_wide(row, start)
    split_wide(row, end)
    if end - start < len(row):
        for column in range(start, end):
            row.pop(column, None)
    else:
        for column in [column for column in row if start <= column < end]:
            del row[column]


def shift(row: Row, start: int, count: int, columns: int) -> None:
    """Move the cells from `start` on by `count` columns, to the left when negative; what leaves the
    row, or is moved over, is gone."""
    split_wide(row, start)
    if count < 0:
        split_wide(row, start - count)
    moved = [(column, row[column]) for column in row if column >= start]
    for column, _cell in moved:
        del row[column]
    for column, cell in moved:
        if start <= column + count < columns:
            row[column + count] = cell
    # A wide character whose second half was pushed out.
    cut(row, columns)


def cut(row: Row, columns: int) -> None:
    """Drop what is beyond the last column, with the first half of a wide character across it."""
    for column in [column for column in row if column >= columns]:
        if column == columns and not row[column].data:
            row.pop(column - 1, None)
        del row[column]
