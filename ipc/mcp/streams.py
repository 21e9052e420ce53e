"""The standard streams of the facade, without blocking the event loop (chapter 80, 1 and 5).

Input and output have a thread each, since a pipe or a file given as stdin cannot be waited for in
every case; both are daemon threads, so that a blocked one never keeps the process alive.

Failure: `Output.write` raises OSError when stdout is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Final

READ_BYTES: Final = 64 * 1024


class Output:
    """Whole lines to a descriptor, one after the other."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._lines: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="mcp-stdout", daemon=True).start()

    async def write(self, line: bytes, still: Callable[[], bool] = lambda: True) -> None:
        """Write a line, unless `still` says no when its turn has come. Raises OSError."""
        async with self._lock:
            if not still():
                return
            written: asyncio.Future[None] = self._loop.create_future()
            self._lines.put((line, written))
            await asyncio.shield(written)

    def _run(self) -> None:
        while True:
            line, written = self._lines.get()
            failure: OSError | None = None
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, written, failure)


def _settle(written: asyncio.Future[None], failure: OSError | None) -> None:
    if written.done():
        return
    if failure is None:
        written.set_result(None)
    else:
        written.set_exception(failure)


async def read_all(fd: int, feed: Callable[[bytes], Awaitable[None]]) -> None:
    """Feed what a descriptor gives, block by block, until its end. The next block is read when
    `feed` is done with the one before."""
    loop = asyncio.get_running_loop()
    blocks: asyncio.Queue[bytes] = asyncio.Queue()
    wanted = threading.Semaphore(0)

    def run() -> None:
        with contextlib.suppress(RuntimeError):
            while True:
                wanted.acquire()
                try:
                    block = os.read(fd, READ_BYTES)
                except OSError:
                    block = b""
                loop.call_soon_threadsafe(blocks.put_nowait, block)
                if not block:
                    return

    threading.Thread(target=run, name="mcp-stdin", daemon=True).start()
    while True:
        wanted.release()
        block = await blocks.get()
        if not block:
            return
        await feed(block)
