"""The terminal methods (chapter 40 §14, 60 §5.13): numbers, quota and references in the router, the
terminals themselves in the session's worker.

Failure: parameters answer -32602; a terminal that is unknown, closed or of another session -32022;
more open terminals than the quota -32603 `quota`; what the worker says is passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params, internal, invalid_params, quota
from ipc.messages import Failure, Reply
from ipc.methods import METHODS, PtyOpenParams, PtyParams
from leash.verdict import APPROVAL, DENY, caps_admit
from supervisor.connection import RouterCall
from supervisor.contents import close_all, read_content
from supervisor.worker_process import Ending, Worker

if TYPE_CHECKING:
    from supervisor.attachments import Attachment
    from supervisor.kernel import Kernel

PTY_PREFIX: Final = "pty:"
_NUMBER_DIGITS_MAX: Final = 18
_encode_json = msgspec.json.Encoder().encode

OnSuccess = Callable[[bytes], None]
OnFailure = Callable[[int, bytes], None]


class _ErrorCode(msgspec.Struct):
    code: int


_error_code = msgspec.json.Decoder(_ErrorCode)


def _attached(call: RouterCall) -> Attachment:
    assert call.attachment is not None
    return call.attachment


def open_pty(kernel: Kernel, call: RouterCall) -> None:
    """`pty.open`: the number is the router's, so that it is one counter for the whole daemon."""
    params: PtyOpenParams = decode_params(call.params, METHODS["pty.open"].decoder)
    if not params.cmd:
        invalid_params("pty.open requires a non-empty cmd")
    attachment = _attached(call)
    session = attachment.session
    if kernel.draining:
        raise internal("shutting_down", "kernel is shutting down")
    _check_policy(kernel, attachment, params.cmd)
    limit = kernel.config.quotas.ptys_per_session
    if limit and session.ptys >= limit:
        raise quota("quotas.ptys_per_session", limit, session.ptys)
    kernel.last_pty += 1
    number = kernel.last_pty
    session.terminals[number] = True
    session.terminal_callers[number] = attachment.caller

    def failed(code: int, error: bytes) -> None:
        session.terminals.pop(number, None)
        session.terminal_callers.pop(number, None)
        # It was never given out: without gaps as long as nobody else got a later one.
        if kernel.last_pty == number:
            kernel.last_pty -= 1
        call.fail_raw(code, error)

    _forward(call, call.answer, failed, number)


def _check_policy(kernel: Kernel, attachment: Attachment, cmd: str) -> None:
    """The verdict on starting a program on a terminal (chapter 50 §10.9). What a pinned principal
    may start is judged by the worker, which knows the file."""
    standing = kernel.policies.standing(attachment.principal)
    policy, caps = standing.policy, attachment.caller.caps
    allowed_by_caps = caps_admit(caps, "proc_spawn") or caps_admit(caps, "opaque")
    if policy is not None and policy.pinned and allowed_by_caps:
        return
    word = standing.opaque_word if allowed_by_caps else DENY
    if word == DENY:
        raise RpcError(
            Code.LEASH_DENIED,
            f"leash: spawn of `{cmd}` on a pty denied — opaque work is not granted to "
            f"principal `{attachment.principal}`",
            "policy_denied",
            cmd=cmd,
        )
    if word == APPROVAL:
        raise RpcError(
            Code.APPROVAL_REQUIRED,
            "approval required to spawn this program on a pty",
            "approval_required",
            cmd=cmd,
        )


def known_pty(kernel: Kernel, call: RouterCall) -> None:
    """`pty.send`, `pty.read`, `pty.resize`: forwarded when the terminal is one of the session's."""
    params: PtyParams = decode_params(call.params, METHODS[call.method].decoder)
    number = _number(call, params.pty_id)
    _forward(call, call.answer, call.fail_raw, number)


def close_pty(kernel: Kernel, call: RouterCall) -> None:
    params: PtyParams = decode_params(call.params, METHODS["pty.close"].decoder)
    number = _number(call, params.pty_id)
    session = _attached(call).session
    # From now on nobody else finds it; closing twice is an unknown terminal the second time.
    was_alive = session.terminals.pop(number)
    session.terminal_callers.pop(number, None)

    def closed(result: bytes) -> None:
        if was_alive:
            kernel.events.terminal(session, number, alive=False)
        kernel.events.terminal_closed(session, number)
        call.answer(result)

    _forward(call, closed, call.fail_raw, number)


def list_ptys(kernel: Kernel, call: RouterCall) -> None:
    decode_params(call.params, METHODS["pty.list"].decoder)
    if not _attached(call).session.terminals:
        call.answer(_encode_json({"ptys": []}))
    else:
        _forward(call, call.answer, call.fail_raw, 0)


def _number(call: RouterCall, ref: str) -> int:
    """The number of a terminal of the attached session. Raises RpcError `unknown_pty`."""
    digits = ref.removeprefix(PTY_PREFIX)
    well_formed = (
        ref.startswith(PTY_PREFIX)
        and digits.isascii()
        and digits.isdigit()
        and digits[0] != "0"
        and len(digits) <= _NUMBER_DIGITS_MAX
    )
    if not well_formed or int(digits) not in _attached(call).session.terminals:
        raise unknown_pty()
    return int(digits)


def unknown_pty() -> RpcError:
    return RpcError(Code.UNKNOWN_PTY, "unknown or closed pty_id", "unknown_pty")


def _forward(call: RouterCall, then: OnSuccess, failed: OnFailure, number: int) -> None:
    attachment = _attached(call)

    def fail(error: RpcError) -> None:
        failed(error.code, error.encode())

    def ended(ending: Ending, fds: list[int]) -> None:
        match ending:
            case Reply():
                then(read_content(ending.result, fds))
            case Failure():
                failed(_error_code.decode(ending.error).code, ending.error)
            case RpcError():
                fail(ending)
            case _:
                close_all(fds)
                fail(internal("internal_error", "unexpected answer of the session worker"))

    def send(worker: Worker) -> None:
        worker.call(call.method, call.params, attachment.caller, ended, pty=number)

    attachment.session.with_worker(send, fail)
