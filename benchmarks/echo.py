"""The bare ping-pong that calls are measured against: client, relay process, echo process.

Two asyncio hops over Unix sockets with nothing in them: what any router with workers behind it must
pay at least.

Failure: the processes end with this one; a socket that does not come up raises after START_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvloop

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
    uvloop.run(_serve_echo(path))


def _run_relay(path: str, target: str) -> None:
    uvloop.run(_serve_relay(path, target))


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


async def _serve_echo(path: str) -> None:
    server = await asyncio.get_running_loop().create_unix_server(_Echo, path)
    await server.serve_forever()


class _Back(asyncio.Protocol):
    """The relay's side towards the echo process."""

    def __init__(self, client: asyncio.BaseTransport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)  # type: ignore[attr-defined]


class _Relay(asyncio.Protocol):
    def __init__(self, target: str) -> None:
        self._target = target
        self._early: list[bytes] = []
        self._onward: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._task = asyncio.ensure_future(self._connect(transport))

    async def _connect(self, transport: asyncio.BaseTransport) -> None:
        loop = asyncio.get_running_loop()
        self._onward, _ = await loop.create_unix_connection(lambda: _Back(transport), self._target)
        for data in self._early:
            self._onward.write(data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self._onward is None:
            self._early.append(data)
        else:
            self._onward.write(data)  # type: ignore[attr-defined]


async def _serve_relay(path: str, target: str) -> None:
    server = await asyncio.get_running_loop().create_unix_server(lambda: _Relay(target), path)
    await server.serve_forever()


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


