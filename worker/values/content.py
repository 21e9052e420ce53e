"""Reading bytes values, resident or content-addressed, in one way.

A `LazyBytes` knows its hash, length and a preview; its `load` reads the stored content. Everything
that needs the content goes through here, so that a missing or damaged blob is one language error.

Failure: `io_error` when stored content cannot be loaded, or when there is no store to load it from.
"""

from __future__ import annotations

from worker.errors import os_text, raised
from worker.values.types import LazyBytes


def byte_length(data: bytes | LazyBytes) -> int:
    """The true length, without loading."""
    return data.length if isinstance(data, LazyBytes) else len(data)


def piece(data: bytes | LazyBytes, offset: int, length: int | None) -> bytes:
    """`length` bytes from `offset` (None: to the end), fewer at the end of the content."""
    if not isinstance(data, LazyBytes):
        return data[offset:] if length is None else data[offset : offset + length]
    if data.load is None:
        raise raised("io_error", f"cannot load {data.reference}: no content store")
    try:
        return data.load(offset, length)
    except OSError as error:
        raise raised("io_error", f"cannot load {data.reference}: {os_text(error)}") from error


def resident(data: bytes | LazyBytes) -> bytes:
    """The complete bytes."""
    return piece(data, 0, None) if isinstance(data, LazyBytes) else data


def lossy(data: bytes | LazyBytes) -> str:
    """The complete text, U+FFFD for every sequence that is not UTF-8."""
    return resident(data).decode("utf-8", "replace")
