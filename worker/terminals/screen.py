"""The grid of a terminal: cells, cursor, margins, modes, and everything that changes them.

A cell holds the character that was written there with its combining marks, HALF behind a wide
character, or None while it was never written or was erased. Rows are kept only up to their last
used cell, so that a large empty screen costs nothing.

Failure: nothing is raised; positions outside the grid are clamped, unknown modes are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wcwidth import wcwidth

TAB_COLUMNS: Final = 8
# Marks beyond this many on one character are dropped: they only cost memory.
CELL_CHARS_MAX: Final = 16

HALF: Final = ""
Row = list[str | None]

# What the DEC line drawing set shows for the letters it replaces.
_LINE_DRAWING: Final = dict(
    zip(
        "`afgjklmnopqrstuvwxyz{|}~",
        "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·",
        strict=True,
    )
)


@dataclass(slots=True)
class Saved:
    """What saving the cursor keeps."""

    row: int = 0
    column: int = 0
    origin: bool = False
    charsets: tuple[str, str] = ("B", "B")
    active: int = 0


class Screen:
    # `column` equals `cols` while the last column was written and the wrap is pending. `_other` is
    # the grid of the screen that is not shown, main or alternate. Margins are inclusive rows.

    def __init__(self, cols: int, rows: int) -> None:
        self.cols = cols
        self.rows = rows
        self.reset()

    def reset(self) -> None:
        """Full reset: blank screens, everything as at the start."""
        self._grid: list[Row] = self._blank()
        self._other: list[Row] = self._blank()
        self.alternate = False
        self.row = 0
        self.column = 0
        self._saved = {False: Saved(), True: Saved()}
        self._tabs = set(range(0, self.cols, TAB_COLUMNS))
        self._last_char = ""
        self.soft_reset()

    def soft_reset(self) -> None:
        """Modes, margins, character sets and the saved cursor; the screen stays as it is."""
        self.hidden = False
        self.origin = False
        self.autowrap = True
        self.insert = False
        self._new_line = False
        self._charsets = ["B", "B"]
        self._active = 0
        self._top, self._bottom = 0, self.rows - 1
        self._saved[self.alternate] = Saved()

    def lines(self) -> list[str]:
        """The visible rows as plain text, top to bottom, each up to its last used cell."""
        return [_text(row) for row in self._grid]

    def resize(self, cols: int, rows: int) -> None:
        """Keep the top left corner; cut or add rows and columns; clamp the cursor."""
        for column in range(self.cols - self.cols % TAB_COLUMNS, cols, TAB_COLUMNS):
            if column >= self.cols:
                self._tabs.add(column)
        self.cols, self.rows = cols, rows
        for grid in (self._grid, self._other):
            del grid[rows:]
            for row in grid:
                _cut(row, cols)
            grid.extend([] for _ in range(rows - len(grid)))
        self._top, self._bottom = 0, rows - 1
        self.row = min(self.row, rows - 1)
        self.column = min(self.column, cols - 1)

    def _blank(self) -> list[Row]:
        return [[] for _ in range(self.rows)]

    # -- writing -------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Write printable characters at the cursor."""
        if self._charsets[self._active] == "0":
            text = "".join([_LINE_DRAWING.get(char, char) for char in text])
        if text.isascii():
            self._write_narrow(text)
            return
        for char in text:
            self._write(char, wcwidth(char))

    def _write_narrow(self, text: str) -> None:
        place = 0
        while place < len(text):
            if self.insert or (self.column >= self.cols and not self.autowrap):
                self._write(text[place], 1)
                place += 1
                continue
            if self.column >= self.cols:
                self._wrap()
            part = text[place : place + self.cols - self.column]
            self._put(list(part))
            self._last_char = part[-1]
            place += len(part)

    def _write(self, char: str, width: int) -> None:
        if width <= 0:
            if width == 0:
                self._combine(char)
            return
        width = min(width, self.cols)
        if self.column + width > self.cols:
            if self.autowrap:
                self._wrap()
            else:
                self.column = self.cols - width
        if self.insert:
            self.insert_characters(width)
        self._put([char, *[HALF] * (width - 1)])
        self._last_char = char

    def _put(self, cells: list[str | None]) -> None:
        """Replace cells from the cursor on, and move it behind them."""
        row = self._grid[self.row]
        start, end = self.column, self.column + len(cells)
        _split_wide(row, start)
        _split_wide(row, end)
        if len(row) < start:
            row.extend([None] * (start - len(row)))
        row[start:end] = cells
        self.column = end

    def _wrap(self) -> None:
        self.column = 0
        self.index()

    def _combine(self, mark: str) -> None:
        row = self._grid[self.row]
        place = min(self.column, self.cols) - 1
        if 0 <= place < len(row) and row[place] == HALF:
            place -= 1
        if 0 <= place < len(row):
            base = row[place]
            if base and len(base) < CELL_CHARS_MAX:
                row[place] = base + mark

    def repeat(self, count: int) -> None:
        """Write the last character again."""
        if self._last_char:
            self.text(self._last_char * min(count, self.cols * self.rows))

    def fill(self, char: str) -> None:
        """The alignment test: every cell the same."""
        self._grid = [[char] * self.cols for _ in range(self.rows)]
        self._top, self._bottom = 0, self.rows - 1
        self.row = self.column = 0

    def designate(self, place: int, charset: str) -> None:
        self._charsets[place] = charset

    def use_charset(self, place: int) -> None:
        self._active = place

    # -- moving --------------------------------------------------------------------------------

    def backspace(self) -> None:
        self.column = max(0, min(self.column, self.cols - 1) - 1)

    def carriage_return(self) -> None:
        self.column = 0

    def line_feed(self) -> None:
        self.index()
        if self._new_line:
            self.column = 0

    def next_line(self) -> None:
        self.index()
        self.column = 0

    def index(self) -> None:
        """One row down; at the bottom margin the region scrolls."""
        if self.row == self._bottom:
            self.scroll_up(1)
        elif self.row < self.rows - 1:
            self.row += 1

    def reverse_index(self) -> None:
        """One row up; at the top margin the region scrolls."""
        if self.row == self._top:
            self.scroll_down(1)
        elif self.row > 0:
            self.row -= 1

    def tab(self, count: int = 1) -> None:
        for _ in range(min(count, self.cols)):
            stops = [stop for stop in self._tabs if self.column < stop < self.cols]
            self.column = min(stops, default=self.cols - 1)

    def back_tab(self, count: int) -> None:
        for _ in range(min(count, self.cols)):
            self.column = max([stop for stop in self._tabs if stop < self.column], default=0)

    def set_tab_stop(self) -> None:
        self._tabs.add(min(self.column, self.cols - 1))

    def clear_tab_stop(self, how: int) -> None:
        if how == 0:
            self._tabs.discard(self.column)
        elif how == 3:
            self._tabs.clear()

    def move_by(self, rows: int, columns: int) -> None:
        """Relative moves stop at the margins, when they start within them, and at the edges."""
        if rows < 0:
            limit = self._top if self.row >= self._top else 0
            self.row = max(limit, self.row + rows)
        elif rows > 0:
            limit = self._bottom if self.row <= self._bottom else self.rows - 1
            self.row = min(limit, self.row + rows)
        column = min(self.column, self.cols - 1) + columns
        self.column = max(0, min(self.cols - 1, column))

    def move_lines(self, rows: int) -> None:
        self.move_by(rows, 0)
        self.column = 0

    def move_to(self, row: int, column: int) -> None:
        """To a position; with origin mode rows count from the top margin and stay inside."""
        self.move_to_row(row)
        self.move_to_column(column)

    def move_to_row(self, row: int) -> None:
        first, last = (self._top, self._bottom) if self.origin else (0, self.rows - 1)
        self.row = max(first, min(last, first + row))
        self.column = min(self.column, self.cols - 1)

    def move_to_column(self, column: int) -> None:
        self.column = max(0, min(self.cols - 1, column))

    def save_cursor(self) -> None:
        self._saved[self.alternate] = Saved(
            self.row, self.column, self.origin, (self._charsets[0], self._charsets[1]), self._active
        )

    def restore_cursor(self) -> None:
        saved = self._saved[self.alternate]
        self.origin = saved.origin
        self._charsets = list(saved.charsets)
        self._active = saved.active
        self.row = min(saved.row, self.rows - 1)
        self.column = min(saved.column, self.cols)

    # -- erasing, inserting, deleting, scrolling -----------------------------------------------

    def erase_line(self, how: int) -> None:
        """From the cursor on (0), up to and with it (1), everything (2)."""
        start, end = _extent(how, min(self.column, self.cols - 1), self.cols)
        self._erase(self._grid[self.row], start, end)

    def erase_display(self, how: int) -> None:
        if how in (0, 1):
            self.erase_line(how)
            rows = range(self.row + 1, self.rows) if how == 0 else range(self.row)
        elif how == 2:
            rows = range(self.rows)
        else:
            # 3 erases what was scrolled off, and there is none.
            return
        for row in rows:
            self._grid[row] = []

    def erase_characters(self, count: int) -> None:
        start = min(self.column, self.cols - 1)
        self._erase(self._grid[self.row], start, start + count)

    def _erase(self, row: Row, start: int, end: int) -> None:
        _split_wide(row, start)
        _split_wide(row, end)
        row[start:end] = [None] * (min(end, len(row)) - start)
        _trim(row)

    def insert_characters(self, count: int) -> None:
        row = self._grid[self.row]
        place = min(self.column, self.cols - 1)
        if place < len(row):
            _split_wide(row, place)
            row[place:place] = [None] * min(count, self.cols)
            _cut(row, self.cols)

    def delete_characters(self, count: int) -> None:
        row = self._grid[self.row]
        place = min(self.column, self.cols - 1)
        _split_wide(row, place)
        _split_wide(row, place + count)
        del row[place : place + count]
        _trim(row)

    def insert_lines(self, count: int) -> None:
        if self._top <= self.row <= self._bottom:
            self._scroll(self.row, self._bottom, -count)
            self.column = 0

    def delete_lines(self, count: int) -> None:
        if self._top <= self.row <= self._bottom:
            self._scroll(self.row, self._bottom, count)
            self.column = 0

    def scroll_up(self, count: int) -> None:
        self._scroll(self._top, self._bottom, count)

    def scroll_down(self, count: int) -> None:
        self._scroll(self._top, self._bottom, -count)

    def _scroll(self, top: int, bottom: int, count: int) -> None:
        """Move the rows of a region up by `count` (down when negative); blank rows come in."""
        height = bottom - top + 1
        shift = max(-height, min(height, count))
        region = self._grid[top : bottom + 1]
        blank: list[Row] = [[] for _ in range(abs(shift))]
        moved = region[shift:] + blank if shift >= 0 else blank + region[:shift]
        self._grid[top : bottom + 1] = moved

    def set_margins(self, top: int, bottom: int) -> None:
        """The scroll region; one that is no region is ignored. The cursor goes home."""
        bottom = min(bottom, self.rows - 1)
        if top < bottom:
            self._top, self._bottom = top, bottom
            self.move_to(0, 0)

    # -- modes ---------------------------------------------------------------------------------

    def set_mode(self, number: int, on: bool, *, private: bool) -> None:
        if not private:
            if number == 4:
                self.insert = on
            elif number == 20:
                self._new_line = on
        elif number == 6:
            self.origin = on
            self.move_to(0, 0)
        elif number == 7:
            self.autowrap = on
        elif number == 25:
            self.hidden = not on
        elif number == 1048:
            (self.save_cursor if on else self.restore_cursor)()
        elif number in (47, 1047, 1049):
            self._show(on, number)

    def _show(self, alternate: bool, number: int) -> None:
        """Switch between main and alternate screen."""
        if alternate == self.alternate:
            return
        if number == 1049 and alternate:
            self.save_cursor()
        self._grid, self._other = self._other, self._grid
        self.alternate = alternate
        if alternate and number != 47:
            self._grid = self._blank()
        if number == 1049 and not alternate:
            self.restore_cursor()


def _extent(how: int, place: int, length: int) -> tuple[int, int]:
    return {0: (place, length), 1: (0, place + 1), 2: (0, length)}.get(how, (place, place))


def _split_wide(row: Row, place: int) -> None:
    """Before cells from `place` on change: a wide character across it is gone as a whole."""
    if 0 < place < len(row) and row[place] == HALF:
        row[place] = None
        row[place - 1] = None


def _trim(row: Row) -> None:
    """Drop unused cells at the end."""
    while row and row[-1] is None:
        row.pop()


def _cut(row: Row, cols: int) -> None:
    _split_wide(row, cols)
    del row[cols:]
    _trim(row)


def _text(row: Row) -> str:
    return "".join([" " if cell is None else cell for cell in row])
