"""Spans of a source text: character offsets in, UTF-8 byte offsets out.

ASCII text needs no translation. Any other text keeps one byte offset per STRIDE characters, so a
lookup encodes at most STRIDE - 1 characters and the table stays small for any text.
"""

from __future__ import annotations

from collections.abc import Callable

from worker.language.ast import Span

SpanFactory = Callable[[int, int], Span]

STRIDE = 256


class Source:
    """One text with its offset table. Immutable after construction."""

    __slots__ = ("_marks", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._marks: list[int] | None = None
        if not text.isascii():
            marks = [0]
            for start in range(0, len(text), STRIDE):
                marks.append(marks[-1] + _byte_length(text[start : start + STRIDE]))
            self._marks = marks

    def byte_offset(self, index: int) -> int:
        """UTF-8 length of the text before character `index`."""
        marks = self._marks
        if marks is None:
            return index
        return marks[index // STRIDE] + _byte_length(self.text[index - index % STRIDE : index])

    def spans_from(self, base: int) -> SpanFactory:
        """A maker of spans relative to character `base`."""
        if self._marks is None:
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
