"""Language tasks: `spawn`, `&`, `on`, and the table `jobs` shows (chapter 30 §12.1).

A task runs on a thread of its own with a child evaluator whose token hangs below the token of the
one that started it. Its result or error is kept; waiting may be repeated.

Failure: `wait` raises the task's error, or Cancelled when either the task or the waiting evaluation
was cancelled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from worker import memory
from worker.errors import Cancelled, Raised, raised
from worker.evaluate.cancel import CancelToken
from worker.evaluate.code import Code
from worker.evaluate.scopes import Cell
from worker.evaluate.threads import evaluator_thread
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

SPAWN_DESCRIPTION: Final = "spawn block"


class ProcessGroups:
    """The process groups of the external programs that run for one task (or one submission).

    Whoever starts a program adds its group right after the start and discards it after the reap.
    Groups can be stopped together, those of nested tasks included; a program that is started
    meanwhile is stopped as soon as it is added.
    """

    # `_running`, `_nested` and `_stopped` change under `_lock`, so that a signal never goes to a
    # group that was reaped. `_stopped` is set while the groups are stopped, and is told of every
    # program that is stopped right after its start.

    def __init__(self, outer: ProcessGroups | None = None) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._nested: weakref.WeakSet[ProcessGroups] = weakref.WeakSet()
        self._stopped: Callable[[], object] | None = None
        if outer is not None:
            with outer._lock:
                outer._nested.add(self)
                self._stopped = outer._stopped

    def add(self, group: int) -> None:
        with self._lock:
            self._running.add(group)
            standing = self._stopped
            if standing is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGSTOP)
        if standing is not None:
            standing()

    def stop(self, standing: Callable[[], object]) -> list[int]:
        """SIGSTOP to everything that runs, and to what is started from now on; the groups."""
        with self._lock:
            self._stopped = standing
            found = list(self._running)
            for group in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGSTOP)
            nested = list(self._nested)
        for groups in nested:
            found += groups.stop(standing)
        return found

    def go_on(self) -> None:
        """SIGCONT to everything that was stopped."""
        with self._lock:
            self._stopped = None
            for group in self._running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGCONT)
            nested = list(self._nested)
        for groups in nested:
            groups.go_on()

    def discard(self, group: int) -> None:
        with self._lock:
            self._running.discard(group)

    def signal(self, number: int) -> None:
        """Send a signal to every running group."""
        with self._lock:
            for group in self._running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, number)


class Task:
    """A shared handle to background work. Identity is equality.

    `value` and `error` are set once, before `done` becomes True.
    """

    TYPE_NAME: ClassVar[str] = "task"

    def __init__(
        self,
        id: int,  # noqa: A002 - what the language calls it
        description: str,
        cancel: CancelToken,
        groups: ProcessGroups | None = None,
    ) -> None:
        self.id = id
        self.description = description
        self.groups = groups if groups is not None else ProcessGroups()
        self.suspended = False
        self._cancel = cancel
        self._finished = threading.Event()
        self._watchers: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self.value: Value = None
        self.error: Raised | Cancelled | None = None

    @classmethod
    def finished_with(cls, number: int, description: str, value: Value) -> Task:
        """The handle of a task that ended in an earlier worker of the session."""
        task = cls(number, description, CancelToken())
        task.finish(value, None)
        return task

    @property
    def done(self) -> bool:
        return self._finished.is_set()

    @property
    def state(self) -> str:
        """The word `jobs` shows: done, stopped or running."""
        if self.done:
            return "done"
        return "stopped" if self.suspended else "running"

    def finish(self, value: Value, error: Raised | Cancelled | None) -> None:
        """Keep the result and wake all who wait."""
        self.value, self.error = value, error
        with self._lock:
            self._finished.set()
            watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def wait(self, ev: Evaluator) -> Value:
        """The result, or the task's error raised anew. Raises Cancelled when the wait is."""
        if not self._finished.is_set():
            woken = threading.Event()
            with self._lock:
                if not self._finished.is_set():
                    self._watchers.append(woken.set)
                else:
                    woken.set()
            with ev.cancel.on_cancel(woken.set):
                woken.wait()
            if not self._finished.is_set():
                raise Cancelled
            memory.settle()
        if self.error is None:
            return self.value
        if isinstance(self.error, Cancelled):
            raise Cancelled
        # A fresh exception around the same error: the first one's traceback must not grow.
        raise Raised(self.error.error)

    def cancel(self) -> None:
        """Ask the task to stop. A suspended one is woken, or it could not."""
        self._cancel.cancel()
        if self.suspended:
            self.groups.signal(signal.SIGCONT)

    def suspend(self) -> None:
        self.suspended = True
        self.groups.signal(signal.SIGTSTP)

    def resume(self) -> None:
        self.suspended = False
        self.groups.signal(signal.SIGCONT)

    def __repr__(self) -> str:
        return f"task({self.id})"


class TaskTable:
    """All tasks of a worker in order of start; ids count from 1 and are never used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: list[Task] = []

    def add(
        self, description: str, cancel: CancelToken, groups: ProcessGroups | None = None
    ) -> Task:
        with self._lock:
            task = Task(len(self._tasks) + 1, description, cancel, groups)
            self._tasks.append(task)
        return task

    def __iter__(self) -> Any:
        with self._lock:
            return iter(list(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def cancel_all(self) -> None:
        for task in self:
            task.cancel()


def start_task(ev: Evaluator, description: str, work: Callable[[Evaluator], Value]) -> Task:
    """Run `work` with a child evaluator on its own thread; the task is in the table at once."""
    token = ev.cancel.child()
    task = ev.tasks.add(description, token, ProcessGroups(ev.groups))
    nested = ev.child(cancel=token, groups=task.groups)

    def run() -> None:
        value: Value = None
        error: Raised | Cancelled | None = raised("custom", "the task ended unexpectedly")
        try:
            value = work(nested)
            error = None
        except (Raised, Cancelled) as failure:
            error = failure.with_traceback(None)
        except RecursionError:
            from worker.evaluate.calls import recursion_limit

            error = recursion_limit()
        except MemoryError as failure:
            error = memory.out_of_memory(failure)
        finally:
            task.finish(value, error)

    evaluator_thread(run, f"task-{task.id}")
    return task


def spawn_block(ev: Evaluator, code: Code, captured: tuple[Cell, ...]) -> Task:
    """Start the body of `spawn { }` or `cmd &`."""
    return start_task(
        ev, SPAWN_DESCRIPTION, lambda nested: code.body(code.new_frame(nested, captured))
    )
