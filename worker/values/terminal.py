"""Delivery of rendered text: without terminal sequences, within a bound (chapter 60 §7).

Failure: nothing here raises.
"""

from __future__ import annotations

import re
from typing import Final

RENDER_BYTES_MAX: Final = 65_536
_KEPT_BYTES_MAX: Final = 65_440

# The control-sequence grammar of ECMA-48, unfinished sequences included: CSI with parameter and
# intermediate bytes, the string commands up to their terminator (up to the end of the line without
# one, so that a stray introducer does not hide the rest of the text), and the short escapes. The
# last alternative removes what is left of C0, DEL and C1, except the line feed.
_TERMINAL: Final = re.compile(
    r"""(?:\x1b\[|\x9b)[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]?
      | (?:\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f])
        (?:[^\x07\x18\x1a\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|[\x18\x1a\x9c])
          |[^\x07\x18\x1a\x1b\x90\x98\x9c-\x9f\n]*)
      | \x1b[\x20-\x2f]*[\x30-\x7e]?
      | [\x00-\x09\x0b-\x1f\x7f-\x9f]""",
    re.VERBOSE,
)
# Most rendered texts hold colours and nothing else, which this removes much faster.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_NEEDS_STRIPPING: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def strip_terminal(text: str) -> str:
    """The text without terminal sequences and without control characters other than LF."""
    if _NEEDS_STRIPPING.search(text) is None:
        return text
    plain = _COLOUR.sub("", text)
    if _NEEDS_STRIPPING.search(plain) is None:
        return plain
    return _TERMINAL.sub("", text)


def uri_with_step(uri: str, step: str) -> str:
    """The URI of a part: `?path=STEP`, joined with a dot when the URI has a path already."""
    return f"{uri}.{step}" if "?path=" in uri else f"{uri}?path={step}"


def cut_bytes(text: str, count: int) -> str:
    """The longest start of `text` with at most `count` bytes of UTF-8, cut at a character."""
    if len(text) <= count // 4:
        return text
    return text[:count].encode()[:count].decode("utf-8", "ignore")


def bound_render(text: str, uri: str) -> str:
    """At most 65,536 bytes of UTF-8: whole lines from the top, then a marker naming the URI."""
    if len(text) <= RENDER_BYTES_MAX // 4:
        return text
    data = text.encode()
    if len(data) <= RENDER_BYTES_MAX:
        return text
    total = text.count("\n") + (not text.endswith("\n"))
    # The last line break within the budget ends the last line that is kept with its LF.
    end = data.rfind(b"\n", 0, _KEPT_BYTES_MAX) + 1
    if end == 0:
        kept, lines = cut_bytes(text, _KEPT_BYTES_MAX), 0
    else:
        kept = data[:end].decode()
        lines = data.count(b"\n", 0, end)
    return f"{kept}…({total - lines} more lines, fetch via {uri})"
