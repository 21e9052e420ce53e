"""Offsets of a source text: characters in, UTF-8 bytes out.

ASCII text needs no translation. Any other text keeps one byte offset per STRIDE characters, made on
first use, so a lookup encodes at most STRIDE - 1 characters and the table stays small for any text.
"""

from __future__ import annotations

from collections.abc import Callable

from worker.language.ast import Span

SpanFactory = Callable[[int, int], Span]

STRIDE = 256


class Source:
    """One text with its offset table."""

    __slots__ = ("_ascii", "_marks", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._ascii = text.isascii()
        # Byte offset of every STRIDEth character; empty until the first lookup.
        self._marks: list[int] = []

    def byte_offset(self, index: int) -> int:
        """UTF-8 length of the text before character `index`."""
        if self._ascii:
            return index
        text, marks = self.text, self._marks
        if not marks:
            marks.append(0)
            for start in range(0, len(text), STRIDE):
                marks.append(marks[-1] + _byte_length(text[start : start + STRIDE]))
        return marks[index // STRIDE] + _byte_length(text[index - index % STRIDE : index])

    def spans_from(self, base: int) -> SpanFactory:
        """A maker of spans relative to character `base`."""
        if self._ascii:
            if base == 0:
                return Span
            return lambda start, end: Span(start - base, end - base)
        byte_offset = self.byte_offset
        base_bytes = byte_offset(base)
        return lambda start, end: Span(
            byte_offset(start) - base_bytes, byte_offset(end) - base_bytes
        )


def _byte_length(text: str) -> int:
    # Lone surrogates are rejected by the parser, but only after it can say where they are.
    return len(text.encode("utf-8", "surrogatepass"))
