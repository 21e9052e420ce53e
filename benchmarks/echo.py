"""The bare ping-pong that calls are measured against: client, relay process, echo process.

Two asyncio hops over Unix sockets, line by line, with nothing in them: what a router with workers
behind it pays when it is written the ordinary way and does no work at all.

Failure: the processes end with this one; a socket that does not come up raises after START_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

START_S: Final = 10.0


@contextlib.contextmanager
def two_hops() -> Iterator[socket.socket]:
    """A connection whose lines come back after passing a relay and an echo process."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        echo_path, relay_path = Path(name) / "echo", Path(name) / "relay"
        processes = [
            context.Process(target=_run_echo, args=(str(echo_path),), daemon=True),
            context.Process(target=_run_relay, args=(str(relay_path), str(echo_path)), daemon=True),
        ]
        for process in processes:
            process.start()
        try:
            _wait_for(echo_path)
            connection = _wait_for(relay_path)
            connection.setblocking(True)
            yield connection
            connection.close()
        finally:
            for process in processes:
                process.kill()
                process.join()


def _wait_for(path: Path) -> socket.socket:
    deadline = time.monotonic() + START_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return connection


def _run_echo(path: str) -> None:
    asyncio.run(_serve(path, _echo))


def _run_relay(path: str, target: str) -> None:
    asyncio.run(_serve(path, lambda reader, writer: _relay(target, reader, writer)))


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _serve(path: str, serve: Serve) -> None:
    server = await asyncio.start_unix_server(serve, path)
    await server.serve_forever()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)


async def _relay(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    onward_reader, onward = await asyncio.open_unix_connection(target)
    back = asyncio.ensure_future(_echo(onward_reader, writer))
    while line := await reader.readline():
        onward.write(line)
    back.cancel()


def round_trips(connection: socket.socket, line: bytes, count: int) -> list[float]:
    """Seconds of each of `count` round trips of one line."""
    file = connection.makefile("rb")
    samples = []
    for _ in range(count):
        started = time.perf_counter()
        connection.sendall(line)
        file.readline()
        samples.append(time.perf_counter() - started)
    return samples
