"""Tokens: what ends with them, what they narrow, and what a broken store does (chapter 50 §11)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.security.attacker import LEAD, NEIGHBOUR, SHIELDED, Fortress, run
from tests.system.daemon import wait_gone

AUTH_FAILED = -32030
LEASH_DENIED = -32010
NOT_ATTACHED = -32000


def _wait_for(path: Path, seconds: float = 10.0) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().strip():
            return path.read_text().strip()
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


def test_a_revoked_token_answers_auth_failed_and_then_nothing(fortress: Fortress) -> None:
    bearer, token_id = fortress.bearer(SHIELDED)
    with fortress.wire() as wire:
        wire.result("session.attach", {"session": "revoked", "token": bearer})
        fortress.revoke(token_id)
        assert wire.error("exec", {"src": "1"})["code"] == AUTH_FAILED
        assert wire.error("exec", {"src": "1"})["code"] == NOT_ATTACHED
        assert wire.error("session.attach", {"token": bearer})["code"] == AUTH_FAILED


def test_revocation_ends_runs_tasks_and_terminals_of_an_idle_client(fortress: Fortress) -> None:
    bearer, token_id = fortress.bearer(SHIELDED)
    home = fortress.home / "shielded"
    with fortress.wire() as wire:
        wire.result("session.attach", {"session": "busy", "token": bearer})
        wire.result("exec", {"src": f'cd "{home}"'})
        terminal = wire.result("pty.open", {"cmd": "/bin/sleep", "args": ["300"]})
        wire.result("exec", {"src": "sh { echo $$ > task.pid; exec sleep 300 }", "async": True})
        task = int(_wait_for(home / "task.pid"))
        before = time.monotonic()
        fortress.revoke(token_id)
        assert wait_gone([task, terminal["pid"]], 5.0) == []
        assert time.monotonic() - before < 2.5
        assert wire.error("task.list", {})["code"] == AUTH_FAILED


def test_revocation_ends_subscriptions_within_a_second(fortress: Fortress) -> None:
    bearer, token_id = fortress.bearer(SHIELDED)
    other = fortress.attached(SHIELDED, "heard")
    with fortress.wire() as wire:
        wire.result("session.attach", {"session": "heard", "token": bearer})
        wire.result("events.subscribe", {"channel": "user.news"})
        fortress.revoke(token_id)
        time.sleep(1.3)
        other.result("events.publish", {"channel": "user.news", "payload": 1})
        other.result("exec", {"src": "1"})
        # Nothing was pushed: the next line is the answer.
        answer = wire.request("session.cwd", {}, request_id=77)
        assert answer["id"] == 77
        assert answer["error"]["code"] == AUTH_FAILED


def test_an_expired_token_ends_its_attachment_and_leaves_its_work(fortress: Fortress) -> None:
    bearer, _ = fortress.bearer(SHIELDED, ttl_s=2)
    home = fortress.home / "shielded"
    with fortress.wire() as wire:
        wire.result("session.attach", {"session": "expiring", "token": bearer})
        wire.result("exec", {"src": f'cd "{home}"'})
        wire.result("exec", {"src": "sh { sleep 4; echo done > expired.txt }", "async": True})
        time.sleep(2.1)
        assert wire.error("session.cwd", {})["code"] == AUTH_FAILED
        assert _wait_for(home / "expired.txt") == "done"


def test_a_token_that_is_made_now_works_now(fortress: Fortress) -> None:
    bearer, _ = fortress.bearer(NEIGHBOUR)
    with fortress.wire() as wire:
        assert wire.result("session.attach", {"token": bearer})["principal"] == NEIGHBOUR


@pytest.mark.parametrize(
    ("caps", "src", "allowed"),
    [
        (["fs.read"], "ls .", True),
        (["fs_read"], "ls .", True),
        (["fs.*"], "touch x", True),
        (["fs.read"], "touch x", False),
        (["fs.write"], "ls .", False),
        (["fs.read"], "sh { true }", False),
        (["nonsense"], "ls .", False),
        (["*"], "touch x", True),
    ],
)
def test_caps_narrow_what_the_policy_grants(
    fortress: Fortress, caps: list[str], src: str, allowed: bool
) -> None:
    owner = fortress.attached(SHIELDED, "capped")
    owner.result("exec", {"src": f'cd "{fortress.home}/shielded"'})
    wire = fortress.attached(SHIELDED, "capped", *caps)
    answer = run(wire, src)
    assert ("result" in answer) is allowed, answer
    if not allowed:
        assert answer["error"]["code"] == LEASH_DENIED


def test_caps_never_add_to_a_policy(fortress: Fortress) -> None:
    wire = fortress.attached(NEIGHBOUR, "capped-neighbour", "*", "secret.use", "net.connect")
    assert run(wire, 'http.get("http://127.0.0.1:9/")')["error"]["code"] == LEASH_DENIED
    assert run(wire, 'secret.get("K")')["error"]["code"] == LEASH_DENIED


def test_caps_take_authority_from_the_local_human_too(fortress: Fortress) -> None:
    import os

    wire = fortress.attached(f"uid:{os.getuid()}", "narrow", "fs.read")
    assert run(wire, "sh { true }")["error"]["code"] == LEASH_DENIED
    assert wire.error("kernel.status", {})["code"] != 0
    attached = fortress.wire()
    bearer = fortress.tokens[f"uid:{os.getuid()} fs.read"][0]
    caps = attached.result("session.attach", {"session": "narrow", "token": bearer})
    assert caps["caps_enforced"] is True
    assert caps["caps"]["approve"] == []
    assert caps["caps"]["status"]["dimensions"]["filesystem"]["write"] == []


def test_a_broken_store_refuses_new_attachments_and_keeps_the_others(fortress: Fortress) -> None:
    bearer, _ = fortress.bearer(LEAD)
    established = fortress.attached(SHIELDED, "established")
    good = fortress.store.with_suffix(".good")
    shutil.copy2(fortress.store, good)
    try:
        fortress.store.write_text("{")
        assert "result" in established.request("session.cwd", {})
        with fortress.wire() as wire:
            error = wire.error("session.attach", {"token": bearer})
            assert error["data"]["kind"] == "token_store_unavailable"
        human = fortress.attached(None, "human")
        assert human.result("kernel.status", {})["tokens"]["store"] != "ok"
    finally:
        good.replace(fortress.store)
    with fortress.wire() as wire:
        wire.result("session.attach", {"token": bearer})
