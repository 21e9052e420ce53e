"""A connection by itself: back-pressure, the stall rule, the end of a half-closed client."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipc.jsonrpc import RpcError
from supervisor import connection
from supervisor.connection import Bucket, Connection, RouterCall
from supervisor.metrics import Metrics


class _Bus:
    """Records which connections were told that there is room again."""

    def __init__(self) -> None:
        self.resumed: list[Connection] = []

    def resume(self, subscriber: Connection) -> None:
        self.resumed.append(subscriber)


class _Endpoint:
    """Keeps the calls it accepts; the test answers them."""

    def __init__(self) -> None:
        self.calls: list[RouterCall] = []
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()

    async def accepted(self, count: int) -> None:
        """Wait until that many calls were accepted."""
        while len(self.calls) < count:
            await self._changed.wait()
            self._changed.clear()

    def opened(self, connection: Connection) -> RpcError | None:
        return None

    def accept(self, call: RouterCall) -> None:
        self.calls.append(call)
        self._changed.set()

    def closed(self, connection: Connection) -> None:
        self.ended.set()


class _Served:
    """One real socket served by one Connection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.endpoint = _Endpoint()
        self.bus = _Bus()
        self.connection: Connection | None = None

    async def __aenter__(self) -> _Served:
        loop = asyncio.get_running_loop()
        limits = SimpleNamespace(max_frame_bytes=1 << 20)
        kernel: Any = SimpleNamespace(
            loop=loop,
            bus=self.bus,
            metrics=Metrics(),
            config=SimpleNamespace(limits=limits),
        )

        def connect() -> Connection:
            self.connection = Connection(kernel, self.endpoint, 1, "kernel")
            return self.connection

        self._server = await loop.create_unix_server(connect, str(self.path))
        self.client = socket.socket(socket.AF_UNIX)
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.client.setblocking(False)
        await loop.sock_connect(self.client, str(self.path))
        await loop.sock_sendall(self.client, b'{"jsonrpc":"2.0","id":1,"method":"x"}\n')
        await self.endpoint.accepted(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        self._server.close()


async def test_a_client_that_reads_nothing_is_paused_and_then_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OUTGOING_BYTES_MAX", 512 * 1024)
    monkeypatch.setattr(connection, "STALL_S", 0.05)
    async with _Served(tmp_path / "s") as served:
        assert served.connection is not None
        while served.connection.open and served.connection.moved() < 1 << 40:
            served.connection.write(b"y" * 65536 + b"\n")
            await asyncio.sleep(0)
        await asyncio.wait_for(served.endpoint.ended.wait(), 10)


@pytest.mark.parametrize(("more", "closed"), [(0, False), (1, True)])
async def test_the_outgoing_queue_starts_the_stall_rule_past_32_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, closed: bool
) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.05)
    async with _Served(tmp_path / "s") as served:
        served_connection = served.connection
        assert served_connection is not None
        transport = served_connection._transport
        assert transport is not None
        served_connection.write(b"y" * (1 << 20))
        # The socket takes what it can hold; from then on everything waits.
        await asyncio.sleep(0)
        room = connection.OUTGOING_BYTES_MAX - transport.get_write_buffer_size()
        served_connection.write(b"y" * room)
        assert transport.get_write_buffer_size() == connection.OUTGOING_BYTES_MAX
        if more:
            served_connection.write(b"y" * more)
        ended = asyncio.ensure_future(served.endpoint.ended.wait())
        done, _ = await asyncio.wait({ended}, timeout=10 if closed else 0.3)
        assert bool(done) is closed
        assert served_connection.open is not closed
        ended.cancel()


async def test_a_client_that_reads_again_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OUTGOING_BYTES_MAX", 512 * 1024)
    async with _Served(tmp_path / "s") as served:
        assert served.connection is not None
        for _ in range(40):
            served.connection.write(b"y" * 65535 + b"\n")
        loop = asyncio.get_running_loop()
        got = 0
        while got < 40 * 65536:
            got += len(await loop.sock_recv(served.client, 1 << 20))
        assert served.connection.open
        # Reading goes on as well: the next request is accepted.
        await loop.sock_sendall(served.client, b'{"jsonrpc":"2.0","id":2,"method":"x"}\n')
        await served.endpoint.accepted(2)


async def test_events_are_refused_without_room_and_asked_for_again_later(tmp_path: Path) -> None:
    async with _Served(tmp_path / "s") as served:
        assert served.connection is not None
        offered = 0
        while served.connection.offer(b"e" * 65535 + b"\n"):
            offered += 1
        assert offered > 0 and served.bus.resumed == []
        loop = asyncio.get_running_loop()
        while not served.bus.resumed:
            await loop.sock_recv(served.client, 1 << 20)
        assert served.bus.resumed == [served.connection]
        assert served.connection.offer(b"again\n")


async def test_the_answer_of_a_half_closed_client_is_written_before_the_end(tmp_path: Path) -> None:
    async with _Served(tmp_path / "s") as served:
        served.client.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.01)
        served.endpoint.calls[0].answer(b"{}")
        loop = asyncio.get_running_loop()
        data = b""
        while piece := await loop.sock_recv(served.client, 4096):
            data += piece
        assert data == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


async def test_only_the_first_answer_counts(tmp_path: Path) -> None:
    async with _Served(tmp_path / "s") as served:
        call = served.endpoint.calls[0]
        call.answer(b"1")
        call.answer(b"2")
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(served.client, 4096) == b'{"jsonrpc":"2.0","id":1,"result":1}\n'
        assert served.connection is not None and served.connection.in_flight == 0


def test_a_bucket_allows_one_second_of_acts_at_once_and_refills() -> None:
    bucket = Bucket()
    assert [bucket.take(3, 10.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.take(3, 10.2) is False
    assert bucket.take(3, 10.4) is True
    assert [bucket.take(3, 99.0) for _ in range(4)] == [True, True, True, False]
