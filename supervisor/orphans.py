"""Processes that lost their worker: the router is their reaper, and they end.

A worker that is killed cannot end what it started. Its children then become children of the nearest
reaper above it, which is the router; whatever is our child and none of the processes we started is
such an orphan. Its children become ours in turn, so the search goes on until none is
left.

Failure: none; a process that is gone already is fine. Linux only: elsewhere orphans go to init.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

_ROUNDS_MAX: Final = 1000


def kill_orphans(strangers: Callable[[], list[int]]) -> None:
    """Kill and reap every child that nobody started, asked anew each time; blocking but short."""
    for _ in range(_ROUNDS_MAX):
        orphans = strangers()
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def children() -> list[int]:
    """The pids of this process's children, ended ones that nobody has collected included."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in (task / "children").read_text().split()]
    return found
