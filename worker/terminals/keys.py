"""Input items of a terminal as bytes (chapter 40 §14.2).

An item is a string, `{"key": NAME}`, `{"text": STRING}`, `{"bytes": BASE64}` or an array of items.

Failure: `BadInput` with the message for the client, before anything was sent.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final


class BadInput(Exception):
    """The input cannot be sent; the text is for the client."""


_NAMES: Final[dict[str, bytes]] = {
    name.lower(): data
    for names, data in (
        ("Enter Return CR", b"\r"),
        ("Newline LF", b"\n"),
        ("Tab", b"\t"),
        ("Backtab Shift-Tab", b"\x1b[Z"),
        ("Escape Esc", b"\x1b"),
        ("Backspace BS", b"\x7f"),
        ("Space", b" "),
        ("Delete Del", b"\x1b[3~"),
        ("Up", b"\x1b[A"),
        ("Down", b"\x1b[B"),
        ("Right", b"\x1b[C"),
        ("Left", b"\x1b[D"),
        ("Home", b"\x1b[H"),
        ("End", b"\x1b[F"),
        ("PageUp PgUp", b"\x1b[5~"),
        ("PageDown PgDn", b"\x1b[6~"),
        ("Insert Ins", b"\x1b[2~"),
        ("F1", b"\x1bOP"),
        ("F2", b"\x1bOQ"),
        ("F3", b"\x1bOR"),
        ("F4", b"\x1bOS"),
        ("F5", b"\x1b[15~"),
        ("F6", b"\x1b[17~"),
        ("F7", b"\x1b[18~"),
        ("F8", b"\x1b[19~"),
        ("F9", b"\x1b[20~"),
        ("F10", b"\x1b[21~"),
        ("F11", b"\x1b[23~"),
        ("F12", b"\x1b[24~"),
    )
    for name in names.split()
}
_CHORD_PREFIXES: Final = ("Ctrl-", "ctrl-", "C-")
_CHORDS: Final[dict[str, bytes]] = {
    **{chr(ord("A") + i): bytes([i + 1]) for i in range(26)},
    **{chr(ord("a") + i): bytes([i + 1]) for i in range(26)},
    "Space": b"\x00",
    "space": b"\x00",
    "@": b"\x00",
    "[": b"\x1b",
    "\\": b"\x1c",
    "]": b"\x1d",
    "^": b"\x1e",
    "_": b"\x1f",
    "?": b"\x7f",
}


def input_bytes(item: Any) -> bytes:
    """All bytes of an input, in order. `item` is decoded JSON."""
    parts: list[bytes] = []
    waiting = [item]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting.extend(reversed(found))
        else:
            parts.append(_item_bytes(found))
    return b"".join(parts)


def _item_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return _utf8(item)
    if isinstance(item, dict):
        if isinstance(item.get("key"), str):
            return key_bytes(item["key"])
        if isinstance(item.get("text"), str):
            return _utf8(item["text"])
        if isinstance(item.get("bytes"), str):
            return _decoded(item["bytes"])
        raise BadInput("pty.send input object must have one of `key`, `text`, or `bytes`")
    shown = json.dumps(item)
    raise BadInput(f"pty.send input must be a string, object, or array; got {shown}")


def key_bytes(name: str) -> bytes:
    """The bytes of a key by name; chords are exact, other names ignore case."""
    data = _NAMES.get(name.lower())
    if data is None:
        for prefix in _CHORD_PREFIXES:
            if name.startswith(prefix):
                data = _CHORDS.get(name[len(prefix) :])
    if data is None:
        raise BadInput(f'unknown key name "{name}" in pty.send input')
    return data


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"pty.send bytes is not valid base64: {error}") from None
