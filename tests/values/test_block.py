"""Chapter 20 §7: the block form and its colours."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.values.samples import SAMPLES, lazy, outcome
from worker.values.block import display_width, truncated
from worker.values.render import block, inline, strip_terminal
from worker.values.types import TYPE_NAMES, ErrorValue, Path, Range, Record, Size, Table, Value


def plain(value: Value, width: int = 80) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", block(value, width))


def dotted(value: Value, width: int = 80) -> str:
    return plain(value, width).replace(" ", "·")


def test_the_worked_example() -> None:
    rows: list[Record] = [{"crew": "Ines", "dive": "42m"}, {"crew": "Bo", "gear": ["fins"]}]
    expected = 'crew··dive··gear····\n────────────────────\nInes··42m·\nBo··········["fins"]'
    assert dotted(Table(rows)) == expected
    assert dotted(rows) == expected


FORMS: list[tuple[Value, str]] = [
    (None, ""),
    ("raw\ttext\n", "raw\ttext\n"),
    ([], ""),
    (["a\nb", Path("my file"), None, 2.0, {"k": "v"}, True], 'a␤b\nmy file\n\n2\n{k: "v"}\ntrue'),
    ([{"a": 1}, 2], "{a: 1}\n2"),
    ({}, ""),
    ({"a": 1, "long": "x\ny", "n": None, "l": [1]}, "a     1\nlong  x␤y\nn     \nl     [1]"),
    (Table([]), "(empty table)"),
    (b"caf\xe9", "caf\ufffd"),
    (ErrorValue("c", "m"), "error(c): m"),
    (ErrorValue("c", "m", hint="try"), "error(c): m\n  hint: try"),
    (Path("my file"), '"my file"'),
    (Range(1, 3, False), "1..3"),
    (Table([{}, {}]), "\n\n\n"),
]


@pytest.mark.parametrize(("value", "expected"), FORMS)
def test_block_form_without_colour(value: Value, expected: str) -> None:
    assert plain(value) == expected


INLINE = (
    "bool int float path glob regex size duration datetime time range stream task closure command "
    "secret"
)


@pytest.mark.parametrize("name", INLINE.split())
def test_other_types_show_their_inline_form_without_colour(name: str) -> None:
    assert block(SAMPLES[name]) == inline(SAMPLES[name])


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stdout": b'[{"a": 1}]'}, "a\n─\n1"),
        ({"structured": {"a": 1}, "stdout": b"ignored"}, "a  1"),
        ({"structured": ["x"], "stdout": b"ignored"}, "x"),
        ({"structured": [], "stdout": b"ignored"}, ""),
        ({"stdout": b"text\xff\n\n"}, "text\ufffd\n"),
        ({"stdout": b"[1]", "ok": False, "status": 2}, "[1]"),
        ({"structured": "", "stdout": b"\n"}, ""),
        ({"structured": 5, "stdout": b"5\n"}, "5"),
        ({}, "[✅ success]"),
        ({"structured": None}, "[✅ success]"),
        ({"ok": False, "status": 3}, "[❌ status 3]"),
        ({"ok": False, "status": None, "signal": "SIGTERM"}, "[❌ status -1]"),
        ({"ok": False, "status": 1, "stdout": b"partial\n"}, "partial"),
    ],
)
def test_outcomes(changes: dict[str, Any], expected: str) -> None:
    assert plain(outcome(**changes)) == expected


def test_markers_are_coloured() -> None:
    assert block(outcome()) == "\x1b[32m[✅ success]\x1b[0m"
    assert block(outcome(ok=False, status=3)) == "\x1b[31;1m[❌ status 3]\x1b[0m"


# --- stored bytes ---------------------------------------------------------------------------------

REFERENCE = "val:blake3:" + "ab" * 32


def test_stored_bytes_show_their_preview_and_where_the_rest_is() -> None:
    data = b"x" * 2500
    expected = f"xxxx\n[shoal: showing first 4b of 2.5kb — {REFERENCE}]"
    assert plain(lazy(data)) == expected
    assert plain(outcome(stdout=lazy(data))) == expected
    assert block(lazy(data)).endswith("]\x1b[0m")
    assert "\n\x1b[2m[shoal:" in block(lazy(data))


def test_stored_bytes_capped_at_the_spill_limit_say_so() -> None:
    text = plain(lazy(b"x" * 2500, truncated=True))
    assert text.endswith(f"of ≥2.5kb — {REFERENCE} (truncated at spill cap)]")


def test_a_complete_preview_needs_no_marker() -> None:
    assert block(lazy(b"four", shown=4)) == "four"


# --- tables ---------------------------------------------------------------------------------------


def test_columns_come_in_first_seen_order_and_rows_are_never_cut() -> None:
    rows = [{"b": 1}, {"a": 2, "b": 3}] + [{"b": n} for n in range(500)]
    lines = plain(Table(rows)).split("\n")
    assert lines[0].split() == ["b", "a"]
    assert len(lines) == 2 + len(rows)


def test_widths_count_display_columns() -> None:
    rows = [{"a": "日本", "b": 1}, {"a": "e\u0301", "b": 2}]
    assert dotted(Table(rows)) == "a·····b\n───────\n日本··1\ne\u0301·····2"


def test_cells_are_cut_to_sixty_columns() -> None:
    lines = plain(Table([{"a": "x" * 60, "b": "y" * 61}])).split("\n")
    assert lines[2].split() == ["x" * 60, "y" * 59 + "…"] or len(lines[2]) <= 122
    assert plain([{"b": "y" * 61}]).split("\n")[2] == "y" * 59 + "…"
    assert plain([{"b": "y" * 60}]).split("\n")[2] == "y" * 60


def shape(*widths: int) -> list[int]:
    """Column widths of the rendered table whose cells have these widths."""
    table = Table([{chr(97 + at): "x" * width for at, width in enumerate(widths)}])
    header = plain(table).split("\n")[0]
    starts = [at for at, char in enumerate(header) if char != " "]
    ends = [*[start - 2 for start in starts[1:]], len(header)]
    return [end - start for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        ((38, 40), [38, 40]),
        ((38, 41), [38, 40]),
        ((41, 38), [40, 38]),
        ((41, 41), [41, 37]),
        ((50, 50, 30), [50, 8, 30]),
        ((50, 50, 20), [50, 8, 20]),
        ((9,) * 19, [9] * 18 + [8]),
        ((9,) * 20, [9] * 20),
    ],
)
def test_only_the_last_widest_column_shrinks_and_not_below_eight(
    widths: tuple[int, ...], expected: list[int]
) -> None:
    assert shape(*widths) == expected


def test_the_rule_is_as_long_as_the_table_but_at_most_the_screen() -> None:
    assert plain([{"a": "x" * 60, "b": "y" * 60, "c": "z" * 60}]).split("\n")[1] == "─" * 80
    assert plain([{"a": "x" * 41, "b": "y" * 41}]).split("\n")[1] == "─" * 80
    assert plain([{"a": "xyz", "b": 1}]).split("\n")[1] == "─" * 6


def test_a_shrunk_column_cuts_its_header_too() -> None:
    rows = [{"a": "x" * 60, "header": "y" * 10, "h" * 30: 1}]
    header = plain(rows).split("\n")[0]
    assert display_width(header) <= 80 or "…" in header


def test_another_width_is_honoured() -> None:
    assert len(plain([{"a": "x" * 30, "b": 1}], 20).split("\n")[1]) == 20


def test_blanks_after_the_last_uncoloured_cell_are_trimmed() -> None:
    rows: list[Record] = [{"a": 1, "b": [1, 2, 3]}, {"a": 2, "b": []}, {"a": 3}]
    assert plain(Table(rows)) == "a  b        \n────────────\n1  [1, 2, 3]\n2  []\n3"


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("e\u0301" * 5, 4, "e\u0301" * 3 + "…"),
    ],
)
def test_truncation_keeps_one_column_for_the_mark(text: str, columns: int, expected: str) -> None:
    assert truncated(text, columns) == expected


# --- colour ---------------------------------------------------------------------------------------

COLOURS = {
    **dict.fromkeys(("int", "float", "size", "duration", "datetime", "time", "path"), "\x1b[36m"),
    "bool": "\x1b[96m",
    "null": "\x1b[96m",
    "str": "\x1b[32m",
    "glob": "\x1b[95m",
    "regex": "\x1b[95m",
    "error": "\x1b[31m",
}


@pytest.mark.parametrize("name", TYPE_NAMES)
def test_cells_and_record_values_have_the_colour_of_their_type(name: str) -> None:
    colour = COLOURS.get(name, "")
    record = block({"key": SAMPLES[name]})
    assert record.startswith("\x1b[34;1mkey\x1b[0m  " + colour)
    assert record.endswith("\x1b[0m")
    row = block([{"a": SAMPLES[name]}]).split("\n")[2]
    assert row.startswith(colour)
    assert row.endswith("\x1b[0m") is bool(colour)


def test_header_and_rule_are_coloured_as_wholes() -> None:
    header, rule, _ = block([{"a": 1, "b": 2}]).split("\n")
    assert header == "\x1b[1ma  b\x1b[0m"
    assert rule == "\x1b[2m────\x1b[0m"


def test_error_colours() -> None:
    assert block(ErrorValue("c", "m", hint="h")) == (
        "\x1b[31;1merror(c):\x1b[0m \x1b[1mm\x1b[0m\n  \x1b[33;1mhint:\x1b[0m \x1b[33mh\x1b[0m"
    )


@pytest.mark.parametrize("value", ["text", ["a", 1, True], Range(0, 2, False), Size(5), b"raw"])
def test_lists_texts_and_inline_forms_carry_no_colour(value: Value) -> None:
    assert "\x1b" not in block(value)


def test_the_plain_render_is_the_coloured_one_without_sequences() -> None:
    table = Table([dict(SAMPLES)])
    assert strip_terminal(block(table)) == plain(table)
