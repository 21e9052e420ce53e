"""Both ends of a captured child: feeding its input, collecting its output, waiting for its end.

One poll loop per running command serves the input pipe, both output pipes, the end of the process
and the cancellation token. The child never waits for us: output past the limits is read and
dropped, input is written only as fast as the child takes it. Memory is bounded by the limits of
chapter 40 §8, whatever the child does.

Once the child has ended its pipes are drained to their end, but for DRAIN_S at most: something that
inherited them (a server started in the background) does not hold up the answer. The pipes then go
to the process table, which reads and drops the rest.

Failure: errors of the input pipe mean that the child does not read, which is its own business. A
spill that cannot be written degrades to the resident prefix. No language error is raised here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from worker.commands.processes import Ladder, ProcessTable, Running
from worker.commands.proctree import ProcessId, signal_group, signal_process
from worker.evaluate.cancel import CancelToken
from worker.evaluate.tasks import ProcessGroups
from worker.values.types import LazyBytes

READ_BYTES: Final = 1 << 16
# A child that fills its pipe gets a larger one: fewer switches between the two processes.
LARGE_PIPE_BYTES: Final = 1 << 18
DRAIN_S: Final = 0.2
_F_SETPIPE_SZ: Final = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class Spill(Protocol):
    """A place of the session's store for one large output; made by `host.journal.open_spill()`.

    `write` appends; `adopt` makes what was written a stored value and gives it as lazy bytes, None
    when the store refused it; `drop` forgets it. `write` and `adopt` may raise OSError.
    """

    def write(self, data: bytes | memoryview) -> None: ...

    def adopt(self, preview: bytes, *, truncated: bool) -> LazyBytes | None: ...

    def drop(self) -> None: ...


class SpillStore(Protocol):
    def open_spill(self) -> Spill | None: ...


StreamName = Literal["stdout", "stderr"]


class Tail(Protocol):
    """Who watches the output of a task while it runs; see worker.output_tail."""

    def add(self, name: StreamName, chunk: bytes) -> None: ...


def collector(
    tail: Tail | None,
    stream: StreamName,
    limit: int,
    store: SpillStore | None = None,
    spill_limit: int = 0,
) -> Collector:
    """The collector of one stream of a program, seen by the tail of its task if there is one."""
    if tail is None:
        return Collector(limit, store, spill_limit)
    return TailedCollector(tail, stream, limit, store, spill_limit)


class Collector:
    """Bytes of one output stream: resident up to `limit`, then spilled when there is a store.

    Without a store, or when the store fails, what is beyond the limit is dropped.
    """

    __slots__ = ("_buffer", "_dropped", "_resident", "_spill", "_spill_limit", "_spilled", "_store",
                 "limit")  # fmt: skip

    def __init__(self, limit: int, store: SpillStore | None = None, spill_limit: int = 0) -> None:
        self.limit = limit
        self._buffer = io.BytesIO()
        self._resident = 0
        self._store = store
        self._spill: Spill | None = None
        self._spill_limit = spill_limit
        self._spilled = 0
        self._dropped = False

    def add(self, chunk: bytes) -> None:
        room = self.limit - self._resident
        if len(chunk) <= room:
            self._resident += self._buffer.write(chunk)
            return
        view = memoryview(chunk)
        if room:
            self._resident += self._buffer.write(view[:room])
        self._overflow(view[room:])

    def _overflow(self, rest: memoryview) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            self._open(store)
        if self._spill is None:
            return
        kept = rest[: max(0, self._spill_limit - self._spilled)]
        if len(kept) < len(rest):
            self._dropped = True
        self._write(kept)

    def _open(self, store: SpillStore) -> None:
        """Start the spill with everything so far: it holds the stream from its first byte."""
        with contextlib.suppress(OSError):
            self._spill = store.open_spill()
        if self._spill is not None:
            head = self._buffer.getbuffer()[: self._spill_limit]
            self._dropped = len(head) < self._resident
            self._write(head)
            head.release()

    def _write(self, data: memoryview) -> None:
        if self._spill is None or not data:
            return
        try:
            self._spill.write(data)
            self._spilled += len(data)
        except OSError:
            self._spill.drop()
            self._spill = None

    def result(self) -> bytes | LazyBytes:
        """What was collected; lazy bytes when the store took it."""
        resident = self._buffer.getvalue()
        spill, self._spill = self._spill, None
        if spill is not None:
            with contextlib.suppress(OSError):
                adopted = spill.adopt(resident, truncated=self._dropped)
                if adopted is not None:
                    return adopted
        return resident

    def abandon(self) -> None:
        if self._spill is not None:
            self._spill.drop()
            self._spill = None


class TailedCollector(Collector):
    """A collector whose bytes are seen by the task's live tail as well."""

    __slots__ = ("_stream", "_tail")

    def __init__(
        self,
        tail: Tail,
        stream: StreamName,
        limit: int,
        store: SpillStore | None = None,
        spill_limit: int = 0,
    ) -> None:
        super().__init__(limit, store, spill_limit)
        self._tail = tail
        self._stream = stream

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        self._tail.add(self._stream, chunk)


_LOAD_BYTES: Final = 1 << 20


def pieces(data: bytes | LazyBytes) -> Iterator[bytes]:
    """The content in pieces; lazy bytes are loaded piece by piece."""
    if isinstance(data, bytes):
        yield data
        return
    if data.load is None:
        yield data.preview
        return
    for offset in range(0, data.length, _LOAD_BYTES):
        yield data.load(offset, min(_LOAD_BYTES, data.length - offset))


class Feed:
    """The input of a child: content, and the write end of its pipe (set to non-blocking)."""

    __slots__ = ("_pending", "_pieces", "fd")

    def __init__(self, data: bytes | LazyBytes, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._pieces = pieces(data)
        self._pending = memoryview(b"")

    def advance(self) -> bool:
        """Write what the pipe takes now; False when there is nothing left to write."""
        try:
            while self._pending or self._next_piece():
                self._pending = self._pending[os.write(self.fd, self._pending) :]
        except BlockingIOError:
            return True
        except OSError:
            # The reader is gone (EPIPE): a child may ignore its input.
            return False
        return False

    def _next_piece(self) -> bool:
        for piece in self._pieces:
            if piece:
                self._pending = memoryview(piece)
                return True
        return False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended: exactly one of exit code and signal number is set."""

    status: int | None
    signal: int | None
    ended_ns: int


class Conversation:
    """The poll loop of one running command."""

    # `_open` maps the output pipes still read to their collectors. `_ending` is set once, when the
    # child has been reaped. `_steps_taken` counts the signals of the ladder already sent and
    # `_step_due` is when the next one follows; both change only after the token was cancelled.

    def __init__(
        self,
        table: ProcessTable,
        running: Running,
        groups: ProcessGroups,
        outputs: dict[int, Collector],
        feed: Feed | None,
        cancel: CancelToken,
        drain_s: float = DRAIN_S,
    ) -> None:
        self._groups = groups
        self._drain_s = drain_s
        self._table = table
        self._running = running
        self._open = outputs
        self._feed = feed
        self._cancel = cancel
        self._cancel_fd = -1
        self._poller = select.poll()
        self._ending: Ending | None = None
        self._drain_until = 0.0
        self._ladder: Ladder | None = None
        self._steps_taken = 0
        self._step_due = 0.0
        self._strays: set[ProcessId] = set()
        self._news = -1

    def run(self) -> Ending:
        """Serve the child to its end. All descriptors are closed or handed over afterwards.

        OSError when the worker has no descriptors left to watch the child with; it is killed then.
        """
        end: EndOfProcess | None = None
        try:
            self._groups.add(self._running.group)
            end = EndOfProcess(self._running.pid)
            poller = self._poller
            for fd in self._open:
                poller.register(fd, select.POLLIN)
            poller.register(end.fd, select.POLLIN)
            self._cancel_fd = self._cancel.wait_fd
            poller.register(self._cancel_fd, select.POLLIN)
            if self._feed is not None:
                poller.register(self._feed.fd, select.POLLOUT)
            while not self._done():
                events = poller.poll(self._timeout_ms())
                for fd, _ in events:
                    if fd in self._open:
                        self._read(fd)
                    elif fd == end.fd:
                        poller.unregister(end.fd)
                        self._reap()
                    elif self._feed is not None and fd == self._feed.fd:
                        if not self._feed.advance():
                            self._end_feed()
                    elif fd == self._cancel_fd:
                        poller.unregister(fd)
                        self._start_ladder()
                    elif fd == self._news:
                        os.read(fd, READ_BYTES)
                if self._ladder is not None and self._ending is None:
                    self._climb()
            assert self._ending is not None
            return self._ending
        finally:
            if end is not None:
                end.close()
            self._close()

    def _done(self) -> bool:
        if self._ending is None:
            return False
        return not self._open or time.monotonic() >= self._drain_until

    def _timeout_ms(self) -> float | None:
        if self._ending is not None:
            due = self._drain_until
        elif self._ladder is not None and self._steps_taken < len(self._ladder.steps):
            due = self._step_due
        else:
            return None
        # Rounded up: waking early would only mean polling again.
        return max(0.0, (due - time.monotonic()) * 1000.0) + 0.5

    def _read(self, fd: int) -> None:
        try:
            chunk = os.read(fd, READ_BYTES)
        except OSError:
            # EIO: the last holder of a terminal is gone.
            chunk = b""
        if not chunk:
            self._poller.unregister(fd)
            del self._open[fd]
            os.close(fd)
            return
        self._open[fd].add(chunk)
        if len(chunk) == READ_BYTES:
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, _F_SETPIPE_SZ, LARGE_PIPE_BYTES)

    def _end_feed(self) -> None:
        assert self._feed is not None
        self._poller.unregister(self._feed.fd)
        os.close(self._feed.fd)
        self._feed = None

    def _reap(self) -> None:
        if self._ladder is not None:
            # While the child still counts as ours its descendants can be told from others'.
            self._strays |= self._table.strays_of(self._running)
        self._collect()
        self._drain_until = time.monotonic() + self._drain_s
        if self._feed is not None:
            self._end_feed()

    def _collect(self) -> None:
        # Whoever suspends a task must not reach a group whose number is free again.
        self._groups.discard(self._running.group)
        self._ending = reap(self._running.pid)
        self._table.reaped(self._running)

    # -- cancellation --------------------------------------------------------------------------

    def _start_ladder(self) -> None:
        self._ladder = self._table.ladder
        self._step_due = time.monotonic() + self._ladder.steps[0][0]
        with contextlib.suppress(OSError):
            self._news, waker = os.pipe()
            self._poller.register(self._news, select.POLLIN)
            self._table.waking(self._running, waker)

    def _climb(self) -> None:
        """Send the signal that is due, if one is."""
        assert self._ladder is not None
        # A drain may have shortened the ladder meanwhile.
        if self._ladder is not self._table.ladder:
            self._ladder = self._table.ladder
            if 0 < self._steps_taken < len(self._ladder.steps):
                self._step_due = min(
                    self._step_due, time.monotonic() + self._ladder.steps[self._steps_taken][0]
                )
        steps = self._ladder.steps
        if self._steps_taken >= len(steps) or time.monotonic() < self._step_due:
            return
        number = steps[self._steps_taken][1]
        self._strays |= self._table.strays_of(self._running)
        signal_group(self._running.group, number)
        # A suspended child takes the signal only when it goes on.
        signal_group(self._running.group, signal.SIGCONT)
        if number == signal.SIGKILL:
            for stray in self._strays:
                signal_process(stray, number)
        self._steps_taken += 1
        if self._steps_taken < len(steps):
            self._step_due = time.monotonic() + steps[self._steps_taken][0]

    # -- the end -------------------------------------------------------------------------------

    def _close(self) -> None:
        """Give back every descriptor; a child that was abandoned is killed and reaped."""
        waker = self._running.waker
        if waker is not None:
            self._table.waking(self._running, None)
            os.close(waker)
            os.close(self._news)
        if self._feed is not None:
            os.close(self._feed.fd)
            self._feed = None
        if self._ending is None:
            signal_group(self._running.group, signal.SIGKILL)
            self._collect()
        pipes = list(self._open)
        self._open.clear()
        cancelled = self._ladder is not None or self._cancel.cancelled
        if cancelled and not self._strays:
            # Cancelled after it was reaped: what is left of its group is what it left running.
            self._strays = self._table.members_of(self._running)
        self._table.leave(self._running, self._strays, pipes)
        if cancelled:
            self._table.finish_cancellation(self._running, self._steps_taken)


def reap(pid: int) -> Ending:
    """Wait for a child that has ended and collect its status."""
    _, status = os.waitpid(pid, 0)
    now = time.monotonic_ns()
    if os.WIFSIGNALED(status):
        return Ending(None, os.WTERMSIG(status), now)
    return Ending(os.waitstatus_to_exitcode(status), None, now)


class EndOfProcess:
    """A descriptor that becomes readable when a child has ended; the child is not reaped by it.

    A pidfd where the system has them. Elsewhere a thread waits for the child and closes a pipe.
    """

    __slots__ = ("fd",)

    def __init__(self, pid: int) -> None:
        open_pidfd: Any = getattr(os, "pidfd_open", None)
        if open_pidfd is not None:
            try:
                self.fd: int = open_pidfd(pid)
                return
            except OSError as failure:
                if failure.errno in (errno.EMFILE, errno.ENFILE):
                    raise
        self.fd = _end_pipe(pid)

    def close(self) -> None:
        os.close(self.fd)


def _end_pipe(pid: int) -> int:
    read_end, write_end = os.pipe()

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(write_end)

    threading.Thread(target=wait, name=f"end of {pid}", daemon=True).start()
    return read_end
