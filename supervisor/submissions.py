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
    ProtocolError,
    Refuse,
    Reply,
    Started,
    decode_cells,
)
from ipc.messages import Statement as StatementMessage
from journal.errors import StoreError, StoreUnavailable
from journal.records import (
    INGEST_BYTES_MIN,
    BeginSubmission,
    CellChanges,
    FileContent,
    FinishSubmission,
    FinishTask,
    Interrupted,
    InterruptSubmissions,
    Output,
    Probe,
    PruneTasks,
    PutTask,
    Statement,
    TaskEnd,
    UndoRow,
)
from journal.records import Finished as Committed
from supervisor.contents import Contents, close_all, read_content
from supervisor.sessions import QUEUED_SUBMISSIONS_MAX, Session
from supervisor.tasks import CANCELLING, Task, end_state
from supervisor.worker_process import Ending, Worker

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

log = structlog.get_logger()

# Gets whether the submission succeeded, and its encoded result or error object.
Answer = Callable[[bool, bytes], None]

_TASK_STARTED: Final = b'{"$":"str","v":"started"}'
_encode_json = msgspec.json.Encoder().encode


class Submission:
    # The states follow each other: accepted, sent (`worker` set), started (`entry` set), ended. An
    # answer is given once, by `_answered`, and only after what it promises was committed.

    def __init__(
        self, kernel: Kernel, session: Session, caller: Caller, params: bytes, src: str,
        answer: Answer, task: Task | None = None,
    ) -> None:  # fmt: skip
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
        if kernel.store.failure is not None and kernel.config.journal.on_failure == "refuse":
            kernel.store.post(Probe(), self._probed)
        else:
            self._forward()

    def _probed(self, _result: None, error: Exception | None) -> None:
        if error is not None:
            self._end_unrun(journal_unavailable(error).encode())
        else:
            self._forward()

    def _forward(self) -> None:
        self.session.with_worker(self._send, lambda error: self._end_unrun(error.encode()))

    def _send(self, worker: Worker) -> None:
        if self._over:
            return
        self._worker = worker
        number = 0 if self.task is None else self.task.number
        self._call_id = worker.call("exec", self._params, self.caller, self._ended, number)
        if not self._over:
            self.session.submissions[self._call_id] = self
            if self._cancel_requested:
                worker.send(Cancel(self._call_id))

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
        self._begun = True
        self._head = started.head
        wall_s = kernel.config.limits.exec_wall_s
        if wall_s:
            self._deadline = kernel.loop.call_later(wall_s, self.cancel)
        self._entry = kernel.store.reserve_entries(1)
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
        else:
            worker.send(Refuse(self._call_id))
            worker.forget(self._call_id)
            self._end_unrun(journal_unavailable(error).encode())

    def _begun_running(self, _result: None, error: Exception | None) -> None:
        if error is not None:
            self._uncommitted = True

    def _may_continue(self, error: Exception) -> bool:
        return (
            isinstance(error, StoreUnavailable)
            and self._kernel.config.journal.on_failure == "continue"
        )

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
                self._end_unrun(bytes(ending.error))
            case RpcError():
                self._broke_off(ending.encode())
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
            contents = Contents(fds)
            body = contents.read(finished.body)
            operation = self._finish_operation(finished, contents)
        except (ProtocolError, IndexError, OSError) as error:
            close_all(fds)
            log.error("worker.exit", session=session.name, err=str(error))
            if self._worker is not None:
                self._worker.kill("protocol: contents")
            self._post_begin()
            self._broke_off(internal("worker_lost", "session worker ended").encode())
            return
        kernel.metrics.observe("shoal_exec_duration_seconds", finished.dur_ns / 1e9)

        def committed(result: Committed | None, error: Exception | None) -> None:
            self._committed(finished, body, operation.ended_ns, result, error)

        if self._uncommitted and kernel.config.journal.on_failure == "continue":
            self._committed(finished, body, operation.ended_ns, None, None)
        elif contents.large or session.finishing is not None:
            self._post_begin()
            self._finish_later(operation, committed)
        else:
            self._post_begin()
            kernel.store.post(operation, committed)

    def _finish_operation(self, finished: Finished, contents: Contents) -> FinishSubmission:
        kernel, session = self._kernel, self.session
        outputs = tuple(
            Output(output.kind, contents.stored(output.content))  # type: ignore[arg-type]
            for output in finished.outputs
        )
        statements, undo = self._statement_rows(finished.statements, contents)
        changed: list[tuple[str, bytes | None]] = []
        removed: list[str] = []
        cells = contents.read(finished.cells)
        for cell in decode_cells(cells) if cells else ():
            if cell.name.startswith("-"):
                removed.append(cell.name[1:])
            else:
                changed.append((cell.name, cell.value))
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
            cells=CellChanges(
                session_id=session.row_id,
                changed=tuple(changed),
                removed=tuple(removed),
                next_out=session.next_out,
                last_used_ns=now_ns,
            ),
            task_end=task_end,
        )

    def _statement_rows(
        self, rows: list[StatementMessage], contents: Contents
    ) -> tuple[tuple[Statement, ...], tuple[UndoRow, ...]]:
        if not rows:
            return (), ()
        first = self._kernel.store.reserve_entries(len(rows))
        statements: list[Statement] = []
        undo: list[UndoRow] = []
        for index, row in enumerate(rows):
            if row.parent >= index:
                raise ProtocolError("a statement before its parent")
            statements.append(
                Statement(
                    id=first + index,
                    parent_id=self._entry if row.parent < 0 else first + row.parent,
                    ordinal=row.ordinal,
                    ts=row.ts,
                    dur_ns=row.dur_ns,
                    cwd=row.cwd,
                    src=row.src,
                    ast=row.ast,
                    effects=row.effects,
                    effect_kinds=tuple(dict.fromkeys(row.effect_kinds)),
                    status=row.status,
                    ok=row.ok,
                    outputs=tuple(
                        Output(output.kind, contents.stored(output.content))  # type: ignore[arg-type]
                        for output in row.outputs
                    ),
                )
            )
            undo += [
                UndoRow(
                    entry_id=first + index,
                    op=item.op,  # type: ignore[arg-type]
                    inverse=item.inverse.encode(),
                    snapshot=None if item.snapshot is None else contents.stored(item.snapshot),
                )
                for item in row.undo
            ]
        return tuple(statements), tuple(undo)

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

    def _finish_later(
        self,
        operation: FinishSubmission,
        committed: Callable[[Committed | None, Exception | None], None],
    ) -> None:
        """Store large contents first; endings of one session keep their order."""
        previous = self.session.finishing
        following = self._kernel.loop.create_task(self._ingest(operation, committed, previous))
        self.session.finishing = following
        following.add_done_callback(self._ingested)

    def _ingested(self, following: asyncio.Task[None]) -> None:
        if self.session.finishing is following:
            self.session.finishing = None

    async def _ingest(
        self,
        operation: FinishSubmission,
        committed: Callable[[Committed | None, Exception | None], None],
        previous: asyncio.Task[None] | None,
    ) -> None:
        store = self._kernel.store
        ready: list[Output] = []
        try:
            for output in operation.outputs:
                content = output.content
                if isinstance(content, FileContent) or (
                    isinstance(content, bytes) and len(content) >= INGEST_BYTES_MIN
                ):
                    content = await store.ingested(content)
                ready.append(Output(output.kind, content))
        except StoreError as error:
            committed(None, error)
            return
        if previous is not None:
            await asyncio.wait([previous])
        store.post(msgspec.structs.replace(operation, outputs=tuple(ready)), committed)

    def _committed(
        self,
        finished: Finished,
        body: bytes,
        ended_ns: int,
        result: Committed | None,
        error: Exception | None,
    ) -> None:
        kernel = self._kernel
        if error is not None:
            failure = journal_unavailable(error, ref=f"out:{finished.out}")
            self._over_now("failed")
            self._end_task_unrecorded(failure.encode())
            self._answer(False, failure.encode())
            return
        self._over_now("ok" if finished.ok else finished.ending)
        if result is not None:
            kernel.events.submission_ended(
                self.session,
                self.caller,
                entry=self._entry,
                head=self._head,
                ok=finished.ok,
                committed=result,
                ended_ns=ended_ns,
                transcript=finished.transcript,
                render=finished.render,
            )
        elif finished.ok and body.endswith(b"}"):
            body = body[:-1] + b',"committed":false}'
        if self.task is not None:
            self._end_task(
                end_state(finished.ending, self.task.state == CANCELLING),
                f"out:{finished.out}" if finished.ok else None,
                None if finished.ok else body,
            )
        self._answer(finished.ok, body)

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
        if self._begun and not self._uncommitted:
            ended_ns = kernel.now_ns()

            def interrupted(rows: tuple[Interrupted, ...], failure: Exception | None) -> None:
                for row in rows if failure is None else ():
                    kernel.events.submission_interrupted(session, row, ended_ns)

            kernel.store.post(
                InterruptSubmissions(session.owner, session.name, ended_ns), interrupted
            )
        self._fail_task(error)
        self._answer(False, error)

    def _over_now(self, outcome: str) -> None:
        self._over = True
        if self._deadline is not None:
            self._deadline.cancel()
        self.session.queued -= 1
        self.session.submissions.pop(self._call_id, None)
        self._kernel.metrics.count("shoal_exec_total", _OUTCOMES.get(outcome, outcome))
        self._kernel.quieter()

    # -- tasks -------------------------------------------------------------------------------------

    def _fail_task(self, error: bytes) -> None:
        task = self.task
        if task is None:
            return
        state = "cancelled" if task.state == CANCELLING else "failed"
        end = TaskEnd(task.number, state, self._kernel.now_ns(), None, error)  # type: ignore[arg-type]

        def recorded(_result: bool | None, _error: Exception | None) -> None:
            self._end_task(state, None, error)

        self._kernel.store.post(FinishTask(end), recorded)

    def _end_task_unrecorded(self, error: bytes) -> None:
        if self.task is not None:
            self._end_task("failed", None, error)

    def _end_task(self, state: str, result_ref: str | None, error: bytes | None) -> None:
        task, session, kernel = self.task, self.session, self._kernel
        assert task is not None
        session.tasks.finish(task, state, kernel.now_ns(), result_ref=result_ref, error=error)
        ref = b"null" if result_ref is None else b'{"$":"str","v":"%b"}' % result_ref.encode()
        kernel.events.task(
            session,
            task,
            b'{"$":"record","v":{"state":{"$":"str","v":"%b"},"ref":%b}}' % (state.encode(), ref),
        )
        session.task_submissions.pop(task.number, None)
        gone = session.tasks.prune(kernel.config.quotas.tasks_kept)
        if gone:
            keep = kernel.config.quotas.tasks_kept
            kernel.store.post(PruneTasks(session.row_id, keep), _ignore)
            kernel.events.drop_tasks(session, gone)


def check_accepting(kernel: Kernel, session: Session) -> None:
    """Whether the session takes another submission now. Raises RpcError."""
    if kernel.draining:
        raise internal("shutting_down", "kernel is shutting down")
    if session.queued >= QUEUED_SUBMISSIONS_MAX:
        raise quota("queued_submissions", QUEUED_SUBMISSIONS_MAX, session.queued)


_OUTCOMES: Final = {"value": "ok", "signalled": "ok", "failed": "failed"}


def start_task(kernel: Kernel, session: Session, caller: Caller) -> Task:
    """Make the record of a new task. Raises RpcError `quota`."""
    limit = kernel.config.quotas.tasks_per_session
    running = len(session.tasks.live())
    if limit and running >= limit:
        raise quota("quotas.tasks_per_session", limit, running)
    task = Task(kernel.store.reserve_task(), session.name, caller.principal, kernel.now_ns())
    session.tasks.add(task)
    return task


def record_task(
    kernel: Kernel,
    session: Session,
    task: Task,
    done: Callable[[Exception | None], None],
) -> None:
    """Commit a new record, then publish that the task started."""

    def recorded(_result: None, error: Exception | None) -> None:
        if error is None:
            kernel.events.task(session, task, _TASK_STARTED)
        done(error)

    kernel.store.post(
        PutTask(task.number, session.row_id, task.principal, task.started_ns), recorded
    )


def journal_unavailable(error: Exception, **data: object) -> RpcError:
    """The answer while the store cannot commit (chapter 61 §8.2)."""
    if isinstance(error, StoreUnavailable):
        return internal("journal_unavailable", error.text, cause=error.cause, **data)
    return internal("journal_unavailable", str(error), cause="io_error", **data)


def _ignore(_result: object, _error: Exception | None) -> None:
    return None
