"""Methods of task (chapter 21 §12); the work is the task's own (worker.evaluate.tasks).

Failure: `await` raises the task's error, or Cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.values.methods.registry import TAKES_NOTHING, method
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator
    from worker.evaluate.tasks import Task

TASK: Final = ("task",)


@method(
    "await",
    "wait",
    on=TASK,
    result="the task's value",
    doc="Waits until the task is done.",
    refuses=TAKES_NOTHING,
)
def await_(ev: Evaluator, recv: Task) -> Value:
    return recv.wait(ev)


@method("cancel", on=TASK, result="null", doc="Requests cancellation.", refuses=TAKES_NOTHING)
def cancel(ev: Evaluator, recv: Task) -> Value:
    recv.cancel()
    return None


@method("is_done", on=TASK, result="bool", doc="Whether the task has ended.", refuses=TAKES_NOTHING)
def is_done(ev: Evaluator, recv: Task) -> Value:
    return recv.done


@method(
    "suspend", on=TASK, result="the task", doc="Stops the task's programs.", refuses=TAKES_NOTHING
)
def suspend(ev: Evaluator, recv: Task) -> Value:
    recv.suspend()
    return recv


@method(
    "resume",
    on=TASK,
    result="the task",
    doc="Continues the task's programs.",
    refuses=TAKES_NOTHING,
)
def resume(ev: Evaluator, recv: Task) -> Value:
    recv.resume()
    return recv


@method(
    "is_suspended",
    on=TASK,
    result="bool",
    doc="Whether the task is suspended.",
    refuses=TAKES_NOTHING,
)
def is_suspended(ev: Evaluator, recv: Task) -> Value:
    return recv.suspended
