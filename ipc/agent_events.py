"""What happens in a turn, as its worker reports it and as checkpoints keep it (chapter 70 §10.2,
§13).

The worker sends batches of events inside one question to the router; the router commits them and
then tells the client. The same JSON is the payload of a checkpoint event.

Failure: `decode_batch` and `decode_event` raise msgspec.DecodeError for anything else.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

CONTEXT_BREADCRUMB: Final = "[earlier turns omitted to fit the context window]"


class _Event(msgspec.Struct, gc=False, omit_defaults=True, tag_field="type"):
    pass


class Text(_Event, tag="text"):
    text: str


class Thought(_Event, tag="thought"):
    text: str


class ToolCall(_Event, tag="tool_call"):
    id: str
    name: str
    input: dict[str, Any]


class ToolResult(_Event, tag="tool_result"):
    id: str
    name: str
    output: str
    is_error: bool = False


class Step(msgspec.Struct, gc=False, rename={"active_form": "activeForm"}):
    """One entry of a plan."""

    content: str
    status: str = "pending"
    priority: str = "medium"
    active_form: str | msgspec.UnsetType = msgspec.UNSET


class Plan(_Event, tag="plan"):
    entries: list[Step]


class Usage(_Event, tag="usage"):
    """How full the model's context is; told to clients, not kept."""

    input_tokens: int | None = None
    max_context_tokens: int | None = None
    model_context_window: int | None = None


class Trim(_Event, tag="trim"):
    """Whole turns were dropped from the retained context, whose new form is `context`."""

    dropped_messages: int
    dropped_turns: int
    kept_turns: int
    reason: str
    context: list[dict[str, Any]]
    token_budget: int | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


Event = Text | Thought | ToolCall | ToolResult | Plan | Usage | Trim

_batch: Final = msgspec.json.Decoder(list[Event])
_event: Final = msgspec.json.Decoder(Event)
encode_event: Final = msgspec.json.Encoder().encode


def decode_batch(data: bytes) -> list[Event]:
    return _batch.decode(data)


def decode_event(data: bytes | str) -> Event:
    return _event.decode(data)


class TurnTotals(msgspec.Struct, gc=False):
    """Tokens of a turn, summed over its model calls."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class TurnEnd(msgspec.Struct, gc=False):
    """How a turn ended in the worker; `error` says why it failed."""

    stop_reason: str = "end_turn"
    error: str | None = None
    totals: TurnTotals | None = None


class ProviderView(msgspec.Struct, gc=False):
    """What a worker knows of its provider: no key, no header."""

    name: str
    kind: str
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    command: list[str] = []
    env: dict[str, str] = {}
    startup_s: int = 30


class TurnOrder(msgspec.Struct, gc=False):
    """Everything a worker needs to run one turn."""

    turn_id: str
    session_id: str
    prompt: str
    visible_prompt: str
    attachments: list[str]
    provider: ProviderView
    workspace: str
    system_prompt: str | None
    tools: list[str]
    max_turns: int
    max_context_tokens: int
    context: list[dict[str, Any]]
    next_tool: int
    elicitation: bool
    external_session: str | None = None
    images: list[str] = []
