"""Methods about sessions and the daemon: list, close, share, `server.info` (chapter 60 §5.4, §5.5).

Failure: `not_owner` for the attached session of somebody else, `unknown_session` for a name the
caller does not own, `session_in_use` for a close without `force`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from ipc.framing import LINE_BYTES_MAX
from ipc.jsonrpc import Code, RpcError, decode_params, internal, invalid_params
from ipc.methods import (
    AST_VERSION,
    KERNEL_PROTOCOL,
    METHODS,
    CloseParams,
    CloseResult,
    ListParams,
    OwnedSessionRow,
    ServerInfo,
    SessionRow,
    ShareParams,
    ShareResult,
)
from journal.records import SetShares
from supervisor.connection import REQUESTS_IN_FLIGHT_MAX, RouterCall
from supervisor.path_object import path_object
from supervisor.sessions import Session
from supervisor.version import VERSION

if TYPE_CHECKING:
    from supervisor.attachments import Attachment
    from supervisor.kernel import Kernel

log = structlog.get_logger()
_encode_json = msgspec.json.Encoder().encode


def _attached(call: RouterCall) -> Attachment:
    assert call.attachment is not None
    return call.attachment


def server_info(kernel: Kernel, call: RouterCall) -> None:
    from supervisor.kernel_endpoint import method_names

    limits = kernel.config.limits
    call.answer(
        _encode_json(
            ServerInfo(
                version=VERSION,
                kernel_protocol=KERNEL_PROTOCOL,
                ast_version=AST_VERSION,
                pid=os.getpid(),
                started_ns=kernel.started_ns,
                methods=method_names(),
                limits={
                    "frame_bytes": min(limits.max_frame_bytes, LINE_BYTES_MAX),
                    "page_bytes": limits.page_bytes,
                    "hard_cap": limits.hard_cap_bytes,
                    "requests_in_flight": REQUESTS_IN_FLIGHT_MAX,
                },
                tier=kernel.tier,
            )
        )
    )


def list_sessions(kernel: Kernel, call: RouterCall) -> None:
    params: ListParams = decode_params(call.params, METHODS["session.list"].decoder)
    attachment = _attached(call)
    if params.all and not attachment.caller.local_human:
        raise RpcError(
            Code.LEASH_DENIED, "listing every session needs operator authority", "not_operator"
        )
    principal = attachment.principal
    rows = [
        _row(session, principal)
        for session in sorted(kernel.sessions, key=lambda session: session.key)
        if params.all or session.owner == principal or principal in session.guests
    ]
    call.answer(_encode_json({"sessions": rows}))


def _row(session: Session, principal: str) -> SessionRow:
    worker = session.worker
    common: dict[str, Any] = {
        "session": session.name,
        "owner": session.owner,
        "owned": session.owner == principal,
        "state": session.state,
        "pid": worker.pid if worker is not None else None,
        "attached": session.attached,
        "tasks": len(session.tasks.live()),
        "ptys": session.ptys,
        "cwd": path_object(session.cwd),
        "created_ns": session.created_ns,
        "last_used_ns": session.last_used_ns,
    }
    if session.owner != principal:
        return SessionRow(**common)
    return OwnedSessionRow(
        **common,
        shared_with=sorted(session.guests),
        share_mode=session.share_mode if session.guests else None,
    )


def _own_session(kernel: Kernel, attachment: Attachment, name: str | None) -> Session:
    """The session of the caller that `name` means; default is the attached one."""
    if name is None:
        if attachment.guest:
            raise RpcError(Code.LEASH_DENIED, "session belongs to another principal", "not_owner")
        return attachment.session
    owner, slash, plain = name.rpartition("/")
    key = (attachment.principal, plain if slash and owner == attachment.principal else name)
    session = kernel.sessions.get(key)
    if session is None:
        raise RpcError(Code.UNKNOWN_REF, "unknown session", "unknown_session", session=name)
    return session


async def close_session(kernel: Kernel, call: RouterCall) -> bytes:
    params: CloseParams = decode_params(call.params, METHODS["session.close"].decoder)
    attachment = _attached(call)
    session = _own_session(kernel, attachment, params.session)
    tasks = session.tasks.live()
    mine = 1 if attachment.session is session and not attachment.ended else 0
    others = session.attached - mine
    if not params.force and (session.queued or tasks or others):
        raise internal(
            "session_in_use",
            "session is in use",
            session=session.name,
            tasks=len(tasks),
            attached=session.attached,
        )
    closed_ptys = session.ptys
    await kernel.sessions.forget(session)
    kernel.detach_all(session)
    log.info("session.close", session=session.name, owner=session.owner)
    return _encode_json(CloseResult(session.name, True, len(tasks), closed_ptys))


async def share_session(kernel: Kernel, call: RouterCall) -> bytes:
    params: ShareParams = decode_params(call.params, METHODS["session.share"].decoder)
    attachment = _attached(call)
    mode = params.mode if params.mode is not None else "full"
    if mode not in ("full", "read"):
        invalid_params("`mode` must be full or read")
    if any(not principal for principal in params.principals):
        invalid_params("`principals` must be non-empty strings")
    session = _own_session(kernel, attachment, params.session)
    guests = tuple(sorted(set(params.principals) - {session.owner}))
    await kernel.store.commit(
        SetShares(session.row_id, guests, "read" if mode == "read" else "full")
    )
    session.guests, session.share_mode = guests, mode if guests else None
    kernel.detach_guests(session)
    session.brief()
    log.info("session.share", session=session.name, owner=session.owner, guests=len(guests))
    return _encode_json(ShareResult(session.name, session.owner, list(guests), mode))
