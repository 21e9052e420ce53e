"""Being told when a file changes, is replaced or appears: inotify on its directory.

The directory is watched, not the file, since careful writers put a new file in the place of the old
one. Only Linux has inotify; elsewhere nothing is watched and a reload signal is the way.

Failure: a directory that cannot be watched is not; `watch` says so by its result.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_CLOSE_WRITE: Final = 0x008
_MOVED_TO: Final = 0x080
_DELETED: Final = 0x200
_MASK: Final = _CLOSE_WRITE | _MOVED_TO | _DELETED
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 65536


class FileWatch:
    """Calls `changed` on the loop when the file at `path` is written, replaced or removed."""

    # `_fd` is the inotify descriptor, -1 while nothing is watched.

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        self._loop = loop
        self._changed = changed
        self._fd = -1
        self._path: Path | None = None

    def watch(self, path: Path | None) -> bool:
        """Watch this file from now on instead of the one before; whether it is watched."""
        if path == self._path and self._fd >= 0:
            return True
        self.close()
        self._path = path
        if path is None or sys.platform != "linux":
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:
            return False
        if libc.inotify_add_watch(fd, os.fsencode(path.parent), _MASK) < 0:
            os.close(fd)
            return False
        self._fd = fd
        self._loop.add_reader(fd, self._readable)
        return True

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        assert self._path is not None
        name = os.fsencode(self._path.name)
        try:
            data = os.read(self._fd, _READ_BYTES)
        except OSError:
            return
        if any(found == name for found in _names(data)):
            self._changed()


def _names(data: bytes) -> list[bytes]:
    """The file names of a batch of inotify events."""
    found: list[bytes] = []
    at = 0
    while at + _EVENT.size <= len(data):
        _watch, _mask, _cookie, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        found.append(data[at : at + length].rstrip(b"\0"))
        at += length
    return found
