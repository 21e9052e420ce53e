"""The process table of a worker: every child, who runs it, and what children leave behind.

All children of a worker are started through one place and registered here while they run. A command
is answered when its own process has ended; whatever that process left running (a server started in
the background, a daemon that forked twice) stays in the table as a leftover group, its remaining
output is thrown away, and it ends with the session at the latest.

The worker is a subreaper, so descendants whose parents died become its children: they can be found,
signalled and reaped. Reaping never touches a registered child, whose status belongs to the thread
that waits for it.

One thread, started on first need, does what has no other owner: it drains leftover pipes, reaps
adopted processes, and carries a cancellation to its end after the answer has gone out.

Failure: nothing here raises for processes that are already gone. Where the platform has no `/proc`
or no subreaper, only process groups are followed.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from worker.commands.proctree import (
    ProcessId,
    Snapshot,
    read_entry,
    signal_group,
    signal_process,
)

_PR_SET_CHILD_SUBREAPER: Final = 36
_DISCARD_BYTES: Final = 1 << 16
_KILL_ROUNDS_MAX: Final = 50
_KILL_ROUND_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Ladder:
    """The signals of a cancellation: each is sent so many seconds after the one before."""

    steps: tuple[tuple[float, int], ...]

    @classmethod
    def patient(cls, interrupt_s: float = 3.0, terminate_s: float = 3.0) -> Ladder:
        """SIGINT at once, then SIGTERM, then SIGKILL."""
        return cls(
            (
                (0.0, signal.SIGINT),
                (interrupt_s, signal.SIGTERM),
                (terminate_s, signal.SIGKILL),
            )
        )

    @classmethod
    def hasty(cls, grace_s: float) -> Ladder:
        """SIGINT at once, then SIGKILL: the ladder of a drain."""
        return cls(((0.0, signal.SIGINT), (grace_s, signal.SIGKILL)))


@dataclass(slots=True, eq=False)
class Running:
    """A child that has not been reaped. `group` is its process group and equals its pid."""

    pid: int
    # The write end of the pipe that wakes the thread that is cancelling it.
    waker: int | None = None

    @property
    def group(self) -> int:
        return self.pid


@dataclass(slots=True, eq=False)
class Leftover:
    """What a finished command left running: its group and processes that left the group."""

    group: int
    strays: set[ProcessId] = field(default_factory=set)


@dataclass(order=True, slots=True)
class _Alarm:
    due: float
    order: int
    action: Callable[[], object] = field(compare=False)


class ProcessTable:
    # `_running` by pid and `_leftovers` by group change under `_lock`. `_starting` counts launches
    # whose pid is not registered yet: adopted processes are not reaped meanwhile, because a child
    # that ended at once would look like one of them. `_ended_tick` is when the last registered
    # child ended, in clock ticks since boot.

    def __init__(self, ladder: Ladder | None = None) -> None:
        self.ladder = ladder if ladder is not None else Ladder.patient()
        self._lock = threading.Lock()
        self._running: dict[int, Running] = {}
        self._leftovers: dict[int, Leftover] = {}
        self._starting = 0
        self._reap_wanted = False
        self._ended_tick = 0
        self._janitor = _Janitor(self.reap_adopted)

    def shorten(self, grace_s: float) -> None:
        """The ladder of a drain, also for cancellations that have begun: the kill comes after
        `grace_s` at the latest."""
        self.ladder = Ladder.hasty(grace_s)
        with self._lock:
            for running in self._running.values():
                if running.waker is not None:
                    os.write(running.waker, b"\0")

    def waking(self, running: Running, waker: int | None) -> None:
        """Set or take back the descriptor that tells a cancelling thread of a new ladder."""
        with self._lock:
            running.waker = waker

    # -- life of a child -----------------------------------------------------------------------

    @contextlib.contextmanager
    def starting(self) -> Iterator[Callable[[int], Running]]:
        """Around the launch of a program; call the result with the new pid."""
        with self._lock:
            self._starting += 1
        try:
            yield self._register
        finally:
            with self._lock:
                self._starting -= 1
                wanted = self._reap_wanted and self._starting == 0
            if wanted:
                self.reap_adopted()

    def _register(self, pid: int) -> Running:
        running = Running(pid)
        with self._lock:
            self._running[pid] = running
        return running

    def reaped(self, running: Running) -> None:
        """The child's status was collected."""
        with self._lock:
            # The number may already belong to the next child.
            if self._running.get(running.pid) is running:
                del self._running[running.pid]
            self._ended_tick = _now_tick()
            wanted = self._reap_wanted and self._starting == 0
        if wanted:
            self.reap_adopted()

    def running(self) -> list[Running]:
        with self._lock:
            return list(self._running.values())

    # -- what a finished command left ----------------------------------------------------------

    def leave(self, running: Running, strays: set[ProcessId], pipes: list[int]) -> None:
        """Remember what the command left running, and throw away what it still writes.

        The pipes belong to the table from now on.
        """
        for fd in pipes:
            self._janitor.discard(fd)
        leftover = Leftover(running.group, {s for s in strays if _alive(s)})
        if leftover.strays or _group_alive(running.group):
            with self._lock:
                groups = list(self._leftovers)
            ended = [group for group in groups if not _group_alive(group)]
            with self._lock:
                for group in ended:
                    self._leftovers.pop(group, None)
                self._leftovers[running.group] = leftover

    def finish_cancellation(self, running: Running, taken: int) -> None:
        """Carry the ladder of a cancelled command on for what it left, from step `taken`."""
        ladder = self.ladder

        def step(index: int) -> None:
            with self._lock:
                leftover = self._leftovers.get(running.group)
            if leftover is None or index >= len(ladder.steps):
                return
            self._signal_leftover(leftover, ladder.steps[index][1])
            if index + 1 < len(ladder.steps):
                self._janitor.after(ladder.steps[index + 1][0], lambda: step(index + 1))

        if taken < len(ladder.steps):
            self._janitor.after(ladder.steps[taken][0], lambda: step(taken))

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Run something short on the table's own thread after that time."""
        self._janitor.after(max(0.0, seconds), action)

    def attend(self) -> None:
        """Start the table's own thread now, in the domain of the calling one."""
        self._janitor.after(0.0, _nothing)

    def _signal_leftover(self, leftover: Leftover, number: int) -> None:
        # By name and start time, never by group number: the leader is reaped, so the number could
        # belong to somebody else by now.
        snapshot = Snapshot.take()
        targets = {s for s in leftover.strays if snapshot.has(s)}
        targets |= {e.id for e in snapshot.descendants([s.pid for s in targets]) if e.alive}
        for process in targets:
            signal_process(process, number)
            signal_process(process, signal.SIGCONT)
        leftover.strays |= targets
        if not targets:
            with self._lock:
                self._leftovers.pop(leftover.group, None)

    def strays_of(self, running: Running) -> set[ProcessId]:
        """Members of a child's group, its descendants, and adopted processes that can only be its.

        An adopted process is a command's own when it started after the command did, nothing else
        that runs is older than it, and nothing ended since. In doubt it is left alone until the
        session ends.
        """
        snapshot = Snapshot.take()
        strays = {entry.id for entry in snapshot.descendants([running.pid])}
        strays.update(entry.id for entry in snapshot.members(running.group))
        own = snapshot.entries.get(running.pid)
        if own is None:
            return strays
        with self._lock:
            known = set(self._running)
            ended_tick = self._ended_tick
        others = [snapshot.entries[pid].id.start for pid in known if pid in snapshot.entries]
        worker = os.getpid()
        for entry in snapshot.entries.values():
            if entry.parent != worker or entry.id.pid in known:
                continue
            born = entry.id.start
            rivals = sum(1 for start in others if start <= born)
            if born >= own.id.start and rivals <= 1 and ended_tick <= born:
                strays.add(entry.id)
                strays.update(e.id for e in snapshot.descendants([entry.id.pid]))
        strays.discard(own.id)
        return strays

    @staticmethod
    def members_of(running: Running) -> set[ProcessId]:
        """Living members of a group whose leader was reaped a moment ago."""
        return {entry.id for entry in Snapshot.take().members(running.group)}

    # -- the end -------------------------------------------------------------------------------

    def kill_everything(self) -> None:
        """Kill all children, leftovers and their descendants; nothing is reaped.

        Takes no lock: a signal handler may end the worker at any moment, whoever holds one.
        """
        for group in [*self._running, *self._leftovers]:
            signal_group(group, signal.SIGKILL)
        for _ in range(_KILL_ROUNDS_MAX):
            below = [e for e in Snapshot.take().descendants([os.getpid()]) if e.alive]
            if not below:
                return
            for entry in below:
                signal_process(entry.id, signal.SIGKILL)
            time.sleep(_KILL_ROUND_S)

    # -- adopted processes ---------------------------------------------------------------------

    def reap_adopted(self) -> None:
        """Collect ended processes that are children of the worker but were not started by it."""
        with self._lock:
            if self._starting:
                self._reap_wanted = True
                return
            self._reap_wanted = False
            while True:
                try:
                    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                except ChildProcessError:
                    return
                if found is None:
                    return
                if found.si_pid in self._running:
                    # Its own thread collects it; the kernel shows one ended child at a time, so
                    # the others are looked for again afterwards.
                    self._reap_wanted = True
                    return
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(found.si_pid, os.WNOHANG)

    def adopt(self) -> None:
        """Make this process the parent of orphaned descendants and reap them as they end.

        Call once in the main thread of a worker. Children must not inherit ignored signals, but
        launches reset those anyway.
        """
        become_subreaper()
        signal.signal(signal.SIGCHLD, lambda _number, _frame: self._janitor.poke())


def become_subreaper() -> bool:
    """Orphaned descendants become children of this process; False where that is impossible."""
    if sys.platform != "linux":
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    done: int = libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return done == 0


class _Janitor:
    """The table's own thread: drains descriptors nobody reads, reaps, and keeps appointments."""

    # `_new` and `_alarms` are handed over under `_lock`; everything else belongs to the thread.

    def __init__(self, reap: Callable[[], None]) -> None:
        self._reap = reap
        self._lock = threading.Lock()
        self._wake: tuple[int, int] | None = None
        self._new: list[int] = []
        self._alarms: list[_Alarm] = []
        self._order = itertools.count()

    def discard(self, fd: int) -> None:
        """Read the descriptor to its end, throw everything away, close it."""
        with self._lock:
            self._new.append(fd)
            self._start()

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        with self._lock:
            alarm = _Alarm(time.monotonic() + seconds, next(self._order), action)
            heapq.heappush(self._alarms, alarm)
            self._start()

    def poke(self) -> None:
        """Reap adopted processes soon. Safe in a signal handler: the lock is only tried."""
        if self._lock.acquire(blocking=False):
            try:
                self._start()
            finally:
                self._lock.release()
        elif self._wake is not None:
            self._notify()

    def _start(self) -> None:
        if self._wake is None:
            self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            threading.Thread(target=self._run, name="janitor", daemon=True).start()
        else:
            self._notify()

    def _notify(self) -> None:
        assert self._wake is not None
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake[1], b"\0")

    def _run(self) -> None:
        assert self._wake is not None
        wake = self._wake[0]
        poller = select.poll()
        poller.register(wake, select.POLLIN)
        while True:
            for action in self._due(poller):
                action()
            self._reap()
            for fd, _ in poller.poll(self._timeout_ms()):
                if fd == wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, _DISCARD_BYTES)
                elif not _read_some(fd):
                    poller.unregister(fd)
                    os.close(fd)

    def _due(self, poller: select.poll) -> list[Callable[[], object]]:
        now = time.monotonic()
        with self._lock:
            for fd in self._new:
                poller.register(fd, select.POLLIN)
            self._new.clear()
            due = []
            while self._alarms and self._alarms[0].due <= now:
                due.append(heapq.heappop(self._alarms).action)
        return due

    def _timeout_ms(self) -> float | None:
        with self._lock:
            if not self._alarms:
                return None
            return max(0.0, (self._alarms[0].due - time.monotonic()) * 1000.0) + 1.0


def _nothing() -> None:
    return None


def _read_some(fd: int) -> bool:
    """Throw away one piece; False at the end of the file."""
    try:
        return bool(os.read(fd, _DISCARD_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _alive(process: ProcessId) -> bool:
    entry = read_entry(process.pid)
    return entry is not None and entry.id == process and entry.alive


def _group_alive(group: int) -> bool:
    return signal_group(group, 0)


def _now_tick() -> int:
    """Now, in the clock ticks of process start times."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return int(time.clock_gettime(clock) * os.sysconf("SC_CLK_TCK"))


def kill_descendants() -> None:
    """End everything below this worker: the last thing before it exits."""
    TABLE.kill_everything()


# One per worker process: children belong to the process, whichever evaluator started them.
TABLE: Final = ProcessTable()
