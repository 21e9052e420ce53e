"""One running worker as the router sees it: calls in flight, heartbeats, its end.

A call is a callback that gets exactly one `Reply`, `Failure` or, for submissions, `Finished`; when
the worker ends first it gets the `worker_lost` error instead. Pings show whether the I/O thread
answers.

Failure: `on_end(worker, reason, status)` is called once, after all calls in flight were failed.
A worker that breaks the protocol or stops answering is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Final, Protocol

from ipc.jsonrpc import RpcError, internal
from ipc.messages import (
    Ask,
    Call,
    Caller,
    Emit,
    Failure,
    Finished,
    FromWorker,
    Held,
    Ping,
    Pong,
    Progress,
    Ready,
    Reply,
    Started,
    TaskOutput,
    TerminalChanged,
    ToWorker,
)
from supervisor.contents import close_all
from supervisor.control_channel import ControlChannel
from supervisor.launcher import Launched
from supervisor.peers import now_tick

PING_INTERVAL_S: Final = 5.0
SILENCE_MAX_S: Final = 30.0
STATUS_WAIT_S: Final = 0.2

# Methods that can start programs.
_STARTING: Final = frozenset(("exec", "pty.open"))

Ending = Reply | Failure | Finished | RpcError
OnEnding = Callable[[Ending, list[int]], None]


class Listener(Protocol):
    """What the owner of a worker is told."""

    def on_ready(self, worker: Worker, ready: Ready) -> None: ...
    def on_started(self, worker: Worker, started: Started, fds: list[int]) -> None: ...
    def on_progress(self, worker: Worker, progress: Progress, fds: list[int]) -> None: ...
    def on_emit(self, worker: Worker, emit: Emit) -> None: ...
    def on_task_output(self, worker: Worker, output: TaskOutput) -> None: ...
    def on_terminal_changed(self, worker: Worker, change: TerminalChanged) -> None: ...
    def on_ask(self, worker: Worker, ask: Ask) -> None: ...
    def on_end(self, worker: Worker, reason: str, status: int | None) -> None: ...


class Worker:
    # `_calls` maps call ids to whoever waits for the ending. `_alive` goes from True to False once,
    # in `_closed`. `heard_at` is the loop time of the last message. All on the loop's thread.

    def __init__(
        self, launched: Launched, loop: asyncio.AbstractEventLoop, listener: Listener, label: str
    ) -> None:
        self.pid = launched.pid
        self.label = label
        self._launched = launched
        self._loop = loop
        self._listener = listener
        self._calls: dict[int, OnEnding] = {}
        self._next_call = 1
        self._held: dict[int, Callable[[bool], None]] = {}
        self._alive = True
        self._killed_for: str | None = None
        # When it first did work for somebody else than the local human, in ticks since boot.
        self.others_since: int | None = None
        self.heard_at = loop.time()
        self.started_at = time.monotonic()
        self._channel = ControlChannel(launched.channel, loop, self._received, self._closed)
        self._ping_timer = loop.call_later(PING_INTERVAL_S, self._ping)
        self._status_timer = self._ping_timer

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def calls_in_flight(self) -> int:
        return len(self._calls)

    # -- towards the worker ------------------------------------------------------------------------

    def send(self, message: ToWorker, fds: list[int] | None = None) -> None:
        self._channel.send(message, fds)

    def call(
        self,
        method: str,
        params: bytes,
        caller: Caller,
        on_ending: OnEnding,
        task: int = 0,
        pty: int = 0,
        approval: bytes = b"",
    ) -> int:
        """Forward a call; returns its id. `on_ending` may run before this returns if it is dead."""
        call_id = self._next_call
        self._next_call += 1
        if not self._alive:
            on_ending(self._lost_error(None), [])
            return call_id
        if self.others_since is None and method in _STARTING and not caller.local_human:
            self.others_since = now_tick()
        self._calls[call_id] = on_ending
        self._channel.send(Call(call_id, method, params, caller, task, pty, approval))
        return call_id

    def forget(self, call_id: int) -> None:
        """Expect no ending of a call that was refused."""
        self._calls.pop(call_id, None)

    def hold(self, call_id: int, hold: bool, done: Callable[[bool], None]) -> None:
        """Suspend or resume a submission; `done` gets whether it stands (or runs) now."""
        from ipc.messages import Suspend

        number = self._next_call
        self._next_call += 1
        self._held[number] = done
        self._channel.send(Suspend(number, call_id, hold))

    def kill(self, reason: str) -> None:
        """End the worker now."""
        if self._alive and self._killed_for is None:
            self._killed_for = reason
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        if self._alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def close(self, reason: str) -> None:
        """Close the control channel: the worker ends by itself."""
        self._killed_for = self._killed_for or reason
        self._channel.close(reason)

    # -- from the worker ---------------------------------------------------------------------------

    def _received(self, message: FromWorker, fds: list[int]) -> None:
        self.heard_at = self._loop.time()
        if isinstance(message, Finished | Reply | Failure):
            waiting = self._calls.pop(message.id, None)
            if waiting is None:
                close_all(fds)
                self._violation("an answer to no call")
                return
            waiting(message, fds)
        elif isinstance(message, Started):
            if message.id not in self._calls:
                close_all(fds)
                self._violation("a start of no call")
                return
            self._listener.on_started(self, message, fds)
        elif isinstance(message, Progress):
            self._listener.on_progress(self, message, fds)
        elif isinstance(message, Held):
            held = self._held.pop(message.id, None)
            if held is not None:
                held(message.done)
        elif not isinstance(message, Pong):
            close_all(fds)
            self._dispatch(message)

    def _dispatch(self, message: FromWorker) -> None:
        match message:
            case Ready():
                if message.pid != self.pid:
                    self._violation("a foreign pid")
                    return
                self._listener.on_ready(self, message)
            case Emit():
                self._listener.on_emit(self, message)
            case TaskOutput():
                self._listener.on_task_output(self, message)
            case TerminalChanged():
                self._listener.on_terminal_changed(self, message)
            case Ask():
                self._listener.on_ask(self, message)

    def _violation(self, what: str) -> None:
        self.kill(f"protocol: {what}")
        self._channel.close(f"protocol: {what}")

    def _ping(self) -> None:
        if not self._alive:
            return
        if self._loop.time() - self.heard_at > SILENCE_MAX_S:
            self.kill("stuck")
            self._channel.close("stuck")
            return
        self._channel.send(Ping(0))
        self._ping_timer = self._loop.call_later(PING_INTERVAL_S, self._ping)

    def _closed(self, reason: str) -> None:
        """The channel is closed. A process that still runs behind it is of no use to anybody."""
        self._alive = False
        self._ping_timer.cancel()
        if reason.startswith("protocol"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        final = self._killed_for or reason
        # The exit status comes by way of the zygote, a moment after the channel closed.
        self._loop.add_reader(self._launched.status_fd, self._ended, final)
        self._status_timer = self._loop.call_later(STATUS_WAIT_S, self._ended, final)

    def _ended(self, reason: str) -> None:
        self._status_timer.cancel()
        self._loop.remove_reader(self._launched.status_fd)
        status = self._launched.exit_status()
        self._launched.close()
        self._fail_calls(status)
        self._listener.on_end(self, reason, status)

    def _fail_calls(self, status: int | None) -> None:
        calls, self._calls = self._calls, {}
        held, self._held = self._held, {}
        for waiting in calls.values():
            waiting(self._lost_error(status), [])
        for done in held.values():
            done(False)

    def _lost_error(self, status: int | None) -> RpcError:
        error = internal("worker_lost", "session worker ended", session=self.label)
        if status is not None:
            if status < 0:
                error.data["signal"] = _signal_name(-status)
            else:
                error.data["status"] = status
        return error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
