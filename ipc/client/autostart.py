"""Start a kernel when none listens (chapter 80, section 3).

`ensure_kernel` tries the socket, starts `shoal kernel --socket PATH` with this interpreter and
these packages when it may, and waits for the socket to answer. Two clients that race are safe: of
two kernels one wins the lock, and both clients reach it. Clients that see the same directory take
turns, so that a crowd of them does not start a crowd of kernels.

Failure: none reported here. When nothing listens in the end, the connection attempt that follows
fails, and its error is the one the user sees.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ATTEMPTS_MAX: Final = 100
ATTEMPT_PAUSE_S: Final = 0.05

# Beside the packages, wherever they are installed: running it by its path finds the same ones.
PROGRAM: Final = Path(__file__).resolve().parents[2] / "shoal.py"

# What a kernel must not take over from the client that starts it.
_PRIVATE: Final = frozenset({"SHOAL_TOKEN", "SHOAL_TOKEN_FILE", "SHOAL_SESSION"})


def ensure_kernel(path: Path, environ: Mapping[str, str]) -> None:
    """Return when a kernel listens at `path`, or when there is no more hope for one. Blocks."""
    if environ.get("SHOAL_NO_AUTOSTART") or answers(path):
        return
    turn = _turn(path)
    child: int | None = None
    started = False
    try:
        for _ in range(ATTEMPTS_MAX):
            if not started and _is_ours(turn):
                started = True
                child = start_kernel(path, environ)
            if child is not None:
                child = _unless_ended(child)
            if answers(path):
                return
            time.sleep(ATTEMPT_PAUSE_S)
    finally:
        if turn is not None:
            os.close(turn)


def _turn(path: Path) -> int | None:
    """What clients that race take turns with: the nearest directory above the socket, if it is our
    own. Without one everybody starts a kernel, which costs time and nothing else."""
    for directory in path.absolute().parents:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        if os.fstat(descriptor).st_uid == os.geteuid():
            return descriptor
        os.close(descriptor)
        return None
    return None


def _is_ours(turn: int | None) -> bool:
    """Whether nobody else is starting a kernel. Who does keeps the lock until it has answered."""
    if turn is None:
        return True
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def answers(path: Path) -> bool:
    """Whether a connect succeeds now."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def start_kernel(path: Path, environ: Mapping[str, str]) -> int | None:
    """Start a kernel in a session of its own, without streams; its process id if it started."""
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    kept = {name: value for name, value in environ.items() if name not in _PRIVATE}
    command = [sys.executable, str(PROGRAM), "kernel", "--socket", os.path.abspath(path)]
    try:
        return os.posix_spawn(sys.executable, command, kept, file_actions=null, setsid=True)
    except OSError:
        return None


def _unless_ended(child: int) -> int | None:
    """The same child while it lives. One that has ended is reaped, so that no zombie stays."""
    ended, _ = os.waitpid(child, os.WNOHANG)
    return None if ended else child
