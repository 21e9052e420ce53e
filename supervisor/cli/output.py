"""What commands print: results on stdout, everything else on stderr.

One `Output` per run. Text is UTF-8 whatever the locale says. In JSON mode nothing but JSON reaches
stdout (chapter 81, section 3).

Failure: BrokenPipeError when the reader of stdout is gone; `main` ends quietly then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, Final

import orjson
from wcwidth import wcswidth

BOLD_RED: Final = "1;31"
YELLOW: Final = "33"

_JSON_OPTIONS: Final = orjson.OPT_INDENT_2


class Output:
    """The streams of one run, and how to write to them."""

    # Fixed for the run: whether results are JSON, whether tables have a header, whether to colour.
    def __init__(
        self,
        *,
        json: bool = False,
        header: bool = True,
        color: bool = False,
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
    ) -> None:
        self.json = json
        self.header = header
        self.color = color
        self._stdout = stdout or sys.stdout.buffer
        self._stderr = stderr or sys.stderr.buffer

    def bytes(self, data: bytes) -> None:
        self._stdout.write(data)

    def text(self, text: str) -> None:
        """Text as it is."""
        self._stdout.write(text.encode(errors="replace"))

    def line(self, text: str = "") -> None:
        self.text(text + "\n")

    def document(self, value: object) -> None:
        """One JSON document, indented by two, on stdout."""
        self.bytes(orjson.dumps(value, option=_JSON_OPTIONS) + b"\n")

    def record(self, value: object) -> None:
        """One compact JSON object on a line of its own, at once."""
        self.bytes(orjson.dumps(value) + b"\n")
        self.flush()

    def note(self, text: str) -> None:
        """A line on stderr."""
        self.flush()
        self._stderr.write(text.encode(errors="replace") + b"\n")
        self._stderr.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """An aligned table with an upper-case header; nothing at all without rows."""
        body = [list(row) for row in rows]
        if not body:
            return
        lines = [list(columns), *body] if self.header else body
        widths = [max(display_width(row[at]) for row in lines) for at in range(len(columns))]
        for row in lines:
            cells = (
                cell + " " * (w - display_width(cell)) for cell, w in zip(row, widths, strict=True)
            )
            self.line("  ".join(cells).rstrip())

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color else text

    def flush(self) -> None:
        self._stdout.flush()


def display_width(text: str) -> int:
    width = wcswidth(text)
    return width if width >= 0 else len(text)


def one_line(text: str) -> str:
    """The first line of a text, without control characters, for a table cell."""
    first = text.split("\n", 1)[0]
    return "".join(char if char.isprintable() else " " for char in first)


def local_time(nanoseconds: int | None) -> str:
    """Unix nanoseconds as local RFC 3339 time with seconds; empty for none."""
    if nanoseconds is None:
        return ""
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000).astimezone()
    return moment.isoformat(timespec="seconds")


def path_text(value: Any) -> str:
    """The text of a path object, or of a plain path."""
    return str(value.get("display", "")) if isinstance(value, Mapping) else str(value or "")
