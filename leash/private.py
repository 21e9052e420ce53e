"""What a worker has for itself below the directory for temporary files (chapter 50 §9.3, §13.2).

The private directory of a confined session, `shoal-PID`: the worker makes it before it is confined,
and could not remove it afterwards, since its parent is everybody's; so the router does, when the
worker has ended. The name is the worker's pid, with something random behind it when that is taken.
And the trash, `shoal-trash/PID`, which stays as long as there is something in it to bring back.

A worker holds a lock on its private directory while it lives. What nobody holds was left behind by
a daemon that was killed, whatever process has that number now; `sweep` takes it away.

Failure: `make` raises OSError; `remove` and `sweep` leave what is not ours or cannot be removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from typing import Final

TRASH: Final = "shoal-trash"

_MODE: Final = 0o700

# Descriptors whose locks say that a directory is in use: never closed, so that they end with the
# process. Grows in `make` only.
_held: list[int] = []


def _name(pid: int) -> str:
    return f"shoal-{pid}"


def base() -> str:
    """The directory for temporary files; not `tempfile.gettempdir`, which writes a file to find
    out."""
    return os.environ.get("TMPDIR") or "/tmp"


def make(pid: int) -> str:
    """Make the directory of a worker, and hold it as long as the calling process lives."""
    path = os.path.join(base(), _name(pid))
    while True:
        try:
            os.mkdir(path, _MODE)
        except FileExistsError:
            path = tempfile.mkdtemp(prefix=_name(pid) + "-", dir=base())
        if _hold(path):
            return path


def _hold(path: str) -> bool:
    """Lock a directory that was just made; False when a sweep took it away before."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(held, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.stat(path), os.fstat(held)):
            _held.append(held)
            return True
    os.close(held)
    return False


def remove(pid: int) -> None:
    """Remove what a worker that has ended leaves: its directory with all there is in it, and its
    trash when that is empty."""
    for path in _directories(pid):
        with contextlib.suppress(OSError):
            _remove(path)
    with contextlib.suppress(OSError):
        os.rmdir(_trash(pid))


def sweep() -> None:
    """The same for every worker that left a trash, even an empty one, and does not live."""
    with contextlib.suppress(OSError):
        for name in os.listdir(os.path.join(base(), TRASH)):
            with contextlib.suppress(OSError, ValueError):
                _sweep(int(name))


def _sweep(pid: int) -> None:
    if os.lstat(_trash(pid)).st_uid == os.geteuid():
        for path in _directories(pid):
            _remove(path)
        os.rmdir(_trash(pid))


def _trash(pid: int) -> str:
    return os.path.join(base(), TRASH, str(pid))


def _directories(pid: int) -> list[str]:
    # What mkdtemp puts behind the prefix has eight characters.
    pattern = os.path.join(glob.escape(base()), _name(pid))
    return glob.glob(pattern) + glob.glob(f"{pattern}-{'?' * 8}")


def _remove(path: str) -> None:
    """Remove a directory of ours. Raises OSError when it is not, or somebody holds it."""
    found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(found).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(found)
