"""The pool of syntax workers: parse and complete, one call at a time each.

Workers start when they are needed and stay. A call that does not end by itself after its CPU budget
is answered with the quota error when its worker dies or is killed.

Failure: `call` answers RpcError `quota` (`parse_time`), `shutting_down`, or `internal_error`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from ipc.jsonrpc import internal, quota
from ipc.messages import (
    Ask,
    Caller,
    Emit,
    Failure,
    Progress,
    Ready,
    Reply,
    Started,
    TaskOutput,
    TerminalChanged,
)
from supervisor.contents import close_all, read_content
from supervisor.launcher import LaunchFailed
from supervisor.worker_process import Ending, Worker

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

log = structlog.get_logger()

POOL_SIZE: Final = 2
CPU_SECONDS_MAX: Final = 10
# A busy machine may give a worker much less than one core; past this it is stuck.
WALL_SECONDS_MAX: Final = 60.0

Answer = Callable[[bytes | None, bytes | None], None]


@dataclass(slots=True)
class _Work:
    method: str
    params: bytes
    caller: Caller
    answer: Answer


class SyntaxPool:
    # `_idle` are live workers without work, `_busy` those with one each, `_queue` the work that
    # waits for a worker. All on the loop's thread.

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._idle: list[Worker] = []
        self._busy: dict[Worker, asyncio.TimerHandle] = {}
        self._queue: deque[_Work] = deque()
        self._starting = 0

    def call(self, method: str, params: bytes, caller: Caller, answer: Answer) -> None:
        """Run one call; `answer(result, error)` gets exactly one of the two, encoded."""
        self._queue.append(_Work(method, params, caller, answer))
        self._feed()

    def _feed(self) -> None:
        while self._queue and self._idle:
            worker = self._idle.pop()
            if worker.alive:
                self._run(worker, self._queue.popleft())
        if self._queue and len(self._busy) + self._starting < POOL_SIZE:
            self._starting += 1
            self._kernel.loop.create_task(self._start())

    async def _start(self) -> None:
        try:
            launched = await self._kernel.launcher.launch(
                "syntax_worker", "shoal:syntax", {"cpu_s": CPU_SECONDS_MAX}
            )
        except LaunchFailed as error:
            self._starting -= 1
            log.error("worker.start", role="syntax", err=str(error))
            failure = internal("internal_error", "no syntax worker could be started").encode()
            queue, self._queue = self._queue, deque()
            for work in queue:
                work.answer(None, failure)
            return
        self._starting -= 1
        self._idle.append(Worker(launched, self._kernel.loop, self, "syntax"))
        self._feed()

    def _run(self, worker: Worker, work: _Work) -> None:
        timer = self._kernel.loop.call_later(WALL_SECONDS_MAX, worker.kill, "parse_time")
        self._busy[worker] = timer

        def ended(ending: Ending, fds: list[int]) -> None:
            self._busy.pop(worker).cancel()
            match ending:
                case Reply():
                    work.answer(read_content(ending.result, fds), None)
                case Failure():
                    work.answer(None, ending.error)
                case _:
                    # The only way a syntax worker dies in a call is the limit it could not report.
                    error = quota("parse_time", CPU_SECONDS_MAX, CPU_SECONDS_MAX)
                    work.answer(None, error.encode())
            if worker.alive:
                self._idle.append(worker)
            self._feed()

        worker.call(work.method, work.params, work.caller, ended)

    def close(self) -> None:
        for worker in [*self._idle, *self._busy]:
            worker.close("shutdown")

    # -- worker listener ---------------------------------------------------------------------------

    def on_ready(self, worker: Worker, ready: Ready) -> None:
        return None

    def on_started(self, worker: Worker, started: Started, fds: list[int]) -> None:
        worker.kill("protocol: a syntax worker starts nothing")

    def on_progress(self, worker: Worker, progress: Progress, fds: list[int]) -> None:
        close_all(fds)
        worker.kill("protocol: a syntax worker runs no submissions")

    def on_emit(self, worker: Worker, emit: Emit) -> None:
        worker.kill("protocol: a syntax worker emits nothing")

    def on_task_output(self, worker: Worker, output: TaskOutput) -> None:
        worker.kill("protocol: a syntax worker has no tasks")

    def on_terminal_changed(self, worker: Worker, change: TerminalChanged) -> None:
        worker.kill("protocol: a syntax worker has no terminals")

    def on_ask(self, worker: Worker, ask: Ask) -> None:
        worker.kill("protocol: a syntax worker asks nothing")

    def on_end(self, worker: Worker, reason: str, status: int | None) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
        log.info("worker.exit", role="syntax", worker=worker.pid, reason=reason, status=status)
        self._feed()
