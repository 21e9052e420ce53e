"""Authority that ends while a turn runs (chapter 70 §7.1, §7.4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.token_writer import create_token, revoke_token
from tests.agent.chat_server import ChatServer, called, said
from tests.agent.client import Agent
from tests.system.daemon import Daemon

POLICY = """
version = 1
[principal."agent:bearer"]
fs.read = ["/**"]
fs.write = ["/tmp/**"]
env_read = ["*"]
session_write = true
journal_read = true
time = true
opaque = "allow"
auto_apply = "in-grant"
"""
CONFIG = """
[permission_profiles.p]
allowed_agents = ["*"]
allowed_tools = ["*"]
[permission_profiles.p.grants]
system = ["read"]
sessions = ["create", "read", "update", "delete", "execute"]
tools = ["execute"]
[users.bearer]
permission_profiles = ["p"]
principal_id = "agent:bearer"
[providers.desk]
kind = "openai"
base_url = "{url}"
model = "m-1"
[agents.scribe]
provider = "desk"
leash = "agent:bearer"
"""
SEEN_S = 10.0


class Bearer:
    """A session of a principal with a token, and what may happen to that while a turn runs."""

    def __init__(self, daemon: Daemon, chat: ChatServer, work: Path) -> None:
        self.daemon, self.chat, self.work = daemon, chat, work
        self.socket = daemon.state / "daemon.sock"
        store = daemon.state / "tokens.json"
        self.secret, token = create_token(
            store, "agent:bearer", "default", [], now_ns=time.time_ns(), ttl_s=None
        )
        self._store, self._token_id = store, token.id
        self.agent = Agent(self.socket)
        assert self.agent.initialize(auth_token=self.secret)["principal_id"] == "agent:bearer"
        self.agent.result(
            "session/new",
            {"agent_alias": "scribe", "session_id": "b", "workspace": str(work)},
        )

    def revoke(self) -> None:
        """End the token, and wait until the router has seen it."""
        with Agent(self.socket) as other:
            other.initialize(auth_token=self.secret)
            revoke_token(self._store, self._token_id, time.time_ns())
            deadline = time.monotonic() + SEEN_S
            while "error" not in (answer := other.request("status")):
                assert time.monotonic() < deadline, "the revocation is not seen"
        assert answer["error"]["data"]["kind"] == "credential_rejected"

    def narrow(self) -> None:
        """Take the tools away from the profile of the principal."""
        with Agent(self.socket) as human:
            human.initialize()
            human.result(
                "config/set",
                {
                    "prop": "permission_profiles.p.grants",
                    "value": {
                        "system": ["read"],
                        "sessions": ["create", "read", "update", "execute"],
                    },
                },
            )


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture
def bearer(chat: ChatServer, tmp_path: Path) -> Iterator[Bearer]:
    policy = tmp_path / "leash.toml"
    policy.write_text(POLICY)
    work = tmp_path / "work"
    work.mkdir()
    daemon = Daemon("--policy", str(policy))
    daemon.state.mkdir(parents=True)
    (daemon.state / "config.toml").write_text(CONFIG.format(url=chat.url))
    with daemon:
        one = Bearer(daemon, chat, work)
        yield one
        one.agent.close()


def ended(answer: dict[str, Any], agent: Agent) -> dict[str, Any]:
    """The `turn_complete` of a turn that was answered with an error."""
    assert answer["error"]["code"] == -32603, answer
    return agent.until("turn_complete")


def touching(path: Path) -> list[bytes]:
    """A tool call that makes a file."""
    return called("shoal", f'{{"src": "sh {{ touch {path} }}"}}')


def test_while_nothing_ends_the_tool_runs(bearer: Bearer) -> None:
    mark = bearer.work / "mark"
    bearer.chat.say(touching(mark))
    bearer.chat.say(said("done"))

    assert bearer.agent.prompt("b", "do it")["result"]["content"] == "done"

    assert mark.exists()


def test_after_a_revocation_the_next_tool_call_is_refused_and_the_turn_fails(
    bearer: Bearer,
) -> None:
    mark = bearer.work / "mark"
    # The model answers with a call of a tool; by then the token has ended.
    bearer.chat.say(touching(mark), before=bearer.revoke)
    bearer.chat.say(said("never asked"))

    answer = bearer.agent.prompt("b", "do it")

    assert ended(answer, bearer.agent)["outcome"] == "failed"
    assert not mark.exists()
    assert len(bearer.chat.requests) == 1


def test_after_a_revocation_the_next_model_call_is_refused_and_the_turn_fails(
    bearer: Bearer,
) -> None:
    begun, go_on = bearer.work / "begun", bearer.work / "go-on"
    src = f"sh {{ touch {begun}; while ! test -e {go_on}; do sleep 0.02; done; echo ran }}"
    bearer.chat.say(called("shoal", f'{{"src": "{src}"}}'))
    bearer.chat.say(said("never asked"))

    def end_it() -> None:
        while not begun.exists():
            time.sleep(0.01)
        bearer.revoke()
        go_on.touch()

    ending = threading.Thread(target=end_it)
    ending.start()
    answer = bearer.agent.prompt("b", "do it")
    ending.join()

    assert ended(answer, bearer.agent)["outcome"] == "failed"
    # What ran when the token ended was not interrupted, and is told.
    told = [u["params"] for u in bearer.agent.updates if u["params"].get("type") == "tool_result"]
    assert ["ran" in str(update) for update in told] == [True]
    assert len(bearer.chat.requests) == 1


def test_a_turn_that_runs_goes_on_and_the_one_behind_it_is_refused(bearer: Bearer) -> None:
    params = {"agent_alias": "shell", "session_id": "s", "workspace": str(bearer.work)}
    bearer.agent.result("session/new", params)
    running = bearer.agent.send("session/prompt", {"session_id": "s", "prompt": "sleep 60s"})
    bearer.agent.until("tool_call")
    queued = bearer.agent.send("session/prompt", {"session_id": "s", "prompt": "2"})
    bearer.revoke()

    with Agent(bearer.socket) as human:
        human.initialize()
        assert human.result("session/state", {"session_id": "s"})["state"] == "running"
        human.result("session/cancel", {"session_id": "s"})

    bearer.agent.wait(running)
    assert bearer.agent.wait(queued)["error"]["code"] == -32010


def test_tools_taken_from_a_profile_are_refused_from_the_next_call_on(bearer: Bearer) -> None:
    mark = bearer.work / "mark"
    bearer.chat.say(touching(mark), before=bearer.narrow)
    bearer.chat.say(said("as you wish"))

    bearer.agent.prompt("b", "do it")

    assert not mark.exists()
