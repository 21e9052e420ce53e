"""What a client or the sum of them may use, at each limit and one past it (chapter 70 §3.2,
§15.3)."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ipc.agent_methods import UploadBeginParams
from ipc.jsonrpc import RpcError
from supervisor.agent import connection as agent_connection
from supervisor.agent.limits import (
    FILE_BYTES_MAX,
    OUTGOING_FRAMES_MAX,
    REFUSAL_NOTICES_MAX,
    SERVER_REQUESTS_MAX,
    STAGING_BYTES_MAX,
    UPLOAD_IDLE_S,
    UPLOADS_PER_CONNECTION_MAX,
)
from supervisor.agent.uploads import Uploads
from supervisor.agent_endpoint import AgentEndpoint
from supervisor.metrics import Metrics
from tests.agent.client import Agent
from tests.system.daemon import Daemon, wait_gone


def daemon_with(config: str) -> Daemon:
    daemon = Daemon()
    daemon.state.mkdir(parents=True)
    (daemon.state / "config.toml").write_text(config)
    return daemon


def worker_of(daemon: Daemon, session: str) -> int | None:
    """The process of a live agent session, as the operator sees it."""
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "operator"})
        for row in wire.result("session.list")["sessions"]:
            if row["session"] == f"agent/{session}":
                pid: int | None = row["pid"]
                return pid
    return None


# --- sessions ------------------------------------------------------------------------------------


def test_the_session_past_the_limit_is_refused_until_one_is_closed() -> None:
    with (
        daemon_with("[rpc]\nmax_sessions = 2\n") as daemon,
        Agent(daemon.state / "daemon.sock") as agent,
    ):
        agent.initialize()
        for name in ("one", "two"):
            params = {"agent_alias": "shell", "session_id": name, "keep_siblings": True}
            agent.result("session/new", params)
        third = {"agent_alias": "shell", "session_id": "three", "keep_siblings": True}
        error = agent.error("session/new", third)
        assert error == {
            "code": -32001,
            "message": "Session limit reached",
            "data": {"reason": "session_limit", "kind": "session_limit", "limit": 2},
        }
        agent.result("session/close", {"session_id": "one"})
        agent.result("session/new", third)
        # A closed one needs a place again when it is prompted.
        assert agent.prompt("one", "1")["error"]["code"] == -32001


def test_an_idle_session_is_put_away_and_comes_back_with_its_bindings() -> None:
    with (
        daemon_with("[rpc]\nidle_session_secs = 1\n") as daemon,
        Agent(daemon.state / "daemon.sock") as agent,
    ):
        agent.initialize()
        agent.result("session/new", {"agent_alias": "shell", "session_id": "sleepy"})
        agent.prompt("sleepy", "let n = 41")
        pid = worker_of(daemon, "sleepy")
        assert pid is not None
        assert wait_gone([pid], 10) == []
        shown = agent.result("session/messages", {"session_id": "sleepy"})
        assert any(row["content"] == "let n = 41" for row in shown["messages"])
        assert agent.prompt("sleepy", "n + 1")["result"]["content"] == "42"


def test_a_turn_that_runs_is_not_idle() -> None:
    with (
        daemon_with("[rpc]\nidle_session_secs = 1\n") as daemon,
        Agent(daemon.state / "daemon.sock") as agent,
    ):
        agent.initialize()
        agent.result("session/new", {"agent_alias": "shell", "session_id": "busy"})
        assert agent.prompt("busy", "sh -c 'sleep 2.5; echo done'")["result"]["content"] == "done\n"


# --- a client that does not read -----------------------------------------------------------------


class Silent:
    """An endpoint that serves nothing and notes the end of its connection."""

    def __init__(self) -> None:
        self.connection: agent_connection.AgentConnection | None = None
        self.gone = asyncio.Event()

    def opened(self, connection: agent_connection.AgentConnection) -> None:
        connection.admitted = True
        self.connection = connection

    def serve(self, connection: object, request: object) -> None:
        raise AssertionError("nothing is asked")

    def closed(self, connection: object) -> None:
        self.gone.set()


async def bare_connection() -> tuple[Silent, agent_connection.AgentConnection, socket.socket]:
    """A connection that nobody serves, and the client's end of it."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    silent = Silent()
    endpoint = cast(agent_connection.Endpoint, silent)
    await loop.create_connection(
        lambda: agent_connection.AgentConnection(endpoint, loop, 1), sock=ours
    )
    assert silent.connection is not None
    return silent, silent.connection, theirs


async def test_a_frame_that_is_not_taken_in_time_ends_the_connection_and_its_producers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a bare connection, since nobody waits thirty seconds in a test."""
    monkeypatch.setattr(agent_connection, "WRITE_STALL_S", 0.2)
    loop = asyncio.get_running_loop()
    silent, connection, theirs = await bare_connection()
    frame = json.dumps({"x": "y" * 1_000_000}).encode()
    for _ in range(OUTGOING_FRAMES_MAX + 1):
        assert connection.has_room()
        connection.notify("session/update", frame)
    # One is with the transport, 64 wait: whoever produces more waits for room.
    assert not connection.has_room()
    producer = loop.create_task(connection.room())
    question = loop.create_task(connection.request("elicitation/create", b"{}", 60))
    await asyncio.wait_for(silent.gone.wait(), 10)
    await asyncio.wait_for(producer, 1)
    with pytest.raises(agent_connection.NoAnswer):
        await question
    assert not connection.open
    theirs.close()


async def test_a_connection_has_64_questions_open_at_most() -> None:
    silent, connection, theirs = await bare_connection()
    loop = asyncio.get_running_loop()
    open_ones = [
        loop.create_task(connection.request("elicitation/create", b"{}", 60))
        for _ in range(SERVER_REQUESTS_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(agent_connection.NoAnswer, match="busy"):
        await connection.request("elicitation/create", b"{}", 60)
    # An answer makes room for the next.
    await loop.sock_sendall(theirs, b'{"jsonrpc":"2.0","id":"zc-out-0","result":{}}\n')
    assert await open_ones[0] == b"{}"
    another = loop.create_task(connection.request("elicitation/create", b"{}", 60))
    await asyncio.sleep(0)
    assert not another.done()
    connection.abort()
    await silent.gone.wait()
    for question in (*open_ones[1:], another):
        with pytest.raises(agent_connection.NoAnswer, match="closed"):
            await question
    theirs.close()


class Surplus:
    admitted = False


def test_surplus_connections_get_16_notices_at_a_time() -> None:
    endpoint = AgentEndpoint.__new__(AgentEndpoint)
    endpoint.draining = False
    endpoint.kernel = cast(Any, SimpleNamespace(metrics=Metrics()))
    endpoint.connections = {cast(Any, object())}
    endpoint._connection_limit = 1
    endpoint._refusing = False
    endpoint._notices = set()
    surplus = [cast(Any, Surplus()) for _ in range(REFUSAL_NOTICES_MAX + 1)]
    answers = [endpoint.opened(connection) for connection in surplus]
    assert [answer is not None for answer in answers] == [True] * REFUSAL_NOTICES_MAX + [False]
    assert not any(connection.admitted for connection in surplus)
    # One that was delivered makes room for the next.
    endpoint.closed(surplus[0])
    assert endpoint.opened(cast(Any, Surplus())) is not None


def test_what_has_thirty_seconds_has_thirty_seconds(daemon: Daemon) -> None:
    """All of it at once, on a running daemon: an unfinished frame, a silent start, a turn in the
    queue, and a client that takes nothing."""
    path = daemon.state / "daemon.sock"
    with Agent(path) as half, Agent(path) as silent, Agent(path) as deaf, Agent(path) as one:
        for client in (half, silent, deaf, one):
            client.socket.settimeout(60)
        for client in (half, deaf, one):
            client.initialize()
        half.raw(b'{"jsonrpc":"2.0","id":9,"method":"status"')
        one.result("session/new", {"agent_alias": "shell", "session_id": "long"})
        one.send("session/prompt", {"session_id": "long", "prompt": "sh { sleep 100 }"})
        one.until("tool_call")
        queued = one.send("session/prompt", {"session_id": "long", "prompt": "1"})
        deaf.result("session/new", {"agent_alias": "shell", "session_id": "flood"})
        deaf.send("session/prompt", {"session_id": "flood", "prompt": "sh { yes flood }"})

        busy = one.wait(queued)["error"]
        assert (busy["code"], busy["data"]["kind"]) == (-32002, "session_busy")
        assert busy["message"].startswith("Session busy:")
        assert half.frame() == {
            "jsonrpc": "2.0",
            "id": None,
            "error": {
                "code": -32600,
                "message": "Frame was not completed within 30000 ms",
                "data": {"reason": "frame_timeout", "kind": "frame_timeout", "limit_ms": 30000},
            },
        }
        assert half.line() == b""
        assert silent.line() == b""
        # Its turn is cancelled with its connection, and the session takes others.
        assert one.prompt("flood", "'free again'")["result"]["content"] == "free again"
        one.result("session/cancel", {"session_id": "long"})


async def test_a_client_that_reads_slowly_but_reads_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_connection, "WRITE_STALL_S", 0.5)
    loop = asyncio.get_running_loop()
    silent, connection, theirs = await bare_connection()
    frame = json.dumps({"x": "y" * 400_000}).encode()
    begun, got = loop.time(), 0
    for _ in range(4):
        connection.notify("session/update", frame)
    # A frame each 0.3 s: all of them take longer than a stall, none of them does.
    while got < 4:
        left = await loop.sock_recv(theirs, 1 << 20)
        got += left.count(b"\n")
        if b"\n" in left:
            await asyncio.sleep(0.3)
    assert loop.time() - begun > 0.5
    assert connection.open and not silent.gone.is_set()
    connection.abort()
    theirs.close()


# --- staging -------------------------------------------------------------------------------------


def begin(agent: Agent, session: str, size: int) -> dict[str, Any]:
    return agent.request("file/upload/begin", {"session_id": session, "size_bytes": size})


def test_all_uploads_together_have_256_mib(
    agent: Agent, session: str, connect: Callable[[], Agent]
) -> None:
    charge = len(session) + len("shell")
    whole, rest = divmod(STAGING_BYTES_MAX, FILE_BYTES_MAX + charge)
    client = agent
    for number in range(whole):
        if number and number % UPLOADS_PER_CONNECTION_MAX == 0:
            client = connect()
            client.initialize()
        assert "result" in begin(client, session, FILE_BYTES_MAX)
    other = connect()
    other.initialize()
    past = begin(other, session, rest - charge + 1)
    assert past["error"]["code"] == -32602
    assert "staging too many uploads" in past["error"]["message"]
    assert "result" in begin(other, session, rest - charge)
    assert "error" in begin(other, session, 0)
    # What a connection had staged is free when it ends.
    client.close()
    deadline = time.monotonic() + 10
    while "error" in begin(other, session, 0):
        assert time.monotonic() < deadline


class Clock:
    """A loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        entry = (self.now + seconds, call)
        self.timers.append(entry)

        class Handle:
            def cancel(_self) -> None:  # noqa: N805
                self.timers.remove(entry)

        return Handle()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for at, call in list(self.timers):
            if at <= self.now and (at, call) in self.timers:
                self.timers.remove((at, call))
                call()


class Live:
    id, owner, alias = "s", None, "shell"


def staged(uploads: Uploads, size: int) -> str:
    params = UploadBeginParams(session_id="s", size_bytes=size)
    return uploads.begin(cast(Any, object()), cast(Any, Live()), params).id


def fill(uploads: Uploads) -> None:
    with pytest.raises(RpcError, match="staging too many uploads"):
        while True:
            staged(uploads, FILE_BYTES_MAX)


def test_uploads_idle_for_five_minutes_make_room_and_not_a_moment_earlier() -> None:
    clock = Clock()
    uploads = Uploads(cast(Any, clock))
    fill(uploads)
    clock.now += UPLOAD_IDLE_S
    with pytest.raises(RpcError, match="staging too many uploads"):
        staged(uploads, FILE_BYTES_MAX)
    clock.now += 0.001
    staged(uploads, FILE_BYTES_MAX)


def test_the_sweep_discards_idle_uploads_each_minute() -> None:
    clock = Clock()
    uploads = Uploads(cast(Any, clock))
    connection = object()
    params = UploadBeginParams(session_id="s", size_bytes=5)
    upload = uploads.begin(cast(Any, connection), cast(Any, Live()), params)
    for _ in range(5):
        clock.pass_time(60)
        assert uploads.find(cast(Any, connection), upload.id) is upload
    clock.pass_time(60)
    with pytest.raises(RpcError, match="Unknown or expired upload"):
        uploads.find(cast(Any, connection), upload.id)
    assert clock.timers == []
