"""`exec` and the task methods (chapter 60 §5.9, §5.12).

Failure: parameters answer -32602, unknown tasks -32021 before everything else, control that is not
possible -32020; what a submission ends with is its own answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params, invalid_params
from ipc.methods import (
    METHODS,
    ExecParams,
    TaskAwaitParams,
    TaskCancelResult,
    TaskHeldResult,
    TaskParams,
)
from supervisor import plan_methods
from supervisor.connection import RouterCall
from supervisor.submissions import (
    Answer,
    Submission,
    check_accepting,
    journal_unavailable,
)
from supervisor.task_records import record_task, start_task
from supervisor.tasks import CANCELLING, RUNNING, Task

if TYPE_CHECKING:
    from supervisor.attachments import Attachment
    from supervisor.kernel import Kernel

_encode_json = msgspec.json.Encoder().encode
_EXEC_DECODER: Final = METHODS["exec"].decoder


class _ErrorCode(msgspec.Struct):
    code: int


_error_code = msgspec.json.Decoder(_ErrorCode)


def _attached(call: RouterCall) -> Attachment:
    assert call.attachment is not None
    return call.attachment


def _give(call: RouterCall, ok: bool, body: bytes) -> None:
    if ok:
        call.answer(body)
    else:
        call.fail_raw(_error_code.decode(body).code, body)


def execute(kernel: Kernel, call: RouterCall) -> None:
    """Serve `exec`."""
    params: ExecParams = decode_params(call.params, _EXEC_DECODER)
    mode = params.mode if params.mode is not None else "run"
    if mode not in ("run", "plan", "approved"):
        invalid_params("mode must be run or plan")
    if params.async_ is not None and params.background is not None:
        invalid_params("`background` is an alias of `async`: give one of them")
    attachment = _attached(call)
    check_accepting(kernel, attachment.session)
    if params.async_ or params.background:
        _execute_as_task(kernel, call, params, None)
    elif params.timeout_ms is not None:
        _execute_as_task(kernel, call, params, params.timeout_ms)
    else:
        _submission(kernel, call, params, lambda ok, body: _give(call, ok, body)).submit()


def _submission(
    kernel: Kernel, call: RouterCall, params: ExecParams, answer: Answer, task: Task | None = None
) -> Submission:
    """The submission of an `exec`, as its mode says."""
    attachment = _attached(call)
    mode = params.mode
    return Submission(
        kernel,
        attachment.session,
        attachment.caller,
        call.params,
        params.src,
        answer,
        task,
        method="plan" if mode == "plan" else "exec",
        prepare=plan_methods.approved_run(kernel, params.src, params.plan_ref)
        if mode == "approved"
        else None,
        on_reply=plan_methods.planned(kernel) if mode == "plan" else None,
    )


def _execute_as_task(
    kernel: Kernel, call: RouterCall, params: ExecParams, timeout_ms: int | None
) -> None:
    """Run a submission as a task; answer at once, or when it ends within the wait budget."""
    attachment = _attached(call)
    session = attachment.session
    task = start_task(kernel, session, attachment.caller)
    started = {"task": task.ref, "events": task.channel}
    recorded = kernel.loop.create_future()
    waiting = timeout_ms is not None

    def ended(ok: bool, body: bytes) -> None:
        if waiting:
            # A plan has no value of its own to answer with.
            _give(call, ok, _encode_json(started) if ok and params.mode == "plan" else body)

    def timed_out() -> None:
        if recorded.done() and recorded.result() is None:
            call.answer(_encode_json({**started, "timed_out": True}))
        elif not recorded.done():
            recorded.add_done_callback(lambda _future: timed_out())

    def committed(error: Exception | None) -> None:
        recorded.set_result(error)
        if error is not None:
            submission.cancel()
            call.fail(journal_unavailable(error))
        elif not waiting:
            call.answer(_encode_json(started))

    submission = _submission(kernel, call, params, ended, task)
    session.task_submissions[task.number] = submission
    record_task(kernel, session, task, committed)
    submission.submit()
    if timeout_ms is not None:
        kernel.loop.call_later(timeout_ms / 1000, timed_out)


def list_tasks(kernel: Kernel, call: RouterCall) -> None:
    tasks = _attached(call).session.tasks.all()
    call.answer(b"[" + b",".join(task.encode() for task in tasks) + b"]")


def _task(call: RouterCall) -> Task:
    params: TaskParams = decode_params(call.params, METHODS["task.get"].decoder)
    return _attached(call).session.tasks.get(params.task)


def get_task(kernel: Kernel, call: RouterCall) -> None:
    call.answer(_task(call).encode())


def await_task(kernel: Kernel, call: RouterCall) -> None:
    """Answer when the task is final, or at the timeout; the connection's other requests go on."""
    params: TaskAwaitParams = decode_params(call.params, METHODS["task.await"].decoder)
    task = _attached(call).session.tasks.get(params.task)
    if not task.live:
        call.answer(task.encode())
        return
    timer: asyncio.TimerHandle | None = None

    def settled() -> None:
        if timer is not None:
            timer.cancel()
        call.answer(task.encode())

    def timed_out() -> None:
        task.waiters.remove(settled)
        call.answer(task.encode())

    task.waiters.append(settled)
    if params.timeout_ms is not None:
        timer = kernel.loop.call_later(params.timeout_ms / 1000, timed_out)


def cancel_task(kernel: Kernel, call: RouterCall) -> None:
    attachment = _attached(call)
    task = _task(call)
    submission = attachment.session.task_submissions.get(task.number)
    if task.live and submission is not None:
        task.state = CANCELLING
        task.suspended = False
        submission.cancel()
    call.answer(_encode_json(TaskCancelResult(task.ref, True)))


def suspend_task(kernel: Kernel, call: RouterCall) -> None:
    _hold(call, True)


def resume_task(kernel: Kernel, call: RouterCall) -> None:
    _hold(call, False)


def _hold(call: RouterCall, hold: bool) -> None:
    attachment = _attached(call)
    task = _task(call)
    submission = attachment.session.task_submissions.get(task.number)
    unavailable = RpcError(
        Code.TASK_CONTROL_UNAVAILABLE,
        "task control is unavailable",
        "task_control_unavailable",
        task=task.ref,
    )
    if not task.live or task.state != RUNNING or submission is None or not submission.running:
        raise unavailable
    if task.suspended == hold:
        call.answer(_encode_json(TaskHeldResult(task.ref, hold)))
        return

    def done(standing: bool) -> None:
        if not standing:
            call.fail(unavailable)
            return
        task.suspended = hold and task.live
        call.answer(_encode_json(TaskHeldResult(task.ref, hold)))

    submission.hold(hold, done)
