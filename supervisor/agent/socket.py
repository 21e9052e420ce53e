"""The socket of the agent endpoint: its lock, binding it, and what may be removed (chapter 70
§2.2).

The lock file is held from before the bind until the process exits and stays on disk, so that no two
routers ever believe that they own the endpoint, whatever happens to the socket file.

Failure: StartFailure with one line for the user; nothing of others was touched.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from supervisor.listeners import Listener, StartFailure, listen
from supervisor.paths import SOCKET_PATH_BYTES_MAX

_CONNECT_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class LifetimeLock:
    """The hold on an endpoint; the file stays when it is given back."""

    fd: int

    def release(self) -> None:
        os.close(self.fd)


def bind(path: Path) -> tuple[LifetimeLock, Listener]:
    """Lock, clear what is stale, bind and listen. Raises StartFailure."""
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_BYTES_MAX:
        raise StartFailure(
            f"agent socket path is {size} bytes long, more than the limit of "
            f"{SOCKET_PATH_BYTES_MAX}: {path}"
        )
    try:
        _secure_directory(path.parent)
        lock = _lock(path.with_name(path.name + ".lock"))
    except OSError as error:
        raise StartFailure(f"agent socket {path}: {error.strerror}") from None
    try:
        _clear(path)
        return lock, listen(path)
    except OSError as error:
        lock.release()
        raise StartFailure(f"agent socket {path}: {error.strerror}") from None
    except StartFailure:
        lock.release()
        raise


def _secure_directory(directory: Path) -> None:
    """Create it, tighten it when it is ours and not sticky, refuse one that others may write."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    sticky = bool(status.st_mode & stat.S_ISVTX)
    ours = status.st_uid == os.geteuid()
    if not ours and status.st_uid != 0:
        raise StartFailure(f"agent socket directory {directory} belongs to another user")
    if ours and not sticky and stat.S_IMODE(status.st_mode) & 0o077:
        directory.chmod(0o700)
    elif not sticky and stat.S_IMODE(status.st_mode) & 0o022:
        raise StartFailure(f"agent socket directory {directory} may be written by others")


def _lock(path: Path) -> LifetimeLock:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        status = os.fstat(fd)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or stat.S_IMODE(status.st_mode) & 0o077
        ):
            raise StartFailure(f"agent lock file {path} is not a private file of ours")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartFailure(
                f"address in use: the agent endpoint {path.with_suffix('')} is already owned"
            ) from None
        again = os.lstat(path)
        if (again.st_dev, again.st_ino) != (status.st_dev, status.st_ino):
            raise StartFailure(f"agent lock file {path} was replaced")
    except BaseException:
        os.close(fd)
        raise
    return LifetimeLock(fd)


def _clear(path: Path) -> None:
    """Remove a stale socket; anything else at the path stops the start."""
    try:
        before = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(before.st_mode):
        raise StartFailure(f"agent socket {path}: something else is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            pass
        except FileNotFoundError:
            return
        except OSError as error:
            why = error.strerror or errno.errorcode.get(error.errno or 0, "no answer")
            raise StartFailure(f"agent socket {path}: {why}") from None
        else:
            raise StartFailure(f"agent socket {path}: a router is already serving it")
    after = os.lstat(path)
    if (after.st_dev, after.st_ino) != (before.st_dev, before.st_ino):
        raise StartFailure(f"agent socket {path}: it changed meanwhile")
    path.unlink()
