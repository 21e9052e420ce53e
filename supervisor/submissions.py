"""Submissions in the router: from acceptance to the committed answer (chapter 60 §5.9, 61 §3.2).

A submission is forwarded to its session's worker, gets its journal row when it starts, and is
answered only after everything its answer promises was committed; events follow the commit. As a
task it has a record and may outlive the request that made it.

Failure: a store that cannot commit refuses the run before it begins, or answers
`journal_unavailable` with the ref when the work ran; a worker's end answers `worker_lost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from ipc.jsonrpc import RpcError, internal, quota
from ipc.messages import (
    Caller,
    Cancel,
    Failure,
    Finished,
    Go,
    Progress,
    ProtocolError,
    Refuse,
    Reply,
    Started,
    Watch,
    decode_changes,
)
from journal.errors import OperationRefused, StoreError, StoreUnavailable
from journal.records import (
    AppendAudit,
    AuditRow,
    BeginSubmission,
    CellChanges,
    FinishSubmission,
    FinishTask,
    Interrupted,
    InterruptSubmissions,
    Output,
    Probe,
    SaveCells,
    TaskEnd,
    WriteStatements,
)
from journal.records import Finished as Committed
from supervisor.approvals import StoredApproval, refusal_of, refusal_row, used_row
from supervisor.contents import Contents, close_all, read_content
from supervisor.sessions import QUEUED_SUBMISSIONS_MAX, Session
from supervisor.submission_rows import SubmissionRows
from supervisor.task_records import end_task
from supervisor.tasks import CANCELLING, Task, end_state
from supervisor.worker_process import Ending, Worker

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

log = structlog.get_logger()

# Gets whether the submission succeeded, and its encoded result or error object.
Answer = Callable[[bool, bytes], None]
# Finds out what a submission needs to know before it is forwarded; ends in `proceed` or `refuse`.
Prepare = Callable[["Submission"], None]
# Gets what the worker answered to a submission that is no run.
OnReply = Callable[["Submission", bytes], None]

_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of a submission on its way into the store; `cells` is everything saved with it."""

    finished: Finished
    body: bytes
    ended_ns: int
    cells: CellChanges


class Submission:
    # The states follow each other: accepted, ready (`_ready`), sent (`worker` set), started
    # (`entry` set), ended. An answer is given once, by `_answered`, and only after what it promises
    # was committed. Until it is ready a submission keeps its place in the session's line.

    def __init__(
        self, kernel: Kernel, session: Session, caller: Caller, params: bytes, src: str,
        answer: Answer, task: Task | None = None, *, method: str = "exec",
        prepare: Prepare | None = None, on_reply: OnReply | None = None,
    ) -> None:  # fmt: skip
        self._method = method
        self._prepare = prepare
        self._on_reply = on_reply
        self._ready = False
        self._approval: StoredApproval | None = None
        self._kernel = kernel
        self.session = session
        self.caller = caller
        self._params = params
        self._src = src
        self._answer = answer
        self.task = task
        self._worker: Worker | None = None
        self._call_id = 0
        self._entry = 0
        self._rows = SubmissionRows(kernel.store, 0)
        self._begun = False
        self._unposted: BeginSubmission | None = None
        self._uncommitted = False
        self._head = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._cancel_requested = False
        self._over = False

    # -- acceptance --------------------------------------------------------------------------------

    def submit(self) -> None:
        """Queue the submission; `check_accepting` came before."""
        session, kernel = self.session, self._kernel
        session.queued += 1
        session.last_used_ns = kernel.now_ns()
        session.line.append(self)
        if self._method == "explain":
            self.proceed()
        elif kernel.store.failure is not None and kernel.config.journal.on_failure == "refuse":
            kernel.store.post(Probe(), self._probed)
        else:
            self._accepted()

    def _probed(self, _result: None, error: Exception | None) -> None:
        if error is not None:
            self._end_unrun(journal_unavailable(error).encode())
        else:
            self._accepted()

    def _accepted(self) -> None:
        if self._prepare is None:
            self.proceed()
        else:
            self._prepare(self)

    def proceed(self) -> None:
        """What had to be known before is known: forward the submission when its turn comes."""
        self._ready = True
        self._advance()

    def hold_to(self, approval: StoredApproval) -> None:
        """Make this a run under that stored plan."""
        self._approval = approval

    def set_source(self, params: bytes, src: str) -> None:
        """What to run, when the request only named it."""
        self._params, self._src = params, src

    def refuse(self, error: RpcError) -> None:
        """End a submission that must not be forwarded."""
        self._note_refusal(error.encode())
        self._end_unrun(error.encode())

    def _advance(self) -> None:
        line = self.session.line
        while line and (line[0]._ready or line[0]._over):
            first = line.popleft()
            if not first._over:
                first._forward()

    def _forward(self) -> None:
        self.session.with_worker(self._send, lambda error: self._end_unrun(error.encode()))

    def _send(self, worker: Worker) -> None:
        if self._over:
            return
        self._worker = worker
        number = 0 if self.task is None else self.task.number
        approval = b"" if self._approval is None else self._approval.message(self._kernel.now_ns())
        self._call_id = worker.call(
            self._method, self._params, self.caller, self._ended, number, approval=approval
        )
        if not self._over:
            self.session.submissions[self._call_id] = self
            self.session.asked_as(self._call_id, self)
            if self.task is not None and self.task.watched:
                worker.send(Watch(number, True))
            if self._cancel_requested:
                worker.send(Cancel(self._call_id))

    def watch(self) -> None:
        """Have the output of the task published while it runs."""
        if self._worker is not None and self.task is not None and not self._over:
            self._worker.send(Watch(self.task.number, True))

    def cancel(self) -> None:
        """Ask for the end of the submission, waiting or running."""
        self._cancel_requested = True
        if self._worker is not None and not self._over:
            self._worker.send(Cancel(self._call_id))

    @property
    def running(self) -> bool:
        return self._begun and not self._over

    def hold(self, hold: bool, done: Callable[[bool], None]) -> None:
        """Suspend or continue a running submission."""
        if self._worker is None:
            done(False)
        else:
            self._worker.hold(self._call_id, hold, done)

    # -- the start ---------------------------------------------------------------------------------

    def on_started(self, started: Started, fds: list[int], *, over: bool = False) -> None:
        """The submission begins; `over` when its end is there as well."""
        kernel = self._kernel
        if self._begun:
            close_all(fds)
            return
        refusal = self._judged(started)
        if refusal is not None:
            close_all(fds)
            self._stop(refusal)
            return
        self._begun = True
        self._head = started.head
        wall_s = kernel.config.limits.exec_wall_s
        if wall_s:
            self._deadline = kernel.loop.call_later(wall_s, self.cancel)
        self._entry = kernel.store.reserve_entries(1)
        self._rows = SubmissionRows(kernel.store, self._entry)
        begin = BeginSubmission(
            entry_id=self._entry,
            owner=self.session.owner,
            session=self.session.name,
            principal=self.caller.principal,
            ts=started.ts,
            cwd=started.cwd,
            src=self._src,
            ast=read_content(started.ast, fds),
            effects=started.effects,
            effect_kinds=tuple(dict.fromkeys(started.effect_kinds)),
            task=None if self.task is None else self.task.ref,
            approval=self._approval.key
            if self._approval is not None and started.uses_approval
            else None,
            audit=self._approval_used(started),
        )
        if started.wait:
            kernel.store.post(begin, self._begun_waiting)
        else:
            self._unposted = begin
            if not over:
                self._post_begin()

    def _post_begin(self) -> None:
        """Post the row of a program that runs already; right before its end when that is there, so
        that both are done together."""
        begin, self._unposted = self._unposted, None
        if begin is not None:
            self._kernel.store.post(begin, self._begun_running)

    def _begun_waiting(self, _result: None, error: Exception | None) -> None:
        worker = self._worker
        if worker is None or self._over:
            return
        if error is None:
            worker.send(Go(self._call_id, self._entry))
        elif self._may_continue(error):
            self._uncommitted = True
            worker.send(Go(self._call_id, 0))
        elif self._approval is not None and isinstance(error, OperationRefused):
            self._stop(self._approval.lost(error))
        else:
            self._stop(journal_unavailable(error))

    def _stop(self, error: RpcError) -> None:
        """Tell the worker not to begin, and answer why."""
        assert self._worker is not None
        self._worker.send(Refuse(self._call_id))
        self._worker.forget(self._call_id)
        self._note_refusal(error.encode())
        self._end_unrun(error.encode())

    def _judged(self, started: Started) -> RpcError | None:
        """Why a run that waits must not begin, by the policy as it is here and now. Whoever does
        not wait runs already, and has no effects."""
        if not started.wait:
            return None
        return refusal_of(self._kernel.policies, self.caller, started, self._approval)

    def _approval_used(self, started: Started) -> tuple[AuditRow, ...]:
        if self._approval is None or not started.uses_approval:
            return ()
        return (used_row(self._approval, self.caller, self._entry, started.ts),)

    def _note_refusal(self, error: bytes) -> None:
        """A run stopped by policy leaves an audit row."""
        row = refusal_row(self._kernel.policies, self.session, self.caller, error)
        if row is not None:
            self._kernel.store.post(AppendAudit((row,)), _ignore)

    def _begun_running(self, _result: None, error: Exception | None) -> None:
        if error is not None:
            self._uncommitted = True

    def _may_continue(self, error: Exception) -> bool:
        # An approval that cannot be used up admits nothing.
        return (
            isinstance(error, StoreUnavailable)
            and self._approval is None
            and self._kernel.config.journal.on_failure == "continue"
        )

    # -- while it runs, and after ------------------------------------------------------------------

    def on_progress(self, worker: Worker, progress: Progress, fds: list[int]) -> None:
        """Statement rows and inverses that do not wait for the end."""
        try:
            contents = self._contents(fds)
            operation = WriteStatements(
                owner=self.session.owner,
                session=self.session.name,
                principal=self.caller.principal,
                task=None if self.task is None else self.task.ref,
                statements=self._rows.statements(progress.statements, contents),
                undo=self._rows.undo(progress.undo, contents),
            )
        except (ProtocolError, IndexError, OSError) as error:
            self._violation(error, fds)
            return
        if not self._begun or self._uncommitted:
            close_all(fds)
            return
        self.session.posts.post(operation, self._rows_written, large=contents.large)

    def _rows_written(self, _skipped: int | None, error: StoreError | None) -> None:
        # The work goes on without them (chapter 61 §8.2).
        if error is not None:
            self._kernel.metrics.count("shoal_journal_errors_total", "statement")

    def _contents(self, fds: list[int]) -> Contents:
        return Contents(fds, self.session.held, self._kernel.config.journal.output_cap_bytes)

    def _violation(self, error: Exception, fds: list[int]) -> None:
        close_all(fds)
        log.error("worker.exit", session=self.session.name, err=str(error))
        if self._worker is not None:
            self._worker.kill("protocol: contents")

    # -- the end -----------------------------------------------------------------------------------

    def _ended(self, ending: Ending, fds: list[int]) -> None:
        if self._over:
            close_all(fds)
            return
        match ending:
            case Finished():
                self._finish(ending, fds)
            case Failure() if self._begun:
                self._broke_off(bytes(ending.error))
            case Failure():
                self._note_refusal(bytes(ending.error))
                self._end_unrun(bytes(ending.error))
            case RpcError():
                self._broke_off(ending.encode())
            case Reply() if self._on_reply is not None:
                self._on_reply(self, read_content(ending.result, fds))
            case Reply():
                close_all(fds)
                self._end_unrun(internal("internal_error", "unexpected answer").encode())

    def _finish(self, finished: Finished, fds: list[int]) -> None:
        session, kernel = self.session, self._kernel
        if finished.started is not None:
            self.on_started(finished.started, fds, over=True)
        session.next_out = max(session.next_out, finished.out + 1)
        session.cwd = finished.cwd
        session.env_hash = finished.env_hash
        try:
            contents = self._contents(fds)
            body = contents.read(finished.body)
            operation = self._finish_operation(finished, contents)
        except (ProtocolError, IndexError, OSError) as error:
            self._violation(error, fds)
            self._post_begin()
            self._broke_off(internal("worker_lost", "session worker ended").encode())
            return
        kernel.metrics.observe("shoal_exec_duration_seconds", finished.dur_ns / 1e9)

        assert operation.cells is not None
        ended = _Ended(finished, body, operation.ended_ns, operation.cells)

        def committed(result: Committed | None, error: StoreError | None) -> None:
            self._committed(ended, result, error)

        if self._uncommitted and kernel.config.journal.on_failure == "continue":
            session.unsaved.add(ended.cells)
            self._answer_uncommitted(ended)
        elif self._unposted is not None and not contents.large and not session.posts.waiting:
            begin, self._unposted = self._unposted, None
            kernel.store.post_all([(begin, self._begun_running), (operation, committed)])
        else:
            self._post_begin()
            session.posts.post(operation, committed, large=contents.large)

    def _finish_operation(self, finished: Finished, contents: Contents) -> FinishSubmission:
        kernel, session = self._kernel, self.session
        outputs = tuple(
            Output(output.kind, contents.stored(output.content))  # type: ignore[arg-type]
            for output in finished.outputs
        )
        statements = self._rows.statements(finished.statements, contents)
        undo = self._rows.undo(finished.undo, contents)
        state = decode_changes(contents.read(finished.cells))
        now_ns = kernel.now_ns()
        task_end = None
        if self.task is not None:
            task_end = self._task_end(finished, contents, now_ns)
        return FinishSubmission(
            entry_id=self._entry,
            owner=session.owner,
            session=session.name,
            principal=self.caller.principal,
            ended_ns=now_ns,
            dur_ns=finished.dur_ns,
            status=finished.status,
            ok=finished.ok,
            task=None if self.task is None else self.task.ref,
            outputs=outputs,
            transcript=finished.transcript or None,
            statements=statements,
            undo=undo,
            cells=session.unsaved.take(
                CellChanges(
                    session_id=session.row_id,
                    changed=tuple([(cell.name, cell.value) for cell in state.changed]),
                    removed=tuple(state.removed),
                    next_out=session.next_out,
                    last_used_ns=now_ns,
                    pinned=tuple([digest for digest in state.pinned if digest in session.held]),
                    unpinned=tuple(state.unpinned),
                )
            ),
            task_end=task_end,
        )

    def _task_end(self, finished: Finished, contents: Contents, now_ns: int) -> TaskEnd:
        assert self.task is not None
        state = end_state(finished.ending, self.task.state == CANCELLING)
        return TaskEnd(
            self.task.number,
            state,  # type: ignore[arg-type]
            now_ns,
            f"out:{finished.out}" if finished.ok else None,
            None if finished.ok else contents.read(finished.body),
        )

    def _committed(self, ended: _Ended, result: Committed | None, error: StoreError | None) -> None:
        session, kernel = self.session, self._kernel
        if error is not None:
            session.unsaved.add(ended.cells)
            if self._may_continue(error):
                self._answer_uncommitted(ended)
                return
            kernel.metrics.count("shoal_journal_errors_total", "finish")
            kernel.recovery.unended(session, self._entry)
            failure = journal_unavailable(error, ref=f"out:{ended.finished.out}")
            self._over_now("failed")
            self._end_task("failed", None, failure.encode())
            self._answer(False, failure.encode())
            return
        assert result is not None
        # At once, whatever the answer waits for: numbers ascend over all sessions.
        kernel.events.submission_ended(
            session,
            self.caller,
            entry=self._entry,
            head=self._head,
            ok=ended.finished.ok,
            committed=result,
            ended_ns=ended.ended_ns,
            transcript=ended.finished.transcript,
            render=ended.finished.render,
        )
        session.unsaved.drop(ended.cells)
        if session.unsaved:
            # The commit before this one failed when this one was under way already.
            rest = session.unsaved.take(CellChanges(session_id=session.row_id))

            def saved(_result: None, failure: StoreError | None) -> None:
                if failure is not None:
                    session.unsaved.add(rest)
                self._answer_committed(ended)

            kernel.store.post(SaveCells(rest), saved)
        else:
            self._answer_committed(ended)

    def _answer_committed(self, ended: _Ended) -> None:
        finished = ended.finished
        self._over_now("ok" if finished.ok else finished.ending)
        self.session.assigned(ended.cells)
        self._answer_ended(ended, ended.body)

    def _answer_uncommitted(self, ended: _Ended) -> None:
        """The answer of a run that the store knows nothing about (chapter 61 §8.2)."""
        finished, body = ended.finished, ended.body
        self._over_now("ok" if finished.ok else finished.ending)
        if finished.ok and body.endswith(b"}"):
            body = body[:-1] + b',"committed":false}'
        self._answer_ended(ended, body)

    def _answer_ended(self, ended: _Ended, body: bytes) -> None:
        finished = ended.finished
        if finished.ok and self.caller.repl:
            self.session.remember(self.caller.connection, finished.out)
        if self.task is not None:
            self._end_task(
                end_state(finished.ending, self.task.state == CANCELLING),
                f"out:{finished.out}" if finished.ok else None,
                None if finished.ok else body,
            )
        self._answer(finished.ok, body)

    def conclude(self, result: bytes) -> None:
        """The end of a submission that only planned: no row, no value."""
        if self._over:
            return
        self._over_now("ok")
        if self.task is not None:
            end = TaskEnd(self.task.number, "completed", self._kernel.now_ns(), None, None)

            def recorded(_result: bool | None, _error: Exception | None) -> None:
                self._end_task("completed", None, None)
                self._answer(True, result)

            self._kernel.store.post(FinishTask(end), recorded)
        else:
            self._answer(True, result)

    def _end_unrun(self, error: bytes) -> None:
        """The submission ended without a row to finish: syntax error, denial, refusal."""
        if self._over:
            return
        self._over_now("parse")
        self._fail_task(error)
        self._answer(False, error)

    def _broke_off(self, error: bytes) -> None:
        """The submission ended without its own end: its row, if it began, is interrupted."""
        kernel, session = self._kernel, self.session
        self._over_now("failed")
        if not self._begun or self._uncommitted:
            self._fail_task(error)
            self._answer(False, error)
            return
        ended_ns = kernel.now_ns()

        def interrupted(rows: tuple[Interrupted, ...] | None, failure: StoreError | None) -> None:
            for row in rows if rows is not None and failure is None else ():
                kernel.events.submission_interrupted(session, row, ended_ns)
            self._fail_task(error)
            self._answer(False, error)

        session.posts.post(InterruptSubmissions(session.owner, session.name, ended_ns), interrupted)

    def _over_now(self, outcome: str) -> None:
        self._over = True
        if self._deadline is not None:
            self._deadline.cancel()
        self.session.queued -= 1
        self.session.submissions.pop(self._call_id, None)
        self._advance()
        self._kernel.metrics.count("shoal_exec_total", _OUTCOMES.get(outcome, outcome))
        self._kernel.quieter()

    # -- tasks -------------------------------------------------------------------------------------

    def _fail_task(self, error: bytes) -> None:
        task = self.task
        if task is None:
            return
        state = "cancelled" if task.state == CANCELLING else "failed"
        now_ns = self._kernel.now_ns()
        end = TaskEnd(task.number, state, now_ns, None, error)  # type: ignore[arg-type]

        def recorded(_result: bool | None, _error: Exception | None) -> None:
            self._end_task(state, None, error)

        self._kernel.store.post(FinishTask(end), recorded)

    def _end_task(self, state: str, result_ref: str | None, error: bytes | None) -> None:
        if self.task is not None:
            end_task(self._kernel, self.session, self.task, state, result_ref, error)


def check_accepting(kernel: Kernel, session: Session) -> None:
    """Whether the session takes another submission now. Raises RpcError."""
    if kernel.draining:
        raise internal("shutting_down", "kernel is shutting down")
    if session.queued >= QUEUED_SUBMISSIONS_MAX:
        raise quota("queued_submissions", QUEUED_SUBMISSIONS_MAX, session.queued)


_OUTCOMES: Final = {"value": "ok", "signalled": "ok", "failed": "failed"}


def journal_unavailable(error: Exception, **data: object) -> RpcError:
    """The answer while the store cannot commit (chapter 61 §8.2)."""
    if isinstance(error, StoreUnavailable):
        return internal("journal_unavailable", error.text, cause=error.cause, **data)
    return internal("journal_unavailable", str(error), cause="io_error", **data)


def _ignore(_result: object, _error: Exception | None) -> None:
    return None
