"""The two histories of a session: visible rows, and the context a model is given (chapter 70 §13).

Pure functions over checkpoint events and stored rows. The same folding ends a turn and recovers an
interrupted one, so both leave the same rows.

Failure: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ipc.agent_events import Event, Text, ToolCall, ToolResult, Trim
from journal.agent_store import TextRow, ToolRow, TranscriptRow, VisibleRow
from supervisor.agent.limits import STORED_TOOL_BYTES_MAX, cut

MARKER: Final = "[stream interrupted]"
INTERRUPTED: Final = "interrupted"
Context = list[dict[str, Any]]


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def rows_of(events: Sequence[Event]) -> list[VisibleRow]:
    """The visible rows of a turn: adjacent text is one row, every call has one result."""
    rows: list[VisibleRow] = []
    text: list[str] = []
    open_calls: dict[str, str] = {}

    def flush() -> None:
        if text:
            rows.append(TextRow("assistant", "".join(text)))
            text.clear()

    for event in events:
        match event:
            case Text():
                text.append(event.text)
            case ToolCall():
                flush()
                open_calls[event.id] = event.name
                payload = cut(json_text(event.input), STORED_TOOL_BYTES_MAX)
                rows.append(ToolRow(event.id, event.name, "in", payload))
            case ToolResult():
                flush()
                open_calls.pop(event.id, None)
                rows.append(
                    ToolRow(
                        event.id,
                        event.name,
                        "out",
                        cut(event.output, STORED_TOOL_BYTES_MAX),
                        "error" if event.is_error else "ok",
                    )
                )
    flush()
    rows += [
        ToolRow(call_id, name, "out", INTERRUPTED, INTERRUPTED)
        for call_id, name in open_calls.items()
    ]
    return rows


def open_calls(events: Sequence[Event]) -> list[ToolCall]:
    """Calls without a result, in order."""
    found: dict[str, ToolCall] = {}
    for event in events:
        if isinstance(event, ToolCall):
            found[event.id] = event
        elif isinstance(event, ToolResult):
            found.pop(event.id, None)
    return list(found.values())


def context_of(snapshot: Context, prompt: str, events: Sequence[Event]) -> Context:
    """The retained context after a turn: the snapshot, then what happened. A trim replaces all that
    was before it, the turn's own prompt included."""
    return continued([*snapshot, {"role": "user", "content": prompt}], events)


def continued(snapshot: Context, events: Sequence[Event]) -> Context:
    """The snapshot with what happened after it, inside the same turn."""
    context = list(snapshot)
    for event in events:
        match event:
            case Trim():
                context = list(event.context)
            case Text():
                _add_text(context, event.text)
            case ToolCall():
                _add_call(context, event.id, event.name, json_text(event.input))
            case ToolResult():
                context.append({"role": "tool", "tool_call_id": event.id, "content": event.output})
    return _closed(context)


def _add_text(context: Context, text: str) -> None:
    last = context[-1] if context else {}
    if last.get("role") == "assistant" and "tool_calls" not in last:
        context[-1] = {"role": "assistant", "content": last["content"] + text}
    else:
        context.append({"role": "assistant", "content": text})


def _add_call(context: Context, call_id: str, name: str, arguments: str) -> None:
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    last = context[-1] if context else {}
    if last.get("role") == "assistant" and "tool_calls" not in last:
        context[-1] = {**last, "tool_calls": [call]}
    else:
        context.append({"role": "assistant", "content": "", "tool_calls": [call]})


def _closed(context: Context) -> Context:
    """Every call gets a result right behind it: providers refuse a history that lacks one."""
    answered = {message["tool_call_id"] for message in context if message["role"] == "tool"}
    closed: Context = []
    for message in context:
        closed.append(message)
        closed += [
            {"role": "tool", "tool_call_id": call["id"], "content": INTERRUPTED}
            for call in message.get("tool_calls", ())
            if call["id"] not in answered
        ]
    return closed


def replay(rows: Sequence[TranscriptRow]) -> Context:
    """The context of a session without a snapshot: its visible rows in provider-safe form."""
    context: Context = []
    results: dict[str | None, list[int]] = {}
    for index, row in enumerate(rows):
        if row.event_kind == "out":
            results.setdefault(row.tool_call_id, []).append(index)
    for index, row in enumerate(rows):
        if row.role == "assistant":
            _add_text(context, row.content)
        elif row.role == "user":
            context.append({"role": "user", "content": row.content})
        elif row.event_kind == "in" and results.get(row.tool_call_id) == [index + 1]:
            # Only a call whose one result directly follows it is safe to show again.
            assert row.tool_call_id is not None and row.tool_name is not None
            _add_call(context, row.tool_call_id, row.tool_name, row.content)
            context.append(
                {
                    "role": "tool",
                    "tool_call_id": row.tool_call_id,
                    "content": rows[index + 1].content,
                }
            )
    return context
