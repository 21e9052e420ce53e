"""The terminal methods in the worker (chapter 40 §14, 60 §5.13).

Opening and closing run on a thread of their own, since a program may be slow to load and a killed
one slow to go; everything else is answered on the I/O thread.

Failure: unknown terminals -32022; a program that may not start -32010, one that cannot -32023, both
with `cmd`; input that is none -32602; a terminal that cannot be written to -32603 `pty_io`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params, internal, invalid_params
from ipc.messages import Call, TerminalChanged
from ipc.methods import (
    METHODS,
    PtyCloseResult,
    PtyCursor,
    PtyExit,
    PtyListResult,
    PtyOpenParams,
    PtyOpenResult,
    PtyResizeParams,
    PtyResizeResult,
    PtyRow,
    PtyScreen,
    PtySendParams,
    PtySendResult,
)
from worker.errors import Raised
from worker.link import LinkClosed
from worker.ptys import Announce, Exit, Pty, PtyClosed
from worker.terminals.keys import BadInput, input_bytes

if TYPE_CHECKING:
    from worker.session import Session

COLUMNS: Final = 80
ROWS: Final = 24
_encode_json = msgspec.json.Encoder().encode


def pty_open(session: Session, call: Call) -> bytes:
    params: PtyOpenParams = decode_params(call.params, METHODS["pty.open"].decoder)
    try:
        pty = session.terminals.open(
            session.evaluator_for_terminal(call.caller, params.cmd),
            call.pty,
            params.cmd,
            params.args or [],
            cols=COLUMNS if params.cols is None else params.cols,
            rows=ROWS if params.rows is None else params.rows,
            env=params.env or {},
            announce=_announcer(session, call.pty),
        )
    except Raised as refusal:
        raise _refused(refusal, params.cmd, call.caller.principal) from None
    return _encode_json(PtyOpenResult(_ref(call.pty), pty.pid, pty.cols, pty.rows, pty.command))


def _announcer(session: Session, number: int) -> Announce:
    def announce(_changed: bool, alive: bool) -> None:
        with contextlib.suppress(LinkClosed):
            session.link.send(TerminalChanged(number, alive))

    return announce


def _refused(refusal: Raised, cmd: str, principal: str) -> RpcError:
    """The wire error of a program that did not start (chapter 50 §10.9)."""
    error = refusal.error
    denied = {
        "spawn_denied": f"not in principal `{principal}`'s proc_spawn allowlist",
        "leash_denied": f"opaque work is not granted to principal `{principal}`",
    }.get(error.code)
    if denied is not None:
        text = f"leash: spawn of `{cmd}` on a pty denied — {denied}"
        return RpcError(Code.LEASH_DENIED, text, "policy_denied", cmd=cmd)
    return RpcError(Code.PTY_SPAWN_FAILED, error.msg, "pty_spawn_failed", cmd=cmd)


def pty_send(session: Session, call: Call) -> bytes:
    params: PtySendParams = decode_params(call.params, METHODS["pty.send"].decoder)
    pty = _pty(session, call)
    try:
        data = input_bytes(msgspec.json.decode(params.input))
    except BadInput as error:
        invalid_params(str(error))
    try:
        sent = pty.send(data)
    except PtyClosed as error:
        raise internal("pty_io", f"pty write failed: {error}", pty_id=_ref(call.pty)) from None
    return _encode_json(PtySendResult(_ref(call.pty), sent))


def pty_read(session: Session, call: Call) -> bytes:
    pty = _pty(session, call)
    view = pty.read()
    return _encode_json(
        PtyScreen(
            _ref(call.pty),
            pty.command,
            view.cols,
            view.rows,
            PtyCursor(view.row, view.column, view.hidden),
            view.screen,
            view.changed,
            view.alive,
            _exit(view.exit),
            pty.pid,
        )
    )


def pty_resize(session: Session, call: Call) -> bytes:
    params: PtyResizeParams = decode_params(call.params, METHODS["pty.resize"].decoder)
    pty = _pty(session, call)
    pty.resize(params.cols, params.rows)
    return _encode_json(PtyResizeResult(_ref(call.pty), pty.cols, pty.rows))


def pty_close(session: Session, call: Call) -> bytes:
    closed = session.terminals.close(call.pty)
    if closed is None:
        raise _unknown()
    return _encode_json(PtyCloseResult(_ref(call.pty), True, _exit(closed[1])))


def pty_list(session: Session, call: Call) -> bytes:
    rows = [
        PtyRow(_ref(pty.number), pty.command, pty.pid, pty.cols, pty.rows, pty.alive)
        for pty in session.terminals.list()
    ]
    return _encode_json(PtyListResult(rows))


def _pty(session: Session, call: Call) -> Pty:
    pty = session.terminals.get(call.pty)
    if pty is None:
        raise _unknown()
    return pty


def _unknown() -> RpcError:
    return RpcError(Code.UNKNOWN_PTY, "unknown or closed pty_id", "unknown_pty")


def _exit(ending: Exit | None) -> PtyExit | None:
    return None if ending is None else PtyExit(ending.status, ending.signal)


def _ref(number: int) -> str:
    return f"pty:{number}"
