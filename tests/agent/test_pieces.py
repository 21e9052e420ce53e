"""The pure pieces of turns: streams, events on their way, histories, budgets, signatures."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.agent_events import (
    CONTEXT_BREADCRUMB,
    Event,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    decode_batch,
)
from journal.agent_store import TextRow, ToolRow, TranscriptRow
from supervisor.agent import history
from supervisor.agent.limits import cut
from worker.agent import context
from worker.agent.reporter import Reporter, pieces
from worker.agent.sse import Events, MalformedStream, Reply
from worker.agent.turn import ASKS_PEOPLE, Turn

CHUNKS = [
    {"choices": [{"delta": {"role": "assistant", "content": "Grüß "}}]},
    {"choices": [{"delta": {"content": "dich"}}]},
    {"choices": [{"delta": {"tool_calls": [
        {"index": 1, "id": "b", "function": {"name": "two", "arguments": "{\"x\""}}]}}]},
    {"choices": [{"delta": {"tool_calls": [
        {"index": 0, "id": "a", "function": {"name": "one", "arguments": ""}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"arguments": ":1}"}}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}},
]  # fmt: skip
STREAM = (
    b": hello\r\n\r\nevent: x\n"
    + b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in CHUNKS)
    + b"data:[DONE]\n\ndata: not looked at\n"
)


def read(parts: list[bytes]) -> Reply:
    events, reply = Events(), Reply()
    for part in parts:
        for payload in events.feed(part):
            reply.add(payload)
    for payload in events.end():
        reply.add(payload)
    assert events.done
    return reply


@pytest.mark.parametrize("at", range(len(STREAM)))
def test_a_stream_may_be_cut_anywhere(at: int) -> None:
    reply = read([STREAM[:at], STREAM[at:]])

    assert reply.text == "Grüß dich"
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls()] == [
        ("a", "one", ""), ("b", "two", '{"x":1}'),
    ]  # fmt: skip
    assert reply.usage == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_a_stream_may_be_cut_often(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STREAM)]
    parts = [STREAM[a:b] for a, b in itertools.pairwise(bounds)]

    assert read(parts).text == "Grüß dich"


@given(st.binary(max_size=200))
def test_nonsense_raises_nothing_but_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedStream):
        Reply().add(data)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"),
     (None, "end_turn"), ("new_word", "end_turn")],
)  # fmt: skip
def test_finish_reasons_have_their_words(reason: str | None, stop: str) -> None:
    assert Reply(finish_reason=reason).stop_reason == stop


@given(st.text(max_size=300), st.integers(4, 40))
def test_pieces_fit_and_add_up(text: str, limit: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    found = pieces(text, limit)

    assert "".join(found) == text
    assert all(len(piece.encode()) <= limit for piece in found)


def test_events_leave_in_order_and_text_is_joined() -> None:
    taken: list[Event] = []
    hold = threading.Event()

    def send(batch: bytes) -> bool:
        hold.wait(5)
        taken.extend(decode_batch(batch))
        return True

    reporter = Reporter(send)
    reporter.text("a")
    for word in ("b", "c"):
        reporter.text(word)
    reporter.add(ToolCall("1", "t", {}))
    reporter.text("d")
    hold.set()
    assert reporter.flush()
    reporter.close()

    assert "".join(event.text for event in taken if isinstance(event, Text)) == "abcd"
    kinds = [type(event).__name__ for event in taken]
    assert kinds.index("ToolCall") == len(kinds) - 2


@pytest.mark.parametrize("op", sorted(ASKS_PEOPLE))
def test_a_person_is_asked_after_what_the_question_is_about_was_told(op: str) -> None:
    told: list[str] = []
    asked = threading.Event()
    release = threading.Event()

    class Router:
        def ask(self, _call: int, what: str, _params: bytes) -> tuple[bool, bytes, int]:
            if what == "agent.events":
                release.wait(10)
            told.append(what)
            return True, b"{}", -1

    turn = Turn(cast(Any, Router()), 1, cast(Any, None))
    turn.reporter.add(ToolCall("1", "shoal", {}))

    def ask() -> None:
        turn.ask(op, {})
        asked.set()

    threading.Thread(target=ask, daemon=True).start()
    assert not asked.wait(0.1)
    release.set()
    assert asked.wait(10)
    turn.reporter.close()

    assert told == ["agent.events", op]


def test_a_refused_batch_ends_reporting() -> None:
    reporter = Reporter(lambda _batch: False)
    reporter.text("x")

    assert reporter.flush() is False


def test_folding_gives_every_call_one_result() -> None:
    events: list[Event] = [
        Text("one "), Text("two"), ToolCall("1", "t", {"a": 1}), ToolResult("1", "t", "ok"),
        Thought("hmm"), Text("three"), ToolCall("2", "t", {}),
    ]  # fmt: skip

    rows = history.rows_of(events)

    assert rows[0] == TextRow("assistant", "one two")
    assert rows[-1] == ToolRow("2", "t", "out", "interrupted", "interrupted")
    results = [row for row in rows if isinstance(row, ToolRow) and row.event_kind == "out"]
    assert [row.tool_call_id for row in results] == ["1", "2"]
    found = history.context_of([], "go", events)
    assert [message["role"] for message in found] == [
        "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip


def row(number: int, role: str | None, content: str, **tool: Any) -> TranscriptRow:
    return TranscriptRow(number, role, content, 0, **tool)


def test_a_replay_shows_only_calls_whose_result_follows() -> None:
    rows = [
        row(0, "user", "go"),
        row(1, None, "{}", tool_call_id="1", tool_name="t", event_kind="in"),
        row(2, None, "ok", tool_call_id="1", tool_name="t", event_kind="out"),
        row(3, None, "{}", tool_call_id="2", tool_name="t", event_kind="in"),
        row(4, "assistant", "between"),
        row(5, None, "late", tool_call_id="2", tool_name="t", event_kind="out"),
        row(6, "system", history.MARKER),
    ]

    found = history.replay(rows)

    assert [m["role"] for m in found] == ["user", "assistant", "tool", "assistant"]
    assert found[1]["tool_calls"][0]["id"] == "1"


messages = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), st.text("abc", max_size=80)), max_size=12
)


@settings(max_examples=100)
@given(messages, st.integers(1, 200))
def test_trimming_keeps_whole_turns_and_the_last_one(
    parts: list[tuple[str, str]], budget: int
) -> None:
    history_ = [{"role": role, "content": text} for role, text in parts]
    history_.append({"role": "user", "content": "now"})

    trimmed = context.trim(history_, budget)

    if trimmed is None:
        return
    assert trimmed.context[0]["content"] == CONTEXT_BREADCRUMB
    assert trimmed.context[-1]["content"] == "now"
    assert trimmed.context[1:] == history_[trimmed.dropped_messages :]
    assert trimmed.context[1]["role"] == "user"


@given(st.text(max_size=400), st.integers(20, 100))
def test_a_cut_text_fits_and_is_marked(text: str, limit: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    found = cut(text, limit)

    assert len(found.encode()) <= max(limit, len(text.encode()) if found == text else 0)
    assert found == text or found.endswith("…[truncated]")


def test_events_survive_their_encoding() -> None:
    events: list[Event] = [
        Text("a"),
        ToolCall("1", "t", {"x": [1]}),
        ToolResult("1", "t", "", True),
    ]

    assert decode_batch(msgspec.json.encode(events)) == events
