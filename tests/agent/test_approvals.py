"""Approvals in turns: policies that ask, people that answer (chapter 70 §11)."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.agent.client import Agent
from tests.system.daemon import Daemon

POLICY = """
[principal."uid:{uid}"]
fs_read = ["/**"]
fs_write = ["/**"]
fs_delete = ["/**"]
opaque = "allow"
auto_apply = "in-grant"

[principal."agent:careful"]
fs_read = ["/**"]
fs_write = ["/**"]
fs_delete = ["/**"]
opaque = "deny"
auto_apply = "never"

[principal."agent:sly"]
fs_read = ["/**"]
opaque = "allow"
auto_apply = "in-grant"

[principal."agent:asking"]
fs_read = ["/**"]
opaque = "ask"
auto_apply = "in-grant"
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    running = Daemon()
    policy = running.directory / ".config" / "shoal" / "leash.toml"
    policy.parent.mkdir(parents=True)
    policy.write_text(POLICY.format(uid=os.geteuid()))
    with running:
        with Agent(running.state / "daemon.sock") as setup:
            setup.initialize()
            for alias in ("careful", "asking", "sly"):
                setup.result(
                    "config/set",
                    {"prop": f"agents.{alias}.leash", "value": f"agent:{alias}"},
                )
            setup.result("config/set", {"prop": "agents.asking.approval_timeout_secs", "value": 1})
        yield running


@pytest.fixture
def careful(agent: Agent, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    agent.result("session/new", {"agent_alias": "careful", "session_id": name})
    return str(name)


def asked(agent: Agent, session: str, src: str) -> tuple[int, dict[str, Any]]:
    """Prompt, and wait for the request."""
    number = agent.send("session/prompt", {"session_id": session, "prompt": src})
    return number, agent.until("approval_request")


def decide(agent: Agent, session: str, request: dict[str, Any], word: str, **more: Any) -> Any:
    return agent.result(
        "session/approve",
        {"session_id": session, "request_id": request["request_id"], "decision": word, **more},
    )


def test_an_allowed_call_runs_by_its_stored_plan(
    agent: Agent, careful: str, daemon: Daemon
) -> None:
    file = daemon.directory / "made"
    number, request = asked(agent, careful, f"touch {file}")

    assert not file.exists()
    assert request["plan"]["effects"][0]["kind"] == "fs_write"
    assert request["plan"]["ref"].startswith("plan:")
    assert (request["tool_name"], request["timeout_secs"]) == ("shoal", 120)
    assert str(file) in request["arguments_summary"]
    assert decide(agent, careful, request, "allow_once")["acknowledged"] is True
    agent.wait(number)

    assert file.exists()
    kinds = agent.kinds()
    assert kinds.index("tool_call") < kinds.index("tool_result")


@pytest.mark.parametrize(
    ("word", "more", "text"),
    [
        ("reject", {}, "denied: the person said no"),
        ("reject_once", {}, "denied: the person said no"),
        ("reject_with_edit", {"replacement": "use trash"}, "use trash"),
    ],
)
def test_a_refused_call_fails_and_says_so(
    agent: Agent, careful: str, daemon: Daemon, word: str, more: dict[str, str], text: str
) -> None:
    file = daemon.directory / "never"
    number, request = asked(agent, careful, f"touch {file}")

    decide(agent, careful, request, word, **more)

    assert text in agent.wait(number)["result"]["content"]
    assert not file.exists()


def test_an_answer_counts_once(agent: Agent, careful: str) -> None:
    number, request = asked(agent, careful, "1 + 1")

    assert decide(agent, careful, request, "allow_once")["acknowledged"] is True
    assert decide(agent, careful, request, "allow_once")["acknowledged"] is False
    assert agent.wait(number)["result"]["content"] == "2"


def test_an_unknown_decision_is_refused(agent: Agent, careful: str) -> None:
    error = agent.error(
        "session/approve",
        {"session_id": careful, "request_id": "x", "decision": "perhaps"},
    )

    assert (error["code"], error["message"]) == (-32602, "unknown decision: perhaps")


def test_always_is_remembered_for_the_same_kinds(
    agent: Agent, careful: str, daemon: Daemon
) -> None:
    one, two = daemon.directory / "one", daemon.directory / "two"
    number, request = asked(agent, careful, f"touch {one}")
    decide(agent, careful, request, "allow_always")
    agent.wait(number)

    agent.prompt(careful, f"touch {two}")

    assert two.exists()
    assert "approval_request" not in agent.kinds()
    number, request = asked(agent, careful, f"rm --permanent {two}")
    decide(agent, careful, request, "reject")
    agent.wait(number)
    assert two.exists()


def test_what_policy_denies_is_never_asked(agent: Agent, careful: str) -> None:
    answer = agent.prompt(careful, "sh { echo out }")

    assert answer["result"]["content"].startswith("denied: ")
    assert "approval_request" not in agent.kinds()


def test_nobody_answering_is_a_no(agent: Agent) -> None:
    agent.result("session/new", {"agent_alias": "asking", "session_id": "asking"})

    answer = agent.prompt("asking", "sh { echo out }")

    assert answer["result"]["content"] == "denied: nobody answered in time"


def test_a_back_channel_that_goes_is_a_no(
    agent: Agent, careful: str, connect: Callable[[], Agent]
) -> None:
    other = connect()
    other.initialize()
    number = other.send("session/prompt", {"session_id": careful, "prompt": "1 + 1"})
    request = agent.until("approval_request")
    agent.close()

    answer = other.wait(number)

    assert request["tool_name"] == "shoal"
    assert answer["result"]["content"] == "denied: nobody can be asked"


def test_an_approval_given_on_the_kernel_endpoint_counts(
    agent: Agent, careful: str, daemon: Daemon
) -> None:
    number, request = asked(agent, careful, "20 + 22")

    with daemon.client("operator") as kernel:
        kernel.call("cap.request", {"plan_ref": request["plan"]["ref"]})

    assert agent.wait(number)["result"]["content"] == "42"


def test_cancelling_while_a_person_is_asked_ends_the_turn(agent: Agent, careful: str) -> None:
    number, _request = asked(agent, careful, "1 + 1")

    agent.result("session/cancel", {"session_id": careful})

    assert agent.wait(number)["result"]["stop_reason"] == "cancelled"
    kinds = agent.kinds()
    assert kinds.count("tool_call") == kinds.count("tool_result") == 1


def test_decisions_are_audited(agent: Agent, careful: str, daemon: Daemon) -> None:
    number, request = asked(agent, careful, "1 + 1")
    decide(agent, careful, request, "reject")
    agent.wait(number)

    with sqlite3.connect(f"file:{daemon.state / 'journal.db'}?mode=ro", uri=True) as db:
        details = [row[0] for row in db.execute(
            "SELECT detail FROM audit WHERE kind = 'agent_decision'"
        )]  # fmt: skip
    assert any(request["request_id"] in detail for detail in details)


def test_a_program_of_an_agents_session_cannot_become_the_operator(
    agent: Agent, daemon: Daemon
) -> None:
    script = daemon.directory / "sly.py"
    script.write_text(
        "import socket\n"
        f"s = socket.socket(socket.AF_UNIX); s.connect({str(daemon.state / 'daemon.sock')!r})\n"
        's.sendall(b\'{"jsonrpc":"2.0","id":1,"method":"initialize"}\\n\')\n'
        "print(s.makefile().readline())\n"
    )
    agent.result("session/new", {"agent_alias": "sly", "session_id": "sly"})

    content = agent.prompt("sly", f"^{sys.executable} {script}")["result"]["content"]

    assert "peer_refused" in content
