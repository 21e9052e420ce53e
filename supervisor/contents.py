"""Contents that came with a worker's message: inline bytes, or descriptors to hand on.

Descriptors are memory files or spill files; `read` is for small contents in memory only, everything
large is passed to the store by descriptor.

Failure: ProtocolError when a descriptor is missing, used twice or shorter than announced.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ipc.messages import INLINE_CONTENT_BYTES_MAX, Content, ProtocolError
from journal.records import INGEST_BYTES_MIN, FileContent, Stored
from journal.records import Content as StoredContent


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Stored content that is longer than an output may be: `kept` bytes of it are wanted."""

    hash: bytes
    length: int
    kept: int


class Contents:
    """Contents of one worker message, with the descriptors that came along.

    `held` is stored content that the worker may name, with its length; an output holds `output_cap`
    bytes of it at most.
    """

    # `_fds` holds -1 for descriptors already handed on.

    def __init__(self, fds: list[int], held: Mapping[bytes, int], output_cap: int) -> None:
        self._fds = fds
        self._held = held
        self._output_cap = output_cap
        self._texts: dict[int, bytes] = {}
        self.large = False

    def read(self, content: Content) -> bytes:
        """The bytes; a descriptor is read and closed."""
        if content.fd < 0:
            return content.data
        if content.fd in self._texts:
            return self._texts[content.fd]
        data = read_content(content, self._fds)
        self._fds[content.fd] = -1
        self._texts[content.fd] = data
        return data

    def stored(self, content: Content) -> StoredContent | Excerpt:
        if content.hash:
            return self._named(content.hash)
        if content.fd < 0:
            if len(content.data) >= INGEST_BYTES_MIN:
                self.large = True
            return content.data
        fd = self._fds[content.fd]
        if fd < 0:
            raise ProtocolError("a descriptor used twice")
        self._fds[content.fd] = -1
        if os.fstat(fd).st_size < content.length:
            os.close(fd)
            raise ProtocolError("a content shorter than announced")
        self.large = True
        return FileContent(fd, content.length)

    def _named(self, digest: bytes) -> Stored | Excerpt:
        length = self._held.get(digest)
        if length is None:
            raise ProtocolError("content of somebody else")
        if length <= self._output_cap:
            return Stored(digest, length)
        self.large = True
        return Excerpt(digest, length, self._output_cap)


def read_content(content: Content, fds: list[int]) -> bytes:
    """Bytes of a content; memory files only, so reading does not touch a disk."""
    if content.fd < 0:
        return content.data
    fd = fds[content.fd]
    try:
        data = os.pread(fd, content.length, 0)
    finally:
        os.close(fd)
    if len(data) != content.length:
        raise ProtocolError("a content shorter than announced")
    return data


def close_all(fds: list[int]) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def memory_content(data: bytes) -> tuple[Content, list[int]]:
    """A content for a worker, with the descriptors to send along; large data goes into a memory
    file."""
    if len(data) <= INLINE_CONTENT_BYTES_MAX:
        return Content(data), []
    fd = os.memfd_create("shoal-content", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return Content(b"", 0, len(data)), [fd]


async def as_content(data: bytes) -> tuple[Content, list[int]]:
    """The same, off the loop where it would take a while."""
    if len(data) <= INLINE_CONTENT_BYTES_MAX:
        return Content(data), []
    return await asyncio.to_thread(memory_content, data)
