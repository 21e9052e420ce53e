"""How an error of source text is shown."""

import io

import pytest

from supervisor.cli.diagnostic import diagnostic, locate
from supervisor.cli.output import Output

SOURCE = "let a = 1\nlet b = 2\nif name { 1 }\n"


def out(color: bool = False) -> Output:
    return Output(color=color, stdout=io.BytesIO(), stderr=io.BytesIO())


def test_whole_text() -> None:
    text = diagnostic(
        out(),
        "tool.shl",
        SOURCE,
        "type_error",
        "no truthiness: expected bool",
        span={"start": 28, "end": 29},
        hint="compare explicitly",
    )
    assert text == (
        "tool.shl:3:9: type_error: no truthiness: expected bool\n"
        "  if name { 1 }\n"
        "          ^\n"
        "  hint: compare explicitly\n"
    )


def test_hint_line_only_with_a_hint_and_stderr_first_with_a_newline_added() -> None:
    text = diagnostic(
        out(),
        "<repl>",
        "x",
        "cmd_failed",
        "m",
        span={"start": 0, "end": 1},
        hint=None,
        stderr="trouble",
    )
    assert text == "trouble\n<repl>:1:1: cmd_failed: m\n  x\n  ^\n"


@pytest.mark.parametrize(
    ("source", "offset", "expected"),
    [
        ("abc", 1, (1, 2, "abc")),
        ("naïve x", 7, (1, 7, "naïve x")),  # bytes in, characters out
        ("a\nb", 2, (2, 1, "b")),
        ("a\n", 2, (2, 1, "")),
        ("abc", 99, (1, 4, "abc")),
        ("abc", -5, (1, 1, "abc")),
        ("", 0, (1, 1, "")),
        ("ab\r\ncd", 1, (1, 2, "ab")),
        ("aïb", 2, (1, 2, "aïb")),  # inside a character: its start
    ],
)
def test_offset_is_bytes_and_clamped(
    source: str, offset: int, expected: tuple[int, int, str]
) -> None:
    assert locate(source, offset) == expected


def test_caret_stands_below_its_character_after_tabs_and_wide_characters() -> None:
    text = diagnostic(
        out(), "f", "\t貝 x", "e", "m", span={"start": 5, "end": 6}, hint=None
    ).splitlines()
    assert text[1] == "  \t貝 x"
    assert text[2] == "  \t   ^"


def test_colours() -> None:
    text = diagnostic(
        out(color=True), "f", "x", "e", "m", span={"start": 0, "end": 1}, hint="h"
    ).splitlines()
    assert text == [
        "\x1b[1;31mf:1:1: e: m\x1b[0m",
        "  x",
        "  \x1b[1;31m^\x1b[0m",
        "  \x1b[33mhint: h\x1b[0m",
    ]
