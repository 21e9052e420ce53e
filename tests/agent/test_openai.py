"""Agents behind a streaming chat API: real daemon and broker, local server (chapter 70 §18.2)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.agent.chat_server import DONE, ChatServer, called, chunk, said
from tests.agent.client import FORM, Agent
from tests.system.daemon import Daemon

KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture(scope="module")
def daemon(chat: ChatServer) -> Iterator[Daemon]:
    with Daemon() as running:
        with Agent(running.state / "daemon.sock") as setup:
            setup.initialize()
            uid = os.geteuid()
            sets = {
                "providers.desk.kind": "openai",
                "providers.desk.base_url": chat.url,
                "providers.desk.api_key": KEY,
                "providers.desk.model": "m-1",
                "providers.desk.idle_timeout_secs": 2,
                "providers.desk.headers": {"X-Desk": "seven"},
                "agents.scribe.provider": "desk",
                "agents.scribe.leash": f"uid:{uid}",
                "agents.scribe.system_prompt": "Be brief.",
                "agents.tiny.provider": "desk",
                "agents.tiny.leash": f"uid:{uid}",
                "agents.tiny.max_context_tokens": 60,
                "agents.tiny.tools": [],
                "agents.once.provider": "desk",
                "agents.once.leash": f"uid:{uid}",
                "agents.once.max_turns": 1,
                "agents.nobody.provider": "desk",
            }
            setup.result(
                "config/set-many",
                {"sets": [{"prop": prop, "value": value} for prop, value in sets.items()]},
            )
        yield running


@pytest.fixture
def session(agent: Agent, request: pytest.FixtureRequest, chat: ChatServer) -> str:
    chat.replies.clear()
    chat.requests.clear()
    chat.headers.clear()
    name = request.node.name[:100]
    agent.result("session/new", {"agent_alias": "scribe", "session_id": name})
    return str(name)


def test_text_is_streamed_and_ends_the_turn(agent: Agent, session: str, chat: ChatServer) -> None:
    chat.say(said("Two files differ"))

    answer = agent.prompt(session, "compare")

    assert answer["result"]["content"] == "Two files differ"
    assert agent.kinds() == [
        "turn_started", "agent_message_chunk", "context_usage", "turn_complete",
    ]  # fmt: skip
    body = chat.requests[0]
    assert body["model"] == "m-1" and body["stream"] is True
    assert body["messages"][0]["content"].startswith("Be brief.")
    assert body["messages"][-1] == {"role": "user", "content": "compare"}
    assert [tool["function"]["name"] for tool in body["tools"]] == [
        "shoal", "ask_user", "update_plan",
    ]  # fmt: skip
    assert chat.headers[0]["authorization"] == f"Bearer {KEY}"
    assert chat.headers[0]["x-desk"] == "seven"


def test_a_stream_means_the_same_however_it_is_split(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    whole = b"".join(said("Grüße, 世界 — done"))
    chat.say(whole[at : at + 1] for at in range(len(whole)))

    assert agent.prompt(session, "greet")["result"]["content"] == "Grüße, 世界 — done"


def test_a_tool_call_in_pieces_runs_in_the_session(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    chat.say(called("shoal", '{"src": "let n = 40; n + 2"}'))
    chat.say(said("It is 42"))

    answer = agent.prompt(session, "add")

    assert answer["result"]["content"] == "It is 42"
    results = [u["params"] for u in agent.updates if u["params"]["type"] == "tool_result"]
    assert results[0]["raw_output"] == "42"
    messages = chat.requests[1]["messages"]
    assert messages[-2]["tool_calls"][0]["function"]["arguments"] == (
        '{"src": "let n = 40; n + 2"}'
    )
    assert messages[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "42"}


def test_the_next_prompt_brings_the_conversation_along(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    chat.say(called("shoal", '{"src": "1"}', "call_a"))
    chat.say(said("one"))
    chat.say(said("two"))
    agent.prompt(session, "first")

    agent.prompt(session, "second")

    roles = [message["role"] for message in chat.requests[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


def test_reasoning_is_thought_and_never_kept(agent: Agent, session: str, chat: ChatServer) -> None:
    chat.say([chunk({"reasoning_content": "hmm"}), chunk({"content": "yes"}, "stop"), DONE])
    chat.say(said("again"))

    agent.prompt(session, "think")
    assert "agent_thought_chunk" in agent.kinds()
    agent.prompt(session, "more")

    assert "hmm" not in json.dumps(chat.requests[1])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("[1]", "not a JSON object"), ("{", "not JSON"), ('{"mode":"run"}', "wrong arguments")],
)
def test_wrong_arguments_come_back_to_the_model(
    agent: Agent, session: str, chat: ChatServer, arguments: str, text: str
) -> None:
    chat.say(called("shoal", arguments))
    chat.say(said("sorry"))

    agent.prompt(session, "try")

    assert text in chat.requests[1]["messages"][-1]["content"]


def test_an_unknown_tool_is_an_error_the_model_sees(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    chat.say(called("launch", "{}"))
    chat.say(said("ok"))

    agent.prompt(session, "go")

    assert "unknown tool" in chat.requests[1]["messages"][-1]["content"]


def test_a_complete_answer_instead_of_a_stream_is_read(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    body = {
        "choices": [{"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}]
    }
    chat.say([json.dumps(body).encode()], content_type="application/json")

    assert agent.prompt(session, "x")["result"]["content"] == "whole"


def test_a_passing_refusal_is_tried_again(agent: Agent, session: str, chat: ChatServer) -> None:
    chat.say([b"busy"], status=503)
    chat.say(said("now"))

    assert agent.prompt(session, "x")["result"]["content"] == "now"


def test_another_refusal_fails_with_its_message(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    chat.say([b'{"error":{"message":"no such model"}}'], status=404,
             content_type="application/json")  # fmt: skip

    error = agent.prompt(session, "x")["error"]

    assert error["code"] == -32603 and error["data"]["kind"] == "turn_failed"
    assert error["message"] == "turn failed: provider desk answered 404: no such model"
    assert KEY not in json.dumps(error)


def test_a_stream_that_breaks_fails_and_keeps_its_text(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    chat.say([chunk({"content": "half"})])

    error = agent.prompt(session, "x")["error"]

    assert "turn failed" in error["message"]
    messages = agent.result("session/messages", {"session_id": session})["messages"]
    assert messages[-1]["content"] == "half"


def test_a_stalled_stream_fails(agent: Agent, session: str, chat: ChatServer) -> None:
    release = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield chunk({"content": "wait"})
        release.wait(20)

    chat.say(pieces())
    try:
        error = agent.prompt(session, "x")["error"]
    finally:
        release.set()

    assert "time limit" in error["message"]


def test_cancelling_closes_the_stream(agent: Agent, session: str, chat: ChatServer) -> None:
    release = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield chunk({"content": "slow"})
        release.wait(20)

    chat.say(pieces())
    number = agent.send("session/prompt", {"session_id": session, "prompt": "x"})
    agent.until("agent_message_chunk")

    agent.result("session/cancel", {"session_id": session})
    answer = agent.wait(number)
    release.set()

    assert answer["result"]["stop_reason"] == "cancelled"
    assert answer["result"]["content"] == "slow"


def test_max_turns_ends_a_loop_of_tool_calls(agent: Agent, chat: ChatServer) -> None:
    chat.replies.clear()
    agent.result("session/new", {"agent_alias": "once", "session_id": "loop"})
    chat.say(called("shoal", '{"src":"1"}'))

    answer = agent.prompt("loop", "go")

    assert answer["result"]["stop_reason"] == "max_turns"


def test_old_turns_are_dropped_when_the_budget_is_passed(agent: Agent, chat: ChatServer) -> None:
    chat.replies.clear()
    chat.requests.clear()
    agent.result("session/new", {"agent_alias": "tiny", "session_id": "tiny"})
    for number in range(3):
        chat.say(said(f"answer {number} " + "x" * 80))
        agent.prompt("tiny", f"question {number} " + "y" * 60)

    assert "tools" not in chat.requests[0]
    last = chat.requests[-1]["messages"]
    assert last[1]["content"] == "[earlier turns omitted to fit the context window]"
    assert last[-1]["content"].startswith("question 2")
    assert "history_trimmed" in agent.kinds()
    # The visible transcript does not change.
    page = agent.result("session/messages", {"session_id": "tiny"})
    assert page["total"] == 6


def test_a_question_is_asked_and_its_answer_reaches_the_model(
    agent: Agent, session: str, chat: ChatServer
) -> None:
    chat.say(called("ask_user", '{"question":"Which branch?","choices":["main","next"]}'))
    chat.say(said("next it is"))
    number = agent.send("session/prompt", {"session_id": session, "prompt": "choose"})

    question = agent.question()

    assert question["id"].startswith("zc-out-")
    assert question["method"] == "elicitation/create"
    options = question["params"]["requestedSchema"]["properties"]["choice"]["oneOf"]
    assert options[1] == {"const": "choice-1", "title": "next"}
    agent.answer(question, {"action": "accept", "content": {"choice": "choice-1"}})
    agent.wait(number)
    assert chat.requests[1]["messages"][-1]["content"] == "next"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"action": "decline"}, "declined"),
        (None, "No answer"),
        ({"action": "accept", "content": {"choice": "choice-9"}}, "malformed elicitation response"),
        ({"action": "shrug"}, "malformed elicitation response"),
    ],
)
def test_other_answers_are_told_to_the_model(
    agent: Agent, session: str, chat: ChatServer, result: Any, text: str
) -> None:
    chat.say(called("ask_user", '{"question":"Which?","choices":["a","b"]}'))
    chat.say(said("fine"))
    number = agent.send("session/prompt", {"session_id": session, "prompt": "choose"})

    agent.answer(agent.question(), result)
    agent.wait(number)

    assert text in chat.requests[1]["messages"][-1]["content"]


def test_secrets_are_never_asked_for(agent: Agent, session: str, chat: ChatServer) -> None:
    chat.say(called("ask_user", '{"question":"What is your API key?"}'))
    chat.say(said("ok"))

    agent.prompt(session, "x")

    assert agent.questions == []
    assert "secrets" in chat.requests[1]["messages"][-1]["content"]


def test_a_client_without_forms_is_not_asked(
    connect: Callable[[], Agent], chat: ChatServer
) -> None:
    chat.replies.clear()
    chat.requests.clear()
    plain = connect()
    plain.initialize()
    plain.result("session/new", {"agent_alias": "scribe", "session_id": "plain"})
    chat.say(called("ask_user", '{"question":"Which?"}'))
    chat.say(said("ok"))

    plain.prompt("plain", "x")

    assert "No one can be asked" in chat.requests[1]["messages"][-1]["content"]


def test_a_plan_is_sent_and_comes_back_at_resume(
    agent: Agent, session: str, chat: ChatServer, connect: Callable[[], Agent]
) -> None:
    entries = [{"content": "measure", "status": "in_progress", "priority": "high",
                "activeForm": "measuring"}]  # fmt: skip
    chat.say(called("update_plan", json.dumps({"entries": entries})))
    chat.say(said("planned"))
    agent.prompt(session, "plan")

    assert agent.until("plan")["entries"] == entries
    other = connect()
    other.initialize(clientCapabilities=FORM)
    other.result("session/new", {"agent_alias": "scribe", "session_id": session})
    assert other.updates[0]["params"]["entries"] == entries
    assert agent.result("session/state", {"session_id": session})["plan"] == entries


def test_an_agent_without_a_policy_section_is_denied_with_a_hint(
    agent: Agent, chat: ChatServer
) -> None:
    chat.replies.clear()
    chat.requests.clear()
    agent.result("session/new", {"agent_alias": "nobody", "session_id": "nobody"})
    chat.say(called("shoal", '{"src":"1 + 1"}'))
    chat.say(said("ok"))

    agent.prompt("nobody", "x")

    content = chat.requests[1]["messages"][-1]["content"]
    assert content.startswith("denied: no policy section for agent:nobody")


def test_the_broker_can_die_in_a_turn_and_the_next_one_works(
    agent: Agent, session: str, chat: ChatServer, daemon: Daemon
) -> None:
    import subprocess

    release = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield chunk({"content": "before"})
        release.wait(20)

    chat.say(pieces())
    number = agent.send("session/prompt", {"session_id": session, "prompt": "x"})
    agent.until("agent_message_chunk")
    found = subprocess.run(
        ["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True, check=True
    ).stdout
    pids = [int(row.split()[0]) for row in found.splitlines() if "shoal:broker" in row]
    mine = [pid for pid in pids if _below(pid, daemon.pid)]
    os.kill(mine[0], 9)

    error = agent.wait(number)["error"]
    release.set()

    assert error["data"]["kind"] == "turn_failed"
    chat.say(said("after"))
    assert agent.prompt(session, "y")["result"]["content"] == "after"


def _below(pid: int, ancestor: int) -> bool:
    from supervisor.peers import ancestors

    return any(process.pid == ancestor for process in ancestors(pid) or ())


def test_no_secret_is_shown(agent: Agent, daemon: Daemon) -> None:
    assert agent.result("config/get", {"prop": "providers.desk.api_key"})["value"] == (
        "***MASKED***"
    )
    tree = json.dumps(agent.result("config/get", {}))
    assert KEY not in tree and "seven" not in tree
    listed = json.dumps(agent.result("config/list", {"prefix": "providers."}))
    assert KEY not in listed and "seven" not in listed
    assert KEY not in daemon.read_log()
