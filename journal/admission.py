"""Which operations may be acknowledged before the database has them.

An operation is loggable when its result, and that it fits, are known without asking the database:
a submission may end because its beginning was seen here, a statement row may be written because its
parent was, a number is new because numbers ascend. Whatever is not known to fit is not refused here
but left to the database, which then says so itself. So forgetting is always right, and costs only
time.

Failure: none; the answer is yes or no.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from journal import records as r
from journal.errors import StoreError

# Numbers given out and not used yet that are remembered; older ones are left to the database.
UNUSED_KEPT: Final = 65_536


class Numbers:
    """Which numbers of an ascending series are surely unused."""

    # `_highest` is the highest one used, None while only the database knows; `_unused` is what was
    # skipped below it since then, ascending.
    _highest: int | None
    _unused: dict[int, None]

    def __init__(self, highest_stored: Callable[[], int]) -> None:
        self._highest_stored = highest_stored
        self.forget()

    def forget(self) -> None:
        """Numbers may have been used unseen."""
        self._highest = None
        self._unused = {}

    def take(self, number: int) -> bool:
        """Whether the number was unused; it is used now."""
        highest = self._highest
        if highest is None:
            highest = self._highest_stored()
        if number <= highest:
            self._highest = highest
            return self._unused.pop(number, number) is None
        if number > highest + 1:
            first = max(highest + 1, number - UNUSED_KEPT)
            self._unused.update(dict.fromkeys(range(first, number)))
            while len(self._unused) > UNUSED_KEPT:
                del self._unused[next(iter(self._unused))]
        self._highest = number
        return True


class Running:
    """A submission that began here: whose it is, and its statement rows, by id, that may be
    replaced.
    """

    __slots__ = ("owner", "rows", "session")

    def __init__(self, owner: str, session: str, entry_id: int) -> None:
        self.owner = owner
        self.session = session
        # Ids of its rows, with the parent of each one whose statement is still running.
        self.rows: dict[int, int | None] = {entry_id: None}


class Admission:
    """What is known about the database's content as of the last operation acknowledged."""

    # `_running` has every known row of a running submission as a key. `_sessions` is None until
    # somebody asks, and again when sessions may have changed unseen. All for the writer thread.
    _running: dict[int, Running]
    _tasks: set[int]
    _sessions: set[int] | None

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._entries = Numbers(lambda: self._highest("SELECT ifnull(max(id), 0) FROM entry"))
        self._task_numbers = Numbers(
            lambda: self._highest("SELECT ifnull(max(number), 0) FROM task")
        )
        self._running = {}
        self._tasks = set()
        self._sessions = None

    def _highest(self, question: str) -> int:
        (number,) = self._connection.execute(question).fetchone()
        return int(number)

    def admits(self, operation: r.Operation[Any]) -> bool:
        """Whether it is loggable; then it counts as done."""
        admit = ADMITTED.get(type(operation))
        return admit is not None and admit(self, operation)

    def forget(self) -> None:
        """Something may have changed in a way that nobody can tell from outside; whatever was
        admitted before is in the database, or came to nothing.
        """
        self._entries.forget()
        self._task_numbers.forget()
        self._running.clear()
        self._tasks.clear()
        self._sessions = None

    def done_directly(
        self, operation: r.Operation[Any], result: Any, error: StoreError | None
    ) -> None:
        """The database was asked about this one."""
        learn = LEARNED.get(type(operation))
        if learn is None:
            self.forget()
        else:
            learn(self, operation, result, error)

    # --- what is admitted ------------------------------------------------------------------------

    def _begin(self, begin: r.BeginSubmission) -> bool:
        if begin.approval is not None or not self._entries.take(begin.entry_id):
            return False
        self._running[begin.entry_id] = Running(begin.owner, begin.session, begin.entry_id)
        return True

    def _finish(self, finish: r.FinishSubmission) -> bool:
        running = self._running.get(finish.entry_id)
        if (
            running is None
            or finish.entry_id != next(iter(running.rows))
            or running.owner != finish.owner
            or running.session != finish.session
            or not _outputs_kept(finish.outputs)
            or not self._statements(finish.statements, finish.undo, running)
        ):
            return False
        self._drop(running)
        return True

    def _write_statements(self, write: r.WriteStatements) -> bool:
        if not write.statements:
            return _undo_kept(write.undo)
        running = self._running.get(write.statements[0].parent_id)
        return running is not None and self._statements(write.statements, write.undo, running)

    def _statements(
        self, statements: Iterable[r.Statement], undo: tuple[r.UndoRow, ...], running: Running
    ) -> bool:
        """Whether these rows fit below this submission."""
        for statement in statements:
            row, parent = statement.id, statement.parent_id
            if parent not in running.rows or not _outputs_kept(statement.outputs):
                return False
            known = running.rows.get(row)
            if known is None:
                if not self._entries.take(row):
                    return False
                self._running[row] = running
            elif known != parent:
                return False
            running.rows[row] = parent if statement.state == "running" else None
        return _undo_kept(undo)

    def _drop(self, running: Running) -> None:
        for row in running.rows:
            self._running.pop(row, None)

    def _put_task(self, put: r.PutTask) -> bool:
        if self._sessions is None:
            rows = self._connection.execute("SELECT id FROM session")
            self._sessions = {session for (session,) in rows}
        if put.session_id not in self._sessions or not self._task_numbers.take(put.number):
            return False
        self._tasks.add(put.number)
        return True

    def _finish_task(self, finish: r.FinishTask) -> bool:
        if finish.end.number not in self._tasks:
            return False
        self._tasks.discard(finish.end.number)
        return True

    def _always(self, operation: r.Operation[Any]) -> bool:
        return True

    # --- what is learned -------------------------------------------------------------------------

    def _begun(self, begin: r.BeginSubmission, _result: Any, error: StoreError | None) -> None:
        self._entries.take(begin.entry_id)
        if error is None:
            self._running[begin.entry_id] = Running(begin.owner, begin.session, begin.entry_id)

    def _rows_written(
        self,
        written: r.FinishSubmission | r.WriteStatements,
        _result: Any,
        _error: StoreError | None,
    ) -> None:
        """What hangs together with these rows is left to the database from now on."""
        rows = [statement.id for statement in written.statements]
        for row in rows:
            self._entries.take(row)
        parents = [statement.parent_id for statement in written.statements]
        if isinstance(written, r.FinishSubmission):
            parents.append(written.entry_id)
        for row in (*rows, *parents):
            running = self._running.get(row)
            if running is not None:
                self._drop(running)

    def _session_made(
        self, _ensure: r.EnsureSession, result: int, error: StoreError | None
    ) -> None:
        if error is None and self._sessions is not None:
            self._sessions.add(result)

    def _task_put(self, put: r.PutTask, _result: None, _error: StoreError | None) -> None:
        self._task_numbers.take(put.number)

    def _tasks_ended(self, _operation: Any, _result: Any, _error: StoreError | None) -> None:
        self._tasks.clear()

    def _nothing(self, _operation: Any, _result: Any, _error: StoreError | None) -> None:
        """It changed nothing that is known here."""


def _outputs_kept(outputs: Iterable[r.Output]) -> bool:
    for output in outputs:  # noqa: SIM110 - no generator: this runs for every entry
        if type(output.content) is r.FileContent:
            return False
    return True


def _undo_kept(undo: tuple[r.UndoRow, ...]) -> bool:
    """Whether snapshots may wait in the log: what is behind a descriptor may change or vanish."""
    return not undo or all(type(row.snapshot) is not r.FileContent for row in undo)


ADMITTED: Final[Mapping[type[r.Operation[Any]], Callable[[Admission, Any], bool]]] = {
    r.BeginSubmission: Admission._begin,
    r.FinishSubmission: Admission._finish,
    r.WriteStatements: Admission._write_statements,
    r.PutTask: Admission._put_task,
    r.FinishTask: Admission._finish_task,
    r.SaveCells: Admission._always,
    r.TouchSession: Admission._always,
    r.TouchBlobs: Admission._always,
    r.AppendAudit: Admission._always,
}
Learn = Callable[[Admission, Any, Any, StoreError | None], None]
# What is not listed may have changed anything.
LEARNED: Final[Mapping[type[r.Operation[Any]], Learn]] = {
    r.BeginSubmission: Admission._begun,
    r.FinishSubmission: Admission._rows_written,
    r.WriteStatements: Admission._rows_written,
    r.EnsureSession: Admission._session_made,
    r.PutTask: Admission._task_put,
    r.FinishTask: Admission._tasks_ended,
    r.FailTasks: Admission._tasks_ended,
    **dict.fromkeys(
        (
            r.ApprovePlan,
            r.AppendAudit,
            r.DropPlan,
            r.ExpirePlans,
            r.LinkBlob,
            r.Probe,
            r.PruneTasks,
            r.PutPlan,
            r.ReleaseManualPins,
            r.ReleasePin,
            r.RequestPlan,
            r.SaveCells,
            r.SetPin,
            r.SetShares,
            r.TouchBlobs,
            r.TouchSession,
            r.UseApproval,
        ),
        Admission._nothing,
    ),
}
