"""Turns of the shell agent on a real daemon (chapter 70 §10, §18.1)."""

from __future__ import annotations

from collections.abc import Callable

from tests.agent.client import Agent


def test_a_turn_tells_call_result_and_text_in_order(agent: Agent, session: str) -> None:
    answer = agent.prompt(session, "[3, 4].map(x => x * x)")

    assert answer["result"]["content"] == "[9, 16]"
    assert answer["result"]["stopReason"] == "end_turn"
    by_type = {update["params"]["type"]: update["params"] for update in agent.updates}
    assert agent.kinds() == [
        "turn_started", "tool_call", "tool_result", "agent_message_chunk", "turn_complete",
    ]  # fmt: skip
    assert by_type["tool_call"]["toolCallId"] == "sh-1"
    assert by_type["tool_call"]["raw_input"] == {"src": "[3, 4].map(x => x * x)"}
    assert by_type["tool_result"]["rawOutput"] == "[9, 16]"
    assert by_type["turn_complete"]["outcome"] == "completed"
    assert by_type["turn_complete"]["message_count"] == 4


def test_bindings_live_on_between_turns(agent: Agent, session: str) -> None:
    agent.prompt(session, "let n = 6")

    assert agent.prompt(session, "n + 36")["result"]["content"] == "42"


def test_a_syntax_error_is_text_without_a_tool_call(agent: Agent, session: str) -> None:
    answer = agent.prompt(session, "let x = ")

    assert "parse_error" in answer["result"]["content"]
    assert agent.kinds() == ["turn_started", "agent_message_chunk", "turn_complete"]


def test_a_language_error_completes_the_turn(agent: Agent, session: str) -> None:
    answer = agent.prompt(session, "nothing_here.foo")

    assert answer["result"]["content"].startswith("error(undefined_var)")
    results = [u["params"] for u in agent.updates if u["params"]["type"] == "tool_result"]
    assert results[0]["is_error"] is True


def test_null_gives_an_empty_result_and_no_text(agent: Agent, session: str) -> None:
    assert agent.prompt(session, "null")["result"]["content"] == ""
    assert "agent_message_chunk" not in agent.kinds()


def test_a_blank_prompt_is_refused_without_an_event(agent: Agent, session: str) -> None:
    error = agent.error("session/prompt", {"session_id": session, "prompt": " \n"})

    assert error["code"] == -32602
    assert "non-empty `prompt` or at least one attachment" in error["message"]
    assert agent.kinds() == []


def test_a_prompt_of_an_unknown_session_fails_with_one_event(agent: Agent) -> None:
    answer = agent.prompt("nobody", "1")

    assert answer["error"]["code"] == -32000
    assert agent.until("turn_complete")["content"] == (
        "turn cancelled by daemon: session_not_found"
    )


def test_cancelling_a_turn_keeps_what_it_said(agent: Agent, session: str) -> None:
    number = agent.send(
        "session/prompt", {"session_id": session, "prompt": "sh { echo early; sleep 30 }"}
    )
    agent.until("agent_message_chunk")

    assert agent.result("session/cancel", {"session_id": session})["cancelled"] is True
    answer = agent.wait(number)

    assert answer["result"]["stop_reason"] == "cancelled"
    assert answer["result"]["content"] == "early\n"
    complete = agent.until("turn_complete")
    assert complete["outcome"] == "cancelled"
    assert complete["content"] == f"turn cancelled via client_rpc in RPC_SESSION {session}"
    messages = agent.result("session/messages", {"session_id": session})["messages"]
    assert [m["content"] for m in messages if m["role"] == "assistant"] == ["early\n"]
    results = [m for m in messages if m["kind"] == "tool_result"]
    assert len(results) == 1


def test_cancelling_when_nothing_runs_says_so(agent: Agent, session: str) -> None:
    error = agent.error("session/cancel", {"session_id": session})

    assert (error["code"], error["data"]["kind"]) == (-32000, "no_active_turn")


def test_a_second_client_may_cancel(
    agent: Agent, session: str, connect: Callable[[], Agent]
) -> None:
    number = agent.send("session/prompt", {"session_id": session, "prompt": "sh { sleep 30 }"})
    agent.until("tool_call")
    other = connect()
    other.initialize()

    assert other.result("session/cancel", {"session_id": session})["cancelled"]
    assert agent.wait(number)["result"]["stop_reason"] == "cancelled"


def test_turns_of_a_session_run_one_after_the_other(agent: Agent, session: str) -> None:
    first = agent.send("session/prompt", {"session_id": session, "prompt": "let a = 1; a"})
    second = agent.send("session/prompt", {"session_id": session, "prompt": "a + 1"})

    assert agent.wait(first)["result"]["content"] == "1"
    assert agent.wait(second)["result"]["content"] == "2"


def test_the_thirty_fourth_prompt_finds_the_session_busy(agent: Agent, session: str) -> None:
    running = agent.send("session/prompt", {"session_id": session, "prompt": "sh { sleep 30 }"})
    agent.until("tool_call")
    queued = [
        agent.send("session/prompt", {"session_id": session, "prompt": str(n)}) for n in range(32)
    ]

    answer = agent.prompt(session, "too much")

    assert answer["error"]["code"] == -32002
    assert answer["error"]["message"].startswith("Session busy:")
    assert answer["error"]["data"]["queued"] == 32
    assert agent.until("turn_complete")["outcome"] == "failed"
    agent.result("session/cancel", {"session_id": session})
    agent.wait(running)
    assert [agent.wait(number)["result"]["content"] for number in queued] == [
        str(n) for n in range(32)
    ]


def test_state_says_running_during_a_turn(agent: Agent, session: str) -> None:
    number = agent.send("session/prompt", {"session_id": session, "prompt": "sh { sleep 30 }"})
    turn = agent.until("turn_started")
    agent.until("tool_call")

    state = agent.result("session/state", {"session_id": session})

    assert (state["state"], state["turn_id"]) == ("running", turn["turn_id"])
    agent.result("session/cancel", {"session_id": session})
    agent.wait(number)
    assert agent.result("session/state", {"session_id": session})["state"] == "idle"


def test_the_generation_of_a_client_comes_back(agent: Agent, session: str) -> None:
    agent.prompt(session, "1", client_turn_generation=7)

    assert agent.until("turn_started")["clientTurnGeneration"] == 7
    assert agent.until("turn_complete")["client_turn_generation"] == 7


def test_the_end_of_the_prompting_connection_cancels_its_turn(
    agent: Agent, session: str, connect: Callable[[], Agent]
) -> None:
    other = connect()
    other.initialize()
    other.send("session/prompt", {"session_id": session, "prompt": "sh { sleep 30 }"})
    other.until("tool_call")

    other.close()

    assert agent.prompt(session, "1 + 1")["result"]["content"] == "2"
    messages = agent.result("session/messages", {"session_id": session})["messages"]
    assert messages[0]["content"] == "sh { sleep 30 }"


def test_a_prompt_as_a_notification_runs(agent: Agent, session: str) -> None:
    agent.raw(
        b'{"jsonrpc":"2.0","method":"session/prompt","params":{"session_id":"%b","prompt":"2"}}\n'
        % session.encode()
    )

    assert agent.until("turn_complete")["content"] == "2"
