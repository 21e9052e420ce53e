"""Frames, limits and the order of checks on real sockets (chapter 70 §3, §4, §6)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import supervisor.agent.connection as agent_connection
from tests.agent.client import Agent
from tests.system.daemon import Daemon

FRAME_BYTES_MAX = 8_388_608


def ping(size: int) -> bytes:
    """A valid frame of exactly this many bytes, without LF."""
    frame = b'{"jsonrpc":"2.0","id":1,"method":"status","pad":"%b"}'
    return frame % (b"x" * (size - len(frame % b"")))


def test_a_frame_at_the_limit_is_served(agent: Agent) -> None:
    agent.raw(ping(FRAME_BYTES_MAX) + b"\n")

    assert "result" in agent.frame()


def test_a_frame_past_the_limit_gets_one_error_and_the_end(agent: Agent) -> None:
    with contextlib.suppress(OSError):
        agent.raw(ping(FRAME_BYTES_MAX + 1) + b"\n" + ping(100) + b"\n")

    error = agent.frame()

    assert error == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32600,
            "message": "Frame exceeds the 8388608 byte limit",
            "data": {
                "reason": "frame_too_large", "kind": "frame_too_large", "limit_bytes": 8388608,
            },
        },
    }  # fmt: skip
    assert agent.line() == b""


INVALID = [
    (b'{"jsonrpc"', -32700, None),
    (b"\xff\xfe", -32700, None),
    (b"[1,2]", -32600, None),
    (b"7", -32600, None),
    (b'{"jsonrpc":"2.0","id":3}', -32600, None),
    (b'{"jsonrpc":"2.0","method":7,"id":3}', -32600, None),
    (b'{"jsonrpc":"2.0","method":"status","result":1,"id":3}', -32600, None),
    (b'{"jsonrpc":2.0,"method":"status","id":"a"}', -32600, "a"),
    (b'{"method":"status","id":4}', -32600, 4),
    (b'{"jsonrpc":"1.0","method":"status","id":null}', -32600, None),
    (b'{"jsonrpc":"2.0","method":"status","id":true}', -32600, None),
    (b'{"jsonrpc":"2.0","method":"status","params":null,"id":5}', -32600, 5),
    (b'{"jsonrpc":"2.0","method":"status","params":"x"}', -32600, None),
]


@pytest.mark.parametrize(("line", "code", "id_"), INVALID)
def test_an_invalid_frame_is_answered_and_the_connection_lives(
    agent: Agent, line: bytes, code: int, id_: object
) -> None:
    agent.raw(line + b"\n")

    answer = agent.frame()

    assert (answer["error"]["code"], answer["id"]) == (code, id_)
    assert "result" in agent.request("status")


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","result":1}',
        b'{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":"x"},"id":1}',
        b'{"jsonrpc":"2.0","error":{"message":"x"},"id":1}',
        b'{"jsonrpc":"2.0","result":null,"id":"zc-out-99"}',
        b'{"jsonrpc":"2.0","method":"no/such"}',
        b'{"jsonrpc":"2.0","method":"status","params":[1]}',
        b"  \r",
        b"",
    ],
)
def test_some_frames_are_never_answered(agent: Agent, line: bytes) -> None:
    agent.raw(line + b"\n")

    assert "result" in agent.request("status")


@pytest.mark.parametrize("id_", ['"4"', "4", "4.50", "null", '"\\u00e9"', "12345678901234567890"])
def test_an_id_comes_back_as_it_was_sent(agent: Agent, id_: str) -> None:
    agent.raw(b'{"jsonrpc":"2.0","method":"status","id":%b}\r\n' % id_.encode())

    assert agent.line().rstrip(b"\n").startswith(b'{"jsonrpc":"2.0","id":%b,' % id_.encode())


def test_nesting_past_128_is_a_parse_error(agent: Agent) -> None:
    inner = b"[" * 127 + b"]" * 127
    agent.raw(b'{"jsonrpc":"2.0","id":1,"method":"status","params":{"a":%b}}\n' % inner)

    assert agent.frame()["error"]["code"] == -32700


def test_the_last_line_may_lack_its_end(agent: Agent) -> None:
    import socket

    agent.raw(b'{"jsonrpc":"2.0","id":9,"method":"status"}')
    agent.socket.shutdown(socket.SHUT_WR)

    assert agent.frame()["id"] == 9
    assert agent.line() == b""


def test_an_unknown_method_comes_before_initialize(connect: Callable[[], Agent]) -> None:
    client = connect()

    assert client.error("no/such")["message"] == "Unknown method: no/such"
    error = client.error("status")
    assert (error["code"], error["message"]) == (-32010, "First call must be 'initialize'")
    assert error["data"]["kind"] == "auth_required"


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"protocolVersion": 2}, -32011),
        ({"protocolVersion": 1, "protocol_version": 2}, -32011),
        ({"protocolVersion": "1"}, -32602),
        ({"auth_token": "nonsense"}, -32010),
        ({"auth_provider": "magic"}, -32010),
        ({"tui_id": "tui_00000000"}, -32010),
        ({"tui_id": "tui_00000000", "tui_sig": "ab"}, -32010),
    ],
)
def test_a_refused_initialize_leaves_the_connection_usable(
    connect: Callable[[], Agent], params: dict[str, object], code: int
) -> None:
    client = connect()

    assert client.error("initialize", params)["code"] == code
    assert client.initialize()["principal_id"] == "shared-operator"


def test_a_client_id_is_signed_and_comes_back(connect: Callable[[], Agent]) -> None:
    first = connect().initialize()
    again = connect().initialize(tui_id=first["tui_id"], tuiSig=first["tui_sig"])

    assert again["tui_id"] == first["tui_id"]
    assert first["daemonInstanceId"] == again["daemon_instance_id"]


def test_twins_that_differ_are_refused(agent: Agent) -> None:
    error = agent.error("session/state", {"session_id": "a", "sessionId": "b"})

    assert error["code"] == -32602
    assert "session_id" in error["message"] and "sessionId" in error["message"]


@pytest.mark.parametrize(
    ("params", "field"),
    [({}, "session_id"), ({"session_id": 7}, "session_id"), ({"session_id": ""}, "session_id")],
)
def test_a_wrong_parameter_is_named(agent: Agent, params: dict[str, object], field: str) -> None:
    error = agent.error("session/state", params)

    assert (error["code"], error["data"]["field"]) == (-32602, field)


def test_positional_parameters_are_refused(agent: Agent) -> None:
    agent.raw(b'{"jsonrpc":"2.0","id":1,"method":"session/state","params":["a"]}\n')

    assert agent.frame()["error"]["code"] == -32602


def test_surplus_connections_get_error_c(tmp_path: Path) -> None:
    with Daemon(environ={"SHOAL_CFG_RPC__MAX_LOCAL_CONNECTIONS": "2"}) as daemon:
        path = daemon.state / "daemon.sock"
        with Agent(path) as one, Agent(path) as two:
            one.initialize()
            two.initialize()
            with Agent(path) as three:
                error = three.frame()
                assert error["id"] is None
                assert error["error"] == {
                    "code": -32004,
                    "message": "Local connection limit of 2 reached",
                    "data": {
                        "reason": "connection_limit", "kind": "connection_limit", "limit": 2,
                    },
                }  # fmt: skip
                assert three.line() == b""
            two.close()
            # A slot frees when the connection ends.
            while True:
                with Agent(path) as four:
                    four.send("initialize", {})
                    if "result" in json.loads(four.line() or b"{}"):
                        break


async def test_an_unfinished_frame_and_a_silent_start_have_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a bare connection, since nobody waits thirty seconds in a test."""
    import asyncio
    import socket

    monkeypatch.setattr(agent_connection, "FRAME_TIME_S", 0.05)

    class Endpoint:
        def opened(self, connection: agent_connection.AgentConnection) -> None:
            connection.admitted = True

        def serve(self, connection: object, request: object) -> None:
            raise AssertionError("nothing is complete")

        def closed(self, connection: object) -> None:
            return None

    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    endpoint: agent_connection.Endpoint = Endpoint()
    await loop.create_connection(
        lambda: agent_connection.AgentConnection(endpoint, loop, 1), sock=ours
    )
    await loop.sock_sendall(theirs, b'{"jsonrpc":')

    answer = json.loads(await loop.sock_recv(theirs, 65536))

    assert answer["error"]["data"]["kind"] == "frame_timeout"
    assert answer["id"] is None
    assert await loop.sock_recv(theirs, 1) == b""
    theirs.close()
