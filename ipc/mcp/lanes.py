"""Requests under way: three ordered lanes, at most 64 requests, cancellation (chapter 80, 13).

Failure: none; what a handler raises is the server's to turn into an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final

from ipc.mcp.frames import Request, same_id

IN_FLIGHT_MAX: Final = 64


class Lane(Enum):
    SESSION = "session"
    TERMINAL = "terminal"
    CONTROL = "control"


class Work:
    """One accepted request. `cancelled`: nobody wants the answer any more."""

    def __init__(self, request_id: bytes, request: Request) -> None:
        self.id = request_id
        self.request = request
        self.cancelled = False


Handler = Callable[[Lane, Work], Awaitable[None]]


class Lanes:
    # `_accepted` is every request without an answer, in order of arrival; `_free` counts what may
    # still come.
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._free = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._accepted: list[Work] = []
        self._queues: dict[Lane, asyncio.Queue[Work]] = {lane: asyncio.Queue() for lane in Lane}
        self._runners = [asyncio.create_task(self._run(lane)) for lane in Lane]

    async def accept(self, lane: Lane, work: Work) -> None:
        """Queue a request; waits while there are 64."""
        await self._free.acquire()
        self._accepted.append(work)
        self._queues[lane].put_nowait(work)

    def cancel(self, request_id: Any) -> None:
        for work in self._accepted:
            if same_id(work.id, request_id):
                work.cancelled = True

    async def finish(self) -> None:
        """Wait until everything accepted is answered."""
        for queue in self._queues.values():
            await queue.join()

    async def close(self) -> None:
        for runner in self._runners:
            runner.cancel()
        for runner in self._runners:
            with contextlib.suppress(asyncio.CancelledError):
                await runner

    async def _run(self, lane: Lane) -> None:
        queue = self._queues[lane]
        while True:
            work = await queue.get()
            try:
                if not work.cancelled:
                    await self._handler(lane, work)
            finally:
                self._accepted.remove(work)
                self._free.release()
                queue.task_done()
