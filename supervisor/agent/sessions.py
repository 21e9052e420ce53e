"""Live sessions of the agent endpoint: the in-memory owner of a durable session, and their
registry.

A live session ties together a kernel session (whose worker evaluates), the back channel that gets
questions, and the turn that runs. It is built anew, as another incarnation, each time a durable
session comes back; what only it knows (overrides, remembered approvals) is gone with it.

Failure: RpcError with the codes of chapter 70 §9; a worker's end fails the turn that runs and
nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_events import decode_event
from ipc.jsonrpc import RpcError, internal
from ipc.messages import Answer, Ask, Content
from journal.agent_store import (
    Key,
    SessionRow,
    TextRow,
    VisibleRow,
    checkpoint,
    finish_turn,
    sessions_by_id,
    whole_transcript,
)
from journal.errors import StoreError
from supervisor.agent import history
from supervisor.agent.approvals import Approvals
from supervisor.agent.settings import Agent, Provider, Unusable, check_provider, usable
from supervisor.agent.slots import Slots
from supervisor.attachments import ready_worker
from supervisor.sessions import AGENT_PREFIX, Session
from supervisor.worker_process import Worker

if TYPE_CHECKING:
    from supervisor.agent.connection import AgentConnection
    from supervisor.agent.turns import Turn
    from supervisor.agent_endpoint import AgentEndpoint

log = structlog.get_logger()

WORKER_KILL_S: Final = 5.0
SURFACES: Final = (None, "terminal", "editor")
MODES: Final = ("chat", "acp")
AMBIGUOUS: Final = (
    "Session ID matches both ACP and Chat durable history; reconnect the intended session "
    "before mutating it"
)


class LiveSession:
    # `turn` is the one that runs. `back_channel` gets requests and updates that belong to no
    # prompt; it is set by `session/new` and dropped when its connection ends. `context`,
    # `plan_json`, `trim_event`, `count` and `tool_calls` mirror the durable row and follow its
    # commits.

    def __init__(
        self,
        endpoint: AgentEndpoint,
        row: SessionRow,
        session: Session,
        env: dict[str, str] | None,
        count: int,
    ) -> None:
        self.endpoint = endpoint
        self.session = session
        self.id = row.session_id
        self.mode = row.mode
        self.alias = row.agent_alias
        self.owner = row.principal_id
        self.workspace_dir = row.workspace_dir
        self.surface = row.interaction_surface
        self.env = env
        self.count = count
        self.context_json = row.retained_context_json
        self.plan_json = row.plan_json
        self.trim_event = row.trim_event
        self.external_session = row.external_session
        self.tool_calls = row.tool_calls
        self.incarnation = uuid.uuid4().hex
        self.tui_id: str | None = None
        self.back_channel: AgentConnection | None = None
        self.overrides: dict[str, Any] = {}
        self.approvals = Approvals(self)
        self.turn: Turn | None = None
        self.failed = False
        self.ended = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._worker_gone: asyncio.Future[None] | None = None
        self.rest()

    @property
    def key(self) -> Key:
        return self.id, self.mode

    @property
    def state(self) -> str:
        """`running`, `idle` or `error` (chapter 70 §9.4)."""
        if self.endpoint.sessions.slots.turns(self.id):
            return "running"
        return "error" if self.failed else "idle"

    @property
    def idle(self) -> bool:
        return not self.endpoint.sessions.slots.turns(self.id)

    def provider(self) -> tuple[str, Agent, Provider]:
        """What serves the next turn, overrides included. Raises Unusable."""
        settings = self.endpoint.settings
        name = self.overrides.get("model_provider")
        if name is None:
            agent, provider = usable(settings, self.alias)
            return agent.provider, agent, provider
        agent_found = settings.agent(self.alias)
        found = settings.provider(name)
        if agent_found is None or not agent_found.enabled or found is None:
            raise Unusable(f'provider "{name}" does not exist')
        check_provider(name, found, self.overrides.get("model"))
        return name, agent_found, found

    # -- the worker --------------------------------------------------------------------------------

    async def worker(self) -> Worker:
        """The session's worker once it can take calls. Raises RpcError."""
        if self._worker_gone is not None:
            await asyncio.shield(self._worker_gone)
        return await ready_worker(self.session)

    def asked(self, worker: Worker, ask: Ask) -> None:
        """A question of the worker's turn."""
        turn = self.turn
        if turn is None or turn.call_id != ask.call:
            refuse_ask(worker, ask, internal("internal_error", "no such turn"))
            return
        turn.asked(worker, ask)

    def worker_ended(self) -> None:
        gone, self._worker_gone = self._worker_gone, None
        if gone is not None and not gone.done():
            gone.set_result(None)

    async def stop_worker(self) -> None:
        """End the worker: SIGTERM, then SIGKILL. Returns when it is gone."""
        worker = self.session.worker
        if worker is None:
            return
        gone = self._worker_gone
        if gone is None:
            gone = self._worker_gone = self.endpoint.kernel.loop.create_future()
            handle = _process_handle(worker.pid)
            worker.terminate()
            worker.close("idle")
            killer = self.endpoint.kernel.loop.call_later(WORKER_KILL_S, _kill, handle)
            gone.add_done_callback(lambda _gone: _release(killer, handle))
        await asyncio.shield(gone)

    # -- rest and end ------------------------------------------------------------------------------

    def rest(self) -> None:
        """Begin to count idle time; a turn stops it."""
        self.busy()
        seconds = self.endpoint.settings.rpc.idle_session_secs
        self._idle_timer = self.endpoint.kernel.loop.call_later(seconds, self._reap)

    def busy(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _reap(self) -> None:
        self._idle_timer = None
        if self.ended:
            return
        if not self.idle:
            self.rest()
            return
        log.info("agent.session.reap", session=self.id)
        self.endpoint.spawn(self.endpoint.sessions.remove(self))


def refuse_ask(worker: Worker, ask: Ask, error: RpcError) -> None:
    worker.send(Answer(ask.id, False, Content(error.encode())))


def answer_ask(worker: Worker, ask: Ask, body: Any) -> None:
    worker.send(Answer(ask.id, True, Content(msgspec.json.encode(body))))


def _process_handle(pid: int) -> int:
    """A handle that never means another process; -1 where the platform has none."""
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    return -1


def _kill(handle: int) -> None:
    if handle >= 0:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def _release(killer: asyncio.TimerHandle, handle: int) -> None:
    killer.cancel()
    if handle >= 0:
        os.close(handle)


class AgentSessions:
    # `live` by session id: an id is live in one mode at a time. `resuming` holds ids that a
    # `session/new` works on. `_activating` counts sessions being built. `_leaving` holds ids whose
    # former live session still ends its worker: the next one begins after that.

    def __init__(self, endpoint: AgentEndpoint) -> None:
        self._endpoint = endpoint
        self.live: dict[str, LiveSession] = {}
        self.slots = Slots()
        self.resuming: set[str] = set()
        self._activating = 0
        self._leaving: dict[str, asyncio.Future[None]] = {}

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(list(self.live.values()))

    # -- building ----------------------------------------------------------------------------------

    def check_limit(self) -> None:
        """Whether one more session may be live. Raises RpcError."""
        limit = self._endpoint.settings.rpc.max_sessions
        if len(self.live) + self._activating >= limit:
            raise agent_error(
                AgentCode.SESSION_LIMIT_REACHED, "Session limit reached", "session_limit",
                limit=limit,
            )  # fmt: skip

    async def activate(
        self, row: SessionRow, env: dict[str, str] | None, count: int
    ) -> LiveSession:
        """Build the live owner of a durable row. Raises RpcError."""
        self.check_limit()
        leaving = self._leaving.get(row.session_id)
        if leaving is not None:
            await asyncio.shield(leaving)
        self._activating += 1
        try:
            kernel = self._endpoint.kernel
            owner = kernel.local_human if row.principal_id is None else row.principal_id
            session = await kernel.sessions.open((owner, AGENT_PREFIX + row.session_id))
            return LiveSession(self._endpoint, row, session, env, count)
        except StoreError as error:
            raise store_failed(row.session_id, str(error)) from None
        finally:
            self._activating -= 1

    def install(self, live: LiveSession) -> None:
        """Make a built session the live one of its id, ready to evaluate."""
        session = live.session
        session.first_cwd = os.fsencode(live.workspace_dir)
        session.environment = self._environment(live)
        self._set_principals(live)
        self.live[live.id] = live
        session.agent = live

    def _set_principals(self, live: LiveSession) -> bool:
        """Whom the session evaluates as and whose policy narrows it; whether that changed."""
        session, endpoint = live.session, self._endpoint
        session.evaluates_as = endpoint.evaluation_principal(live)
        former = session.policy_owner
        session.policy_owner = endpoint.leash_of(live.owner) or session.evaluates_as
        return session.policy_owner != former

    async def renew(self, live: LiveSession) -> None:
        """Before a turn: what the configuration says about principals now. A worker keeps the
        narrowing policy it began with, so another one needs another worker."""
        if self._set_principals(live):
            await live.stop_worker()
        live.session.brief()

    def _environment(self, live: LiveSession) -> list[tuple[bytes, bytes]]:
        """The router's environment without variables that hold model keys, then what the client
        forwarded."""
        keys = {
            os.fsencode(provider.api_key_env)
            for provider in self._endpoint.settings.providers.values()
            if provider.api_key_env
        }
        merged = {
            name: value for name, value in self._endpoint.kernel.environment if name not in keys
        }
        for name, text in (live.env or {}).items():
            merged[os.fsencode(name)] = os.fsencode(text)
        return list(merged.items())

    async def remove(self, live: LiveSession) -> None:
        """Take a live session away; its durable rows stay."""
        if live.ended:
            return
        live.ended = True
        live.busy()
        if self.live.get(live.id) is live:
            del self.live[live.id]
        live.approvals.fail_all("unreachable")
        self._endpoint.uploads.discard_session(live)
        left: asyncio.Future[None] = self._endpoint.kernel.loop.create_future()
        self._leaving[live.id] = left
        try:
            await live.stop_worker()
        finally:
            if live.session.agent is live:
                live.session.agent = None
            if self._leaving.get(live.id) is left:
                del self._leaving[live.id]
            left.set_result(None)

    async def rehydrate(self, row: SessionRow) -> LiveSession:
        """Bring a durable session back; its slot is held. Raises RpcError."""
        count = await self.recover(row)
        fresh = await self.row(row.key)
        if fresh is None:
            raise session_gone(row.session_id)
        live = await self.activate(fresh, None, count)
        self.install(live)
        return live

    # -- durable rows ------------------------------------------------------------------------------

    async def rows(self, session_id: str) -> list[SessionRow]:
        """The durable rows of an id. Raises RpcError `store_failed`."""
        try:
            return await self._endpoint.kernel.store.load(sessions_by_id(session_id))
        except StoreError as error:
            raise store_failed(session_id, str(error)) from None

    async def row(self, key: Key) -> SessionRow | None:
        return next((row for row in await self.rows(key[0]) if row.mode == key[1]), None)

    async def recover(self, row: SessionRow) -> int:
        """Fold an unfinished turn into the history, once; its slot is held. The count of visible
        rows. Raises RpcError; nothing changed then."""
        kernel = self._endpoint.kernel
        try:
            unfinished = await kernel.store.load(checkpoint(row.key))
            visible = await kernel.store.load(whole_transcript(row.key))
            if unfinished is None:
                return len(visible)
            events = [(seq, decode_event(payload)) for seq, payload in unfinished.events]
            rows: list[VisibleRow] = []
            last_user = next((r for r in reversed(visible) if r.role == "user"), None)
            if (
                last_user is None
                or last_user.created_at < unfinished.started_at
                or last_user.content != unfinished.prompt
            ):
                rows.append(TextRow("user", unfinished.prompt))
            rows += history.rows_of([event for _seq, event in events])
            rows.append(TextRow("system", history.MARKER))
            return await kernel.store.commit(
                finish_turn(
                    row.key,
                    unfinished.turn_id,
                    rows,
                    _recovered_context(row, visible, rows, unfinished.prompt, events),
                    action="recovered",
                    outcome="interrupted",
                    tokens=0,
                    now_ns=kernel.now_ns(),
                )
            )
        except (StoreError, msgspec.DecodeError) as error:
            raise store_failed(row.session_id, f"recovery failed: {error}") from None


def _recovered_context(
    row: SessionRow,
    visible: list[Any],
    added: list[VisibleRow],
    prompt: str,
    events: list[tuple[int, Any]],
) -> str:
    """Stored snapshot and the events behind its frontier; the safe replay when there is none."""
    if row.retained_context_json is None:
        context = history.replay(visible)
        context = history.context_of(context, prompt, [event for _seq, event in events])
        return history.json_text(context)
    snapshot = msgspec.json.decode(row.retained_context_json)
    frontier = row.retained_context_frontier
    later = [event for seq, event in events if seq > frontier]
    if frontier >= 0:
        return history.json_text(history.continued(snapshot, later))
    return history.json_text(history.context_of(snapshot, prompt, later))


def workspace_of(endpoint: AgentEndpoint, alias: str, agent: Agent) -> Path:
    """The agent's workspace, whether it exists or not."""
    if agent.workspace.path:
        return Path(agent.workspace.path).expanduser()
    return endpoint.data_dir / "agents" / alias / "workspace"


def store_failed(session_id: str | None, why: str) -> RpcError:
    data = {} if session_id is None else {"session_id": session_id}
    return agent_error(AgentCode.INTERNAL_ERROR, f"Store failed: {why}", "store_failed", **data)


def session_gone(session_id: str) -> RpcError:
    return agent_error(
        AgentCode.SESSION_NOT_FOUND, "Session not found", "session_not_found",
        session_id=session_id,
    )  # fmt: skip


def session_replaced(session_id: str) -> RpcError:
    return agent_error(
        AgentCode.SESSION_NOT_FOUND,
        "The session was replaced meanwhile",
        "session_replaced",
        session_id=session_id,
    )
