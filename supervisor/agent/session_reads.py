"""Reading sessions: `session/list`, `session/messages`, `session/state` (chapter 70 §9.4).

Failure: RpcError with the codes and kinds of chapter 70 §5.
"""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ipc.agent_methods import (
    ListParams,
    ListResult,
    Message,
    MessagesCursorPage,
    MessagesPage,
    MessagesParams,
    PlanEntry,
    SessionEntry,
    SessionParams,
    StateResult,
)
from ipc.agent_params import invalid_params
from journal.agent_store import (
    TranscriptRow,
    listed_sessions,
    transcript,
    transcript_length,
)
from journal.errors import StoreError
from supervisor.agent.identity import not_owned, session_not_found
from supervisor.agent.limits import LIST_ROWS_DEFAULT, LIST_ROWS_MAX
from supervisor.agent.sessions import SURFACES, store_failed

if TYPE_CHECKING:
    from supervisor.agent.call import AgentCall


def rfc3339(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def list_sessions(call: AgentCall, params: ListParams) -> ListResult:
    limit = LIST_ROWS_DEFAULT if params.limit is None else params.limit
    if not 1 <= limit <= LIST_ROWS_MAX:
        raise invalid_params(f"`limit` must be 1 to {LIST_ROWS_MAX}", field="limit")
    words = [word for word in (params.query or "").split() if any(c.isalnum() for c in word)]
    identity = call.binding.identity
    try:
        rows = await call.endpoint.kernel.store.load(
            listed_sessions(
                identity.owner, call.access.admin, words, None if params.running else limit
            )
        )
    except StoreError as error:
        raise store_failed(None, str(error)) from None
    entries: list[SessionEntry] = []
    for listed in rows:
        row = listed.session
        live = call.endpoint.sessions.live.get(row.session_id)
        if live is not None and live.mode != row.mode:
            live = None
        state = "idle" if live is None else live.state
        if params.running and state != "running":
            continue
        prefix = "rpc_" if row.mode == "chat" else "acp_"
        entries.append(
            SessionEntry(
                session_id=row.session_id,
                session_key=prefix + row.session_id,
                created_at=rfc3339(row.created_at),
                last_activity=rfc3339(row.last_activity),
                message_count=listed.message_count,
                live=live is not None,
                killed=row.killed_at is not None,
                state=state,
                channel_id="rpc",
                agent_alias=row.agent_alias,
            )
        )
    return ListResult(entries[:limit])


async def messages(call: AgentCall, params: MessagesParams) -> MessagesPage | MessagesCursorPage:
    sessions = call.endpoint.sessions
    by_cursor = bytes(params.cursor) != b""
    _check_page(params, by_cursor)
    live = sessions.live.get(params.session_id)
    if live is not None:
        call.check_owner(live.id, live.owner)
        key = live.key
    else:
        rows = [
            row for row in await sessions.rows(params.session_id) if call.owns(row.principal_id)
        ]
        if not rows:
            if not call.access.admin:
                raise not_owned(params.session_id)
            if by_cursor:
                return MessagesCursorPage(params.session_id, [], None, False)
            return MessagesPage(params.session_id, [], 0, 0)
        row = max(rows, key=lambda row: row.last_activity)
        key = row.key
        if row.killed_at is None and row.interaction_surface in SURFACES:
            place = sessions.slots.enter(params.session_id)
            try:
                await place.wait()
                if sessions.live.get(params.session_id) is None:
                    await sessions.recover(row)
            finally:
                place.leave()
    try:
        return await _page(call, params, key, by_cursor)
    except StoreError as error:
        raise store_failed(params.session_id, str(error)) from None


def _check_page(params: MessagesParams, by_cursor: bool) -> None:
    if by_cursor and params.before_index is not None:
        raise invalid_params("`cursor` and `before_index` exclude each other", field="cursor")
    for name in ("limit", "before_index"):
        value = getattr(params, name)
        if value is not None and value < 0:
            raise invalid_params(f"`{name}` must not be negative", field=name)
    if by_cursor and params.limit is not None and not 1 <= params.limit <= LIST_ROWS_MAX:
        raise invalid_params(f"`limit` must be 1 to {LIST_ROWS_MAX}", field="limit")


async def _page(
    call: AgentCall, params: MessagesParams, key: tuple[str, str], by_cursor: bool
) -> MessagesPage | MessagesCursorPage:
    store = call.endpoint.kernel.store
    total = await store.load(transcript_length(key))
    if by_cursor:
        end = _cursor_end(call, params, key, total)
        limit = LIST_ROWS_DEFAULT if params.limit is None else params.limit
        start = max(0, end - limit)
        rows = await store.load(transcript(key, start, end))
        cursor = _cursor(call, key, start) if start > 0 else None
        return MessagesCursorPage(params.session_id, _shown(rows), cursor, start > 0)
    end = total if params.before_index is None else min(params.before_index, total)
    start = 0 if params.limit is None else max(0, end - params.limit)
    rows = await store.load(transcript(key, start, end))
    return MessagesPage(params.session_id, _shown(rows), total, start)


def _cursor(call: AgentCall, key: tuple[str, str], end: int) -> str:
    """An opaque mark of a place in one session's transcript, signed so that no other passes."""
    text = f"{end}".encode()
    mark = call.endpoint.keys.sign(f"cursor {key[0]} {key[1]} {end}")[:32].encode()
    return base64.urlsafe_b64encode(text + b":" + mark).decode().rstrip("=")


def _cursor_end(call: AgentCall, params: MessagesParams, key: tuple[str, str], total: int) -> int:
    if bytes(params.cursor) == b"null":
        return total
    try:
        text = msgspec.json.decode(params.cursor, type=str)
        place, _, _mark = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).partition(b":")
        end = int(place)
    except (ValueError, msgspec.DecodeError):
        raise invalid_params("`cursor` is not one of this session", field="cursor") from None
    if not hmac.compare_digest(_cursor(call, key, end).encode(), text.encode()):
        raise invalid_params("`cursor` is not one of this session", field="cursor")
    return min(end, total)


def _shown(rows: list[TranscriptRow]) -> list[Message]:
    shown: list[Message] = []
    for row in rows:
        created_at = rfc3339(row.created_at)
        if row.role is not None:
            shown.append(Message(row.role, row.content, "message", created_at))
        elif row.event_kind == "in":
            shown.append(
                Message(
                    "tool", "", "tool_call", created_at, row.tool_call_id, row.tool_name,
                    _input(row.content),
                )
            )  # fmt: skip
        else:
            shown.append(
                Message(
                    "tool", row.content, "tool_result", created_at, row.tool_call_id,
                    row.tool_name, None, row.content,
                )
            )  # fmt: skip
    return shown


def _input(payload: str) -> Any:
    """The stored input; one that was cut is shown as the text that is left."""
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return payload


async def state(call: AgentCall, params: SessionParams) -> StateResult:
    live = call.endpoint.sessions.live.get(params.session_id)
    if live is not None:
        call.check_owner(live.id, live.owner)
        turn = live.turn
        return StateResult(
            live.id,
            live.state,
            turn.id if turn is not None else None,
            rfc3339(turn.started_ns) if turn is not None and turn.started_ns else None,
            _plan(live.plan_json),
        )
    await call.check_session(params.session_id)
    rows = [
        row
        for row in await call.endpoint.sessions.rows(params.session_id)
        if call.owns(row.principal_id)
    ]
    if not rows:
        raise session_not_found(params.session_id)
    waits = call.endpoint.sessions.slots.turns(params.session_id)
    return StateResult(
        params.session_id, "running" if waits else "idle", plan=_plan(rows[0].plan_json)
    )


def _plan(plan_json: str | None) -> list[PlanEntry] | None:
    return None if plan_json is None else msgspec.json.decode(plan_json, type=list[PlanEntry])
