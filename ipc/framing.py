"""Framing of byte streams: newline frames of clients, length frames between router and worker.

`LineFramer` cuts the lines of one client connection. Feed bytes in, take whole lines out. It holds
at most `limit` unread bytes plus the block just fed, however slowly or quickly the peer sends, and
looks at every byte once (chapter 60 §2.1, §2.3).

`FrameSplitter` does the same for the binary frames of the control channel: a little-endian u32
length, one byte that counts the descriptors travelling with the frame, the payload.

Both are pure: no socket, no clock.

Failure: `LineFramer.feed` raises FrameTooLarge once, as soon as the limit is passed and before the
excess is kept; `FrameSplitter.feed` raises FrameTooLarge for a length above its limit. After that
the framer is finished and the connection must end.
"""

from __future__ import annotations

import struct
from typing import Final

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
CONTROL_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
CONTROL_HEADER: Final = struct.Struct("<IB")
FRAME_FDS_MAX: Final = 32


class FrameTooLarge(Exception):
    """A frame passed its limit. `seen` counts the bytes received of it so far."""

    def __init__(self, limit: int, seen: int) -> None:
        super().__init__(f"frame exceeds {limit} bytes")
        self.limit = limit
        self.seen = seen


class LineFramer:
    """Cuts newline-terminated frames; `limit` counts the LF."""

    __slots__ = ("_held", "_limit")

    # Bytes after the last LF, never more than `_limit` - 1; changed only in `feed`.
    _held: bytearray
    _limit: int

    def __init__(self, limit: int = LINE_BYTES_MAX) -> None:
        self._held = bytearray()
        self._limit = limit

    @property
    def held(self) -> int:
        """Bytes of an unfinished frame kept right now."""
        return len(self._held)

    def take(self) -> bytes:
        """The unfinished frame, which counts as finished now."""
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def feed(self, data: bytes) -> tuple[list[bytes], FrameTooLarge | None]:
        """Return the lines that `data` completes, without LF, and the failure that follows them.

        Lines that came before an oversize one are still delivered.
        """
        held = self._held
        limit = self._limit
        lines: list[bytes] = []
        start = 0
        newline = data.find(b"\n")
        while newline >= 0:
            size = len(held) + newline - start + 1
            if size > limit:
                return lines, self._overflow(size)
            if held:
                held += data[start:newline]
                lines.append(bytes(held))
                held.clear()
            else:
                lines.append(data[start:newline])
            start = newline + 1
            newline = data.find(b"\n", start)
        rest = len(data) - start
        # A line of exactly `limit` bytes includes its LF, so `limit` bytes without one are too
        # many.
        if len(held) + rest >= limit:
            return lines, self._overflow(len(held) + rest)
        if rest:
            held += data[start:] if start else data
        return lines, None

    def _overflow(self, seen: int) -> FrameTooLarge:
        self._held = bytearray()
        return FrameTooLarge(self._limit, seen)


def control_frame(payload: bytes, fds: int = 0) -> bytes:
    """One control frame around an encoded message."""
    return CONTROL_HEADER.pack(len(payload), fds) + payload


class FrameSplitter:
    """Cuts control frames: `feed` returns (payload, descriptor count) pairs."""

    __slots__ = ("_buffer", "_limit")

    # The bytes of the first unfinished frame and what follows it; changed only in `feed`.
    _buffer: bytearray
    _limit: int

    def __init__(self, limit: int = CONTROL_FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        buffer = self._buffer
        buffer += data
        frames: list[tuple[bytes, int]] = []
        at = 0
        available = len(buffer)
        while available - at >= CONTROL_HEADER.size:
            length, fds = CONTROL_HEADER.unpack_from(buffer, at)
            if length > self._limit or fds > FRAME_FDS_MAX:
                raise FrameTooLarge(self._limit, length)
            end = at + CONTROL_HEADER.size + length
            if end > available:
                break
            frames.append((bytes(buffer[at + CONTROL_HEADER.size : end]), fds))
            at = end
        if at:
            del buffer[:at]
        return frames
