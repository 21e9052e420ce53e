"""Where Zstandard frames begin and end in a file, and their content.

`frame_at` reads the frame header and walks the block headers, so a frame's end is known without
decoding it. Nothing here allocates more than the caller allows: content lengths are read before
content is.

Failure: FrameError for what is no complete frame; zstandard.ZstdError for one that does not decode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import zstandard

HEADER_BYTES_MAX: Final = 18
BLOCK_HEADER_BYTES: Final = 3
CHECKSUM_BYTES: Final = 4
READ_BYTES: Final = 1024 * 1024
RLE_BLOCK: Final = 1
RESERVED_BLOCK: Final = 3


class FrameError(Exception):
    """The bytes are not a complete Zstandard frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a file; `content_length` is None when its header does not tell."""

    start: int
    end: int
    content_length: int | None


def frame_at(fd: int, start: int, size: int) -> Frame:
    """The frame that begins at `start` in a file of `size` bytes."""
    head = os.pread(fd, HEADER_BYTES_MAX, start)
    try:
        header_length = zstandard.frame_header_size(head)
        parameters = zstandard.get_frame_parameters(head)
        content = zstandard.frame_content_size(head)
    except zstandard.ZstdError as error:
        raise FrameError(str(error)) from None
    position = start + header_length
    while True:
        block = os.pread(fd, BLOCK_HEADER_BYTES, position)
        if len(block) < BLOCK_HEADER_BYTES:
            raise FrameError("the file ends inside a frame")
        word = int.from_bytes(block, "little")
        kind = word >> 1 & 3
        if kind == RESERVED_BLOCK:
            raise FrameError("reserved block type")
        position += BLOCK_HEADER_BYTES + (1 if kind == RLE_BLOCK else word >> 3)
        if word & 1:
            break
    if parameters.has_checksum:
        position += CHECKSUM_BYTES
    if position > size:
        raise FrameError("the file ends inside a frame")
    return Frame(start, position, content if content >= 0 else None)


def decode_frame(decompressor: zstandard.ZstdDecompressor, fd: int, frame: Frame) -> bytes:
    """The content of one frame whose header tells its length."""
    packed = os.pread(fd, frame.end - frame.start, frame.start)
    content = decompressor.decompress(packed, allow_extra_data=False)
    if len(content) != frame.content_length:
        raise FrameError("content length differs from the header")
    return content


def content_after(
    decompressor: zstandard.ZstdDecompressor, fd: int, position: int, start: int, end: int | None
) -> Iterator[bytes]:
    """Content bytes `start` to `end` (None: all) of everything from file position `position` on."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(position)
        reader = decompressor.stream_reader(file, read_across_frames=True, closefd=False)
        at = 0
        while end is None or at < end:
            piece = reader.read(READ_BYTES)
            if not piece:
                return
            low = max(start - at, 0)
            high = len(piece) if end is None else min(end - at, len(piece))
            if low < high:
                yield piece[low:high]
            at += len(piece)
