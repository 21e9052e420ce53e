"""Life of sessions: new, resume, close, kill, delete, listing, messages (chapter 70 §9, §13)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from tests.agent.client import Agent
from tests.system.daemon import Daemon, wait_gone


def test_a_session_gets_an_id_when_it_has_none(agent: Agent) -> None:
    made = agent.result("session/new", {"agentAlias": "shell"})

    assert len(made["session_id"]) == 36 and made["sessionId"] == made["session_id"]
    assert made["message_count"] == 0
    assert os.stat(made["workspace_dir"]).st_mode & 0o777 == 0o700


def test_the_working_directory_is_where_programs_start(agent: Agent, daemon: Daemon) -> None:
    place = daemon.directory / "place"
    place.mkdir()
    made = agent.result(
        "session/new", {"agent_alias": "shell", "session_id": "cwd", "cwd": str(place)}
    )

    assert made["workspace_dir"] == str(place.resolve())
    assert agent.prompt("cwd", "^pwd")["result"]["content"].strip() == str(place.resolve())


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"agent_alias": "nobody"}, -32603),
        ({"agent_alias": "shell", "chat_mode": "talk"}, -32602),
        ({"agent_alias": "shell", "cwd": "relative"}, -32602),
        ({"agent_alias": "shell", "cwd": "/no/such/place"}, -32602),
        ({"agent_alias": "shell", "session_id": "a\nb"}, -32602),
        ({"agent_alias": "shell", "session_id": "x" * 129}, -32602),
        ({"agent_alias": "shell", "interaction_surface": "terminal"}, -32602),
        ({"agent_alias": "shell", "chat_mode": "acp", "interaction_surface": "hologram"}, -32602),
        ({}, -32602),
    ],
)
def test_a_session_that_cannot_be_is_refused(
    agent: Agent, params: dict[str, Any], code: int
) -> None:
    assert agent.error("session/new", params)["code"] == code


def test_closing_keeps_the_history_and_the_bindings(agent: Agent, session: str) -> None:
    agent.prompt(session, "let kept = 41")
    assert agent.result("session/close", {"session_id": session})["closed"] is True
    assert agent.error("session/close", {"session_id": session})["code"] == -32000

    again = agent.result("session/new", {"agent_alias": "shell", "session_id": session})

    assert again["message_count"] > 0
    assert agent.prompt(session, "kept + 1")["result"]["content"] == "42"


def test_a_prompt_brings_a_closed_session_back(agent: Agent, session: str) -> None:
    agent.prompt(session, "let back = 7")
    agent.result("session/close", {"session_id": session})

    assert agent.prompt(session, "back")["result"]["content"] == "7"


def test_a_killed_session_stays_readable_and_never_runs(agent: Agent, session: str) -> None:
    agent.prompt(session, "1")

    assert agent.result("session/kill", {"session_id": session})["killed"] is True
    assert agent.result("session/kill", {"session_id": session})["killed"] is False
    new = agent.error("session/new", {"agent_alias": "shell", "session_id": session})
    assert (new["code"], new["message"]) == (-32000, "Session not found")
    assert agent.prompt(session, "1")["error"]["code"] == -32000
    assert agent.result("session/messages", {"session_id": session})["total"] == 4


def test_a_deleted_session_is_gone_with_its_state(agent: Agent, session: str) -> None:
    agent.prompt(session, "let gone = 1")

    assert agent.result("session/delete", {"session_id": session})["deleted"] is True
    assert agent.error("session/delete", {"session_id": session})["code"] == -32000
    assert agent.result("session/messages", {"session_id": session})["total"] == 0
    agent.result("session/new", {"agent_alias": "shell", "session_id": session})
    assert "error(" in agent.prompt(session, "gone")["result"]["content"]


def test_killing_a_running_session_cancels_its_turn(agent: Agent, session: str) -> None:
    number = agent.send("session/prompt", {"session_id": session, "prompt": "sh { sleep 30 }"})
    agent.until("tool_call")

    kill = agent.send("session/kill", {"session_id": session})

    assert agent.wait(kill)["result"]["killed"] is True
    assert agent.wait(number)["result"]["stop_reason"] == "cancelled"
    assert "via admin_kill" in agent.until("turn_complete")["content"]


def test_a_live_session_is_taken_over_by_who_names_it(
    agent: Agent, session: str, connect: Callable[[], Agent]
) -> None:
    agent.prompt(session, "1")
    other = connect()
    other.initialize()

    made = other.result("session/new", {"agent_alias": "shell", "session_id": session})

    assert made["message_count"] == 4


def test_another_agent_may_not_have_the_id(agent: Agent, session: str) -> None:
    agent.result("config/set", {"prop": "agents.other.provider", "value": "shell"})

    error = agent.error("session/new", {"agent_alias": "other", "session_id": session})

    assert error["code"] == -32602 and "belongs to a different agent" in error["message"]


def test_an_idle_sibling_makes_room(agent: Agent) -> None:
    agent.result("session/new", {"agent_alias": "shell", "session_id": "elder"})
    agent.result("session/new", {"agent_alias": "shell", "session_id": "younger"})

    rows = agent.result("session/list", {})["sessions"]
    live = {row["session_id"]: row["live"] for row in rows}
    assert (live["elder"], live["younger"]) == (False, True)

    agent.result(
        "session/new", {"agent_alias": "shell", "session_id": "youngest", "keep_siblings": True}
    )
    rows = agent.result("session/list", {})["sessions"]
    live = {row["session_id"]: row["live"] for row in rows}
    assert live["younger"] and live["youngest"]


def test_sessions_are_found_by_the_words_of_their_messages(agent: Agent, session: str) -> None:
    agent.prompt(session, '"zanzibar"')

    found = agent.result("session/list", {"query": "zanzibar"})["sessions"]

    assert [row["session_id"] for row in found] == [session]
    assert found[0]["session_key"] == f"rpc_{session}"
    assert agent.result("session/list", {"query": "zanzibar nowhere"})["sessions"] == []


def test_pages_and_cursors_go_back_through_the_transcript(agent: Agent, session: str) -> None:
    for number in range(5):
        agent.prompt(session, str(number))
    total = agent.result("session/messages", {"session_id": session})["total"]
    assert total == 20

    page = agent.result("session/messages", {"session_id": session, "limit": 3, "before_index": 10})
    assert (page["start"], len(page["messages"])) == (7, 3)

    newest = agent.result("session/messages", {"session_id": session, "cursor": None, "limit": 8})
    assert newest["has_older"] and newest["messages"][-1]["content"] == "4"
    agent.prompt(session, "5")
    older = agent.result(
        "session/messages",
        {"session_id": session, "cursor": newest["next_cursor"], "limit": 100},
    )
    assert len(older["messages"]) == 12
    assert older["next_cursor"] is None and older["has_older"] is False
    both = {"session_id": session, "cursor": newest["next_cursor"]}
    assert agent.error("session/messages", {**both, "before_index": 3})["code"] == -32602
    forged = {"session_id": "another", "cursor": newest["next_cursor"]}
    agent.result("session/new", {"agent_alias": "shell", "session_id": "another"})
    assert agent.error("session/messages", forged)["code"] == -32602


def test_the_death_of_the_worker_fails_the_turn_and_nothing_else(
    agent: Agent, session: str
) -> None:
    agent.prompt(session, "let before = 5")
    agent.kinds()
    number = agent.send(
        "session/prompt", {"session_id": session, "prompt": "sh { echo said; kill -9 $PPID }"}
    )

    answer = agent.wait(number)

    assert answer["error"]["data"]["kind"] == "worker_lost"
    assert agent.until("turn_complete")["outcome"] == "failed"
    kinds = agent.kinds()
    assert kinds.count("tool_call") == kinds.count("tool_result")
    assert agent.prompt(session, "before")["result"]["content"] == "5"


def test_the_death_of_the_router_leaves_a_marker_and_the_text() -> None:
    with Daemon() as daemon:
        with Agent(daemon.state / "daemon.sock") as client:
            client.initialize()
            client.result("session/new", {"agent_alias": "shell", "session_id": "s"})
            client.prompt("s", "let before = 5")
            client.send(
                "session/prompt", {"session_id": "s", "prompt": "sh { echo half; sleep 60 }"}
            )
            client.until("agent_message_chunk")
            daemon.kill()
        daemon.start()
        with Agent(daemon.state / "daemon.sock") as client:
            client.initialize()
            messages = client.result("session/messages", {"session_id": "s"})["messages"]
            assert [(m["role"], m["kind"], m["content"]) for m in messages[-5:]] == [
                ("user", "message", "sh { echo half; sleep 60 }"),
                ("tool", "tool_call", ""),
                ("assistant", "message", "half\n"),
                ("tool", "tool_result", "interrupted"),
                ("system", "message", "[stream interrupted]"),
            ]
            # Recovery runs once, and the evaluator's state came back with the session.
            assert client.prompt("s", "before")["result"]["content"] == "5"
            after = client.result("session/messages", {"session_id": "s"})["messages"]
            assert [m["content"] for m in after].count("[stream interrupted]") == 1
        with sqlite3.connect(daemon.state / "journal.db") as db:
            actions = [row[0] for row in db.execute("SELECT action FROM agent_session_events")]
        assert actions.count("recovered") == 1


def test_the_end_of_the_daemon_cancels_turns_and_ends_workers() -> None:
    with Daemon() as daemon, Agent(daemon.state / "daemon.sock") as client:
        client.initialize()
        client.result("session/new", {"agent_alias": "shell", "session_id": "s"})
        number = client.send("session/prompt", {"session_id": "s", "prompt": "sh { sleep 60 }"})
        client.until("tool_call")
        pid = daemon.pid

        assert daemon.stop() == 0

        assert client.wait(number)["result"]["stop_reason"] == "cancelled"
        assert "daemon_retired" in client.until("turn_complete")["content"]
        assert client.line() == b""
        assert wait_gone([pid]) == []
        assert not (daemon.state / "daemon.sock").exists()


def test_an_ephemeral_daemon_ends_after_its_last_agent_client() -> None:
    daemon = Daemon("--ephemeral", environ={})
    daemon.start()
    try:
        with Agent(daemon.state / "daemon.sock") as client:
            client.initialize()
        assert daemon.process is not None
        assert daemon.process.wait(15) == 0
    finally:
        daemon.kill()


def test_reload_closes_connections_and_listens_again(daemon: Daemon) -> None:
    path = daemon.state / "daemon.sock"
    with Agent(path) as client:
        client.initialize()
        assert client.result("config/reload", {})["reloading"] is True
        assert client.line() == b""
    while True:
        with Agent(path) as client:
            client.send("initialize", {})
            if b"result" in client.line():
                break
