"""Texts of values for people: the inline form, the block form, and their delivery.

The parts live next door: `inline` (one line), `block` (what people see), `terminal` (removing
sequences, bounding). `render_text` is the whole delivery of chapter 60 §7 in one call.

Failure: see the parts; nothing here raises for a value.
"""

from __future__ import annotations

from worker.values.block import block
from worker.values.inline import inline
from worker.values.terminal import bound_render, strip_terminal
from worker.values.types import Value

__all__ = ["block", "bound_render", "inline", "render_text", "strip_terminal"]

RENDER_WIDTH = 80


def render_text(value: Value, *, uri: str, tty: bool, width: int = RENDER_WIDTH) -> str:
    """The `render` string of an answer: block form, plain unless `tty`, bounded in bytes."""
    text = block(value, width)
    return bound_render(text if tty else strip_terminal(text), uri)
