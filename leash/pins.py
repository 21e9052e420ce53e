"""Pinned programs: a file is opened, hashed through the descriptor, and executed through it.

A `PinnedFile` holds the open descriptor with the content hash and the identity the file had when it
was hashed. `unchanged` looks again, right before the start: a file that was replaced leaves the
descriptor as it was, a file that was written to shows other times. That is too late for a file that
its own user writes to while it starts; `sealed` gives a copy in memory that nobody can change, and
that copy is what must be judged then.

Failure: OSError when the file cannot be opened, read or copied; nothing is left open then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from dataclasses import dataclass, replace
from typing import Final

from blake3 import blake3

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_CHUNK_BYTES: Final = 1 << 20
_SCRIPT_MARK: Final = b"#!"
_COPY_NAME: Final = "program"
_COPY_FLAGS: Final = getattr(os, "MFD_CLOEXEC", 0) | getattr(os, "MFD_ALLOW_SEALING", 0)
_MFD_EXEC: Final = 0x10
# No more seals, no other size, no writing.
_SEALS: Final = 0x1 | 0x2 | 0x4 | 0x8

Identity = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """`digest` is empty for a file that can be executed but not read: only its name speaks for it
    then. `fd` belongs to the holder."""

    fd: int
    digest: str
    script: bool
    identity: Identity

    @property
    def program(self) -> str:
        """What to execute: the descriptor itself, by the name a script can be read under."""
        return f"/dev/fd/{self.fd}" if self.script else f"/proc/self/fd/{self.fd}"

    def unchanged(self) -> bool:
        """Whether the open file is as it was hashed."""
        return _identity(self.fd) == self.identity


def open_pinned(path: str) -> PinnedFile:
    """Open and hash a program file. Raises OSError."""
    try:
        fd = os.open(path, _READ)
    except PermissionError:
        # Executable, not readable.
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        return PinnedFile(fd, "", False, _identity(fd))
    try:
        before = _identity(fd)
        digest, script = _hashed(fd)
    except BaseException:
        os.close(fd)
        raise
    return PinnedFile(fd, digest, script, before)


def sealed(file: PinnedFile) -> PinnedFile:
    """A copy of an open program that cannot change any more, hashed as it is. `file` stays open.

    A file that cannot be read has no content to keep, and is given back as another descriptor.
    """
    if not file.digest or sys.platform != "linux":
        return replace(file, fd=os.dup(file.fd))
    memory = _memory()
    try:
        at = 0
        while chunk := os.pread(file.fd, _CHUNK_BYTES, at):
            at += len(chunk)
            while chunk:
                chunk = chunk[os.write(memory, chunk) :]
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
        # A program that is open for writing cannot be executed.
        fd = os.open(f"/proc/self/fd/{memory}", _READ)
    finally:
        os.close(memory)
    try:
        digest, script = _hashed(fd)
    except BaseException:
        os.close(fd)
        raise
    return PinnedFile(fd, digest, script, _identity(fd))


def _memory() -> int:
    try:
        return os.memfd_create(_COPY_NAME, _COPY_FLAGS | _MFD_EXEC)
    except OSError as failure:
        if failure.errno != errno.EINVAL:
            raise
        # Before Linux 6.3 such a file could always be executed, and there was no flag to say so.
        return os.memfd_create(_COPY_NAME, _COPY_FLAGS)


def _hashed(fd: int) -> tuple[str, bool]:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return "", False
    digest = blake3()
    script, at = False, 0
    while chunk := os.pread(fd, _CHUNK_BYTES, at):
        script = script or (at == 0 and chunk.startswith(_SCRIPT_MARK))
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest(), script


def _identity(fd: int) -> Identity:
    found = os.fstat(fd)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
