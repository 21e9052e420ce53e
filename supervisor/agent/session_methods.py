"""Handlers of `session/*` that make, end and change sessions (chapter 70 §9).

Failure: RpcError with the codes and kinds of chapter 70 §5.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_methods import (
    ApproveParams,
    ApproveResult,
    CancelResult,
    CloseResult,
    ConfigureParams,
    ConfigureResult,
    DeleteResult,
    KillResult,
    NewParams,
    NewResult,
    SessionParams,
    check_session_id,
)
from ipc.agent_params import invalid_params
from ipc.jsonrpc import RpcError
from journal.agent_store import (
    SessionRow,
    delete_session,
    kill_session,
    put_session,
)
from journal.errors import OperationRefused, StoreError
from supervisor.agent.approvals import Decision, check_decision
from supervisor.agent.identity import not_entitled, session_not_found
from supervisor.agent.sessions import (
    AMBIGUOUS,
    MODES,
    SURFACES,
    LiveSession,
    session_replaced,
    store_failed,
)
from supervisor.agent.settings import Unusable, check_provider, usable
from supervisor.agent.updates import update_params

if TYPE_CHECKING:
    from supervisor.agent.call import AgentCall

RESUMING: Final = "Session resume already in progress"
ENVIRONMENT: Final = "Session environment differs from this connection; create a new session"


# --- session/new ---------------------------------------------------------------------------------


async def new(call: AgentCall, params: NewParams) -> NewResult:
    """Create a session, take over a live one, or bring a durable one back."""
    sessions = call.endpoint.sessions
    mode = params.chat_mode or "chat"
    if mode not in MODES:
        raise invalid_params(f"unknown chat_mode: {mode}", field="chat_mode")
    session_id = str(uuid.uuid4()) if params.session_id is None else params.session_id
    check_session_id(session_id)
    if not call.access.may_use(params.agent_alias):
        raise not_entitled(params.agent_alias)
    if params.interaction_surface is not None and (
        mode != "acp" or params.interaction_surface not in SURFACES
    ):
        raise invalid_params(
            f"interaction_surface {params.interaction_surface!r} is not supported",
            field="interaction_surface",
        )
    if session_id in sessions.resuming:
        raise busy(session_id, RESUMING)
    sessions.resuming.add(session_id)
    try:
        live = await _opened(call, params, session_id, mode)
    finally:
        sessions.resuming.discard(session_id)
    return NewResult(live.id, live.alias, live.count, live.workspace_dir)


async def _opened(call: AgentCall, params: NewParams, session_id: str, mode: str) -> LiveSession:
    sessions = call.endpoint.sessions
    live = sessions.live.get(session_id)
    rows = await sessions.rows(session_id)
    for owner in {live.owner} if live is not None else {row.principal_id for row in rows}:
        call.check_owner(session_id, owner)
    row = next((row for row in rows if row.mode == mode), None)
    aliases = {row.agent_alias for row in rows} | ({live.alias} if live is not None else set())
    if aliases and params.agent_alias not in aliases:
        raise invalid_params(
            f"session {session_id} belongs to a different agent", field="agent_alias"
        )
    if row is not None and row.killed_at is not None:
        raise session_not_found(session_id)
    _check_surface(params, row)
    if live is not None and live.mode == mode:
        _check_environment(call, live)
        return _taken_over(call, live)
    if row is None:
        return await _created(call, params, session_id, mode, live)
    return await _resumed(call, row, live)


def _check_surface(params: NewParams, row: SessionRow | None) -> None:
    if row is None:
        return
    wanted, recorded = params.interaction_surface, row.interaction_surface
    if recorded not in SURFACES or (wanted is not None and wanted != recorded):
        raise invalid_params(
            f"interaction_surface differs from the recorded {recorded!r}",
            field="interaction_surface",
        )


def _check_environment(call: AgentCall, live: LiveSession) -> None:
    env = call.binding.env
    if env is not None and env != (live.env or {}):
        raise agent_error(
            AgentCode.FORBIDDEN, ENVIRONMENT, "environment_mismatch", session_id=live.id
        )


def _taken_over(call: AgentCall, live: LiveSession) -> LiveSession:
    live.back_channel = call.connection
    live.tui_id = call.binding.tui_id
    if live.idle:
        live.rest()
    _send_stored(call, live)
    return live


def _send_stored(call: AgentCall, live: LiveSession) -> None:
    """What a client that resumes must know before its answer: the plan and the trim mark."""
    if live.plan_json is not None:
        entries = msgspec.json.decode(live.plan_json)
        call.connection.notify(
            "session/update", update_params("plan", live.id, {"entries": entries})
        )
    if live.trim_event is not None:
        call.connection.notify(
            "session/update",
            update_params("history_trimmed", live.id, msgspec.json.decode(live.trim_event)),
        )


async def _created(
    call: AgentCall,
    params: NewParams,
    session_id: str,
    mode: str,
    other: LiveSession | None,
) -> LiveSession:
    endpoint, sessions = call.endpoint, call.endpoint.sessions
    _agent, provider = _usable(call, params.agent_alias)
    workspace = await _workspace(call, params)
    if not params.keep_siblings:
        await _evict_siblings(call, mode)
    sessions.check_limit()
    now_ns = endpoint.kernel.now_ns()
    row = SessionRow(
        session_id=session_id,
        mode=mode,
        principal_id=call.binding.identity.owner,
        agent_alias=params.agent_alias,
        workspace_dir=workspace,
        interaction_surface=params.interaction_surface,
        token_count=0,
        killed_at=None,
        plan_json=None,
        trim_breadcrumb=None,
        trim_event=None,
        retained_context_json=None,
        retained_context_frontier=-1,
        external_session=None,
        tool_calls=0,
        created_at=now_ns,
        last_activity=now_ns,
    )
    live = await sessions.activate(row, call.binding.env, 0)
    await _swap(call, live, other)
    try:
        if provider.kind == "acp":
            external = await endpoint.start_external(live, provider)
            row = replace(row, external_session=external)
            live.external_session = external
        await endpoint.kernel.store.commit(put_session(row))
    except StoreError as error:
        await sessions.remove(live)
        raise store_failed(session_id, str(error)) from None
    except RpcError:
        await sessions.remove(live)
        raise
    endpoint.warm(live)
    return live


async def _resumed(call: AgentCall, row: SessionRow, other: LiveSession | None) -> LiveSession:
    endpoint, sessions = call.endpoint, call.endpoint.sessions
    _agent, provider = _usable(call, row.agent_alias)
    if other is None:
        # An idle sibling makes room only for new sessions; a resumed one needs a free place.
        sessions.check_limit()
    if other is not None:
        _cancel_turn(other)
    place = sessions.slots.enter(row.session_id)
    try:
        await place.wait()
        count = await sessions.recover(row)
        fresh = await sessions.row(row.key)
        if fresh is None:
            raise session_not_found(row.session_id)
        live = await sessions.activate(fresh, call.binding.env, count)
        await _swap(call, live, other)
    finally:
        place.leave()
    if provider.kind == "acp":
        try:
            await endpoint.start_external(live, provider)
        except RpcError:
            await sessions.remove(live)
            raise
    endpoint.warm(live)
    _send_stored(call, live)
    return live


async def _swap(call: AgentCall, live: LiveSession, other: LiveSession | None) -> None:
    """Put a prepared owner in place of one in the other mode."""
    sessions = call.endpoint.sessions
    live.back_channel = call.connection
    live.tui_id = call.binding.tui_id
    if other is not None:
        _cancel_turn(other)
        await sessions.remove(other)
    sessions.install(live)


def _cancel_turn(live: LiveSession) -> None:
    if live.turn is not None:
        live.turn.cancel("session_removed")


def _usable(call: AgentCall, alias: str) -> Any:
    try:
        return usable(call.endpoint.settings, alias)
    except Unusable as why:
        raise agent_error(
            AgentCode.INTERNAL_ERROR, f"Failed to create agent: {why}", "agent_unavailable"
        ) from None


async def _workspace(call: AgentCall, params: NewParams) -> str:
    """The canonical workspace directory. Raises RpcError."""
    endpoint = call.endpoint
    default = endpoint.workspace(params.agent_alias)
    try:
        if params.cwd is None:
            default.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = default.resolve(strict=True)
        else:
            path = Path(params.cwd)
            if not path.is_absolute():
                raise NotADirectoryError("not absolute")
            path = path.resolve(strict=True)
        if not path.is_dir():
            raise NotADirectoryError("not a directory")
        if not call.access.admin and not endpoint.may_work_in(
            call.binding, params.agent_alias, path
        ):
            raise PermissionError("refused by policy")
    except (OSError, RuntimeError, ValueError) as error:
        if not call.access.admin:
            raise agent_error(
                AgentCode.FORBIDDEN,
                "Session not found or not owned by this principal",
                "workspace_refused",
            ) from None
        raise invalid_params(
            f"workspace {params.cwd or default}: {getattr(error, 'strerror', None) or error}",
            field="cwd",
        ) from None
    return os.fspath(path)


async def _evict_siblings(call: AgentCall, mode: str) -> None:
    sessions = call.endpoint.sessions
    for live in sessions:
        if live.tui_id == call.binding.tui_id and live.mode == mode and live.idle:
            await sessions.remove(live)


# --- ends ----------------------------------------------------------------------------------------


async def close(call: AgentCall, params: SessionParams) -> CloseResult:
    live = call.endpoint.sessions.live.get(params.session_id)
    await call.check_session(params.session_id)
    if live is None:
        raise session_not_found(params.session_id)
    call.audit_foreign(live.id, live.owner)
    await _end_turn(call, live, "session_removed")
    await call.endpoint.sessions.remove(live)
    return CloseResult(params.session_id, True)


async def kill(call: AgentCall, params: SessionParams) -> KillResult:
    endpoint = call.endpoint
    live, row = await _target(call, params.session_id)
    key = live.key if live is not None else row.key if row is not None else ("", "")
    if live is not None:
        place = await _cancelled(call, live, "admin_kill")
        try:
            if endpoint.sessions.live.get(live.id) is not live:
                raise session_replaced(live.id)
            killed = await _killed(call, key)
            await endpoint.sessions.remove(live)
        finally:
            place.leave()
    else:
        killed = await _killed(call, key)
    return KillResult(params.session_id, killed)


async def _killed(call: AgentCall, key: tuple[str, str]) -> bool:
    kernel = call.endpoint.kernel
    try:
        return await kernel.store.commit(kill_session(key, kernel.now_ns()))
    except OperationRefused:
        raise session_not_found(key[0]) from None
    except StoreError as error:
        raise agent_error(
            AgentCode.INTERNAL_ERROR, f"Failed to mark session killed: {error}", "store_failed",
            session_id=key[0],
        ) from None  # fmt: skip


async def delete(call: AgentCall, params: SessionParams) -> DeleteResult:
    endpoint, kernel = call.endpoint, call.endpoint.kernel
    live, row = await _target(call, params.session_id)
    key = live.key if live is not None else row.key if row is not None else ("", "")
    place = None
    if live is not None:
        place = await _cancelled(call, live, "session_removed")
    try:
        if live is not None and endpoint.sessions.live.get(live.id) is not live:
            raise session_replaced(live.id)
        found = await kernel.store.commit(delete_session(key, kernel.now_ns()))
        if live is not None:
            await endpoint.sessions.remove(live)
        await endpoint.forget_state(key[0], live, row)
    except StoreError as error:
        raise agent_error(
            AgentCode.INTERNAL_ERROR, f"Failed to delete session: {error}", "store_failed",
            session_id=params.session_id,
        ) from None  # fmt: skip
    finally:
        if place is not None:
            place.leave()
    if not found:
        raise session_not_found(params.session_id)
    return DeleteResult(params.session_id, True)


async def _target(call: AgentCall, session_id: str) -> tuple[LiveSession | None, SessionRow | None]:
    """The live session of an id, or its one durable row. Raises RpcError."""
    sessions = call.endpoint.sessions
    await call.check_session(session_id)
    live = sessions.live.get(session_id)
    if live is not None:
        call.audit_foreign(live.id, live.owner)
        return live, None
    rows = [row for row in await sessions.rows(session_id) if call.owns(row.principal_id)]
    if len(rows) > 1:
        raise invalid_params(AMBIGUOUS, field="session_id")
    if not rows:
        raise session_not_found(session_id)
    call.audit_foreign(session_id, rows[0].principal_id)
    return None, rows[0]


async def _cancelled(call: AgentCall, live: LiveSession, cause: str) -> Any:
    """Cancel the turn that runs and take the slot behind it."""
    if live.turn is not None:
        live.turn.cancel(cause)
    place = call.endpoint.sessions.slots.enter(live.id, front=True)
    await place.wait()
    return place


async def _end_turn(call: AgentCall, live: LiveSession, cause: str) -> None:
    place = await _cancelled(call, live, cause)
    place.leave()


def cancel(call: AgentCall, params: SessionParams) -> CancelResult:
    """Cancel the running turn. Ownership was checked."""
    live = call.endpoint.sessions.live.get(params.session_id)
    if live is None or live.turn is None or live.turn.cause is not None:
        raise agent_error(
            AgentCode.SESSION_NOT_FOUND,
            "No active turn for this session",
            "no_active_turn",
            session_id=params.session_id,
        )
    call.audit_foreign(live.id, live.owner)
    live.turn.cancel("client_rpc")
    return CancelResult(params.session_id, True)


async def cancel_checked(call: AgentCall, params: SessionParams) -> CancelResult:
    await call.check_session(params.session_id)
    return cancel(call, params)


# --- answers and overrides -----------------------------------------------------------------------


async def approve(call: AgentCall, params: ApproveParams) -> ApproveResult:
    check_decision(params.decision)
    endpoint = call.endpoint
    live = endpoint.sessions.live.get(params.session_id)
    if live is None:
        await call.check_session(params.session_id)
        return ApproveResult(params.session_id, params.request_id, False)
    request = live.approvals.pending.get(params.request_id)
    plan_owner = endpoint.evaluation_principal(live) if request is None else request.plan_owner
    endpoint.authority.check_approver(call, live, plan_owner)
    call.audit_foreign(live.id, live.owner)
    decision = Decision(
        params.decision,
        params.replacement or "",
        call.binding.identity.wire,
        call.connection.peer,
    )
    done = live.approvals.answer(params.request_id, decision)
    return ApproveResult(params.session_id, params.request_id, done)


async def configure(call: AgentCall, params: ConfigureParams) -> ConfigureResult:
    await call.check_session(params.session_id)
    live = call.endpoint.sessions.live.get(params.session_id)
    if live is None:
        raise session_not_found(params.session_id)
    overrides, wanted = dict(live.overrides), params.overrides
    for name in ("model", "model_provider"):
        text = getattr(wanted, name)
        if text is not None and not text.strip():
            raise invalid_params(f"{name} must not be blank", field=name)
    if wanted.temperature is not None and not 0 <= wanted.temperature <= 2:
        raise invalid_params("temperature must be 0 to 2", field="temperature")
    if wanted.model_provider is not None:
        _check_provider(call, live, wanted.model_provider, wanted.model)
        if wanted.model_provider != overrides.get("model_provider") and wanted.model is None:
            overrides.pop("model", None)
        overrides["model_provider"] = wanted.model_provider
    if wanted.model is not None:
        overrides["model"] = wanted.model
    if wanted.temperature is not None:
        overrides["temperature"] = wanted.temperature
    live.overrides = overrides
    return ConfigureResult(live.id, dict(overrides))


def _check_provider(call: AgentCall, live: LiveSession, name: str, model: str | None) -> None:
    """A provider of the same family as the agent's own, ready to serve. Raises RpcError."""
    settings = call.endpoint.settings
    found = settings.provider(name)
    agent = settings.agent(live.alias)
    own = settings.provider(agent.provider) if agent is not None else None
    if found is None or own is None or found.kind != own.kind:
        raise invalid_params(
            f"model_provider {name!r} cannot serve this session", field="model_provider"
        )
    try:
        check_provider(name, found, model)
    except Unusable as why:
        raise invalid_params(str(why), field="model_provider") from None


def busy(session_id: str, message: str) -> RpcError:
    return agent_error(
        AgentCode.SESSION_BUSY,
        message,
        "session_busy",
        retry_after_ms=1000,
        queued=0,
        session_id=session_id,
    )
