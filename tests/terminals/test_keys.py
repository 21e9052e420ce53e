"""Input items as bytes (chapter 40 §14.2)."""

from __future__ import annotations

from typing import Any

import pytest

from worker.terminals.keys import BadInput, input_bytes

KEYS = {
    "Enter Return CR": b"\r", "Newline LF": b"\n", "Tab": b"\t", "Backtab Shift-Tab": b"\x1b[Z",
    "Escape Esc": b"\x1b", "Backspace BS": b"\x7f", "Space": b" ", "Delete Del": b"\x1b[3~",
    "Up": b"\x1b[A", "Down": b"\x1b[B", "Right": b"\x1b[C", "Left": b"\x1b[D",
    "Home": b"\x1b[H", "End": b"\x1b[F", "PageUp PgUp": b"\x1b[5~", "PageDown PgDn": b"\x1b[6~",
    "Insert Ins": b"\x1b[2~", "F1": b"\x1bOP", "F2": b"\x1bOQ", "F3": b"\x1bOR", "F4": b"\x1bOS",
    "F5": b"\x1b[15~", "F6": b"\x1b[17~", "F7": b"\x1b[18~", "F8": b"\x1b[19~",
    "F9": b"\x1b[20~", "F10": b"\x1b[21~", "F11": b"\x1b[23~", "F12": b"\x1b[24~",
}  # fmt: skip


@pytest.mark.parametrize("names, data", KEYS.items())
def test_key_names_ignore_case(names: str, data: bytes) -> None:
    for name in names.split():
        for spelling in (name, name.lower(), name.upper()):
            assert input_bytes({"key": spelling}) == data


@pytest.mark.parametrize("prefix", ["Ctrl-", "ctrl-", "C-"])
@pytest.mark.parametrize(
    "key, data",
    [
        ("A", b"\x01"),
        ("a", b"\x01"),
        ("c", b"\x03"),
        ("Z", b"\x1a"),
        ("Space", b"\x00"),
        ("space", b"\x00"),
        ("@", b"\x00"),
        ("[", b"\x1b"),
        ("\\", b"\x1c"),
        ("]", b"\x1d"),
        ("^", b"\x1e"),
        ("_", b"\x1f"),
        ("?", b"\x7f"),
    ],
)
def test_control_chords(prefix: str, key: str, data: bytes) -> None:
    assert input_bytes({"key": prefix + key}) == data


@pytest.mark.parametrize(
    "name",
    ["CTRL-A", "c-a", "Ctrl-1", "Ctrl-ab", "Ctrl-", "Alt-x", "Shift-Up", "F13", "", "SPACE-"],
)
def test_nothing_else_is_a_key(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        input_bytes({"key": name})
    assert str(caught.value) == f'unknown key name "{name}" in pty.send input'


@pytest.mark.parametrize(
    "item, data",
    [
        ("", b""),
        ([], b""),
        ("a\rb", b"a\rb"),
        ("ä€", "ä€".encode()),
        ({"text": "\\r"}, b"\\r"),
        ({"bytes": "AP8="}, b"\x00\xff"),
        (["a", {"key": "Enter"}, [["b"], {"text": "c"}]], b"a\rbc"),
        ({"key": "Up", "text": "t", "bytes": "AA=="}, b"\x1b[A"),
        ({"key": 5, "text": "t"}, b"t"),
        ({"key": None, "text": None, "bytes": "AA=="}, b"\x00"),
    ],
)
def test_items_are_concatenated_in_order(item: Any, data: bytes) -> None:
    assert input_bytes(item) == data


@pytest.mark.parametrize(
    "item, message",
    [
        ({}, "pty.send input object must have one of `key`, `text`, or `bytes`"),
        ({"key": 1}, "pty.send input object must have one of `key`, `text`, or `bytes`"),
        (5, "pty.send input must be a string, object, or array; got 5"),
        (None, "pty.send input must be a string, object, or array; got null"),
        (["a", True], "pty.send input must be a string, object, or array; got true"),
        ({"bytes": "!!"}, "pty.send bytes is not valid base64: "),
        ({"bytes": "AP8"}, "pty.send bytes is not valid base64: "),
    ],
)
def test_other_json_is_refused(item: Any, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        input_bytes(item)
    assert str(caught.value).startswith(message)


def test_deeply_nested_arrays_are_no_problem() -> None:
    item: Any = "x"
    for _ in range(50_000):
        item = [item]
    assert input_bytes(item) == b"x"
