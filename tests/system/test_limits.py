"""Limits of the endpoint at their edge and one step past it (chapter 60 §2.6)."""

from __future__ import annotations

import base64

import msgspec

from tests.system.daemon import Daemon, Wire

MIB = 1024 * 1024


def _line(method: str, params: object, request_id: int = 1) -> bytes:
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return msgspec.json.encode(request) + b"\n"


def test_a_parse_that_takes_too_long_ends_with_an_error_and_harms_nobody(daemon: Daemon) -> None:
    with daemon.wire() as slow, daemon.wire() as quick:
        slow.socket.settimeout(90)
        slow.send(_line("parse", {"src": "let value = [1, 2, {a: b}]\n" * 560_000}))
        quick.result("session.attach", {"session": "quick"})
        assert quick.result("exec", {"src": "1 + 1"})["render"] == "2"
        assert quick.result("parse", {"src": "1"})["ast_version"] == 2
        error = slow.json()["error"]
        assert (error["code"], error["data"]["kind"]) == (-32603, "quota")
        assert error["data"]["quota"] in ("parse_time", "parse_memory", "result_bytes")
        assert slow.result("parse", {"src": "2"})["ast_version"] == 2


def test_queued_submissions_have_a_limit(daemon: Daemon) -> None:
    with daemon.wire() as first, daemon.wire() as watcher:
        first.result("session.attach", {"session": "queue"})
        watcher.result("session.attach", {"session": "queue"})
        task = first.result("exec", {"src": "sleep 60s", "async": True})["task"]
        connections = [daemon.wire() for _ in range(5)]
        try:
            for number, wire in enumerate(connections):
                wire.result("session.attach", {"session": "queue"})
                count = 256 if number < 4 else 1
                wire.send(b"".join(_line("exec", {"src": "1"}, n) for n in range(count)))
            # 1 running and 1,023 waiting are the limit; two of the 1,025 sent above are refused.
            refused = 0
            for wire in connections[3:]:
                answer = wire.json()
                assert answer["error"]["data"]["quota"] == "queued_submissions"
                assert answer["error"]["data"]["limit"] == 1024
                refused += 1
            assert refused == 2
            watcher.result("task.cancel", {"task": task})
        finally:
            for wire in connections:
                wire.close()


def test_requests_above_those_in_flight_wait_their_turn(attached: Wire) -> None:
    attached.send(_line("exec", {"src": "sleep 300ms"}, 0))
    attached.send(b"".join(_line("exec", {"src": "1"}, n) for n in range(1, 300)))
    answers = [attached.json() for _ in range(300)]
    assert {answer["id"] for answer in answers} == set(range(300))
    assert all("result" in answer for answer in answers)


def test_sessions_have_a_quota() -> None:
    with Daemon("--max-sessions", "2") as daemon, daemon.wire() as wire:
        for name in ("one", "two"):
            wire.result("session.attach", {"session": name})
        error = wire.error("session.attach", {"session": "three"})
        assert error["data"] == {
            "kind": "quota",
            "reason": "quota",
            "quota": "quotas.sessions",
            "limit": 2,
            "used": 2,
        }
        assert wire.result("session.attach", {"session": "one"})["session"] == "one"


def test_sessions_of_a_principal_have_a_quota() -> None:
    with Daemon(config="[quotas]\nsessions_per_principal = 1\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "one"})
        error = wire.error("session.attach", {"session": "two"})
        assert error["data"]["quota"] == "quotas.sessions_per_principal"


def test_large_values_pass_between_the_processes(attached: Wire) -> None:
    attached.result("exec", {"src": f"sh -c 'head -c {5 * MIB} /dev/zero | tr \"\\\\0\" x'"})
    total = 0
    offset: int | None = 0
    while offset is not None:
        page = attached.result(
            "value.get", {"ref": "out:1", "path": "stdout", "format": "raw", "offset": offset}
        )
        total += len(base64.b64decode(page["raw_base64"]))
        offset = page.get("next")
    assert total == 5 * MIB
    (entry,) = attached.result("journal.query", {"limit": 1})
    lengths = {output["kind"]: output["len"] for output in entry["outputs"]}
    assert lengths["stdout"] == 5 * MIB
    hash_ = next(output["hash"] for output in entry["outputs"] if output["kind"] == "stdout")
    piece = attached.result("blob.get", {"hash": hash_, "offset": 5 * MIB - 3})
    assert base64.b64decode(piece["value"]["v"]) == b"xxx"


def test_no_budget_lifts_the_byte_ceiling(attached: Wire) -> None:
    attached.result("exec", {"src": '"x".chars().len()'})
    source = "(1..=40000).collect()"
    asked = {"max_bytes": 10**9, "max_items": 10**9, "max_rows": 10**9}
    value = attached.result("exec", {"src": source, "elide": asked})["value"]
    assert value["$"] == "ref"
    small = attached.result("exec", {"src": "(1..=600).collect()", "elide": asked})["value"]
    assert small["$"] == "list"
    assert attached.result("exec", {"src": "7", "elide": {"max_bytes": 0}})["value"]["$"] == "ref"


def test_a_render_is_bounded(attached: Wire) -> None:
    result = attached.result("exec", {"src": '(1..=40000).map(x => "line").join("\\n")'})
    assert len(result["render"].encode()) < 65536
    assert result["render"].endswith("more lines, fetch via shoal://out/1)")
