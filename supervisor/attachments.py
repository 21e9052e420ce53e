"""Attachments: who a connection acts as, and in which session (chapter 60 §1.3, §4, §5.1).

Authentication comes first, then the session is found or made, then the connection's old attachment
is replaced. The `Caller` that workers get with every call is decided here and nowhere else.

Failure: RpcError with the codes of chapter 60 §5.1; the old attachment stays in place then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from ipc.jsonrpc import Code, RpcError, internal, quota
from ipc.messages import Caller
from ipc.methods import (
    AST_VERSION,
    ATTACH_CHANNELS,
    AttachParams,
    AttachResult,
    check_session_name,
)
from supervisor.path_object import path_object
from supervisor.sessions import Session
from supervisor.tokens import Token

if TYPE_CHECKING:
    from supervisor.connection import Connection
    from supervisor.kernel import Kernel
    from supervisor.worker_process import Worker

log = structlog.get_logger()


@dataclass(slots=True)
class Attachment:
    """The binding of one connection to one session and principal. Immutable but for its end."""

    session: Session
    principal: str
    profile: str
    token: Token | None
    caller: Caller
    guest: bool
    read_only: bool
    client_kind: str
    ended: bool = False

    def end(self) -> None:
        """Forget the attachment; harmless when done before."""
        if not self.ended:
            self.ended = True
            self.session.attached -= 1


@dataclass(frozen=True, slots=True)
class Identity:
    principal: str
    profile: str
    token: Token | None

    @property
    def caps(self) -> list[str]:
        return self.token.caps if self.token is not None else []


def authenticate(kernel: Kernel, connection: Connection, bearer: str | None) -> Identity:
    """The principal a connection acts as. Raises RpcError."""
    if bearer is not None:
        if kernel.tokens is None:
            kernel.metrics.count("shoal_auth_failures_total", "ephemeral")
            raise RpcError(
                Code.AUTH_FAILED, "bearer tokens unavailable in ephemeral kernel", "auth_failed"
            )
        try:
            token = kernel.tokens.authenticate(bearer, kernel.now_ns())
        except RpcError as error:
            log.warning("auth.failed", conn=connection.number, reason=error.kind)
            reason = "store" if error.kind == "token_store_unavailable" else "unknown"
            kernel.metrics.count("shoal_auth_failures_total", reason)
            raise
        return Identity(token.principal, token.profile, token)
    if kernel.config.kernel.require_token:
        kernel.metrics.count("shoal_auth_failures_total", "missing")
        raise RpcError(Code.AUTH_FAILED, "a token is required", "token_required")
    if connection.peer is None or connection.peer.must_present_token(kernel):
        kernel.metrics.count("shoal_auth_failures_total", "missing")
        raise RpcError(
            Code.AUTH_FAILED,
            "a process started by a session must present a token",
            "token_required",
        )
    if connection.peer_uid == kernel.uid:
        return Identity(kernel.local_human, "local-human", None)
    return Identity(f"uid:{connection.peer_uid}", "peer", None)


async def attach(kernel: Kernel, connection: Connection, params: AttachParams) -> AttachResult:
    """Serve `session.attach`."""
    name = params.session if params.session is not None else "default"
    check_session_name(name)
    identity = authenticate(kernel, connection, params.token or None)
    _check_connections(kernel, connection, identity.principal)
    session, guest = await _find(kernel, identity.principal, name)
    worker = await ready_worker(session)
    attachment = _attachment(kernel, connection, params, identity, session, guest)
    _replace(kernel, connection, attachment)
    log.info(
        "session.attach",
        conn=connection.number,
        principal=identity.principal,
        session=session.name,
        owner=session.owner,
    )
    return _result(kernel, identity, session, worker)


def _check_connections(kernel: Kernel, connection: Connection, principal: str) -> None:
    limit = kernel.config.quotas.connections_per_principal
    used = sum(
        1
        for other in kernel.connections
        if other is not connection
        and other.attachment is not None
        and other.attachment.principal == principal
    )
    if limit and used >= limit:
        raise quota("quotas.connections_per_principal", limit, used)


async def _find(kernel: Kernel, principal: str, name: str) -> tuple[Session, bool]:
    """The session a name means for a principal, and whether the principal is a guest there."""
    owner, slash, plain = name.rpartition("/")
    if not slash or owner == principal:
        session_name = plain if slash else name
        check_session_name(session_name)
        if kernel.draining:
            raise internal("shutting_down", "kernel is shutting down")
        return await kernel.sessions.open((principal, session_name)), False
    session = kernel.sessions.get((owner, plain))
    if session is None or principal not in session.guests:
        raise RpcError(Code.LEASH_DENIED, "session is not shared with this principal", "not_shared")
    return session, True


async def ready_worker(session: Session) -> Worker:
    """The session's worker once it can take calls. Raises RpcError."""
    future = session.kernel.loop.create_future()

    def then(worker: Worker) -> None:
        if not future.done():
            future.set_result(worker)

    def failed(error: RpcError) -> None:
        if not future.done():
            future.set_exception(error)

    session.with_worker(then, failed)
    worker: Worker = await future
    return worker


def _attachment(
    kernel: Kernel,
    connection: Connection,
    params: AttachParams,
    identity: Identity,
    session: Session,
    guest: bool,
) -> Attachment:
    client = params.client
    tty = bool(client is not None and client.tty)
    repl = bool(client is not None and client.tty and client.kind == "repl")
    local_human = identity.principal == kernel.local_human and not identity.caps
    caller = Caller(
        principal=identity.principal,
        connection=connection.number,
        tty=tty,
        repl=repl,
        local_human=local_human,
        caps=identity.caps,
        token=identity.token.id if identity.token is not None else "",
        budget=kernel.budget,
        page_bytes=kernel.config.limits.page_bytes,
    )
    return Attachment(
        session=session,
        principal=identity.principal,
        profile=identity.profile,
        token=identity.token,
        caller=caller,
        guest=guest,
        read_only=guest and session.share_mode == "read",
        client_kind=(client.kind or "") if client is not None else "",
    )


def _replace(kernel: Kernel, connection: Connection, attachment: Attachment) -> None:
    old = connection.attachment
    if old is not None:
        if old.session.owner != attachment.session.owner or old.principal != attachment.principal:
            kernel.bus.forget(connection)
        old.end()
    kernel.had_client = True
    attachment.session.attached += 1
    attachment.session.last_used_ns = kernel.now_ns()
    connection.attachment = attachment


def _result(kernel: Kernel, identity: Identity, session: Session, worker: Worker) -> AttachResult:
    policies = kernel.policies
    standing = policies.standing(identity.principal, identity.caps)
    enforced = policies.caps_enforced(identity.principal, identity.caps)
    caps: dict[str, Any] = {
        "enforced": enforced,
        "tier": kernel.tier,
        "available_tier": kernel.tier,
        "policy_principal": identity.principal,
        "profile": identity.profile,
        "token_caps": identity.caps,
        "opaque": standing.opaque_word,
        "approve": policies.approve_patterns(identity.principal, identity.caps),
        "token_id": identity.token.id if identity.token else None,
        "status": policies.sandbox_status(identity.principal, identity.caps),
    }
    budget = kernel.budget
    return AttachResult(
        session=session.name,
        owner=session.owner,
        principal=identity.principal,
        caps=caps,
        cwd=path_object(session.cwd),
        env_hash=session.env_hash,
        ast_version=AST_VERSION,
        caps_enforced=enforced,
        elide_defaults={
            "max_bytes": budget.max_bytes,
            "max_rows": budget.max_rows,
            "max_items": budget.max_items,
            "max_bytes_raw": budget.max_bytes_raw,
            "hard_cap": budget.hard_cap,
        },
        channels=ATTACH_CHANNELS,
        restored=True if session.restored else None,
        lost=session.lost if session.restored else None,
    )
