"""The facade as a process against a real daemon (chapter 80, section 16 and around)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import msgspec
import pytest

from ipc.client import Client
from tests.mcp.facade import Facade
from tests.system.daemon import Daemon, wait_gone


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon() as running:
        yield running


@pytest.fixture
def facade(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Facade]:
    with Facade(daemon.socket, "--session", request.node.name[:100].replace("/", "|")) as running:
        yield running


def test_the_handshake_reports_one_version_and_thirteen_tools(facade: Facade) -> None:
    asked = facade.result("initialize", {"protocolVersion": "1999-01-01"})
    assert asked["protocolVersion"] == "2025-06-18"
    assert asked["capabilities"] == {
        "tools": {"listChanged": False},
        "resources": {"subscribe": True, "listChanged": False},
    }
    assert len(asked.get("instructions", "").encode()) <= 2048
    assert len(facade.result("tools/list")["tools"]) == 13
    assert len(facade.result("resources/templates/list")["resourceTemplates"]) == 9
    error = facade.error("prompts/list")
    assert (error["code"], error["data"]) == (-32601, {"method": "prompts/list"})


def test_a_first_result_is_a_value_a_text_and_a_link(facade: Facade) -> None:
    result = facade.tool("shoal_exec", src="4 * 5")
    assert result["structuredContent"]["value"] == {"$": "int", "v": 20}
    assert result["content"][0] == {"type": "text", "text": "20"}
    assert result["content"][1]["uri"] == "shoal://out/1"
    read = facade.read("shoal://out/1")
    assert read["structuredContent"] == {"$": "int", "v": 20}


def test_a_failing_last_command_is_a_value_unless_position_is_stmt(facade: Facade) -> None:
    value = facade.value("shoal_exec", src="^false")["value"]
    assert value["$"] == "outcome"
    raised = facade.tool("shoal_exec", src="^false", position="stmt")
    assert raised["isError"] is True
    assert raised["structuredContent"]["code"] == -32002


def test_a_large_listing_is_elided_and_its_parts_are_read_by_address(
    facade: Facade, daemon: Daemon
) -> None:
    many = daemon.directory / "many"
    many.mkdir()
    for number in range(2000):
        (many / f"file-{number:05}-with-a-name-that-takes-some-room").touch()
    result = facade.tool("shoal_exec", src=f"ls {many}")
    text = result["content"][0]["text"]
    assert len(text.encode()) <= 65_536
    assert "more lines, fetch via" in text
    link = result["content"][1]["uri"]
    assert "$" in facade.read(f"{link.partition('?')[0]}?path=out[7]")["structuredContent"]


def test_background_work_is_a_task_that_can_be_cancelled(facade: Facade) -> None:
    started = facade.value("shoal_exec", src="sleep 60s", background=True)
    number = started["task"].removeprefix("task:")
    assert started["events"] == f"task.{number}"
    facade.result("resources/subscribe", {"uri": f"shoal://task/{number}"})
    asked = facade.value("shoal_cancel", task=started["task"])
    assert asked == {"task": started["task"], "cancel_requested": True}
    facade.note(lambda note: "cancelled" in str(note["payload"]))
    record = facade.read(f"shoal://task/{number}/out")["structuredContent"]
    assert record["state"] == "cancelled"
    listed = facade.result("resources/list")["resources"]
    assert f"shoal://task/{number}" in [entry["uri"] for entry in listed]


def test_the_working_directory_is_read_live(facade: Facade, daemon: Daemon) -> None:
    facade.value("shoal_exec", src=f"cd {daemon.state}")
    assert facade.read("shoal://session/cwd")["structuredContent"]["display"] == str(daemon.state)


def test_a_subscription_delivers_once_until_it_is_taken_back(
    facade: Facade, daemon: Daemon
) -> None:
    uri = "shoal://events/user.once"
    with daemon.client("a_subscription_delivers") as other:
        for _ in range(2):
            assert facade.result("resources/subscribe", {"uri": uri}) == {}
        other.call("events.publish", {"channel": "user.once", "payload": {"n": 1}})
        note = facade.note(lambda note: note["payload"] == {"n": 1})
        assert note["uri"] == uri
        assert facade.result("resources/unsubscribe", {"uri": uri}) == {}
        other.call("events.publish", {"channel": "user.once", "payload": {"n": 2}})
        facade.result("resources/subscribe", {"uri": "shoal://events/user.mark"})
        other.call("events.publish", {"channel": "user.mark", "payload": "mark"})
        facade.note(lambda note: note["payload"] == "mark")
    payloads = [note["payload"] for note in facade.notes]
    assert payloads.count({"n": 1}) == 1
    assert {"n": 2} not in payloads


def test_257_subscriptions_are_one_too_many(facade: Facade) -> None:
    for number in range(256):
        uri = f"shoal://events/journal?n={number}"
        assert facade.result("resources/subscribe", {"uri": uri}) == {}
    error = facade.error("resources/subscribe", {"uri": "shoal://events/journal"})
    assert (error["code"], error["message"]) == (-32602, "too many subscriptions")


def test_unknown_things_are_errors_of_the_read(facade: Facade) -> None:
    for uri, code in {
        "shoal://plan/" + "0" * 32: -32012,
        "shoal://task/99": -32021,
        "shoal://pty/99": -32022,
        "shoal://out/99": -32004,
    }.items():
        error = facade.error("resources/read", {"uri": uri})
        assert (error["code"], error["data"]["code"]) == (-32602, code)
        assert error["message"].startswith("kernel error: {")


def test_a_plan_is_mirrored_by_its_resource(facade: Facade) -> None:
    plan = facade.value("shoal_plan", src="6 * 7")
    stored = facade.read("shoal://plan/" + plan["plan_ref"].removeprefix("plan:"))
    assert stored["structuredContent"]["src"] == "6 * 7"
    assert facade.value("shoal_apply", plan_ref=plan["plan_ref"])["render"] == "42"


def test_after_a_bad_line_the_next_one_works(facade: Facade) -> None:
    facade.send(b"{")
    bad = facade.receive()
    assert (bad["error"]["code"], bad["id"]) == (-32700, None)
    assert facade.result("ping") == {}


def test_terminals_are_driven_and_refused_by_size(facade: Facade) -> None:
    for cols in (0, 1001):
        params = {"name": "shoal_pty_open", "arguments": {"cmd": "cat", "cols": cols}}
        assert facade.error("tools/call", params)["code"] == -32602
    opened = facade.value("shoal_pty_open", cmd="cat", cols=1000, rows=1)
    assert (opened["cols"], opened["rows"]) == (1000, 1)
    pty_id = opened["pty_id"]
    assert (
        facade.value("shoal_pty_send", pty_id=pty_id, input=["hi", {"key": "Enter"}])["sent"] == 3
    )
    assert facade.tool("shoal_pty_send", pty_id=pty_id, input=None)["isError"] is True
    assert facade.value("shoal_pty_close", pty_id=pty_id)["closed"] is True
    gone = facade.tool("shoal_pty_read", pty_id=pty_id)
    assert (gone["isError"], gone["structuredContent"]["code"]) == (True, -32022)


def test_a_text_of_10_mib_is_read_in_pages(facade: Facade, daemon: Daemon) -> None:
    whole = "0123456789abcdef" * (10 * 1024 * 1024 // 16)
    file = daemon.directory / "large.txt"
    file.write_text(whole)
    facade.value("shoal_exec", src=f'path("{file}").read()')
    pieces: list[str] = []
    at: int | None = 0
    while at is not None:
        part = facade.read(f"shoal://out/1?format=raw&offset={at}")["structuredContent"]
        assert len(part["raw"]) <= 49_152
        pieces.append(part["raw"])
        at = part.get("next")
    assert "".join(pieces) == whole


def test_a_queued_request_is_dropped_and_a_running_one_is_silenced(facade: Facade) -> None:
    facade.value("shoal_exec", src="1")
    channel = "shoal://events/session.transcript"
    running = facade.post("tools/call", {"name": "shoal_exec", "arguments": {"src": "sleep 2s"}})
    queued = facade.post("tools/call", {"name": "shoal_exec", "arguments": {"src": "2"}})
    last = facade.post("tools/call", {"name": "shoal_exec", "arguments": {"src": "3"}})
    for number in (running, queued):
        cancel = {"method": "notifications/cancelled", "params": {"requestId": number}}
        facade.send(msgspec.json.encode({"jsonrpc": "2.0", **cancel}))
    assert facade.result("ping") == {}
    frame = facade.receive()
    assert frame["id"] == last
    assert frame["result"]["structuredContent"]["ref"] == "out:3"
    assert facade.result("resources/unsubscribe", {"uri": channel}) == {}


def test_everything_accepted_is_answered_before_the_end(facade: Facade) -> None:
    sent = [
        facade.post("tools/call", {"name": "shoal_exec", "arguments": {"src": str(number)}})
        for number in range(20)
    ]
    code, errors = facade.end()
    assert (code, errors) == (0, "")
    assert [facade.receive()["id"] for _ in sent] == sent


def test_a_line_of_16_mib_is_read_and_one_more_byte_ends_the_process(daemon: Daemon) -> None:
    around = len(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":""}\n')
    line = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"%b"}'
    fill = b"x" * (16 * 1024 * 1024 - around)
    with Facade(daemon.socket) as facade:
        facade.send(line % fill)
        assert facade.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        facade.send(line % (fill + b"x"))
        assert facade.receive()["error"] == {
            "code": -32700, "message": "parse error", "data": {"detail": "frame exceeds 16 MiB"},
        }  # fmt: skip
        assert facade.end() == (1, "shoal-mcp: frame exceeds 16 MiB\n")


def test_with_a_bad_token_nothing_is_served(daemon: Daemon) -> None:
    with Facade(daemon.socket, "--token", "x" * 43) as facade:
        code, errors = facade.end()
    assert code == 1
    assert errors.startswith('shoal-mcp: kernel error: {"code":-32030,')
    assert "x" * 43 not in errors


def test_a_killed_kernel_costs_one_call_and_the_next_goes_on() -> None:
    with Daemon() as daemon, Facade(daemon.socket, "--no-autostart") as facade:
        uri = "shoal://events/journal"
        facade.result("resources/subscribe", {"uri": uri})
        assert facade.value("shoal_exec", src="let n = 6")
        started = daemon.directory / "started"
        os.mkfifo(started)
        source = f"^sh -c 'echo > {started}; sleep 60'"
        work = {"name": "shoal_exec", "arguments": {"src": source}}
        running = facade.post("tools/call", work)
        started.read_text()
        daemon.kill()
        lost = facade.answer(running)
        assert lost["error"]["code"] == -32603
        assert lost["error"]["message"] == "kernel disconnected"
        assert facade.error("tools/call", work)["code"] == -32603
        daemon.start()
        assert facade.value("shoal_exec", src="n * 7")["render"] == "42"
        facade.note(lambda note: note["uri"] == uri and "n" in str(note["payload"]))


def test_without_a_kernel_eight_facades_start_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Daemon() as placed:
        socket = placed.directory / "auto" / "k.sock"
        with Facade(socket, environ={"SHOAL_NO_AUTOSTART": "1"}) as refused:
            code, errors = refused.end()
        assert code == 1 and errors.startswith("shoal-mcp: ")
        assert not socket.exists()
        facades = [Facade(socket, "--session", f"s{number}") for number in range(8)]
        sent = [
            each.post("tools/call", {"name": "shoal_exec", "arguments": {"src": "1"}})
            for each in facades
        ]
        for each, number in zip(facades, sent, strict=True):
            assert "result" in each.answer(number)
        with Client.connect(socket) as client:
            client.attach("s0")
            pids = [client.call("server.info")["pid"]]
            names = {row["session"] for row in client.call("session.list")["sessions"]}
        assert {f"s{number}" for number in range(8)} <= names
        assert [each.end()[0] for each in facades] == [0] * 8
        for each in facades:
            each.__exit__()
        os.kill(pids[0], signal.SIGTERM)
        assert wait_gone(pids, 20.0) == []
