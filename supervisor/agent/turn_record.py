"""What a turn has said so far: committed event by event, and kept as rows at its end (chapter 70
§13.3).

Every event is in the checkpoint before anybody hears of it. At the end one transaction appends the
visible rows, stores the retained context and removes the checkpoint.

Failure: StoreError; `failure` then says why the checkpoint could not be written. A trim that cannot
be committed is no such failure: the untrimmed context stays and nothing is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.agent_events import (
    CONTEXT_BREADCRUMB,
    Event,
    Plan,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    Trim,
    TurnTotals,
    Usage,
    encode_event,
)
from journal.agent_store import TextRow, VisibleRow, add_events, add_trim, finish_turn
from journal.errors import StoreError
from supervisor.agent import history
from supervisor.agent.limits import RAW_OUTPUT_BYTES_MAX, cut
from supervisor.agent.updates import trim_members, without_context

if TYPE_CHECKING:
    from supervisor.agent.sessions import LiveSession
    from supervisor.kernel import Kernel

_encode: Final = msgspec.json.Encoder().encode


class TurnRecord:
    # `_events` are those committed, `_seq` the number of the next one; both change in `_commit`,
    # `_commit_trim` and `close_calls` only, on the loop's thread.
    _events: list[Event]
    _seq: int

    def __init__(self, kernel: Kernel, turn_id: str, tell: Callable[[Event], None]) -> None:
        self._kernel = kernel
        self._turn_id = turn_id
        self._tell = tell
        self._events = []
        self._seq = 0
        self.failure: str | None = None

    @property
    def text(self) -> str:
        """What the agent said."""
        return "".join(event.text for event in self._events if isinstance(event, Text))

    async def commit(self, live: LiveSession, events: Iterable[Event]) -> None:
        """Commit a batch, a trim on its own, and tell it. Raises StoreError."""
        waiting: list[Event] = []
        for event in events:
            if isinstance(event, Trim):
                await self._commit(live, waiting)
                waiting = []
                await self._commit_trim(live, event)
            else:
                waiting.append(event)
        await self._commit(live, waiting)

    async def _commit(self, live: LiveSession, events: list[Event]) -> None:
        """Commit events together; usage is told and not kept. Raises StoreError."""
        kept: list[Event] = [event for event in events if not isinstance(event, Usage)]
        plan_json = None
        for event in kept:
            if isinstance(event, ToolResult):
                event.output = cut(event.output, RAW_OUTPUT_BYTES_MAX)
            elif isinstance(event, Plan):
                plan_json = _encode(event.entries).decode()
        first, self._seq = self._seq, self._seq + len(kept)
        payloads = [encode_event(event).decode() for event in kept]
        if payloads:
            try:
                await self._kernel.store.commit(
                    add_events(live.key, self._turn_id, first, payloads, plan_json)
                )
            except StoreError as error:
                self.failure = str(error)
                raise
        if plan_json is not None:
            live.plan_json = plan_json
        live.tool_calls += sum(1 for event in kept if isinstance(event, ToolCall))
        self._events += kept
        for event in events:
            self._tell(event)

    async def _commit_trim(self, live: LiveSession, event: Trim) -> None:
        """Commit the new snapshot, then tell. Raises StoreError."""
        seq, self._seq = self._seq, self._seq + 1
        trimmed = _encode(trim_members(event)).decode()
        slim = encode_event(without_context(event)).decode()
        context = history.json_text(event.context)
        await self._kernel.store.commit(
            add_trim(live.key, self._turn_id, seq, slim, context, CONTEXT_BREADCRUMB, trimmed)
        )
        live.trim_event = trimmed
        self._events.append(event)
        self._tell(event)

    def close_calls(self, word: str) -> None:
        """Give every call without a result this one."""
        for call in history.open_calls(self._events):
            result = ToolResult(call.id, call.name, word, True)
            self._events.append(result)
            self._tell(result)

    async def finish(
        self, live: LiveSession, prompt: str, outcome: str, totals: TurnTotals | None
    ) -> None:
        """Keep the turn as rows and context, and forget its checkpoint. Raises StoreError."""
        kept = [event for event in self._events if not isinstance(event, Thought)]
        rows: list[VisibleRow] = [TextRow("user", prompt), *history.rows_of(kept)]
        context_json = _next_context(live, prompt, kept)
        live.count = await self._kernel.store.commit(
            finish_turn(
                live.key,
                self._turn_id,
                rows,
                context_json,
                action="turn",
                outcome=outcome,
                tokens=totals.total_tokens if totals else 0,
                now_ns=self._kernel.now_ns(),
            )
        )
        live.context_json = context_json


def _next_context(live: LiveSession, prompt: str, events: Sequence[Event]) -> str | None:
    if live.context_json is None:
        return None
    snapshot: history.Context = msgspec.json.decode(live.context_json)
    return history.json_text(history.context_of(snapshot, prompt, events))
