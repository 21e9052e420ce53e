"""Records of tasks: made before a task begins, closed when it ended (chapter 60 §2.6, 61 §10.6).

Failure: `quota` when the session has as many running tasks as it may; a record that cannot be
committed is the caller's to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ipc.jsonrpc import quota
from ipc.messages import Caller
from journal.records import PruneTasks, PutTask
from supervisor.sessions import Session
from supervisor.tasks import Task

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

_TASK_STARTED: Final = b'{"$":"str","v":"started"}'


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


def end_task(
    kernel: Kernel,
    session: Session,
    task: Task,
    state: str,
    result_ref: str | None,
    error: bytes | None,
) -> None:
    """Close a record, publish that the task ended, and forget the oldest records."""
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


def _ignore(_result: object, _error: Exception | None) -> None:
    return None
