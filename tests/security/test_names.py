"""Names of others: what is guessed looks exactly like what does not exist (chapter 60 §4.3)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ipc.agent_methods import METHODS
from tests.agent.client import Agent
from tests.security.attacker import NEIGHBOUR, SHIELDED, Fortress
from tests.system.daemon import Wire

UNKNOWN_UPLOAD = -32602
AUTH_REQUIRED = -32010


@pytest.fixture(scope="module")
def owner(fortress: Fortress) -> Wire:
    wire = fortress.attached(SHIELDED, "names")
    wire.result("exec", {"src": f'cd "{fortress.home}/shielded"'})
    return wire


@pytest.fixture(scope="module")
def stranger(fortress: Fortress) -> Wire:
    return fortress.attached(NEIGHBOUR, "names")


def _shape(error: dict[str, Any], name: str) -> Any:
    """An error with the name that was asked for taken out."""
    return str(error).replace(name, "NAME")


@pytest.mark.parametrize(
    ("method", "member", "more", "unknown"),
    [
        ("value.get", "ref", {}, "out:9999"),
        ("value.get", "ref", {"format": "raw"}, "out:9999"),
        ("value.get", "ref", {"format": "render"}, "out:9999"),
        ("task.get", "task", {}, "task:999999"),
        ("task.await", "task", {}, "task:999999"),
        ("task.cancel", "task", {}, "task:999999"),
        ("pty.read", "pty_id", {}, "pty:999999"),
        ("pty.send", "pty_id", {"input": "x"}, "pty:999999"),
        ("pty.close", "pty_id", {}, "pty:999999"),
        ("blob.get", "hash", {}, "0" * 64),
    ],
)
def test_what_belongs_to_others_looks_like_what_does_not_exist(
    fortress: Fortress,
    owner: Wire,
    stranger: Wire,
    method: str,
    member: str,
    more: dict[str, Any],
    unknown: str,
) -> None:
    entry = owner.result("exec", {"src": '"a-result-of-ours"'})
    rows = owner.result("journal.query", {"limit": 5})
    names = {
        "ref": entry["ref"],
        "task": owner.result("exec", {"src": "1", "async": True})["task"],
        "pty_id": owner.result("pty.open", {"cmd": "/bin/sleep", "args": ["30"]})["pty_id"],
        "hash": _a_hash(rows),
    }
    name = names[member]
    assert "result" in owner.request(method, {member: name, **more})
    foreign = stranger.error(method, {member: name, **more})
    missing = stranger.error(method, {member: unknown, **more})
    assert _shape(foreign, name) == _shape(missing, unknown)


def _a_hash(rows: Any) -> str:
    return next(
        str(output["hash"])
        for row in rows
        for output in row.get("outputs", ())
        if output.get("hash")
    )


def test_user_channels_of_another_principal_are_another_space(owner: Wire, stranger: Wire) -> None:
    owner.result("events.publish", {"channel": "user.private", "payload": "for-us-alone"})
    listener = stranger.result("events.read", {"channel": "user.private", "since_seq": 0})
    assert "for-us-alone" not in str(listener)
    stranger.result("events.publish", {"channel": "user.private", "payload": "planted"})
    seen = owner.result("events.read", {"channel": "user.private", "since_seq": 0})
    assert "for-us-alone" in str(seen)
    assert "planted" not in str(seen)


def test_plans_of_another_principal_are_not_listed(owner: Wire, stranger: Wire) -> None:
    ref = owner.result("exec", {"src": "touch listed", "mode": "plan"})["plan_ref"]
    assert ref not in str(stranger.result("plan.list"))
    assert ref not in str(stranger.result("plan.list", {"approvable": True}))


# -- the agent endpoint ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"initialize"}))
def test_nothing_is_served_before_initialize(fortress: Fortress, method: str) -> None:
    agent = Agent(fortress.state / "daemon.sock")
    try:
        assert agent.error(method)["code"] == AUTH_REQUIRED
    finally:
        agent.close()


def test_an_upload_belongs_to_the_connection_that_began_it(fortress: Fortress) -> None:
    ours, theirs = (Agent(fortress.state / "daemon.sock") for _ in range(2))
    try:
        for agent in (ours, theirs):
            agent.initialize()
        session = "uploading"
        ours.result("session/new", {"agent_alias": "shell", "session_id": session})
        data = b"whole"
        digest = hashlib.sha256(data).hexdigest()
        begun = {"session_id": session, "size_bytes": len(data), "sha256": digest}
        upload = ours.result("file/upload/begin", begun)["upload_id"]
        piece = {"upload_id": upload, "offset": 0, "data_b64": "d2hvbGU="}
        for method, params in (
            ("file/upload/chunk", piece),
            ("file/upload/commit", {"upload_id": upload}),
        ):
            foreign = theirs.error(method, params)
            assert foreign["code"] == UNKNOWN_UPLOAD
            missing = theirs.error(method, params | {"upload_id": "no-such-upload"})
            assert _shape(foreign, upload) == _shape(missing, "no-such-upload")
        ours.result("file/upload/chunk", piece)
        ours.result("file/upload/commit", {"upload_id": upload})
    finally:
        ours.close()
        theirs.close()
