"""The configuration tree over the wire (chapter 70 §16)."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from tests.agent.client import Agent
from tests.system.daemon import Daemon


@pytest.mark.parametrize(
    ("prop", "value", "shown"),
    [
        ("agents.a1.model", "m", "m"),
        ("agents.a1.model", 7, "7"),
        ("agents.a1.enabled", "TRUE", "true"),
        ("agents.a1.max_turns", "12", "12"),
        ("agents.a1.temperature", 1, "1.0"),
        ("agents.a1.tools", '["shoal"]', '["shoal"]'),
        ("agents.a1.workspace.path", "/tmp/x", "/tmp/x"),
        ("providers.p1.kind", "acp", "acp"),
        ("providers.p1.env", {"A": "b"}, '{"A":"b"}'),
        ("providers.p1.api_key", "k", "***MASKED***"),
        ('agents."a1".model', "q", "q"),
        ("agents.a1.model", None, "<unset>"),
        ("agents.a1.max_turns", None, "25"),
    ],
)
def test_a_value_is_taken_for_its_kind(agent: Agent, prop: str, value: Any, shown: str) -> None:
    assert agent.result("config/set", {"prop": prop, "value": value}) == {
        "prop": prop, "set": True,
    }  # fmt: skip
    assert agent.result("config/get", {"prop": prop})["value"] == shown


@pytest.mark.parametrize(
    ("prop", "value", "text"),
    [
        ("agents.a1.max_turns", "many", "agents.a1.max_turns"),
        ("agents.a1.max_turns", 201, "agents.a1.max_turns"),
        ("agents.a1.enabled", "yes", "bool"),
        ("agents.a1.tools", ["a", 1], "element 1"),
        ("agents.a1.provider", "missing", "alias_ref"),
        ("providers.p1.kind", "magic", "enum"),
        ("providers.p1.base_url", "http://example.org", "https"),
        ("agents.default.model", "m", "alias `default` is reserved and cannot be created"),
        ("agents.UPPER.model", "m", "UPPER"),
        ("no.such", 1, "Unknown prop: no.such"),
        ("users.u1.permission_profiles", ["nope"],
         "Authorization config rejected; nothing was saved:"),
        ("permission_profiles.p.grants", {"moon": ["read"]}, "unknown resource"),
        ("providers.p1.api_key", "***MASKED***",
         "Refusing to overwrite secret `providers.p1.api_key` with a masked or empty value"),
        ("providers.p1.api_key", "", "Refusing to overwrite secret"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_and_nothing_changes(
    agent: Agent, daemon: Daemon, prop: str, value: Any, text: str
) -> None:
    agent.result("config/set", {"prop": "providers.p1.kind", "value": "openai"})
    before = (daemon.state / "config.toml").read_bytes()

    error = agent.error("config/set", {"prop": prop, "value": value})

    assert error["code"] == -32602 and text in error["message"]
    assert (daemon.state / "config.toml").read_bytes() == before


def test_a_batch_is_all_or_none(agent: Agent) -> None:
    sets = [
        {"prop": "agents.batch.model", "value": "m"},
        {"prop": "agents.batch.max_turns", "value": "x"},
    ]

    error = agent.error("config/set-many", {"sets": sets})

    assert error["code"] == -32602
    assert error["message"].startswith(
        "entry 1 (`agents.batch.max_turns`) in config/set-many rejected; nothing saved: "
    )
    assert (error["data"]["index"], error["data"]["prop"]) == (1, "agents.batch.max_turns")
    assert "batch" not in agent.result("config/map-keys", {"path": "agents"})["keys"]


@pytest.mark.parametrize("count", [0, 257])
def test_a_batch_has_1_to_256_entries(agent: Agent, count: int) -> None:
    sets = [{"prop": "agents.x.model", "value": "m"}] * count

    message = agent.error("config/set-many", {"sets": sets})["message"]

    assert ("at least one entry in `sets`" in message) == (count == 0)
    assert ("accepts at most 256 entries; got 257" in message) == (count == 257)


def test_a_later_entry_of_a_batch_wins(agent: Agent) -> None:
    sets = [{"prop": "agents.w.model", "value": v} for v in ("one", "two")]

    assert agent.result("config/set-many", {"sets": sets})["props"] == ["agents.w.model"] * 2
    assert agent.result("config/get", {"prop": "agents.w.model"})["value"] == "two"


def test_comments_and_order_of_the_file_survive(agent: Agent, daemon: Daemon) -> None:
    agent.result("config/set", {"prop": "rpc.max_sessions", "value": 9, "comment": "small box"})
    file = daemon.state / "config.toml"
    assert "# small box\nmax_sessions = 9" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600

    agent.result("config/set", {"prop": "rpc.max_sessions", "value": 200})

    assert "# small box\nmax_sessions = 200" in file.read_text()


def test_map_keys_come_and_go(agent: Agent) -> None:
    key = {"path": "providers", "key": "temp"}
    assert agent.result("config/map-key-create", key)["created"] is True
    assert agent.result("config/map-key-create", key)["created"] is False
    agent.result("config/set", {"prop": "agents.user1.provider", "value": "temp"})

    assert agent.error("config/map-key-delete", key)["code"] == -32602

    assert agent.result("config/delete", {"prop": "agents.user1"})["deleted"] is True
    assert agent.result("config/map-key-delete", key)["deleted"] is True
    assert agent.result("config/map-key-delete", key)["deleted"] is False


def test_writers_at_once_lose_nothing(daemon: Daemon) -> None:
    def write(number: int) -> None:
        with Agent(daemon.state / "daemon.sock") as client:
            client.initialize()
            for turn in range(5):
                client.result(
                    "config/set", {"prop": f"agents.w{number}-{turn}.model", "value": "m"}
                )

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with Agent(daemon.state / "daemon.sock") as client:
        client.initialize()
        keys = client.result("config/map-keys", {"path": "agents"})["keys"]
    assert len([key for key in keys if key.startswith("w") and "-" in key]) == 20


def test_a_variable_wins_and_is_never_written() -> None:
    with Daemon(environ={"SHOAL_CFG_AGENTS__SHELL__DESCRIPTION": "by variable"}) as daemon:
        with Agent(daemon.state / "daemon.sock") as client:
            client.initialize()
            client.result("config/set", {"prop": "agents.shell.description", "value": "by file"})
            shown = client.result("config/get", {"prop": "agents.shell.description"})["value"]
            [entry] = client.result("config/list", {"prefix": "agents.shell.description"})[
                "entries"
            ]
        assert shown == "by variable" and entry["is_env_overridden"] is True
        assert "by file" in (daemon.state / "config.toml").read_text()


def test_a_file_changed_outside_is_what_is_validated(agent: Agent, daemon: Daemon) -> None:
    file = daemon.state / "config.toml"
    good = file.read_text() if file.exists() else ""
    file.write_text(good + "\n[moon]\nx = 1\n")

    found = agent.result("config/validate", {})
    file.write_text(good)

    assert found["valid"] is False and "moon" in found["error"]
    assert agent.result("config/validate", {})["valid"] is True


def test_invalid_authorization_sections_lock_the_endpoint() -> None:
    daemon = Daemon()
    daemon.state.mkdir(parents=True)
    (daemon.state / "config.toml").write_text('[users.a]\npermission_profiles = ["none"]\n')
    with daemon, Agent(daemon.state / "daemon.sock") as client:
        client.initialize()

        error = client.error("status")

        assert (error["code"], error["data"]["kind"]) == (-32012, "authorization_invalid")


def test_a_user_has_what_its_profiles_give() -> None:
    """The router's own user as a roster user, since a test has no other."""
    daemon = Daemon()
    daemon.state.mkdir(parents=True)
    (daemon.state / "config.toml").write_text(
        f"""
[security]
trust_daemon_uid = false
[permission_profiles.op]
allowed_agents = ["shell"]
allowed_tools = ["*"]
config_write_paths = ["agents.helper.*"]
[permission_profiles.op.grants]
system = ["read"]
sessions = ["create", "read", "update", "execute"]
config = ["read", "update"]
tools = ["execute"]
[users.lena]
uid = {os.geteuid()}
permission_profiles = ["op"]
"""
    )
    with daemon, Agent(daemon.state / "daemon.sock") as client:
        assert client.initialize()["principal_id"] == "user:lena"
        denied = client.error("session/kill", {"session_id": "x"})
        assert denied["message"] == (
            "Principal is not granted sessions:delete (required by session/kill)"
        )
        assert denied["data"]["resource"] == "sessions"
        unknown = client.error("session/state", {"session_id": "x"})
        assert (unknown["code"], unknown["message"]) == (
            -32012, "Session not found or not owned by this principal",
        )  # fmt: skip
        agent_denied = client.error("session/new", {"agent_alias": "helper"})
        assert agent_denied["message"] == 'Principal is not entitled to agent "helper"'
        path = client.error("config/set", {"prop": "agents.shell.model", "value": "m"})
        assert path["message"] == (
            'Principal is not granted config write access to "agents.shell.model"'
        )
        sets = [{"prop": "agents.helper.model", "value": "m"},
                {"prop": "agents.shell.model", "value": "m"}]  # fmt: skip
        assert client.error("config/set-many", {"sets": sets})["data"]["index"] == 1
        assert client.result("config/set", sets[0])["set"] is True
        assert "config_file" not in client.result("status")
        client.result("session/new", {"agent_alias": "shell", "session_id": "mine"})
        # `user:lena` has no policy section: what it evaluates is denied, and the text says how.
        content = client.prompt("mine", "1 + 1")["result"]["content"]
        assert content.startswith("denied: no policy section for user:lena")
