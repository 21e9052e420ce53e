"""Listening sockets: where they may be made, what may be removed, activation (chapter 60 §1.2, 81
§8.1).

A socket is bound with mode 0600 from its first moment, in a directory that is ours alone. A live
daemon behind the path, a foreign file or a symbolic link stop the start; a stale socket of ours is
removed. At the end a socket file is removed only while it is still the one that was bound.

Failure: StartFailure with one line for the user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from supervisor.paths import SOCKET_PATH_BYTES_MAX

BACKLOG: Final = 128
_CONNECT_TIMEOUT_S: Final = 2.0


class StartFailure(Exception):
    """Why the daemon cannot start; the text is for the user."""


@dataclass(slots=True)
class Listener:
    """A listening socket. `identity` is None when the service manager owns the socket file."""

    socket: socket.socket
    path: Path
    identity: tuple[int, int] | None

    def remove(self) -> None:
        """Remove the socket file if it is still ours; harmless when done before."""
        identity, self.identity = self.identity, None
        if identity is None:
            return
        with contextlib.suppress(OSError):
            status = os.lstat(self.path)
            if (status.st_dev, status.st_ino) == identity:
                self.path.unlink()

    def close(self) -> None:
        self.remove()
        self.socket.close()


@dataclass(frozen=True, slots=True)
class PathLock:
    """The exclusive hold on a socket path."""

    path: Path
    fd: int

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self.fd)


def prepare(path: Path) -> PathLock:
    """Secure the directory, take the lock of the path, remove what is stale."""
    if path.parent == Path() or not path.name or path.name in (".", ".."):
        raise StartFailure("socket needs parent")
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise StartFailure("socket path too long")
    secure_directory(path.parent)
    lock = _take_lock(path)
    try:
        _clear(path)
    except StartFailure:
        lock.release()
        raise
    return lock


def listen(path: Path) -> Listener:
    """Bind and listen at a prepared path."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        previous = os.umask(0o177)
        try:
            sock.bind(os.fspath(path))
        finally:
            os.umask(previous)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise StartFailure(f"cannot bind {path}: {error.strerror}") from None
    status = os.lstat(path)
    return Listener(sock, path, (status.st_dev, status.st_ino))


def secure_directory(directory: Path) -> None:
    """Make the directory with its ancestors; mode 0700 when it is new or already ours."""
    try:
        existed = directory.exists()
        if not existed:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        ours = status.st_uid == os.geteuid()
        sticky = bool(status.st_mode & stat.S_ISVTX)
        if ours and not sticky and stat.S_IMODE(status.st_mode) != 0o700:
            directory.chmod(0o700)
    except OSError as error:
        uid = os.geteuid()
        raise StartFailure(
            f"cannot secure socket dir {directory}: {error.strerror}; use a socket path inside a "
            f"directory you own, e.g. $XDG_RUNTIME_DIR/shoal/... or /tmp/shoal-{uid}/..."
        ) from None


def _take_lock(path: Path) -> PathLock:
    lock_path = path.with_name(path.name + ".lock")
    while True:
        try:
            fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StartFailure(
                f"cannot secure socket dir {path.parent}: {error.strerror}; use a socket path "
                "inside a directory you own"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise StartFailure("kernel already listening") from None
        # Whoever held it may have removed the file between our open and our lock.
        with contextlib.suppress(FileNotFoundError):
            if lock_path.stat().st_ino == os.fstat(fd).st_ino:
                return PathLock(lock_path, fd)
        os.close(fd)


def _clear(path: Path) -> None:
    """Remove a stale socket of ours; anything else at the path stops the start."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartFailure(f"cannot look at {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise StartFailure("refusing to remove unowned non-socket path")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(_CONNECT_TIMEOUT_S)
    try:
        probe.connect(os.fspath(path))
    except OSError:
        path.unlink(missing_ok=True)
        return
    finally:
        probe.close()
    raise StartFailure("kernel already listening")
