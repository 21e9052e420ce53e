"""What terminal output looks like: bytes in, rows and cursor out (chapter 40 §14.3, §14.4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.terminals.screen import Screen
from worker.terminals.sequences import Decoder

ESC = "\x1b"
CSI = ESC + "["


def shown(output: str | bytes, cols: int = 10, rows: int = 4) -> Screen:
    screen = Screen(cols, rows)
    Decoder(screen).feed(output.encode() if isinstance(output, str) else output)
    return screen


# Output, the rows it gives (rows after them are empty), and the cursor as (row, column).
CASES: list[tuple[str, str | bytes, list[str], tuple[int, int]]] = [
    ("plain text", "hello", ["hello"], (0, 5)),
    ("line ends", "a\r\nb\nc", ["a", "b", " c"], (2, 2)),
    ("VT and FF are line feeds", "a\vb\fc", ["a", " b", "  c"], (2, 3)),
    ("backspace moves only", "abc\b\bX", ["aXc"], (0, 2)),
    ("tabs stop every 8 columns", "a\tb", ["a       b"], (0, 9)),
    ("tab at the right edge", "a\t\t\tb", ["a        b"], (0, 10)),
    ("written blanks at the end stay", "a  ", ["a  "], (0, 3)),
    ("skipped cells are blanks before a used one", f"{CSI}1;4Hx", ["   x"], (0, 4)),
    ("last column leaves a pending wrap", "0123456789", ["0123456789"], (0, 10)),
    ("the next character wraps", "0123456789x", ["0123456789", "x"], (1, 1)),
    ("carriage return takes a pending wrap back", "0123456789\rx", ["x123456789"], (0, 1)),
    ("without autowrap the last column is overwritten", f"{CSI}?7l0123456789xyz",
     ["012345678z"], (0, 10)),
    ("long lines wrap and scroll", "a" * 45, ["a" * 10, "a" * 10, "a" * 10, "a" * 5], (3, 5)),
    ("rows that scroll off are gone", "1\r\n2\r\n3\r\n4\r\n5", ["2", "3", "4", "5"], (3, 1)),
    ("UTF-8", "äöü€", ["äöü€"], (0, 4)),
    ("bad bytes become U+FFFD", b"a\xffb\xc3(", ["a\ufffdb\ufffd("], (0, 5)),
    ("combining marks stay with their character", "e\u0301x", ["e\u0301x"], (0, 2)),
    ("mark after the last column", "012345678e\u0301", ["012345678e\u0301"], (0, 10)),
    ("wide characters take two columns", "日本x", ["日本x"], (0, 5)),
    ("wide character that does not fit wraps", "012345678日", ["012345678", "日"], (1, 2)),
    ("writing on half of a wide character removes it", f"日本{CSI}1;2Hx", [" x本"], (0, 2)),
    ("writing on the first half removes the second", f"日本{CSI}1;1Hx", ["x 本"], (0, 1)),
    ("cursor addressing", f"{CSI}3;5Hx{CSI}Hy", ["y", "", "    x"], (0, 1)),
    ("addresses are clamped", f"{CSI}99;99Hx", ["", "", "", "         x"], (3, 10)),
    ("huge parameters", f"{CSI}99999999999999999999Cx", ["         x"], (0, 10)),
    ("relative moves", f"{CSI}2;2H{CSI}A{CSI}Cx{CSI}2B{CSI}2Dy", ["  x", "", " y"], (2, 2)),
    ("next and previous line", f"ab{CSI}2Ex{CSI}Fy", ["ab", "y", "x"], (1, 1)),
    ("column and row addressing", f"{CSI}4Gx{CSI}3dy", ["   x", "", "    y"], (2, 5)),
    ("save and restore", f"ab{ESC}7{CSI}3;3Hx{ESC}8c", ["abc", "", "  x"], (0, 3)),
    ("save and restore, short form", f"ab{CSI}s{CSI}3;3Hx{CSI}uc", ["abc", "", "  x"], (0, 3)),
    ("reverse index", f"a\r\nb{ESC}Mc", ["ac", "b"], (0, 2)),
    ("reverse index at the top scrolls down", f"a{ESC}Mb", [" b", "a"], (0, 2)),
    ("erase to the end of the line", f"abcdef{CSI}4D{CSI}K", ["ab"], (0, 2)),
    ("erase to the start of the line", f"abcdef{CSI}4D{CSI}1K", ["   def"], (0, 2)),
    ("erase the line", f"abc{CSI}2K", [], (0, 3)),
    ("erase below", f"a\r\nb\r\nc{CSI}2;1H{CSI}J", ["a"], (1, 0)),
    ("erase above", f"ab\r\nbc\r\ncd{CSI}2;1H{CSI}1J", ["", " c", "cd"], (1, 0)),
    ("erase everything keeps the cursor", f"a\r\nb{CSI}2J", [], (1, 1)),
    ("erased cells before a used one are blanks", f"abcd{CSI}1;2H{CSI}2X", ["a  d"], (0, 1)),
    ("erased cells at the end are nothing", f"abcd{CSI}1;3H{CSI}5X", ["ab"], (0, 2)),
    ("insert lines", f"a\r\nb\r\nc{CSI}2;1H{CSI}L", ["a", "", "b", "c"], (1, 0)),
    ("delete lines", f"a\r\nb\r\nc{CSI}1;1H{CSI}2M", ["c"], (0, 0)),
    ("insert characters", f"abcd{CSI}1;2H{CSI}2@", ["a  bcd"], (0, 1)),
    ("inserted cells push others out", f"0123456789{CSI}1;1H{CSI}3@", ["   0123456"], (0, 0)),
    ("delete characters", f"abcd{CSI}1;2H{CSI}2P", ["ad"], (0, 1)),
    ("insert mode", f"abc{CSI}1;1H{CSI}4hX{CSI}4l", ["Xabc"], (0, 1)),
    ("scroll region", f"1\r\n2\r\n3\r\n4{CSI}2;3r{CSI}3;1H\nx", ["1", "3", "x", "4"], (2, 1)),
    ("setting margins goes home", f"a{CSI}2;3rb", ["b"], (0, 1)),
    ("margins that are no region are ignored", f"a{CSI}3;3rb", ["ab"], (0, 2)),
    ("scroll up and down", f"1\r\n2\r\n3{CSI}S{CSI}2T", ["", "", "2", "3"], (2, 1)),
    ("line feed below the region does not scroll it", f"{CSI}1;2r{CSI}4;1Hx\r\ny",
     ["", "", "", "y"], (3, 1)),
    ("origin mode counts from the margin", f"{CSI}2;3r{CSI}?6h{CSI}1;1Hx{CSI}9;1Hy",
     ["", "x", "y"], (2, 1)),
    ("alternate screen hides the main one", f"main{CSI}?1049halt", ["    alt"], (0, 7)),
    ("leaving it brings main and cursor back", f"main{CSI}?1049h{CSI}3;3Halt{CSI}?1049lX",
     ["mainX"], (0, 5)),
    ("the older alternate screen", f"main{CSI}?47h{CSI}Halt{CSI}?47l", ["main"], (0, 3)),
    ("the alternate screen starts blank", f"{CSI}?1049hold{CSI}?1049l{CSI}?1049h", [], (0, 0)),
    ("full reset", f"abc{CSI}2;3r{CSI}?25l{ESC}cx", ["x"], (0, 1)),
    ("soft reset keeps the screen", f"ab{CSI}?7l{CSI}!pc", ["abc"], (0, 3)),
    ("alignment test", f"{ESC}#8", ["E" * 10] * 4, (0, 0)),
    ("repeat", f"ab{CSI}3b", ["abbbb"], (0, 5)),
    ("line drawing characters", f"{ESC}(0lqk{ESC}(Bq", ["┌─┐q"], (0, 4)),
    ("shift out and in", f"{ESC})0\x0ex\x0fx", ["│x"], (0, 2)),
    ("tab stops can be set and cleared", f"{CSI}3g{CSI}1;4H{ESC}H\r\tx", ["   x"], (0, 4)),
    ("back tab", f"\tx{CSI}2Zy", ["y       x"], (0, 1)),
    ("colours", f"{CSI}1;31mred{CSI}0m {CSI}38;5;9mx{CSI}38:2::1:2:3my{CSI}m", ["red xy"], (0, 6)),
    ("titles", f"{ESC}]0;title\x07a{ESC}]2;other{ESC}\\b", ["ab"], (0, 2)),
    ("device control strings", f"{ESC}P1$r0m{ESC}\\a{ESC}_app{ESC}\\b{ESC}^pm{ESC}\\c", ["abc"],
     (0, 3)),
    ("mouse, paste and other modes", f"{CSI}?1000h{CSI}?2004h{CSI}?1;12;1006la", ["a"], (0, 1)),
    ("queries", f"{CSI}c{CSI}>c{CSI}6n{CSI}?6n{CSI}=c{CSI}>4;2m{CSI}?u{CSI}>1ua", ["a"], (0, 1)),
    ("cursor shape and window operations", f"{CSI}2 q{CSI}22;0;0t{CSI}?2026$pa", ["a"], (0, 1)),
    ("keypad modes and other escapes", f"{ESC}={ESC}>{ESC}%G{ESC}*Ba", ["a"], (0, 1)),
    ("private functions with odd parameters", f"{CSI}?5C{CSI}?1;2Ha", ["a"], (0, 1)),
    ("eight-bit controls", "ab\x9b1Dc\x85d\x9d0;t\x9ce", ["ac", "de"], (1, 2)),
    ("bell, NUL and DEL show nothing", "a\x07\x00\x7fb", ["ab"], (0, 2)),
    ("control character inside a sequence acts first", f"ab{CSI}\r2Cx", ["abx"], (0, 3)),
    ("cancelled sequence", f"a{CSI}12\x18b", ["ab"], (0, 2)),
    ("a sequence cut short by another", f"a{CSI}12{CSI}1;5Hb", ["a   b"], (0, 5)),
    ("escape before a sequence", f"a{ESC}{ESC}[1;5Hb", ["a   b"], (0, 5)),
]  # fmt: skip


@pytest.mark.parametrize("output, rows, cursor", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_output_gives_rows_and_cursor(
    output: str | bytes, rows: list[str], cursor: tuple[int, int]
) -> None:
    screen = shown(output)
    assert screen.display == rows + [""] * (4 - len(rows))
    assert (screen.cursor.y, screen.cursor.x) == cursor


@pytest.mark.parametrize("output", [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_pieces_do_not_matter(output: str | bytes) -> None:
    data = output.encode() if isinstance(output, str) else output
    whole = shown(data)
    screen = Screen(10, 4)
    decoder = Decoder(screen)
    for byte in data:
        decoder.feed(bytes([byte]))
    assert screen.display == whole.display
    assert (screen.cursor.y, screen.cursor.x) == (whole.cursor.y, whole.cursor.x)


def test_cursor_visibility_follows_the_program() -> None:
    assert not shown("x").cursor.hidden
    assert shown(f"{CSI}?25l").cursor.hidden
    assert not shown(f"{CSI}?25l{CSI}?25h").cursor.hidden


def test_string_that_never_ends_is_skipped_and_not_kept() -> None:
    screen = Screen(10, 4)
    decoder = Decoder(screen)
    decoder.feed(b"\x1b]0;")
    for _ in range(100):
        decoder.feed(b"x" * 10_000)
        assert len(decoder._text) == 0
    decoder.feed(b"\x07shown")
    assert screen.display[0] == "shown"


def test_sequence_that_never_ends_is_dropped() -> None:
    screen = Screen(10, 4)
    decoder = Decoder(screen)
    decoder.feed(b"\x1b[" + b"1;" * 5000)
    decoder.feed(b"m")
    assert len(decoder._text) < 1000


@pytest.mark.parametrize(
    "cols, rows, lines, cursor",
    [
        (10, 4, ["abcdef", "日本", "x"], (2, 1)),
        (3, 2, ["abc", "日"], (1, 1)),
        (1, 1, ["a"], (0, 0)),
        (20, 6, ["abcdef", "日本", "x"], (2, 1)),
    ],
)
def test_resize_keeps_the_top_left_corner(
    cols: int, rows: int, lines: list[str], cursor: tuple[int, int]
) -> None:
    screen = shown("abcdef\r\n日本\r\nx")
    screen.resize(rows, cols)
    assert screen.display == lines + [""] * (rows - len(lines))
    assert (screen.cursor.y, screen.cursor.x) == cursor


def test_resize_resets_the_scroll_region_and_adds_tab_stops() -> None:
    screen = Screen(10, 4)
    decoder = Decoder(screen)
    decoder.feed(f"{CSI}2;3r".encode())
    screen.resize(5, 30)
    decoder.feed(b"1\r\n2\r\n3\r\n4\r\n5\r\n6\t\t\tx")
    assert screen.display == ["2", "3", "4", "5", "6                       x"]


def test_alternate_screen_is_resized_with_the_main_one() -> None:
    screen = Screen(10, 4)
    decoder = Decoder(screen)
    decoder.feed(f"main text{CSI}?1049h".encode())
    screen.resize(2, 4)
    decoder.feed(f"{CSI}?1049l".encode())
    assert screen.display == ["main", ""]


_LINES = st.lists(
    st.one_of(
        st.sampled_from(["\r\n", "\n", "\r", "\t", "日", f"{CSI}31m", f"{CSI}2;3r", f"{CSI}20h"]),
        st.text(alphabet="abc ", max_size=14),
    ),
    max_size=60,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(_LINES, st.integers(1, 8), st.integers(1, 5))
def test_output_that_is_not_drawn_makes_no_difference(text: str, cols: int, rows: int) -> None:
    """Whole lines at once, which skips what scrolls away, against one character after the other."""
    whole = shown(text, cols, rows)
    screen = Screen(cols, rows)
    decoder = Decoder(screen)
    for char in text:
        decoder.feed(char.encode())
    assert screen.display == whole.display
    assert (screen.cursor.y, screen.cursor.x) == (whole.cursor.y, whole.cursor.x)


@pytest.mark.parametrize(
    "unit", ["y\r\n", "x" * 79 + "\r\n", "z" * 500, f"{CSI}1;32mok{CSI}0m\r\n"]
)
def test_a_flood_keeps_only_the_screen(unit: str) -> None:
    screen = shown(unit * 20_000, 80, 24)
    assert set(screen.buffer) <= set(range(24))
    assert sum(map(len, screen.buffer.values())) <= 80 * 24


_PIECES = st.one_of(
    st.text(alphabet="ab日e\u0301 \t\r\n\b\x0e\x0f\x18\x9b\x85", max_size=8),
    st.sampled_from([f"{ESC}{c}" for c in "78DEHMc=>(0"] + [f"{ESC}(B", f"{ESC}#8", f"{ESC}]0;t"]),
    st.builds(
        "{}{}{}{}".format,
        st.just(CSI),
        st.sampled_from(["", "?", ">", "!"]),
        st.lists(st.integers(0, 60).map(str), max_size=3).map(";".join),
        st.sampled_from("@ABCDEFGHIJKLMPSTXZ`abdefghlrsu"),
    ),
    st.sampled_from([f"{CSI}?{n}{c}" for n in (6, 7, 25, 47, 1047, 1048, 1049) for c in "hl"]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(_PIECES, st.tuples(st.integers(1, 12), st.integers(1, 6))), max_size=30),
    st.integers(1, 12),
    st.integers(1, 6),
)
def test_any_output_keeps_the_grid_in_shape(
    pieces: list[str | tuple[int, int]], cols: int, rows: int
) -> None:
    screen = Screen(cols, rows)
    decoder = Decoder(screen)
    for piece in pieces:
        if isinstance(piece, tuple):
            screen.resize(piece[1], piece[0])
        else:
            decoder.feed(piece.encode("utf-8", "surrogatepass"))
        lines = screen.display
        assert len(lines) == screen.lines
        assert 0 <= screen.cursor.y < screen.lines
        assert 0 <= screen.cursor.x <= screen.columns
        assert all(0 <= y < screen.lines for y in screen.buffer)
        assert all(0 <= x < screen.columns for row in screen.buffer.values() for x in row)
        assert not any("\n" in line or ESC in line for line in lines)
