"""Tools that a model may call: `shoal`, `ask_user`, `update_plan` (chapter 70 §18.2).

Failure: wrong arguments, denials and unanswered questions are results with `is_error`; only what
the router refuses for good is raised, as `Refused`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from ipc.agent_events import Plan, Step
from worker.agent.evaluation import evaluate
from worker.agent.turn import Turn

RESULT_BYTES_MAX: Final = 16 * 1024
TRUNCATED: Final = "…[truncated]"
Outcome = tuple[str, bool]

_STATUS: Final = ("pending", "in_progress", "completed")
_PRIORITY: Final = ("high", "medium", "low")

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "shoal": {
        "description": "Run source of the shell language in the session. `plan` shows the effects "
        "and the verdict of the policy and runs nothing.",
        "parameters": {
            "type": "object",
            "properties": {
                "src": {"type": "string"},
                "mode": {"type": "string", "enum": ["run", "plan"]},
                "timeout_ms": {"type": "integer", "minimum": 1},
            },
            "required": ["src"],
        },
    },
    "ask_user": {
        "description": "Ask the person a question and wait for the answer.",
        "parameters": {
            "type": "object",
            "properties": {
                "question": {"type": "string"},
                "choices": {"type": "array", "items": {"type": "string"}},
                "multiple": {"type": "boolean"},
                "min_items": {"type": "integer"},
                "max_items": {"type": "integer"},
                "timeout_secs": {"type": "integer"},
            },
            "required": ["question"],
        },
    },
    "update_plan": {
        "description": "Replace the plan that the person sees.",
        "parameters": {
            "type": "object",
            "properties": {
                "entries": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "content": {"type": "string"},
                            "status": {"type": "string", "enum": list(_STATUS)},
                            "priority": {"type": "string", "enum": list(_PRIORITY)},
                            "activeForm": {"type": "string"},
                        },
                        "required": ["content", "status"],
                    },
                }
            },
            "required": ["entries"],
        },
    },
}


class ShoalArguments(msgspec.Struct):
    src: str
    mode: str = "run"
    timeout_ms: int | None = None


class AskArguments(msgspec.Struct, omit_defaults=True):
    question: str
    choices: list[str] | None = None
    multiple: bool = False
    min_items: int | None = None
    max_items: int | None = None
    timeout_secs: int | None = None


class PlanArguments(msgspec.Struct):
    entries: list[Step]


def schemas(allowed: Iterable[str]) -> list[dict[str, Any]]:
    """The function schemas of the allowed tools, in their order."""
    return [
        {"type": "function", "function": {"name": name, **SCHEMAS[name]}}
        for name in allowed
        if name in SCHEMAS
    ]


def new_call_id(known: set[str]) -> str:
    while (call_id := f"call_{secrets.token_hex(8)}") in known:
        pass
    return call_id


def cut(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= RESULT_BYTES_MAX:
        return text
    room = RESULT_BYTES_MAX - len(TRUNCATED.encode())
    return data[:room].decode("utf-8", "ignore") + TRUNCATED


def run(turn: Turn, call_id: str, name: str, arguments: dict[str, Any]) -> Outcome:
    """Run one tool; its result text and whether it is an error. Raises Refused."""
    tool = _TOOLS.get(name)
    if tool is None:
        return f"unknown tool: {name}", True
    if name not in turn.order.tools:
        return f"tool is not allowed: {name}", True
    try:
        text, is_error = tool(turn, call_id, arguments)
    except msgspec.ValidationError as error:
        return f"wrong arguments: {error}", True
    return cut(text), is_error


def _shoal(turn: Turn, call_id: str, arguments: dict[str, Any]) -> Outcome:
    wanted = msgspec.convert(arguments, ShoalArguments)
    if wanted.mode not in ("run", "plan"):
        return f"wrong arguments: mode must be run or plan, not {wanted.mode}", True
    if wanted.timeout_ms is not None and wanted.timeout_ms < 1:
        return "wrong arguments: timeout_ms must be positive", True
    found = evaluate(
        turn,
        call_id,
        "shoal",
        wanted.src,
        announce=lambda: None,
        output=None,
        mode=wanted.mode,
        timeout_ms=wanted.timeout_ms,
    )
    return found.text, found.is_error


def _ask_user(turn: Turn, _call_id: str, arguments: dict[str, Any]) -> Outcome:
    wanted = msgspec.convert(arguments, AskArguments)
    answer = turn.ask("agent.elicit", msgspec.to_builtins(wanted))
    if "error" in answer:
        return str(answer["error"]), True
    return str(answer["text"]), False


def _update_plan(turn: Turn, _call_id: str, arguments: dict[str, Any]) -> Outcome:
    wanted = msgspec.convert(arguments, PlanArguments)
    for entry in wanted.entries:
        if entry.status not in _STATUS or entry.priority not in _PRIORITY:
            return f"wrong arguments: status {entry.status}, priority {entry.priority}", True
    turn.reporter.add(Plan(wanted.entries))
    return "ok", False


_TOOLS: Final[dict[str, Callable[[Turn, str, dict[str, Any]], Outcome]]] = {
    "shoal": _shoal,
    "ask_user": _ask_user,
    "update_plan": _update_plan,
}
