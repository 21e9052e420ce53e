"""Content hashes of tool files, remembered by file identity (chapter 41 §B5).

Failure: `content_hash` raises OSError for a file that cannot be read.
"""

from __future__ import annotations

import os
from typing import Final

from blake3 import blake3

_CHUNK_BYTES: Final = 1 << 20
_REMEMBERED_MAX: Final = 1024

Identity = tuple[int, int, int, int]


def identity(path: str) -> Identity:
    """(device, inode, modification time, length): the same file with the same content."""
    info = os.stat(path)
    return (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size)


class HashCache:
    # Hashes by identity, oldest first; grows only in `content_hash`.
    def __init__(self) -> None:
        self._known: dict[Identity, str] = {}

    def content_hash(self, path: str) -> str:
        """BLAKE3 of the content, lower-case hex."""
        key = identity(path)
        found = self._known.get(key)
        if found is None:
            found = _hash(path)
            if len(self._known) >= _REMEMBERED_MAX:
                self._known.pop(next(iter(self._known)), None)
            self._known[key] = found
        return found


def _hash(path: str) -> str:
    digest = blake3()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
