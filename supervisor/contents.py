"""Contents that came with a worker's message: inline bytes, or descriptors to hand on.

Descriptors are memory files or spill files; `read` is for small contents in memory only, everything
large is passed to the store by descriptor.

Failure: ProtocolError when a descriptor is missing, used twice or shorter than announced.
"""

from __future__ import annotations

import os

from ipc.messages import Content, ProtocolError
from journal.records import INGEST_BYTES_MIN, FileContent
from journal.records import Content as StoredContent


class Contents:
    """Contents of one worker message, with the descriptors that came along."""

    # `_fds` holds -1 for descriptors already handed on.

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds
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

    def stored(self, content: Content) -> StoredContent:
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
