"""The pure parts of the facade: lines, schemas, text, URIs, pages, the subscription registry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ipc.client.protocol import Event
from ipc.framing import LINE_BYTES_MAX
from ipc.mcp import frames, listing, text, tools, uris
from ipc.mcp.frames import BadFrame, McpError
from ipc.mcp.registry import SUBSCRIPTIONS_MAX, Registry


@pytest.mark.parametrize("line", [b"", b"{", b"nope", b'{"a":\xff}', b'{"id":1,"x":}', b"{} {}"])
def test_what_is_not_json_is_a_parse_error_without_id(line: bytes) -> None:
    with pytest.raises(BadFrame) as caught:
        frames.read_line(line)
    assert (caught.value.error.code, caught.value.id) == (-32700, b"null")
    assert caught.value.error.data["detail"]


@pytest.mark.parametrize(
    ("line", "request_id", "message"),
    [
        (b"[]", b"null", "invalid JSON-RPC request"),
        (b"1", b"null", "invalid JSON-RPC request"),
        (b'{"id":"a","method":"ping"}', b'"a"', "invalid JSON-RPC request"),
        (b'{"jsonrpc":2,"id":1,"method":"ping"}', b"1", "invalid JSON-RPC request"),
        (b'{"jsonrpc":"2.0","id":1.5}', b"1.5", "request method must be a string"),
        (b'{"jsonrpc":"2.0","id":null,"method":3}', b"null", "request method must be a string"),
    ],
)
def test_envelopes_are_checked_in_order_and_ids_are_echoed(
    line: bytes, request_id: bytes, message: str
) -> None:
    with pytest.raises(BadFrame) as caught:
        frames.read_line(line)
    assert caught.value.error.code == -32600
    assert (caught.value.error.message, caught.value.id) == (message, request_id)


def test_without_an_id_nothing_is_ever_answered() -> None:
    assert frames.read_line(b'{"jsonrpc":"1.0","method":4}') is None
    notification = frames.read_line(b'{"method":"notifications/initialized"}')
    assert notification is not None and notification.id is None


def test_a_result_above_one_line_becomes_an_error() -> None:
    around = len(frames.result_line(b"1", ""))
    largest = "x" * (LINE_BYTES_MAX - around)
    assert len(frames.result_line(b"1", largest)) == LINE_BYTES_MAX
    answer = msgspec.json.decode(frames.result_line(b"1", largest + "x"))
    assert answer["error"] == {"code": -32603, "message": "result too large", "data": None}


def _refusal(params: Any) -> str:
    with pytest.raises(McpError) as caught:
        tools.prepare(params)
    assert caught.value.code == -32602
    return caught.value.message


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (None, "tools/call requires name"),
        ({"name": 4}, "tools/call requires name"),
        ({"name": "rm"}, 'unknown tool "rm"'),
        ({"name": "shoal_exec", "arguments": None}, "tool arguments must be an object"),
        ({"name": "shoal_exec"}, 'missing string argument "src"'),
        ({"name": "shoal_exec", "arguments": {"src": 1}}, 'missing string argument "src"'),
        ({"name": "shoal_pty_send", "arguments": {"pty_id": "pty:1"}}, 'missing argument "input"'),
        ({"name": "shoal_plan", "arguments": {"src": "1", "x": 1}}, 'unknown argument "x"'),
    ],
)
def test_calls_that_do_not_fit_name_the_first_violation(params: Any, message: str) -> None:
    assert _refusal(params) == message


@pytest.mark.parametrize(
    ("tool", "arguments", "name"),
    [
        ("shoal_exec", {"src": "1", "mode": "walk"}, "mode"),
        ("shoal_exec", {"src": "1", "timeout_ms": 0}, "timeout_ms"),
        ("shoal_exec", {"src": "1", "timeout_ms": 1.5}, "timeout_ms"),
        ("shoal_exec", {"src": "1", "timeout_ms": True}, "timeout_ms"),
        ("shoal_exec", {"src": "1", "background": 1}, "background"),
        ("shoal_exec", {"src": "1", "elide": {"max_rows": -1}}, "elide.max_rows"),
        ("shoal_get", {"ref": "out:1", "slice": [1]}, "slice"),
        ("shoal_get", {"ref": "out:1", "slice": [0, 1, 2]}, "slice"),
        ("shoal_get", {"ref": "out:1", "slice": [0, -1]}, "slice"),
        ("shoal_journal", {"limit": 0}, "limit"),
        ("shoal_cap_request", {"plan_ref": "plan:1", "effects": [{}]}, "effects"),
        ("shoal_pty_open", {"cmd": "cat", "cols": 0}, "cols"),
        ("shoal_pty_open", {"cmd": "cat", "rows": 1001}, "rows"),
        ("shoal_pty_open", {"cmd": ""}, "cmd"),
        ("shoal_pty_open", {"cmd": "cat", "env": {"A": 1}}, "env"),
        ("shoal_pty_resize", {"pty_id": "pty:1", "cols": 1001, "rows": 1}, "cols"),
    ],
)
def test_a_value_that_does_not_fit_names_its_argument(
    tool: str, arguments: dict[str, Any], name: str
) -> None:
    message = _refusal({"name": tool, "arguments": arguments})
    assert message.startswith(f'argument "{name}": ')


def test_values_at_the_limits_are_forwarded_and_whole_floats_are_integers() -> None:
    params = {"name": "shoal_pty_open", "arguments": {"cmd": "cat", "cols": 1000, "rows": 1.0}}
    _, sent = tools.prepare(params)
    assert sent == {"cmd": "cat", "args": [], "cols": 1000, "rows": 1, "env": {}}
    assert isinstance(sent["rows"], int)


def test_exec_always_says_its_position() -> None:
    method, sent = tools.prepare({"name": "shoal_exec", "arguments": {"src": "1"}})
    assert (method, sent["position"], sent["elide"]) == ("exec", "value", None)


def test_every_schema_is_a_closed_object() -> None:
    entries = [tool.entry()["inputSchema"] for tool in tools.TOOLS]
    assert len(entries) == 13
    assert {(each["type"], each["additionalProperties"]) for each in entries} == {("object", False)}


def test_text_at_the_bound_is_whole_and_one_byte_more_is_cut_at_lines() -> None:
    line = "a" * 99 + "\n"
    whole = line * 655 + "b" * 36
    assert len(whole) == text.TEXT_BYTES_MAX
    assert text.bounded(whole) == whole
    cut = text.bounded(whole + "b", "shoal://out/1")
    assert cut == line * 654 + "…(2 more lines, fetch via shoal://out/1)"


def test_a_first_line_beyond_the_budget_is_cut_at_a_character() -> None:
    cut = text.bounded("é" * 40_000)
    assert cut == "é" * 32_720 + "…(1 more lines, fetch via ref)"


@pytest.mark.parametrize(
    ("result", "uri", "name"),
    [
        ({"ref": "out:1"}, "shoal://out/1", "out:1"),
        ({"ref": "out:1", "value": {"uri": "shoal://out/1?path=x"}}, "shoal://out/1?path=x", None),
        ({"uri": "plan:2", "ref": "out:1"}, "shoal://plan/2", "plan:2"),
        ({"ref": "abc"}, "shoal://abc", "abc"),
    ],
)
def test_the_address_is_searched_in_order(
    result: dict[str, Any], uri: str, name: str | None
) -> None:
    link = text.tool_result(result)["content"][1]
    assert link["uri"] == uri
    assert name is None or link["name"] == name


def test_without_an_address_there_is_no_link() -> None:
    assert len(text.tool_result({"task": "task:1"})["content"]) == 1


@pytest.mark.parametrize(
    ("uri", "method", "params"),
    [
        ("shoal://out/4", "value.get", {"ref": "out:4"}),
        (
            "shoal://out//4/?path=.a%5B1%5D&slice=2..3&format=raw&offset=5&x=1",
            "value.get",
            {"ref": "out:4", "path": ".a[1]", "slice": [2, 3], "format": "raw", "offset": 5},
        ),
        ("shoal://out/4?slice=a..b&format=xml&elide=no", "value.get", {"ref": "out:4"}),
        ("shoal://out/4?path=a+b&path=%zz", "value.get", {"ref": "out:4", "path": "%zz"}),
        ("shoal://val/blake3:ab", "blob.get", {"hash": "ab"}),
        ("shoal://plan/ab", "plan.get", {"plan_ref": "plan:ab"}),
        ("shoal://plan/plan:ab", "plan.get", {"plan_ref": "plan:ab"}),
        ("shoal://task/3", "task.get", {"task": "task:3"}),
        ("shoal://jobs/ignored", "task.list", {}),
        ("shoal://pty/2", "pty.read", {"pty_id": "pty:2"}),
        ("shoal://session/cwd", "session.cwd", {}),
        (
            "shoal://journal?since=-5&ok=true&effects=a,,b&limit=x",
            "journal.query",
            {"limit": 0, "since": -5, "ok": True, "effects": ["a", "b"]},
        ),
        ("shoal://events/user.x?since=-1&limit=2", "events.read",
         {"channel": "user.x", "limit": 2}),
    ],
)  # fmt: skip
def test_a_uri_is_one_kernel_call(uri: str, method: str, params: dict[str, Any]) -> None:
    read = uris.read_of(uri)
    assert (read.method, read.params) == (method, params)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://x", "not a shoal:// uri: http://x"),
        ("SHOAL://out/1", "not a shoal:// uri: SHOAL://out/1"),
        ("shoal:///?a", "empty shoal:// uri: shoal:///?a"),
        ("shoal://Out/1", "unsupported resource root: Out"),
        ("shoal://session", "unsupported session view: "),
        ("shoal://session/x", "unsupported session view: x"),
        ("shoal://out", "shoal://out/{n} needs an index"),
        ("shoal://val", "shoal://val/{hash} needs a hash"),
        ("shoal://plan", "shoal://plan/{ref} needs a plan ref"),
        ("shoal://task", "shoal://task/{id} needs an id"),
        ("shoal://task//out", "shoal://task/{id}/out needs an id"),
        ("shoal://events", "shoal://events/{channel} needs a channel"),
    ],
)
def test_what_is_no_resource_says_why(uri: str, message: str) -> None:
    with pytest.raises(McpError) as caught:
        uris.read_of(uri)
    assert (caught.value.code, caught.value.message) == (-32602, message)


def test_channels_and_tasks_can_be_subscribed_and_nothing_else() -> None:
    assert uris.channel_of("shoal://events/journal?since=7") == ("journal", 7)
    assert uris.channel_of("shoal://task/3/out") == ("task.3", None)
    for uri in ("shoal://out/1", "shoal://events", "x"):
        with pytest.raises(McpError, match="are subscribable"):
            uris.channel_of(uri)


def test_pages_hold_500_and_foreign_cursors_are_refused() -> None:
    pager = listing.Pager()
    entries = [{"uri": str(n)} for n in range(501)]
    assert "nextCursor" not in pager.page(entries[:500], pager.start(None))
    first = pager.page(entries, 0)
    assert len(first["resources"]) == 500
    assert pager.page(entries, pager.start(first["nextCursor"]))["resources"] == entries[500:]
    for cursor in ("500", "x", 3, listing.Pager().page(entries, 0)["nextCursor"]):
        with pytest.raises(McpError, match="invalid cursor"):
            pager.start(cursor)


def test_a_read_value_is_extended_by_its_page() -> None:
    answer = {"value": {"$": "bytes"}, "offset": 0, "len": 3, "total": 9, "next": 3}
    read = listing.read_result("shoal://val/x", answer)
    assert read["structuredContent"] == {
        "$": "bytes", "offset": 0, "size": 3, "total": 9, "next": 3,
    }  # fmt: skip


def _event(seq: int, channel: str = "user.x") -> Event:
    return Event(channel, seq, 0, seq)


def test_a_second_uri_gets_its_replay_and_the_first_sees_nothing_twice() -> None:
    registry = Registry()
    registry.add("a", "user.x", None)
    assert [uri for uri, _ in registry.updates(_event(0))] == ["a"]
    registry.add("b", "user.x", None)
    assert [uri for uri, _ in registry.updates(_event(0))] == ["b"]
    assert [uri for uri, _ in registry.updates(_event(1))] == ["a", "b"]


def test_256_uris_can_be_subscribed() -> None:
    registry = Registry()
    for number in range(SUBSCRIPTIONS_MAX):
        registry.add(str(number), "user.x", None)
    with pytest.raises(McpError, match="too many subscriptions"):
        registry.add("one more", "user.x", None)


@pytest.mark.parametrize(
    ("first", "gap"),
    [
        (6, []),
        (8, [{"dropped": 2, "latest_seq": 7}]),
        (0, [{"dropped": None, "latest_seq": None}]),
    ],
)
def test_a_gap_after_a_reconnect_is_told_once(first: int, gap: list[Any]) -> None:
    registry = Registry()
    registry.add("a", "user.x", None)
    registry.updates(_event(5))
    assert registry.resume() == [("user.x", 5)]
    told = [params["payload"] for _, params in registry.updates(_event(first))]
    assert told == [*gap, first]
    assert [params["payload"] for _, params in registry.updates(_event(first + 1))] == [first + 1]
