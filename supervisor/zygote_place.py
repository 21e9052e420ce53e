"""The private directory for the zygote's listening socket.

It lies beside the daemon's own socket when that directory is ours and its path is short enough for
a socket in it, else in the system's directory for temporary files. Its name ends with the pid of
the daemon; directories of daemons that are gone are removed when a new one starts, so a killed
daemon leaves none for long.

Failure: OSError when no directory can be made anywhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

NAME: Final = ".shoal-zygote-"
# The longest path of a Unix socket (103 on macOS), and what multiprocess adds to the directory.
_SOCKET_PATH_BYTES_MAX: Final = 103
_LISTENER_NAME_BYTES: Final = len("/listener-") + 12


def make(beside: Path) -> Path:
    """A fresh directory with mode 0700; stale ones are removed."""
    for parent in (beside, Path(tempfile.gettempdir())):
        if not _usable(parent):
            continue
        remove_stale(parent)
        place = parent / f"{NAME}{os.getpid()}"
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700)
            return place
    return Path(tempfile.mkdtemp(prefix=NAME.lstrip(".")))


def _usable(parent: Path) -> bool:
    try:
        info = parent.lstat()
    except OSError:
        return False
    ours = info.st_uid == os.geteuid() or bool(info.st_mode & stat.S_ISVTX)
    length = len(os.fsencode(parent)) + len(NAME) + 12 + _LISTENER_NAME_BYTES
    return stat.S_ISDIR(info.st_mode) and ours and length <= _SOCKET_PATH_BYTES_MAX


def remove_stale(parent: Path) -> None:
    """Remove what daemons left that are not running any more."""
    for place in parent.glob(f"{NAME}*"):
        digits = place.name.removeprefix(NAME)
        with contextlib.suppress(OSError):
            if digits.isdecimal() and not _running(int(digits)) and _is_own_directory(place):
                shutil.rmtree(place, ignore_errors=True)


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_own_directory(place: Path) -> bool:
    info = place.lstat()
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
