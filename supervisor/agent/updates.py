"""What a turn's events look like to clients: the parameters of `session/update` (chapter 70 §10.2).

Pure. Failure: none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ipc.agent_events import Event, Plan, Text, Thought, ToolCall, ToolResult, Trim, Usage
from ipc.agent_params import with_twins

_encode: Final = msgspec.json.Encoder().encode


def update_params(kind: str, session_id: str, members: dict[str, Any]) -> bytes:
    """The parameters of a `session/update`, with twins."""
    return _encode(
        {"type": kind, "session_id": session_id, "sessionId": session_id, **with_twins(members)}
    )


def without_context(trim: Trim) -> Trim:
    """A trim as its checkpoint event keeps it: the context itself is the session's snapshot."""
    return Trim(**{**msgspec.structs.asdict(trim), "context": []})


def trim_members(trim: Trim) -> dict[str, Any]:
    found = msgspec.structs.asdict(trim)
    del found["context"]
    return {name: value for name, value in found.items() if value is not None}


def _call_members(event: ToolCall) -> tuple[str, dict[str, Any]]:
    return "tool_call", {"tool_call_id": event.id, "name": event.name, "raw_input": event.input}


def _result_members(event: ToolResult) -> tuple[str, dict[str, Any]]:
    members: dict[str, Any] = {
        "tool_call_id": event.id, "name": event.name, "raw_output": event.output
    }  # fmt: skip
    if event.is_error:
        members["is_error"] = True
    return "tool_result", members


def _usage_members(event: Usage) -> tuple[str, dict[str, Any]]:
    found = msgspec.structs.asdict(event)
    return "context_usage", {name: value for name, value in found.items() if value is not None}


_UPDATES: Final[dict[type[Any], Callable[[Any], tuple[str, dict[str, Any]]]]] = {
    Text: lambda event: ("agent_message_chunk", {"text": event.text}),
    Thought: lambda event: ("agent_thought_chunk", {"text": event.text}),
    ToolCall: _call_members,
    ToolResult: _result_members,
    Plan: lambda event: ("plan", {"entries": msgspec.to_builtins(event.entries)}),
    Usage: _usage_members,
    Trim: lambda event: ("history_trimmed", trim_members(event)),
}


def update_of(event: Event) -> tuple[str, dict[str, Any]]:
    """The type of an event's update, and its members."""
    return _UPDATES[type(event)](event)
