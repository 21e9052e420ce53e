"""Start a kernel when none listens (chapter 80, section 3).

`ensure_kernel` tries the socket, starts `shoal kernel --socket PATH` with this interpreter and
these packages when it may, and waits for the socket to answer. Two clients that race are safe: of
the two kernels one wins the lock, and both clients reach it.

Failure: none reported here. When nothing listens in the end, the connection attempt that follows
fails, and its error is the one the user sees.
"""

from __future__ import annotations

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
    child = start_kernel(path, environ)
    for _ in range(ATTEMPTS_MAX):
        if child is not None:
            child = _unless_ended(child)
        if answers(path):
            return
        time.sleep(ATTEMPT_PAUSE_S)


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
