"""Journal rows and events of real submissions (chapter 61)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.system.daemon import Daemon, Wire


def _query(wire: Wire, session: str, **filters: object) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = wire.result("journal.query", {"session": session, **filters})
    return rows


@pytest.fixture
def named(wire: Wire, request: pytest.FixtureRequest) -> tuple[Wire, str]:
    name = request.node.name[:100]
    wire.result("session.attach", {"session": name})
    return wire, name


def test_a_submission_and_its_statements_have_rows(named: tuple[Wire, str]) -> None:
    wire, session = named
    wire.result("exec", {"src": "let a = 2\na * 3;  sh -c 'echo out; exit 0'"})
    (submission,) = _query(wire, session)
    assert submission["kind"] == "submission"
    assert (submission["ok"], submission["status"], submission["state"]) == (True, 0, "finished")
    assert submission["parent_id"] is None and submission["task"] is None
    rows = _query(wire, session, kind="all")
    statements = sorted((row for row in rows if row["kind"] == "statement"), key=lambda r: r["id"])
    assert [row["src"] for row in statements] == ["let a = 2", "a * 3", "sh -c 'echo out; exit 0'"]
    assert [row["ordinal"] for row in statements] == [0, 1, 2]
    assert {row["parent_id"] for row in statements} == {submission["id"]}
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
    assert [output["kind"] for output in statements[1]["outputs"]] == ["render"]
    assert [output["kind"] for output in statements[2]["outputs"]] == ["render", "stdout"]
    assert [output["kind"] for output in submission["outputs"]] == ["value", "render", "stdout"]
    assert statements[1]["ast"]["expr"]["op"] == "mul"
    assert submission["ast"]["stmts"][1] == statements[1]["ast"]


def test_a_raised_error_has_a_failed_row_and_unreached_statements_none(
    named: tuple[Wire, str],
) -> None:
    wire, session = named
    wire.error("exec", {"src": "1; sh -c 'echo bad >&2; exit 4'; 3"})
    (submission,) = _query(wire, session)
    assert (submission["ok"], submission["status"]) == (False, 4)
    assert [output["kind"] for output in submission["outputs"]] == ["stderr"]
    statements = _query(wire, session, kind="statement")
    assert [(row["ordinal"], row["ok"], row["status"]) for row in statements] == [
        (1, False, 4),
        (0, True, 0),
    ]


def test_a_captured_failure_is_a_success_whose_statement_failed(named: tuple[Wire, str]) -> None:
    wire, session = named
    wire.result("exec", {"src": "sh -c 'exit 4'", "position": "value"})
    (submission,) = _query(wire, session)
    assert (submission["ok"], submission["status"]) == (True, 0)
    (statement,) = _query(wire, session, kind="statement")
    assert (statement["ok"], statement["status"]) == (False, 4)


def test_what_leaves_no_entry(named: tuple[Wire, str]) -> None:
    wire, session = named
    wire.error("exec", {"src": "("})
    wire.result("parse", {"src": "1"})
    wire.result("complete", {"src": "l"})
    wire.result("session.cwd")
    assert _query(wire, session, kind="all") == []


@pytest.mark.parametrize(
    ("filters", "sources"),
    [
        ({}, ["sh -c 'exit 0'", "1 / 0", "pwd", "1"]),
        ({"ok": False}, ["1 / 0"]),
        ({"ok": True, "limit": 1}, ["sh -c 'exit 0'"]),
        ({"head": "1"}, ["1 / 0", "1"]),
        ({"head": "s"}, []),
        ({"limit": 2}, ["sh -c 'exit 0'", "1 / 0"]),
        ({"since": 2**62}, []),
        ({"until": 0}, []),
        ({"principal": "agent:nobody"}, []),
    ],
)
def test_filters(named: tuple[Wire, str], filters: dict[str, object], sources: list[str]) -> None:
    wire, session = named
    for source in ("1", "pwd", "1 / 0", "sh -c 'exit 0'"):
        wire.request("exec", {"src": source})
    assert [row["src"] for row in _query(wire, session, **filters)] == sources


def test_paging_by_id(named: tuple[Wire, str]) -> None:
    wire, session = named
    for number in range(5):
        wire.result("exec", {"src": str(number)})
    newest = _query(wire, session, limit=2)
    older = _query(wire, session, limit=2, before_id=newest[-1]["id"])
    assert [row["src"] for row in newest + older] == ["4", "3", "2", "1"]


def test_an_unknown_kind_is_refused(named: tuple[Wire, str]) -> None:
    assert named[0].error("journal.query", {"kind": "event"})["code"] == -32602


def test_events_of_a_submission_in_order_after_its_commit(daemon: Daemon) -> None:
    with Daemon() as fresh, fresh.wire() as wire:
        wire.result("session.attach", {"session": "ev"})
        for channel in ("journal", "session.transcript", "render"):
            assert wire.result("events.subscribe", {"channel": channel}) == {
                "channel": channel,
                "subscribed": True,
            }
        wire.send(b'{"jsonrpc":"2.0","id":9,"method":"exec","params":{"src":"[{a: 1}]"}}\n')
        lines = [wire.json() for _ in range(4)]
        events = [line["params"] for line in lines if line.get("method") == "event"]
        assert [event["channel"] for event in events] == ["journal", "session.transcript", "render"]
        assert {event["session"] for event in events} == {"ev"}
        assert events[0]["payload"]["v"]["head"] == {"$": "str", "v": "[{a:"}
        assert events[1]["payload"] == {
            "$": "record",
            "v": {
                "n": {"$": "int", "v": 1},
                "ref": {"$": "str", "v": "out:1"},
                "summary": {
                    "$": "record",
                    "v": {"type": {"$": "str", "v": "list"}, "n": {"$": "int", "v": 1}},
                },
            },
        }
        assert events[2]["payload"]["v"]["render"]["v"].startswith("a")
        with fresh.wire() as other:
            other.result("session.attach", {"session": "ev"})
            other.error("exec", {"src": "1 / 0"})
        assert wire.json()["params"]["seq"] == 1
        reads = {
            channel: wire.result("events.read", {"channel": channel})["events"]
            for channel in ("journal", "session.transcript", "render")
        }
        assert [len(events) for events in reads.values()] == [2, 1, 1]


def test_durable_numbers_go_on_after_a_restart() -> None:
    with Daemon() as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach")
            for number in range(3):
                wire.result("exec", {"src": str(number)})
            before = wire.result("events.read", {"channel": "journal"})["events"]
        daemon.stop()
        daemon.start()
        with daemon.wire() as wire:
            wire.result("session.attach")
            assert wire.result("events.read", {"channel": "journal"})["events"] == before
            wire.result("exec", {"src": "9"})
            events = wire.result("events.read", {"channel": "journal"})["events"]
            assert [event["seq"] for event in events] == [0, 1, 2, 3]
            assert wire.result("events.read", {"channel": "journal", "since": 1, "limit": 1})[
                "events"
            ] == [events[3]]


def test_user_channels_publish_and_inject(daemon: Daemon) -> None:
    with daemon.wire() as wire, daemon.wire() as listener:
        wire.result("session.attach", {"session": "user-events"})
        listener.result("session.attach", {"session": "user-events-2"})
        listener.result("events.subscribe", {"channel": "user.lint"})
        first = wire.result("events.publish", {"channel": "user.lint", "payload": {"n": 1}})
        assert (first["channel"], first["seq"]) == ("user.lint", 0)
        event = listener.json()
        assert event["method"] == "event"
        assert event["params"]["payload"] == {"n": 1}
        assert event["params"]["session"] == "user-events"
        latest = wire.result("exec", {"src": 'channel("user.lint").latest()'})["value"]
        assert latest == {"$": "record", "v": {"n": {"$": "int", "v": 1}}}
        wire.result("exec", {"src": 'channel("user.lint").emit({level: 3})'})
        event = listener.json()["params"]
        assert event["seq"] == 1
        assert event["payload"] == {"$": "record", "v": {"level": {"$": "int", "v": 3}}}
        assert wire.result("events.unsubscribe", {"channel": "never"}) == {
            "channel": "never",
            "subscribed": False,
        }


@pytest.mark.parametrize(
    "channel", ["journal", "approval", "render", "session.transcript", "usr.x"]
)
def test_kernel_channels_cannot_be_published_to(attached: Wire, channel: str) -> None:
    error = attached.error("events.publish", {"channel": channel, "payload": 1})
    assert (error["code"], error["data"]["channel"]) == (-32602, channel)


def test_a_missing_payload_is_refused_and_null_is_one(attached: Wire) -> None:
    assert attached.error("events.publish", {"channel": "user.p"})["code"] == -32602
    assert attached.result("events.publish", {"channel": "user.p", "payload": None})["seq"] == 0


def test_the_payload_limit(attached: Wire) -> None:
    fits = "x" * (256 * 1024 - 2)
    attached.result("events.publish", {"channel": "user.big", "payload": fits})
    error = attached.error("events.publish", {"channel": "user.big", "payload": fits + "x"})
    assert error["data"]["quota"] == "event_payload_bytes"


def test_the_publish_rate(attached: Wire) -> None:
    line = msgspec.json.encode(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "events.publish",
            "params": {"channel": "user.rate", "payload": 1},
        }
    )
    attached.send((line + b"\n") * 400)
    answers = [attached.json() for _ in range(400)]
    refused = [answer for answer in answers if "error" in answer]
    assert refused and refused[0]["error"]["data"]["quota"] == "quotas.publish_per_s"
    assert len(answers) - len(refused) >= 200


def test_subscriptions_have_a_quota(attached: Wire) -> None:
    for number in range(256):
        attached.result("events.subscribe", {"channel": f"user.c{number}"})
    error = attached.error("events.subscribe", {"channel": "user.more"})
    assert error["data"]["quota"] == "quotas.subscriptions_per_connection"
    attached.result("events.subscribe", {"channel": "user.c0"})


def test_a_subscription_made_before_an_exec_in_one_write_sees_its_events(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.send(
            b'{"jsonrpc":"2.0","id":1,"method":"session.attach","params":{"session":"one"}}\n'
            b'{"jsonrpc":"2.0","id":2,"method":"events.subscribe","params":'
            b'{"channel":"render","since":1000000}}\n'
            b'{"jsonrpc":"2.0","id":3,"method":"exec","params":{"src":"77"}}\n'
        )
        lines = [wire.json() for _ in range(4)]
        events = [line["params"] for line in lines if line.get("method") == "event"]
        assert any(event["payload"]["v"]["render"]["v"] == "77" for event in events)
