"""The kernel endpoint: the order of checks, and which handler serves which method (chapter 60 §5,
§9.4).

Checks come in one order: method known, token still valid, attachment, sharing mode; parameters and
what follows are the handler's. A handler takes the accepted call and answers it now or later; a
coroutine handler returns the encoded result.

Failure: every RpcError becomes the call's answer; anything unexpected becomes `internal_error` with
the details in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from ipc.jsonrpc import Code, RpcError, decode_params, internal, quota
from ipc.messages import Caller
from ipc.methods import METHODS, AttachParams, Gate, Method
from supervisor import (
    event_methods,
    operator_methods,
    plan_methods,
    pty_methods,
    session_methods,
    store_methods,
    task_methods,
    value_methods,
)
from supervisor.attachments import attach
from supervisor.connection import Connection, RouterCall
from supervisor.token_watch import require_token

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

log = structlog.get_logger()

NAME: Final = "kernel"
_encode_json = msgspec.json.Encoder().encode

# Answers the call itself, now or later.
Handler = Callable[["Kernel", RouterCall], None]
# Returns the encoded result.
AsyncHandler = Callable[["Kernel", RouterCall], Awaitable[bytes]]


async def _attach(kernel: Kernel, call: RouterCall) -> bytes:
    params: AttachParams = decode_params(call.params, METHODS["session.attach"].decoder)
    return _encode_json(await attach(kernel, call.connection, params))


def _parse(kernel: Kernel, call: RouterCall) -> None:
    decode_params(call.params, METHODS["parse"].decoder)
    _syntax(kernel, call, lambda result: call.answer(result))


def _complete(kernel: Kernel, call: RouterCall) -> None:
    decode_params(call.params, METHODS["complete"].decoder)
    attachment = call.attachment
    if attachment is None:
        _syntax(kernel, call, lambda result: call.answer(result))
        return

    def lexical(result: bytes) -> None:
        value_methods.session_names(kernel, call, result)

    _syntax(kernel, call, lexical)


def _syntax(kernel: Kernel, call: RouterCall, then: Callable[[bytes], None]) -> None:
    caller = call.attachment.caller if call.attachment else Caller("", call.connection.number)

    def answer(result: bytes | None, error: bytes | None) -> None:
        if result is not None:
            then(result)
        else:
            assert error is not None
            call.fail_raw(_code(error), error)

    kernel.syntax.call(call.method, call.params, caller, answer)


class _Code(msgspec.Struct):
    code: int


_code_decoder = msgspec.json.Decoder(_Code)


def _code(error: bytes) -> int:
    return _code_decoder.decode(error).code


HANDLERS: Final[dict[str, Handler]] = {
    "parse": _parse,
    "complete": _complete,
    "exec": task_methods.execute,
    "session.env": value_methods.worker_read,
    "session.cwd": value_methods.worker_read,
    "session.reef": value_methods.worker_read,
    "value.get": value_methods.worker_read,
    "kernel.reload": operator_methods.reload_kernel,
    "session.list": session_methods.list_sessions,
    "server.info": session_methods.server_info,
    "task.list": task_methods.list_tasks,
    "task.get": task_methods.get_task,
    "task.await": task_methods.await_task,
    "task.cancel": task_methods.cancel_task,
    "task.suspend": task_methods.suspend_task,
    "task.resume": task_methods.resume_task,
    "pty.open": pty_methods.open_pty,
    "pty.send": pty_methods.known_pty,
    "pty.read": pty_methods.known_pty,
    "pty.resize": pty_methods.known_pty,
    "pty.close": pty_methods.close_pty,
    "pty.list": pty_methods.list_ptys,
    "explain": plan_methods.explain,
    "plan.apply": plan_methods.apply,
    "events.publish": event_methods.publish,
    "events.subscribe": event_methods.subscribe,
    "events.unsubscribe": event_methods.unsubscribe,
    "events.read": event_methods.read,
}

ASYNC_HANDLERS: Final[dict[str, AsyncHandler]] = {
    "session.attach": _attach,
    "session.close": session_methods.close_session,
    "session.share": session_methods.share_session,
    "blob.get": value_methods.blob_get,
    "kernel.status": operator_methods.kernel_status,
    "kernel.store": store_methods.kernel_store,
    "plan.get": plan_methods.get_plan,
    "plan.list": plan_methods.list_plans,
    "cap.request": plan_methods.request_caps,
    "journal.query": value_methods.journal_query,
}


class KernelEndpoint:
    """Serves every connection of the kernel socket."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._next_number = 1

    def connect(self) -> Connection:
        """The protocol of a new connection."""
        number, self._next_number = self._next_number, self._next_number + 1
        return Connection(self._kernel, self, number, NAME)

    # -- connection life ---------------------------------------------------------------------------

    def opened(self, connection: Connection) -> RpcError | None:
        kernel = self._kernel
        admitted = connection.peer_uid == kernel.uid
        if not admitted and str(connection.peer_uid) not in kernel.config.kernel.peer_uids:
            log.warning("conn.refused", reason="peer_uid", uid=connection.peer_uid)
            kernel.metrics.count("shoal_connections_rejected_total", "peer_uid")
            return RpcError(Code.AUTH_FAILED, "peer user is not the kernel's user", "peer_refused")
        limit = kernel.config.quotas.connections
        if limit and len(kernel.connections) >= limit:
            kernel.metrics.count("shoal_connections_rejected_total", "quota")
            return quota("quotas.connections", limit, len(kernel.connections))
        kernel.connections.add(connection)
        kernel.metrics.count("shoal_connections_total", NAME)
        log.debug("conn.open", conn=connection.number)
        return None

    def closed(self, connection: Connection) -> None:
        kernel = self._kernel
        if connection not in kernel.connections:
            return
        kernel.connections.discard(connection)
        kernel.bus.forget(connection)
        if connection.attachment is not None:
            connection.attachment.end()
            connection.attachment = None
        log.debug("conn.close", conn=connection.number)
        kernel.connection_closed()

    # -- requests ----------------------------------------------------------------------------------

    def accept(self, call: RouterCall) -> None:
        try:
            method = METHODS.get(call.method)
            if method is None or not self._serves(call.method):
                raise RpcError(Code.METHOD_NOT_FOUND, "method not found", "method_not_found")
            self._check(method, call)
            handler = HANDLERS.get(call.method)
            if handler is not None:
                handler(self._kernel, call)
                return
        except RpcError as error:
            call.fail(error)
            return
        except Exception:  # noqa: BLE001 - one broken call must not end the router
            self._unexpected(call)
            return
        self._kernel.loop.create_task(self._run(ASYNC_HANDLERS[call.method], call))

    @staticmethod
    def _serves(method: str) -> bool:
        return method in HANDLERS or method in ASYNC_HANDLERS

    async def _run(self, handler: AsyncHandler, call: RouterCall) -> None:
        try:
            call.answer(await handler(self._kernel, call))
        except RpcError as error:
            call.fail(error)
        except Exception:  # noqa: BLE001 - one broken call must not end the router
            self._unexpected(call)

    def _unexpected(self, call: RouterCall) -> None:
        log.exception("request.failed", conn=call.connection.number, method=call.method)
        call.fail(internal("internal_error", "unexpected failure in the kernel"))

    def _check(self, method: Method, call: RouterCall) -> None:
        """Token, attachment and sharing mode, in this order."""
        attachment = call.attachment
        if method.gate is Gate.PUBLIC:
            return
        if attachment is not None and attachment.token is not None:
            require_token(self._kernel, call.connection, attachment)
        if attachment is None or attachment.ended or attachment.session.closing:
            raise RpcError(Code.NOT_ATTACHED, "attach to a session first", "not_attached")
        if attachment.read_only and not method.read_guest:
            raise RpcError(Code.LEASH_DENIED, "session is shared read-only", "read_only_guest")


def method_names() -> list[str]:
    """Every method this endpoint serves, sorted."""
    return sorted([*HANDLERS, *ASYNC_HANDLERS])
