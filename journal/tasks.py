"""Task records (chapter 60 §5.12, chapter 61 §2.2).

Numbers come from one counter of the whole daemon and are never used twice, also after the record is
gone. A record ends once: a second ending changes nothing.

Failure: a task of an unknown session or with a used number is refused by the table's keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from journal.errors import OperationRefused
from journal.jsontext import checked_json
from journal.records import FailTasks, FinishTask, Operation, PruneTasks, PutTask, TaskEnd
from journal.source import Source


@dataclass(frozen=True, slots=True)
class Task:
    number: int
    session_id: int
    principal: str
    state: str
    started_ns: int
    finished_ns: int | None
    result_ref: str | None
    error_json: bytes | None


COLUMNS: Final = "number, session_id, principal, state, started_ns, finished_ns, result_ref, error"
END_TASK: Final = """
    UPDATE task SET state = ?, finished_ns = ?, result_ref = ?, error = ?
    WHERE number = ? AND finished_ns IS NULL
"""


def _task(row: tuple[Any, ...]) -> Task:
    fields = (*row[:7], checked_json(row[7]))
    return Task(*fields)


# --- changes -------------------------------------------------------------------------------------


def put(connection: sqlite3.Connection, task: PutTask) -> None:
    inserted = connection.execute(
        """
        INSERT INTO task (number, session_id, principal, state, started_ns)
        SELECT ?, id, ?, 'running', ? FROM session WHERE id = ?
        """,
        (task.number, task.principal, task.started_ns, task.session_id),
    ).rowcount
    if not inserted:
        raise OperationRefused("unknown session")


def finish(connection: sqlite3.Connection, end: TaskEnd) -> bool:
    return connection.execute(END_TASK, end_row(end)).rowcount > 0


def end_row(end: TaskEnd) -> tuple[object, ...]:
    """The parameters of END_TASK."""
    error = None if end.error is None else end.error.decode()
    return end.state, end.finished_ns, end.result_ref, error, end.number


def fail(connection: sqlite3.Connection, failed: FailTasks) -> tuple[int, ...]:
    numbers = connection.execute(
        "SELECT number FROM task WHERE session_id = ? AND finished_ns IS NULL ORDER BY number",
        (failed.session_id,),
    ).fetchall()
    connection.execute(
        """
        UPDATE task SET state = 'failed', finished_ns = ?, error = ?
        WHERE session_id = ? AND finished_ns IS NULL
        """,
        (failed.finished_ns, failed.error.decode(), failed.session_id),
    )
    return tuple(number for (number,) in numbers)


def prune(connection: sqlite3.Connection, prune: PruneTasks) -> tuple[int, ...]:
    rows = connection.execute(
        """
        SELECT number FROM task WHERE session_id = ? AND finished_ns IS NOT NULL
        ORDER BY number DESC LIMIT -1 OFFSET ?
        """,
        (prune.session_id, prune.keep),
    ).fetchall()
    connection.executemany("DELETE FROM task WHERE number = ?", rows)
    return tuple(sorted(number for (number,) in rows))


WRITES: Final[Mapping[type[Operation[Any]], Callable[[sqlite3.Connection, Any], Any]]] = {
    PutTask: put,
    FinishTask: lambda connection, change: finish(connection, change.end),
    FailTasks: fail,
    PruneTasks: prune,
}


# --- reads ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskByNumber:
    number: int

    def run(self, source: Source) -> Task | None:
        row = source.connection.execute(
            f"SELECT {COLUMNS} FROM task WHERE number = ?", (self.number,)
        ).fetchone()
        return None if row is None else _task(row)


@dataclass(frozen=True, slots=True)
class TasksOfSession:
    """The records of a session by ascending number."""

    session_id: int

    def run(self, source: Source) -> list[Task]:
        rows = source.connection.execute(
            f"SELECT {COLUMNS} FROM task WHERE session_id = ? ORDER BY number", (self.session_id,)
        )
        return [_task(row) for row in rows]
