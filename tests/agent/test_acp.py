"""External agent programs over the Agent Client Protocol, with a real one (chapter 70 §18.4)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.client import Agent
from tests.system.daemon import Daemon

PROGRAM = str(Path(__file__).with_name("acp_agent.py"))


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(environ={"DESK_SECRET": "from the router"}) as running:
        with Agent(running.state / "daemon.sock") as setup:
            setup.initialize()
            leash = f"uid:{os.geteuid()}"
            sets: list[tuple[str, object]] = []
            for alias, command in {
                "ext": [sys.executable, PROGRAM],
                "newer": [sys.executable, PROGRAM, "--version", "2"],
                "absent": ["/no/such/program"],
            }.items():
                sets += [
                    (f"providers.{alias}.kind", "acp"),
                    (f"providers.{alias}.command", command),
                    (f"agents.{alias}.provider", alias),
                    (f"agents.{alias}.leash", leash),
                ]
            sets += [
                ("providers.ext.env", {"DESK_NAME": "seven"}),
                ("agents.strict.provider", "ext"),
            ]
            setup.result("config/set-many", {"sets": [{"prop": p, "value": v} for p, v in sets]})
        yield running


@pytest.fixture
def session(agent: Agent, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    agent.result("session/new", {"agent_alias": "ext", "session_id": name})
    return str(name)


def test_what_the_program_says_is_the_turns_text(agent: Agent, session: str) -> None:
    assert agent.prompt(session, "hello")["result"]["content"] == "you said hello in ext"


def test_a_tool_call_of_the_program_is_told_with_its_result(agent: Agent, session: str) -> None:
    agent.prompt(session, "tool")

    call, result = agent.until("tool_call"), agent.until("tool_result")
    assert (call["name"], call["raw_input"]) == ("read", {"path": "x"})
    assert (result["tool_call_id"], result["raw_output"]) == ("t1", "3 lines")


def test_thoughts_and_plans_pass(agent: Agent, session: str) -> None:
    agent.prompt(session, "think")
    agent.prompt(session, "plan")

    assert agent.until("agent_thought_chunk")["text"] == "hmm"
    assert agent.until("plan")["entries"] == [
        {"content": "measure", "status": "pending", "priority": "high"}
    ]


@pytest.mark.parametrize(("decision", "said"), [("allow_once", "yes"), ("reject", "no")])
def test_a_permission_is_asked_and_answered_by_kind(
    agent: Agent, session: str, decision: str, said: str
) -> None:
    number = agent.send("session/prompt", {"session_id": session, "prompt": "ask"})
    request = agent.until("approval_request")
    assert request["arguments_summary"] == "Drop the table"

    approved = agent.result(
        "session/approve",
        {"session_id": session, "request_id": request["request_id"], "decision": decision},
    )

    assert approved["acknowledged"] is True
    assert agent.wait(number)["result"]["content"] == said


def test_files_are_read_and_written_under_policy(
    agent: Agent, session: str, daemon: Daemon
) -> None:
    file = daemon.directory / "note.txt"

    agent.prompt(session, f"write {file} kept here")

    assert file.read_text() == "kept here"
    assert agent.prompt(session, f"read {file}")["result"]["content"] == "kept here"


def test_a_principal_without_policy_gets_no_program_and_no_file(
    agent: Agent, daemon: Daemon
) -> None:
    """Where the operating system confines, the program cannot even start."""
    file = daemon.directory / "secret.txt"
    file.write_text("hidden")

    made = agent.request("session/new", {"agent_alias": "strict", "session_id": "strict"})

    if "error" in made:
        assert made["error"]["message"].startswith("Failed to create agent: ")
        return
    content = agent.prompt("strict", f"read {file}")["result"]["content"]
    assert content.startswith("refused") and "hidden" not in content


def test_the_environment_is_minimal(agent: Agent, session: str) -> None:
    assert agent.prompt(session, "env DESK_NAME")["result"]["content"] == "seven"
    assert agent.prompt(session, "env DESK_SECRET")["result"]["content"] == "<unset>"


def test_cancel_reaches_the_program(agent: Agent, session: str) -> None:
    number = agent.send("session/prompt", {"session_id": session, "prompt": "wait"})
    agent.until("agent_message_chunk")

    agent.result("session/cancel", {"session_id": session})

    assert agent.wait(number)["result"]["stop_reason"] == "cancelled"
    assert agent.prompt(session, "after")["result"]["content"].startswith("you said after")


def test_a_program_that_ends_fails_the_turn_and_starts_again(agent: Agent, session: str) -> None:
    error = agent.prompt(session, "die")["error"]

    assert "status 7" in error["message"]
    assert agent.prompt(session, "again")["result"]["content"].startswith("you said again")


def test_a_resumed_session_is_loaded_without_replaying_to_the_client(
    agent: Agent, session: str
) -> None:
    agent.prompt(session, "first")
    agent.result("session/close", {"session_id": session})
    agent.kinds()

    agent.result("session/new", {"agent_alias": "ext", "session_id": session})
    answer = agent.prompt(session, "second")

    assert answer["result"]["content"] == "you said second in ext"
    assert agent.kinds().count("agent_message_chunk") == 1


@pytest.mark.parametrize("alias", ["absent", "newer"])
def test_a_program_that_cannot_serve_makes_no_session(agent: Agent, alias: str) -> None:
    error = agent.error("session/new", {"agent_alias": alias, "session_id": alias})

    assert error["code"] == -32603
    assert error["message"].startswith("Failed to create agent: ")
    assert agent.result("session/list", {"query": ""})["sessions"] is not None
    assert alias not in {row["session_id"] for row in agent.result("session/list", {})["sessions"]}
