"""The messages a model is given, and what is dropped when they do not fit (chapter 70 §13.2).

Sizes are estimated: four bytes of JSON count as one token. Whole turns are dropped, oldest first,
never the current one; a breadcrumb then stands at the head.

Pure. Failure: none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipc.agent_events import CONTEXT_BREADCRUMB, Trim

BYTES_PER_TOKEN: Final = 4
Messages = list[dict[str, Any]]


def tokens_of(messages: Messages) -> int:
    """Estimated tokens."""
    return sum(len(msgspec.json.encode(message)) for message in messages) // BYTES_PER_TOKEN


def turns_of(messages: Messages) -> list[Messages]:
    """The messages by turn: each begins with a user message."""
    turns: list[Messages] = []
    for message in messages:
        if message["role"] == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def without_breadcrumb(messages: Messages) -> Messages:
    if messages and messages[0].get("content") == CONTEXT_BREADCRUMB:
        return messages[1:]
    return messages


def trim(messages: Messages, budget: int, *, at_least_one: bool = False) -> Trim | None:
    """Drop the oldest turns until the rest fits; None when nothing is to be dropped."""
    before = tokens_of(messages)
    if before <= budget and not at_least_one:
        return None
    turns = turns_of(without_breadcrumb(messages))
    dropped: list[Messages] = []
    while len(turns) > 1 and (
        sum(tokens_of(turn) for turn in turns) > budget or (at_least_one and not dropped)
    ):
        dropped.append(turns.pop(0))
    if not dropped:
        return None
    kept = [{"role": "system", "content": CONTEXT_BREADCRUMB}]
    kept += [message for turn in turns for message in turn]
    return Trim(
        dropped_messages=sum(len(turn) for turn in dropped),
        dropped_turns=len(dropped),
        kept_turns=len(turns),
        reason="token_budget",
        context=kept,
        token_budget=budget,
        tokens_before=before,
        tokens_after=tokens_of(kept),
    )
