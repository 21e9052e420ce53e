"""The agent endpoint: the order of checks, and which handler serves which method (chapter 70).

Checks come in one order: method known, initialized, credential alive, grant, parameters; ownership
and what follows are the handler's. Requests of one connection run one after the other; a prompt is
admitted in order and then runs detached.

Failure: every RpcError becomes the request's answer; anything unexpected becomes `internal_error`
with the details in the log. A notification is never answered.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ipc.agent_envelope import AgentCode, Request, agent_error
from ipc.agent_methods import (
    METHODS,
    PromptParams,
    check_session_id,
)
from ipc.agent_params import invalid_params
from ipc.jsonrpc import RpcError, internal
from ipc.messages import Caller
from journal.agent_store import SessionRow, create_tables
from journal.records import AppendAudit, AuditRow
from supervisor import logs
from supervisor.agent import (
    config_methods,
    core_methods,
    file_methods,
    session_methods,
    session_reads,
)
from supervisor.agent.authority import Authority
from supervisor.agent.call import AgentCall
from supervisor.agent.config_store import ConfigStore
from supervisor.agent.connection import AgentConnection
from supervisor.agent.handshake import initialize
from supervisor.agent.health import Health
from supervisor.agent.identity import (
    Access,
    Binding,
    ClientKeys,
    Identity,
    check_alive,
    not_entitled,
    not_granted,
    not_owned,
    resolve,
)
from supervisor.agent.limits import DRAIN_S, REFUSAL_NOTICES_MAX, RELOAD_PAUSE_S
from supervisor.agent.log_ring import LogRing
from supervisor.agent.sessions import AgentSessions, LiveSession, workspace_of
from supervisor.agent.settings import Provider, Settings
from supervisor.agent.turns import BLANK, Turn
from supervisor.agent.uploads import Uploads
from supervisor.broker import Broker
from supervisor.listeners import Listener
from supervisor.plan_methods import approved_run, planned
from supervisor.sessions import AGENT_PREFIX, Session
from supervisor.submissions import Answer, Submission

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

log = structlog.get_logger()

NAME: Final = "agent"
CONFIG_FILE: Final = "config.toml"
KEY_FILE: Final = "agent.key"

Result = msgspec.Struct
Handler = Callable[[AgentCall, Any], Result]
AsyncHandler = Callable[[AgentCall, Any], Awaitable[Result]]


class AgentEndpoint:
    # `connections` are the admitted ones, `_notices` refused ones that still get their notice.
    # `had_client` is set by the first successful `initialize`. `_tasks` keeps what runs detached,
    # `_running` the turns from admission to answer.
    # `_listener` and `_server` change at a reload only.

    def __init__(self, kernel: Kernel, data_dir: Path, environ: Mapping[str, str]) -> None:
        self.kernel = kernel
        self.data_dir = data_dir
        self.instance_id = str(uuid.uuid4())
        self.config = ConfigStore(data_dir / CONFIG_FILE, environ)
        self.keys = ClientKeys(data_dir / KEY_FILE)
        self.sessions = AgentSessions(self)
        self.uploads = Uploads(kernel.loop)
        self.broker = Broker(kernel)
        self.authority = Authority(self)
        self.log_ring = LogRing(kernel.loop)
        self.health = Health(self)
        self.connections: set[AgentConnection] = set()
        self.had_client = False
        self.draining = False
        self._notices: set[AgentConnection] = set()
        self._refusing = False
        self._next_number = 1
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: set[Turn] = set()
        self._listener: Listener | None = None
        self._server: asyncio.AbstractServer | None = None
        self._connection_limit = 0
        self._reloading = False
        self.reload_daemon: Callable[[], str | None] | None = None

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def path(self) -> str:
        """The socket that is served, empty before there is one."""
        return "" if self._listener is None else str(self._listener.path)

    def load(self) -> None:
        """Read the configuration and make the tables; blocking, before anybody is served."""
        self.config.load_at_start()
        self.kernel.store.apply(create_tables())
        logs.SINK.observer = self.log_ring.add

    async def listen(self, listener: Listener) -> None:
        """Serve a bound socket."""
        self._listener = listener
        self._connection_limit = max(1, self.settings.rpc.max_local_connections)
        self._server = await self.kernel.loop.create_unix_server(self.connect, sock=listener.socket)

    def connect(self) -> AgentConnection:
        """The protocol of a new connection."""
        number, self._next_number = self._next_number, self._next_number + 1
        return AgentConnection(self, self.kernel.loop, number)

    # -- connection life ---------------------------------------------------------------------------

    def opened(self, connection: AgentConnection) -> RpcError | None:
        """Admit a connection, or say why not; one that gets no notice is just not admitted."""
        if self.draining:
            return None
        if len(self.connections) < self._connection_limit:
            self._refusing = False
            connection.admitted = True
            self.connections.add(connection)
            self.kernel.metrics.count("shoal_connections_total", NAME)
            return None
        self.kernel.metrics.count("shoal_connections_rejected_total", "quota")
        if not self._refusing:
            self._refusing = True
            log.warning("conn.refused", endpoint=NAME, limit=self._connection_limit)
        if len(self._notices) >= REFUSAL_NOTICES_MAX:
            return None
        self._notices.add(connection)
        return agent_error(
            AgentCode.CONNECTION_LIMIT_REACHED,
            f"Local connection limit of {self._connection_limit} reached",
            "connection_limit",
            limit=self._connection_limit,
        )

    def closed(self, connection: AgentConnection) -> None:
        self._notices.discard(connection)
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self.uploads.discard_connection(connection)
        self.log_ring.forget(connection)
        for live in self.sessions:
            if live.back_channel is connection:
                live.back_channel = None
                live.approvals.fail_all("unreachable")
        for turn in [turn for turn in self._turns if turn.connection is connection]:
            turn.cancel("connection_closed")
        self.quieter()

    @property
    def _turns(self) -> list[Turn]:
        return list(self._running)

    @property
    def clients(self) -> int:
        """Connections that initialized."""
        return sum(1 for connection in self.connections if connection.binding is not None)

    def quieter(self) -> None:
        self.kernel.quieter()

    # -- requests ----------------------------------------------------------------------------------

    def serve(self, connection: AgentConnection, request: Request) -> None:
        """Run the checks and the handler of one request; `connection.finished` follows."""
        try:
            method = METHODS.get(request.method)
            if method is None:
                raise agent_error(
                    AgentCode.METHOD_NOT_FOUND,
                    f"Unknown method: {request.method}",
                    "method_not_found",
                    method=request.method,
                )
            if request.method == "initialize":
                result = METHODS["initialize"].encode(
                    initialize(self, connection, bytes(request.params))
                )
                self._done(connection, request, result, None)
                return
            call = self._checked(connection, request.method, method.grant or "")
            params = method.decode(request.params)
            if hasattr(params, "session_id") and request.method != "session/new":
                check_session_id(params.session_id)
            if request.method == "session/prompt":
                self._prompt(call, params, request)
                return
            handler = HANDLERS.get(request.method)
            if handler is not None:
                self._done(connection, request, method.encode(handler(call, params)), None)
                return
        except RpcError as error:
            self._done(connection, request, None, error)
            return
        except Exception:  # noqa: BLE001 - one broken request must not end the router
            self._done(connection, request, None, self._unexpected(request.method))
            return
        self.spawn(self._run(call, ASYNC_HANDLERS[request.method], params, request))

    async def _run(
        self, call: AgentCall, handler: AsyncHandler, params: Any, request: Request
    ) -> None:
        connection = call.connection
        try:
            result = METHODS[request.method].encode(await handler(call, params))
        except RpcError as error:
            if error.code == AgentCode.FORBIDDEN:
                self.audit_denial(call.binding, connection, request.method, error)
            self._done(connection, request, None, error)
        except Exception:  # noqa: BLE001 - one broken request must not end the router
            self._done(connection, request, None, self._unexpected(request.method))
        else:
            self._done(connection, request, result, None)
            await connection.room()

    def _done(
        self,
        connection: AgentConnection,
        request: Request,
        result: bytes | None,
        error: RpcError | None,
    ) -> None:
        code = "ok"
        if error is not None:
            code = str(error.code)
            connection.fail(request.id, error)
        else:
            assert result is not None
            connection.answer(request.id, result)
        known = request.method if request.method in METHODS else "unknown"
        self.kernel.metrics.count("shoal_requests_total", NAME, known, code)
        connection.finished()

    @staticmethod
    def _unexpected(method: str) -> RpcError:
        log.exception("request.failed", endpoint=NAME, method=method)
        return internal("internal_error", "unexpected failure in the router")

    def _checked(self, connection: AgentConnection, method: str, grant: str) -> AgentCall:
        """Initialized, credential, grant, in this order. Raises RpcError."""
        binding = connection.binding
        if binding is None:
            raise agent_error(
                AgentCode.AUTH_REQUIRED, "First call must be 'initialize'", "auth_required"
            )
        if self.config.authorization_invalid is not None:
            raise agent_error(
                AgentCode.FORBIDDEN,
                f"Authorization config is invalid: {self.config.authorization_invalid}",
                "authorization_invalid",
            )
        check_alive(self, binding.identity)
        access = self.access(binding.identity)
        if grant not in access.grants:
            error = not_granted(grant, method)
            self.audit_denial(binding, connection, method, error)
            raise error
        return AgentCall(self, connection, binding, access, method)

    def access(self, identity: Identity) -> Access:
        """What an identity may do under the configuration in force."""
        return resolve(self.settings, identity, self.kernel.local_human)

    def recheck(self, call: AgentCall) -> Access:
        """Credential and grant again, after a wait. Raises RpcError."""
        check_alive(self, call.binding.identity)
        access = self.access(call.binding.identity)
        grant = METHODS[call.method].grant
        if grant is not None and grant not in access.grants:
            raise not_granted(grant, call.method)
        return access

    def check_session_access(
        self,
        identity: Identity,
        method: str,
        grant: str,
        session_id: str,
        owner: str | None,
        *,
        alias: str,
    ) -> None:
        """Credential, grant, owner and agent of an act that waited. Raises RpcError."""
        check_alive(self, identity)
        access = self.access(identity)
        if grant not in access.grants:
            raise not_granted(grant, method)
        if not access.admin and (owner is None or owner != identity.owner):
            raise not_owned(session_id)
        if not access.may_use(alias):
            raise not_entitled(alias)

    # -- prompts -----------------------------------------------------------------------------------

    def _prompt(self, call: AgentCall, params: PromptParams, request: Request) -> None:
        """Admit a prompt; it runs detached. Raises RpcError before admission."""
        if not params.prompt.strip() and not params.attachments:
            raise invalid_params(BLANK, field="prompt")
        live = self.sessions.live.get(params.session_id)
        if live is not None:
            call.check_owner(live.id, live.owner)
            if not call.access.may_use(live.alias):
                raise not_entitled(live.alias)
            call.audit_foreign(live.id, live.owner)
        turn = Turn(self, call.connection, call.binding, params)
        turn.request = request
        refusal = turn.admit()
        self._running.add(turn)
        call.connection.detached += 1
        self.spawn(self._detached(call, turn, refusal, live is None))
        call.connection.finished()

    async def _detached(
        self, call: AgentCall, turn: Turn, refusal: RpcError | None, durable: bool
    ) -> None:
        connection = call.connection
        try:
            if durable and refusal is None and not call.access.admin:
                try:
                    await call.check_session(turn.session_id)
                except RpcError as error:
                    # Before admission: a scoped caller learns nothing but the uniform refusal.
                    turn.give_up()
                    self.audit_denial(call.binding, connection, "session/prompt", error)
                    connection.fail(turn.request.id, error)
                    return
            await turn.run(refusal)
        finally:
            self._running.discard(turn)
            connection.detached -= 1
            if connection.open and not connection.busy:
                connection.finished()

    def failed(self, connection: AgentConnection, method: str, error: RpcError) -> None:
        if error.code == AgentCode.FORBIDDEN and connection.binding is not None:
            self.audit_denial(connection.binding, connection, method, error)

    def answered(
        self,
        connection: AgentConnection,
        turn: Turn,
        result: bytes | None,
        error: RpcError | None,
    ) -> None:
        """Write the answer of a prompt."""
        code = "ok" if error is None else str(error.code)
        self.kernel.metrics.count("shoal_requests_total", NAME, "session/prompt", code)
        if error is not None:
            connection.fail(turn.request.id, error)
        else:
            assert result is not None
            connection.answer(turn.request.id, result)

    # -- parts for handlers ------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something detached from any request."""
        self.keep(self.kernel.loop.create_task(work))

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def submission(
        self, session: Session, caller: Caller, params: bytes, src: str, answer: Answer
    ) -> Submission:
        """The submission of a tool call, as its mode says."""
        order = msgspec.json.decode(params)
        mode = order["mode"]
        return Submission(
            self.kernel,
            session,
            caller,
            params,
            src,
            answer,
            method="plan" if mode == "plan" else "exec",
            prepare=approved_run(self.kernel, src, order.get("plan_ref"))
            if mode == "approved"
            else None,
            on_reply=planned(self.kernel) if mode == "plan" else None,
        )

    def workspace(self, alias: str) -> Path:
        agent = self.settings.agent(alias)
        assert agent is not None
        return workspace_of(self, alias, agent)

    def evaluation_principal(self, live: LiveSession) -> str:
        """The policy principal that a session's programs run as."""
        agent = self.settings.agent(live.alias)
        if agent is not None and agent.leash:
            return agent.leash
        provider = None if agent is None else self.settings.provider(agent.provider)
        if provider is not None and provider.kind == "shell":
            return self.kernel.local_human if live.owner is None else live.owner
        return f"agent:{live.alias}"

    def leash_of(self, owner: str | None) -> str | None:
        """The policy that narrows the sessions of an owner."""
        for name, user in self.settings.users.items():
            if owner is not None and (user.principal_id or f"user:{name}") == owner:
                return user.leash
        return None

    def may_work_in(self, binding: Binding, alias: str, path: Path) -> bool:
        """Whether a scoped caller's session may have this workspace."""
        if path == self.workspace(alias).resolve():
            return True
        agent = self.settings.agent(alias)
        principal = (agent.leash if agent is not None else None) or binding.identity.principal
        return all(
            self.authority.grants(principal, kind, str(path)) for kind in ("fs_read", "fs_write")
        )

    def check_readable(self, binding: Binding, live: LiveSession, path: str) -> None:
        """Whether a scoped caller may have the agent read a file. Raises RpcError."""
        if self.access(binding.identity).admin:
            return
        real = os.path.realpath(path)
        if not self.authority.may(live, "fs_read", real):
            raise not_owned(live.id)

    def check_listing(self, call: AgentCall, path: str) -> None:
        """Whether a directory may be listed for the caller. Raises RpcError."""
        if call.access.admin:
            return
        if not self.authority.may_list(call.binding, Path(os.path.realpath(path))):
            raise not_granted("files:read", "fs/list_dir")

    def warm(self, live: LiveSession) -> None:
        """Start the worker of a session before its first turn."""
        live.session.with_worker(lambda _worker: None, lambda _error: None)

    async def start_external(self, live: LiveSession, provider: Provider) -> str | None:
        """Start the external program of a session. Raises RpcError `agent_unavailable`."""
        from supervisor.agent.external import start

        return await start(self, live, provider)

    async def forget_state(
        self, session_id: str, live: LiveSession | None, row: SessionRow | None
    ) -> None:
        """Delete the evaluator's state with the last history of an id."""
        if await self.sessions.rows(session_id):
            return
        owner = live.owner if live is not None else row.principal_id if row is not None else None
        key = (self.kernel.local_human if owner is None else owner, AGENT_PREFIX + session_id)
        session = self.kernel.sessions.get(key)
        if session is not None:
            await self.kernel.sessions.forget(session)

    # -- audit -------------------------------------------------------------------------------------

    def audit(
        self,
        kind: str,
        binding: Binding,
        connection: AgentConnection,
        detail: dict[str, Any],
    ) -> None:
        row = AuditRow(
            ts=self.kernel.now_ns(),
            kind=kind,
            principal=binding.identity.principal,
            detail=msgspec.json.encode({"peer": connection.peer, **detail}),
        )
        self.kernel.store.post(AppendAudit((row,)), _ignore)

    def audit_denial(
        self, binding: Binding, connection: AgentConnection, method: str, error: RpcError
    ) -> None:
        """A refusal for lack of authority; never with parameters."""
        members: dict[str, Any] = {
            name: error.data[name] for name in ("resource", "verb") if name in error.data
        }
        self.audit(
            "agent_denied", binding, connection, {"method": method, "kind": error.kind, **members}
        )

    # -- reload and drain --------------------------------------------------------------------------

    def config_changed(self) -> None:
        """A saved change: what is cached from the tree is put right."""
        for live in self.sessions:
            if live.idle:
                live.rest()

    def reload_soon(self) -> bool:
        """Reload after the answer went out; False when this router cannot."""
        if self.reload_daemon is None or self._listener is None:
            return False
        self.kernel.loop.call_soon(self._reload_now)
        return True

    def _reload_now(self) -> None:
        if self.reload_daemon is not None:
            self.reload_daemon()

    def reload(self) -> None:
        """Cancel turns, let clients receive what is queued, close, read the file, listen again."""
        if not self._reloading and not self.draining:
            self._reloading = True
            self.kernel.loop.call_later(RELOAD_PAUSE_S, lambda: self.spawn(self._reload()))

    async def _reload(self) -> None:
        try:
            await self._retire()
            try:
                self.config.reload()
            except Exception as error:  # noqa: BLE001 - the former configuration stays
                log.error("reload.failed", endpoint=NAME, err=str(error))
            self._connection_limit = max(1, self.settings.rpc.max_local_connections)
            self.draining = False
        finally:
            self._reloading = False

    async def drain(self) -> None:
        """The end: turns are cancelled, clients get what is queued, connections close."""
        if self._server is not None:
            self._server.close()
        if self._listener is not None:
            self._listener.remove()
        await self._retire()
        self.uploads.discard_all()
        self.broker.close()
        logs.SINK.observer = None

    async def _retire(self) -> None:
        self.draining = True
        for turn in self._turns:
            turn.cancel("daemon_retired")
        deadline = time.monotonic() + DRAIN_S
        while self._running and time.monotonic() < deadline:
            tasks = [turn.done.wait() for turn in self._running]
            waiting = [asyncio.ensure_future(task) for task in tasks]
            await asyncio.wait(
                waiting, timeout=deadline - time.monotonic(), return_when=asyncio.ALL_COMPLETED
            )
            for task in waiting:
                task.cancel()
        for connection in list(self.connections):
            connection.close()
        ended = [connection.ended for connection in self.connections]
        if ended:
            await asyncio.wait(ended, timeout=max(0.1, deadline - time.monotonic()))
        for connection in list(self.connections):
            connection.abort()


def _ignore(_result: object, _error: Exception | None) -> None:
    return None


HANDLERS: Final[dict[str, Handler]] = {
    "status": core_methods.status,
    "health": core_methods.health,
    "agents/list": core_methods.agents_list,
    "config/get": config_methods.get,
    "config/list": config_methods.list_props,
    "config/map-keys": config_methods.map_keys,
    "config/validate": config_methods.validate,
    "config/reload": config_methods.reload,
    "file/upload/chunk": file_methods.chunk,
    "logs/subscribe": core_methods.logs_subscribe,
    "subscription/cancel": core_methods.subscription_cancel,
}

ASYNC_HANDLERS: Final[dict[str, AsyncHandler]] = {
    "agents/status": core_methods.agents_status,
    "session/new": session_methods.new,
    "session/close": session_methods.close,
    "session/kill": session_methods.kill,
    "session/delete": session_methods.delete,
    "session/list": session_reads.list_sessions,
    "session/list-acp": session_reads.list_sessions,
    "session/messages": session_reads.messages,
    "session/state": session_reads.state,
    "session/cancel": session_methods.cancel_checked,
    "session/approve": session_methods.approve,
    "session/configure": session_methods.configure,
    "config/set": config_methods.set_prop,
    "config/set-many": config_methods.set_many,
    "config/delete": config_methods.delete,
    "config/map-key-create": config_methods.map_key_create,
    "config/map-key-delete": config_methods.map_key_delete,
    "file/attach": file_methods.attach,
    "file/upload/begin": file_methods.begin,
    "file/upload/commit": file_methods.commit,
    "fs/list_dir": file_methods.list_dir,
}
