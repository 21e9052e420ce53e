"""The screen of a terminal: pyte's, with what it lacks.

pyte gives the model: sparse rows of `Char` cells, the cursor with its attributes, colours, styles,
character sets, modes, tab stops. This class adds the alternate screen, cells that hold nothing
apart from written blanks, whole wide characters, the margins' rules, and speed: text is written by
the run, output that scrolls away before anybody could see it is not drawn.
docs/decisions says what is overridden and why.

Failure: nothing is raised, whatever is called with whatever numbers; positions outside the screen
are clamped, unknown modes and character sets are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from pyte import charsets, modes
from pyte.screens import Char, Cursor, Margins, wcwidth
from pyte.screens import Screen as PyteScreen

from worker.terminals.cells import (
    DEFAULT,
    Row,
    Styled,
    Styles,
    cut,
    erase,
    new_row,
    shift,
    split_wide,
    text_of,
)

TAB_COLUMNS: Final = 8
# Marks beyond this many on one character are dropped: they only cost memory.
CELL_CHARS_MAX: Final = 16

# pyte keeps private modes shifted to the left.
_PRIVATE_SHIFT: Final = 5
_ALTERNATE: Final = frozenset((47, 1047, 1049))
_SAVED_CURSOR: Final = 1048
# The modes that change what is visible; pyte's other ones (132 columns, reverse video) do not.
_MODES: Final = frozenset((modes.IRM, modes.LNM, modes.DECOM, modes.DECAWM, modes.DECTCEM))
_DEFAULT_MODE: Final = frozenset((modes.DECAWM, modes.DECTCEM))


@dataclass(slots=True)
class Saved:
    """What saving the cursor keeps."""

    x: int = 0
    y: int = 0
    attributes: Char = DEFAULT
    g0_charset: str = charsets.LAT1_MAP
    g1_charset: str = charsets.LAT1_MAP
    charset: int = 0
    origin: bool = False


class Screen(PyteScreen):
    # `buffer` holds the rows of the screen that is shown, `_hidden_buffer` those of the other one;
    # rows without cells may be missing in both. `cursor.x` equals `columns` while the last column
    # was written and the wrap is pending. `_cells` are the cells of the current attributes.

    def __init__(self, columns: int, lines: int) -> None:
        self._styles = Styles()
        super().__init__(columns, lines)
        self.mode = set(_DEFAULT_MODE)

    def reset(self) -> None:
        """Full reset: blank screens, everything as at the start."""
        self.buffer: dict[int, Row] = {}
        self._hidden_buffer: dict[int, Row] = {}
        self.alternate = False
        self.title = self.icon_name = ""
        self.tabstops = set(range(0, self.columns, TAB_COLUMNS))
        self.cursor = Cursor(0, 0)
        self._saved = {False: Saved(), True: Saved()}
        self._last_char = ""
        self.soft_reset()

    def soft_reset(self) -> None:
        """Modes, margins, character sets, attributes and the saved cursor; the text stays."""
        self.mode = set(_DEFAULT_MODE)
        self.margins = None
        self.charset = 0
        self.g0_charset = self.g1_charset = charsets.LAT1_MAP
        self.cursor.hidden = False
        self._use_attributes(DEFAULT)
        self._saved[self.alternate] = Saved()

    def _use_attributes(self, attributes: Char) -> None:
        self.cursor.attrs = attributes
        self._cells: Styled = self._styles[attributes]

    @property
    def display(self) -> list[str]:
        """The visible rows as plain text, top to bottom, each up to its last used cell."""
        rows = self.buffer
        return [text_of(rows[y]) if y in rows else "" for y in range(self.lines)]

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Keep the top left corner; cut or add rows and columns; clamp the cursor."""
        lines, columns = lines or self.lines, columns or self.columns
        first_new = -(-self.columns // TAB_COLUMNS) * TAB_COLUMNS
        self.tabstops.update(range(first_new, columns, TAB_COLUMNS))
        for buffer in (self.buffer, self._hidden_buffer):
            for y in [y for y in buffer if y >= lines]:
                del buffer[y]
            for row in buffer.values():
                cut(row, columns)
        self.lines, self.columns = lines, columns
        self.margins = None
        self.cursor.y = min(self.cursor.y, lines - 1)
        self.cursor.x = min(self.cursor.x, columns - 1)

    def _row(self) -> Row:
        """The row of the cursor."""
        row = self.buffer.get(self.cursor.y)
        if row is None:
            row = self.buffer[self.cursor.y] = new_row()
        return row

    def _region(self) -> Margins:
        return self.margins or Margins(0, self.lines - 1)

    # -- writing -------------------------------------------------------------------------------

    def draw(self, data: str) -> None:
        """Write printable characters at the cursor."""
        charset = self.g1_charset if self.charset else self.g0_charset
        if charset is not charsets.LAT1_MAP:
            data = data.translate(charset)
        plain = modes.IRM not in self.mode and modes.DECAWM in self.mode
        if plain and data.isascii():
            if data:
                self._draw_narrow(data)
            return
        for width, run in groupby(data, wcwidth):
            if plain and width == 1:
                self._draw_narrow("".join(run))
            else:
                for char in run:
                    self._draw_char(char, width)

    def _draw_narrow(self, text: str) -> None:
        """Write characters of one column each, wrapping where the row ends."""
        cursor, columns = self.cursor, self.columns
        self._last_char = text[-1]
        rows = (cursor.x + len(text) - 1) // columns
        if rows > self.lines and self.margins is None:
            # Only the end stays; from a blank screen on it gives the same rows.
            text = text[(rows - self.lines) * columns - cursor.x :]
            self.start_over()
        place = 0
        while place < len(text):
            if cursor.x >= columns:
                self._wrap()
            part = text[place : place + columns - cursor.x]
            self._put(part)
            place += len(part)

    def _put(self, text: Iterable[str]) -> None:
        """Replace cells from the cursor on, which all fit into the row, and move it behind them."""
        row = self._row()
        cells = list(map(self._cells.__getitem__, text))
        start = self.cursor.x
        end = start + len(cells)
        if row:
            split_wide(row, start)
            split_wide(row, end)
        row.update(zip(range(start, end), cells, strict=True))
        self.cursor.x = end

    def _draw_char(self, char: str, width: int) -> None:
        if width <= 0:
            if width == 0:
                self._combine(char)
            return
        width = min(width, self.columns)
        if self.cursor.x + width > self.columns:
            if modes.DECAWM in self.mode:
                self._wrap()
            else:
                self.cursor.x = self.columns - width
        if modes.IRM in self.mode:
            self.insert_characters(width)
        self._put((char, "")[:width])
        self._last_char = char

    def _wrap(self) -> None:
        self.cursor.x = 0
        self.index()

    def _combine(self, mark: str) -> None:
        row = self.buffer.get(self.cursor.y)
        column = min(self.cursor.x, self.columns) - 1
        if row is not None and column in row and not row[column].data:
            column -= 1
        if row is None or column not in row:
            return
        cell = row[column]
        if cell.data and len(cell.data) < CELL_CHARS_MAX:
            row[column] = cell._replace(data=cell.data + mark)

    def draw_lines(self, text: str) -> None:
        """Write printable ASCII with carriage returns and line feeds in it."""
        lines = text.split("\n")
        if self.scrolls_whole:
            self._make_room(lines)
        last = len(lines) - 1
        for number, line in enumerate(lines):
            self._draw_line(line)
            if number < last:
                self.linefeed()

    @property
    def scrolls_whole(self) -> bool:
        """Whether line feeds scroll all rows and leave the column alone."""
        return self.margins is None and modes.LNM not in self.mode

    def start_over(self) -> None:
        """Forget the rows, because so much is about to be written that none of them will stay.

        With `scrolls_whole`, after at least as many line feeds as there are rows the screen is the
        same wherever the cursor began.
        """
        self.buffer.clear()
        self.cursor.x = self.cursor.y = 0

    def _make_room(self, lines: list[str]) -> None:
        """Scroll once for lines that each stay in their row, not again for each of them."""
        feeds = len(lines) - 1
        overflow = self.cursor.y + feeds - (self.lines - 1)
        if not 1 < overflow <= self.cursor.y:
            return
        if self.cursor.x + len(lines[0]) <= self.columns and all(
            len(line) <= self.columns for line in lines
        ):
            self._scroll(0, self.lines - 1, overflow)
            self.cursor.y -= overflow

    def _draw_line(self, line: str) -> None:
        if "\r" not in line:
            self.draw(line)
            return
        for number, part in enumerate(line.split("\r")):
            if number:
                self.cursor.x = 0
            self.draw(part)

    def repeat(self, count: int) -> None:
        """Write the last character again."""
        if self._last_char:
            self.draw(self._last_char * min(count, self.columns * self.lines))

    def alignment_display(self) -> None:
        """The alignment test: every cell the same."""
        cells = dict.fromkeys(range(self.columns), self._styles[DEFAULT]["E"])
        self.buffer.clear()
        for y in range(self.lines):
            row = self.buffer[y] = new_row()
            row.update(cells)
        self.margins = None
        self.cursor.x = self.cursor.y = 0

    def define_charset(self, code: str, mode: str) -> None:
        """Designate a character set; one that is not known is the plain one."""
        charset = charsets.MAPS.get(code, charsets.LAT1_MAP)
        if mode == "(":
            self.g0_charset = charset
        elif mode == ")":
            self.g1_charset = charset

    def select_graphic_rendition(self, *attrs: int) -> None:
        super().select_graphic_rendition(*attrs)
        self._use_attributes(self.cursor.attrs)

    # -- moving --------------------------------------------------------------------------------

    def index(self) -> None:
        """One row down; at the bottom margin the region scrolls."""
        top, bottom = self._region()
        if self.cursor.y == bottom:
            self._scroll(top, bottom, 1)
        elif self.cursor.y < self.lines - 1:
            self.cursor.y += 1

    def reverse_index(self) -> None:
        """One row up; at the top margin the region scrolls."""
        top, bottom = self._region()
        if self.cursor.y == top:
            self._scroll(top, bottom, -1)
        elif self.cursor.y > 0:
            self.cursor.y -= 1

    def next_line(self) -> None:
        self.index()
        self.cursor.x = 0

    def tab(self, count: int = 1) -> None:
        x, last = self.cursor.x, self.columns - 1
        for _ in range(min(count, self.columns)):
            x += 1
            while x < last and x not in self.tabstops:
                x += 1
            x = min(x, last)
        self.cursor.x = x

    def back_tab(self, count: int = 1) -> None:
        for _ in range(min(count, self.columns)):
            self.cursor.x = max([s for s in self.tabstops if s < self.cursor.x], default=0)

    def set_tab_stop(self) -> None:
        self.tabstops.add(min(self.cursor.x, self.columns - 1))

    def cursor_up(self, count: int | None = None) -> None:
        """Up to the top margin when at or below it, else to the edge; so do the other moves."""
        top = self._region().top
        limit = top if self.cursor.y >= top else 0
        self.cursor.y = max(limit, self.cursor.y - (count or 1))
        self._end_wrap()

    def cursor_down(self, count: int | None = None) -> None:
        bottom = self._region().bottom
        limit = bottom if self.cursor.y <= bottom else self.lines - 1
        self.cursor.y = min(limit, self.cursor.y + (count or 1))
        self._end_wrap()

    def cursor_forward(self, count: int | None = None) -> None:
        self._end_wrap()
        super().cursor_forward(count)

    def _end_wrap(self) -> None:
        self.cursor.x = min(self.cursor.x, self.columns - 1)

    def cursor_position(self, line: int | None = None, column: int | None = None) -> None:
        """To a position; with origin mode rows count from the top margin and stay inside."""
        self.cursor_to_line(line)
        self.cursor_to_column(column)

    def cursor_to_line(self, line: int | None = None) -> None:
        first, last = self._region() if modes.DECOM in self.mode else (0, self.lines - 1)
        self.cursor.y = max(first, min(last, first + (line or 1) - 1))
        self._end_wrap()

    def save_cursor(self) -> None:
        self._saved[self.alternate] = Saved(
            self.cursor.x,
            self.cursor.y,
            self.cursor.attrs,
            self.g0_charset,
            self.g1_charset,
            self.charset,
            modes.DECOM in self.mode,
        )

    def restore_cursor(self) -> None:
        saved = self._saved[self.alternate]
        self.mode.discard(modes.DECOM)
        if saved.origin:
            self.mode.add(modes.DECOM)
        self.g0_charset, self.g1_charset = saved.g0_charset, saved.g1_charset
        self.charset = saved.charset
        self._use_attributes(saved.attributes)
        self.cursor.y = min(saved.y, self.lines - 1)
        self.cursor.x = min(saved.x, self.columns)

    # -- erasing, inserting, deleting, scrolling -----------------------------------------------

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """From the cursor on (0), up to and with it (1), everything (2)."""
        place = min(self.cursor.x, self.columns - 1)
        extent = {0: (place, self.columns), 1: (0, place + 1), 2: (0, self.columns)}.get(how)
        row = self.buffer.get(self.cursor.y)
        if extent is not None and row is not None:
            erase(row, *extent)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        """As in a line, for all rows; 3 erases what was scrolled off, and there is none."""
        if how in (0, 1):
            self.erase_in_line(how)
        y = self.cursor.y
        rows = {0: range(y + 1, self.lines), 1: range(y), 2: range(self.lines)}.get(how, ())
        for row in rows:
            self.buffer.pop(row, None)

    def erase_characters(self, count: int | None = None) -> None:
        row = self.buffer.get(self.cursor.y)
        if row is not None:
            start = min(self.cursor.x, self.columns - 1)
            erase(row, start, min(start + (count or 1), self.columns))

    def insert_characters(self, count: int | None = None) -> None:
        row = self.buffer.get(self.cursor.y)
        if row is not None:
            shift(row, min(self.cursor.x, self.columns - 1), count or 1, self.columns)

    def delete_characters(self, count: int | None = None) -> None:
        row = self.buffer.get(self.cursor.y)
        if row is not None:
            shift(row, min(self.cursor.x, self.columns - 1), -(count or 1), self.columns)

    def insert_lines(self, count: int | None = None) -> None:
        top, bottom = self._region()
        if top <= self.cursor.y <= bottom:
            self._scroll(self.cursor.y, bottom, -(count or 1))
            self.cursor.x = 0

    def delete_lines(self, count: int | None = None) -> None:
        top, bottom = self._region()
        if top <= self.cursor.y <= bottom:
            self._scroll(self.cursor.y, bottom, count or 1)
            self.cursor.x = 0

    def scroll_up(self, count: int = 1) -> None:
        self._scroll(*self._region(), count)

    def scroll_down(self, count: int = 1) -> None:
        self._scroll(*self._region(), -count)

    def _scroll(self, top: int, bottom: int, count: int) -> None:
        """Move the rows of a region up by `count` (down when negative); blank rows come in."""
        height = bottom - top + 1
        count = max(-height, min(height, count))
        buffer = self.buffer
        rows = [buffer.pop(y, None) for y in range(top, bottom + 1)]
        kept = rows[count:] if count >= 0 else rows[:count]
        for y, row in enumerate(kept, top if count >= 0 else top - count):
            if row is not None:
                buffer[y] = row

    def set_margins(self, top: int | None = None, bottom: int | None = None) -> None:
        """The scroll region; one that is no region is ignored. The cursor goes home."""
        first = (top or 1) - 1
        last = min(bottom or self.lines, self.lines) - 1
        if first < last:
            whole = first == 0 and last == self.lines - 1
            self.margins = None if whole else Margins(first, last)
            self.cursor_position()

    # -- modes ---------------------------------------------------------------------------------

    def set_mode(self, *numbers: int, **kwargs: Any) -> None:
        self._change_modes(numbers, True, bool(kwargs.get("private")))

    def reset_mode(self, *numbers: int, **kwargs: Any) -> None:
        self._change_modes(numbers, False, bool(kwargs.get("private")))

    def _change_modes(self, numbers: tuple[int, ...], on: bool, private: bool) -> None:
        for number in numbers:
            if private and number in _ALTERNATE:
                self._show(on, number)
            elif private and number == _SAVED_CURSOR:
                (self.save_cursor if on else self.restore_cursor)()
            elif (number << _PRIVATE_SHIFT if private else number) in _MODES:
                change = super().set_mode if on else super().reset_mode
                change(number, private=private)

    def _show(self, alternate: bool, number: int) -> None:
        """Switch between main and alternate screen."""
        if alternate == self.alternate:
            return
        if number == 1049 and alternate:
            self.save_cursor()
        self.buffer, self._hidden_buffer = self._hidden_buffer, self.buffer
        self.alternate = alternate
        if alternate and number != 47:
            self.buffer.clear()
        if number == 1049 and not alternate:
            self.restore_cursor()
