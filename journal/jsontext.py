"""Stored JSON that may be put into a frame as it is.

What a session worker handed over is not trusted: a line break or a NUL inside it would end a frame
early and let the rest pass for another. So only one JSON text in UTF-8 without control characters
passes; text that is valid but spread over lines is written anew, compact.

Failure: everything else gives None.
"""

from __future__ import annotations

import json
import re
from typing import Final

CONTROL: Final = re.compile(rb"[\x00-\x1f]")


def checked_json(stored: bytes | str | None) -> bytes | None:
    """The JSON text as bytes, None when it is not valid."""
    if stored is None:
        return None
    try:
        text = stored if isinstance(stored, str) else stored.decode()
        value = json.loads(text, parse_constant=_refuse)
        raw = text.encode()
        if CONTROL.search(raw):
            return compact(value)
    except (ValueError, RecursionError):
        return None
    return raw


def checked_array(stored: bytes | str | None) -> bytes | None:
    """The same for a JSON array; any other JSON gives None."""
    raw = checked_json(stored)
    return raw if raw is not None and raw.lstrip()[:1] == b"[" else None


def compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
