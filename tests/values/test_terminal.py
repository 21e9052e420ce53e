"""Chapter 60 §7: what a client without a terminal gets, and the bound of a render."""

from __future__ import annotations

import pytest

from worker.values.render import bound_render, render_text, strip_terminal
from worker.values.terminal import cut_bytes, uri_with_step

STRIPPED: list[tuple[str, str]] = [
    ("plain\nüñ日本", "plain\nüñ日本"),
    ("\x1b[31;1mred\x1b[0m", "red"),
    ("a\x1b[?25l\x1b[2Jb", "ab"),
    ("a\x1b[>4;2m\x1b[ qb", "ab"),
    ("a\x9b31mb", "ab"),
    ("a\x1b]0;title\x07b", "ab"),
    ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
    ("a\x9d0;title\x9cb", "ab"),
    ("a\x1bPq#0\x1b\\b", "ab"),
    ("a\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\b", "ab"),
    ("a\x1b(B\x1b=\x1b7\x1bcb", "ab"),
    ("a\tb\rc\x00\x07\x08\x0b\x0c\x7f\x85\x81d", "abcd"),
    ("a\x1b]0;no end\nb\x9fc\nd", "a\nb\nd"),
    ("line\r\nnext", "line\nnext"),
    ("cut\x1b[31", "cut"),
    ("cut\x1b", "cut"),
    ("\x1b[3\x1b[0m1m", "1m"),
    ("\x1b\x1b[0m]0;x\x07y", "]0;xy"),
]


@pytest.mark.parametrize(("text", "expected"), STRIPPED)
def test_sequences_and_controls_are_removed(text: str, expected: str) -> None:
    assert strip_terminal(text) == expected


URI = "shoal://out/4"
LIMIT = 65_536
KEPT = 65_440


def test_exactly_the_limit_is_unchanged_and_one_more_is_not() -> None:
    fits = "x" * LIMIT
    assert bound_render(fits, URI) == fits
    assert bound_render("é" * (LIMIT // 2), URI) == "é" * (LIMIT // 2)
    assert bound_render(fits + "x", URI) == "x" * KEPT + f"…(1 more lines, fetch via {URI})"


def test_whole_lines_are_kept_with_their_line_feeds() -> None:
    lines = [f"{n:099}" for n in range(1000)]
    kept = KEPT // 100
    expected = "".join(line + "\n" for line in lines[:kept])
    expected += f"…({1000 - kept} more lines, fetch via {URI})"
    assert bound_render("\n".join(lines), URI) == expected


def test_a_line_that_exactly_fills_the_budget_is_kept_and_one_byte_more_is_not() -> None:
    tail = "\n" + "y" * 1000
    assert bound_render("x" * (KEPT - 1) + tail, URI) == (
        "x" * (KEPT - 1) + f"\n…(1 more lines, fetch via {URI})"
    )
    assert bound_render("x" * KEPT + tail, URI) == (
        "x" * KEPT + f"…(2 more lines, fetch via {URI})"
    )


def test_a_first_line_that_is_too_long_is_cut_at_a_character() -> None:
    text = bound_render("x" + "日" * 30_000, URI)
    kept = text.partition("…")[0]
    assert kept == "x" + "日" * ((KEPT - 1) // 3)
    assert text.endswith(f"…(1 more lines, fetch via {URI})")


def test_the_answer_is_always_below_the_limit() -> None:
    for text in ("日本語\n" * 20_000, "x" * 200_000, "\n" * 100_000):
        assert len(bound_render(text, URI).encode()) < LIMIT


def test_a_render_is_plain_unless_the_attachment_is_a_terminal() -> None:
    assert render_text({"a": 1}, uri=URI, tty=False) == "a  1"
    assert "\x1b[36m1" in render_text({"a": 1}, uri=URI, tty=True)


def test_stripping_comes_before_bounding() -> None:
    rows = [{"a": n} for n in range(7000)]
    assert "more lines" not in render_text(rows, uri=URI, tty=False)
    assert "more lines" in render_text(rows, uri=URI, tty=True)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("shoal://out/4", "shoal://out/4?path=out"),
        ("shoal://out/4?path=a", "shoal://out/4?path=a.out"),
    ],
)
def test_a_step_is_added_to_a_uri(uri: str, expected: str) -> None:
    assert uri_with_step(uri, "out") == expected


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [("abc", 3, "abc"), ("abc", 2, "ab"), ("日本", 5, "日"), ("日本", 2, ""), ("", 0, "")],
)
def test_a_cut_in_bytes_never_splits_a_character(text: str, count: int, expected: str) -> None:
    assert cut_bytes(text, count) == expected
