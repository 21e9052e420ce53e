"""The state directory: its modes, its lock, its spill folder.

Directories are 0700 and files 0600. A directory of ours that is looser is tightened; one that
belongs to somebody else is used as it is. The lock is an exclusive flock on `lock`, whose content
tells who holds it.

Failure: `StoreInUse` when another process holds the lock; OSError from the system otherwise.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from journal.errors import StoreInUse

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
LOCK_NAME: Final = "lock"
SPILL_NAME: Final = "spill"


def secure_directory(path: Path) -> None:
    """Create the directory with its parents, or tighten an existing one of ours."""
    if not path.is_dir():
        secure_parents(path.parent)
        try:
            path.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            if not path.is_dir():
                raise
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.geteuid() and not mode & stat.S_ISVTX and mode & 0o077:
        path.chmod(DIRECTORY_MODE)


def secure_parents(path: Path) -> None:
    """Create missing parents; those that exist are none of our business."""
    if path.is_dir():
        return
    secure_parents(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def tighten_file(path: Path) -> None:
    """Give a file of ours mode 0600; a missing one is fine."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != FILE_MODE:
        path.chmod(FILE_MODE)


class DirectoryLock:
    """The exclusive hold on a state directory, from construction to `release`."""

    # The locked descriptor; None after `release`. The lock dies with it, however the process ends.
    _fd: int | None

    def __init__(self, directory: Path, note: Mapping[str, object] | None = None) -> None:
        path = directory / LOCK_NAME
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(fd)
            os.close(fd)
            raise StoreInUse(holder) from None
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        self.note(note or {"pid": os.getpid()})

    def note(self, content: Mapping[str, object]) -> None:
        """Replace what the lock file says about its holder."""
        if self._fd is None:
            return
        text = json.dumps(dict(content), separators=(",", ":")).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text, 0)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _holder(fd: int) -> int | None:
    try:
        pid = json.loads(os.pread(fd, 4096, 0))["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) else None


def empty_spill(directory: Path) -> None:
    """Create `spill/` and remove what captures of an earlier daemon left there."""
    spill = directory / SPILL_NAME
    secure_directory(spill)
    with os.scandir(spill) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink()


def open_spill(directory: Path) -> int:
    """An unnamed read-write file in `spill/`, for one capture in progress."""
    spill = directory / SPILL_NAME
    try:
        return os.open(spill, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, FILE_MODE)
    except (AttributeError, OSError):
        name = spill / f"capture-{os.getpid()}-{os.urandom(8).hex()}"
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        name.unlink()
        return fd
