"""Frames and envelopes on a real socket (chapter 60 §2)."""

from __future__ import annotations

import socket

import msgspec
import pytest

from tests.system.daemon import Daemon, Wire

MIB = 1024 * 1024
FRAME_BYTES = 16 * MIB


def _request(method: str, params: object, request_id: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}\n' % (
        request_id.encode(),
        method.encode(),
        msgspec.json.encode(params),
    )


@pytest.mark.parametrize(
    "request_id", ["1.0", '"a\\u0041"', "[1,{}]", "null", "123456789012345678901234567890"]
)
def test_an_id_comes_back_byte_for_byte(wire: Wire, request_id: str) -> None:
    wire.send(_request("parse", {"src": "1"}, request_id))
    assert wire.line().startswith(b'{"jsonrpc":"2.0","id":' + request_id.encode() + b',"result":')


def test_a_notification_is_executed_and_not_answered(attached: Wire) -> None:
    attached.send(
        b'{"jsonrpc":"2.0","method":"exec","params":{"src":"let seen = 1"}}\n'
        b'{"jsonrpc":"2.0","method":"no.such"}\n'
    )
    assert attached.request("exec", {"src": "seen + 1"}, request_id=9)["result"]["render"] == "2"


def test_attach_and_exec_in_one_write(wire: Wire) -> None:
    wire.send(
        _request("session.attach", {"session": "one-write"}, "1")
        + _request("exec", {"src": "6 * 7"}, "2")
    )
    assert wire.json()["id"] == 1
    assert wire.json()["result"]["render"] == "42"


def test_several_frames_in_one_read_and_one_frame_in_many(wire: Wire) -> None:
    wire.send(_request("parse", {"src": "1"}, "1") + _request("parse", {"src": "2"}, "2"))
    assert {wire.json()["id"], wire.json()["id"]} == {1, 2}
    for byte in _request("parse", {"src": "3"}, "3"):
        wire.send(bytes([byte]))
    assert wire.json()["id"] == 3


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\n",
        b"not json\n",
        b"\n",
        b"   \n",
        b"[]\n",
        b'{"id":1}\n',
        b'{"jsonrpc":"2.0","method":5}\n',
        b'{"jsonrpc":2,"method":"parse"}\n',
        b'{"jsonrpc":"2.0","method":"x","params":' + b"[" * 128 + b"]" * 128 + b"}\n",
    ],
)
def test_a_malformed_line_ends_the_connection_without_a_frame(wire: Wire, line: bytes) -> None:
    wire.send(line)
    assert wire.line() == b""


def test_frames_before_a_malformed_one_are_answered(wire: Wire) -> None:
    wire.send(_request("no.such", {}, "5") + b"not json\n")
    assert wire.json()["error"]["code"] == -32601
    assert wire.line() == b""


def test_the_reason_of_a_malformed_line_is_logged(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.send(b"\xfe\xff\n")
        assert wire.line() == b""
    assert "frame.rejected" in daemon.read_log()
    assert "reason=utf8" in daemon.read_log()


def test_another_version_string_is_an_error_and_the_connection_goes_on(wire: Wire) -> None:
    wire.send(b'{"jsonrpc":"1.0","id":3,"method":"parse","params":{"src":"1"}}\n')
    error = wire.json()
    assert error["id"] == 3
    assert error["error"] == {
        "code": -32600,
        "message": "invalid JSON-RPC version",
        "data": {"kind": "invalid_request"},
    }
    assert wire.request("parse", {"src": "1"})["result"]["ast_version"] == 2


def test_a_frame_of_exactly_the_limit_works(wire: Wire) -> None:
    head, tail = b'{"jsonrpc":"2.0","id":1,"method":"nope","params":{"x":"', b'"}}\n'
    wire.send(head + b"a" * (FRAME_BYTES - len(head) - len(tail)) + tail)
    assert wire.json()["error"]["code"] == -32601


def test_one_byte_more_than_the_limit_ends_the_connection(wire: Wire) -> None:
    head, tail = b'{"jsonrpc":"2.0","id":1,"method":"nope","params":{"x":"', b'"}}\n'
    try:
        wire.send(head + b"a" * (FRAME_BYTES - len(head) - len(tail) + 1) + tail)
    except BrokenPipeError:
        return
    assert wire.line() == b""


def test_an_endless_line_ends_the_connection_before_any_lf(wire: Wire) -> None:
    with pytest.raises((BrokenPipeError, ConnectionResetError, AssertionError)):
        for _ in range(17):
            wire.send(b"a" * MIB)
        assert wire.line() != b""


def test_a_half_closed_client_still_gets_its_answers(attached: Wire) -> None:
    attached.send(_request("exec", {"src": "sleep 100ms; 7"}, "1"))
    attached.socket.shutdown(socket.SHUT_WR)
    assert attached.json()["result"]["render"] == "7"
    assert attached.line() == b""


def test_an_unfinished_frame_at_the_end_of_the_stream_is_dropped(wire: Wire) -> None:
    wire.send(b'{"jsonrpc":"2.0","id":1,"method":"parse"')
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.line() == b""


def test_many_requests_at_once_all_answer_under_their_ids(attached: Wire) -> None:
    count = 600
    attached.send(b"".join(_request("exec", {"src": f"{n} + 1"}, str(n)) for n in range(count)))
    answers = {answer["id"]: answer for answer in (attached.json() for _ in range(count))}
    assert {n: answers[n]["result"]["render"] for n in range(count)} == {
        n: str(n + 1) for n in range(count)
    }


def test_submissions_of_one_session_run_in_order_across_connections(daemon: Daemon) -> None:
    with daemon.wire() as first, daemon.wire() as second:
        for wire in (first, second):
            wire.result("session.attach", {"session": "ordered"})
        first.result("exec", {"src": "var log = []"})
        first.send(_request("exec", {"src": "sleep 50ms; log = log + [1]"}, "1"))
        second.result("session.cwd")
        second.send(_request("exec", {"src": "log = log + [2]"}, "2"))
        first.json()
        second.json()
        assert first.result("exec", {"src": "log"})["value"]["v"] == [
            {"$": "int", "v": 1},
            {"$": "int", "v": 2},
        ]


def test_a_read_does_not_wait_for_a_running_submission(attached: Wire) -> None:
    attached.result("exec", {"src": "41"})
    attached.send(_request("exec", {"src": "sleep 5s"}, "1"))
    attached.send(_request("value.get", {"ref": "out:1"}, "2"))
    answer = attached.json()
    assert answer["id"] == 2
    assert answer["result"]["value"] == {"$": "int", "v": 41}
