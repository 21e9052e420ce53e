"""Which process is at the other end of a connection, and whether a session started it.

A process that a session started must not become the local human just by connecting: whoever
controls the session would then be no longer held to its owner's policy. So its ancestors are looked
at. A worker adopts every orphan below it, so double forks and new sessions do not lead out; what
outlived its worker is below the router itself. Numbers of processes come back, therefore the peer
is held by a descriptor taken from the connection, and a parent that started after its child is a
stranger.

Failure: whatever cannot be established counts as started by a session. Where there is no `/proc`
nothing is known, and nothing is refused: there a token must be required by configuration.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

_SO_PEERPIDFD: Final = 77
_ANCESTORS_MAX: Final = 256
# Fields of /proc/PID/stat behind the command name.
_PARENT_FIELD: Final = 1
_START_FIELD: Final = 19


class Ancestor(NamedTuple):
    """A process and the clock tick of its start since boot."""

    pid: int
    start: int


class Peer:
    """The process that made a connection. `close` it with the connection."""

    # `_pidfd` refers to that very process, -1 where the kernel has no such thing.

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.pid = pid
        self._pidfd = -1
        if sys.platform == "linux" and pid > 0:
            with contextlib.suppress(OSError):
                self._pidfd = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)

    def close(self) -> None:
        fd, self._pidfd = self._pidfd, -1
        if fd >= 0:
            os.close(fd)

    def must_present_token(self, kernel: Kernel) -> bool:
        """Whether the peer may be the work of somebody else than the local human."""
        if sys.platform != "linux" or self.pid == 0:
            # A pid of 0 is outside of everything this daemon can start.
            return False
        chain = ancestors(self.pid)
        if chain is None or self._ended():
            return True
        return _below_foreign_work(kernel, chain)

    def _ended(self) -> bool:
        """Whether the process is gone, so that what `/proc` said may be about another."""
        if self._pidfd < 0:
            return False
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(0))


def _below_foreign_work(kernel: Kernel, chain: list[Ancestor]) -> bool:
    sessions = {session.worker.pid: session for session in kernel.sessions if session.worker}
    below: Ancestor | None = None
    for process in chain:
        session = sessions.get(process.pid)
        if session is not None and session.worker is not None:
            if session.evaluates_as != kernel.local_human:
                return True
            # Of what the worker started since it serves others too, nobody knows whose it is.
            others_since = session.worker.others_since
            return others_since is not None and (below is None or below.start >= others_since)
        if process.pid == os.getpid():
            # It outlived the worker that started it.
            return True
        below = process
    return False


def ancestors(
    pid: int, look: Callable[[int], tuple[int, int] | None] | None = None
) -> list[Ancestor] | None:
    """The process and everything above it; None when that cannot be told.

    `look` gives parent and start of a process, None when there is none of that number.
    """
    look = _look if look is None else look
    chain: list[Ancestor] = []
    child_start: int | None = None
    while pid > 0:
        found = look(pid)
        if found is None or len(chain) == _ANCESTORS_MAX:
            return None
        parent, start = found
        if child_start is not None and start > child_start:
            return None
        chain.append(Ancestor(pid, start))
        pid, child_start = parent, start
    return chain


def _look(pid: int) -> tuple[int, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The command name in parentheses may hold anything.
    fields = text.rpartition(")")[2].split()
    return int(fields[_PARENT_FIELD]), int(fields[_START_FIELD])


def now_tick() -> int:
    """Now, in the clock ticks of process start times."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return int(time.clock_gettime(clock) * os.sysconf("SC_CLK_TCK"))
