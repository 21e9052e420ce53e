"""Task records of one session: submissions that run in the background (chapter 60 §5.12).

The numbers come from the store and are one counter for the daemon. A record is `running` while its
submission waits or runs, `cancelling` once a cancel was asked for, and final after that. Waiters of
a task are called when it becomes final.

Failure: lookups raise RpcError `unknown_task`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ipc.jsonrpc import Code, RpcError, internal

RUNNING: Final = "running"
CANCELLING: Final = "cancelling"
_PREFIX: Final = "task:"
_encode_json = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Task:
    """One record. `error` is the encoded error object; `call_id` is set while it can be
    cancelled."""

    number: int
    session: str
    principal: str
    started_ns: int
    state: str = RUNNING
    finished_ns: int | None = None
    result_ref: str | None = None
    error: bytes | None = None
    suspended: bool = False
    # Whether anybody has read or subscribed to its output since it began.
    watched: bool = False
    waiters: list[Callable[[], None]] = field(default_factory=list)

    @property
    def ref(self) -> str:
        return f"{_PREFIX}{self.number}"

    @property
    def channel(self) -> str:
        return f"task.{self.number}"

    @property
    def output_channel(self) -> str:
        return f"task.{self.number}.output"

    @property
    def live(self) -> bool:
        return self.finished_ns is None

    def encode(self) -> bytes:
        """The record as JSON."""
        record = {
            "task": self.ref,
            "session": self.session,
            "state": self.state,
            "started_ns": self.started_ns,
            "finished_ns": self.finished_ns,
            "result_ref": self.result_ref,
            "error": None if self.error is None else msgspec.Raw(self.error),
        }
        if self.suspended and self.live:
            record["suspended"] = True
        return _encode_json(record)


class TaskTable:
    # `_tasks` by number, ascending because numbers are given out in order. Changed on the loop
    # only.

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}

    def add(self, task: Task) -> None:
        self._tasks[task.number] = task

    def get(self, ref: str) -> Task:
        number = task_number(ref)
        task = None if number is None else self._tasks.get(number)
        if task is None:
            raise RpcError(Code.UNKNOWN_TASK, "unknown task ref", "unknown_task", task=ref)
        return task

    def find(self, number: int) -> Task | None:
        return self._tasks.get(number)

    def live(self) -> list[Task]:
        return [task for task in self._tasks.values() if task.live]

    def all(self) -> list[Task]:
        return list(self._tasks.values())

    def finish(
        self,
        task: Task,
        state: str,
        finished_ns: int,
        *,
        result_ref: str | None = None,
        error: bytes | None = None,
    ) -> None:
        """Make a record final and call its waiters."""
        task.state = state
        task.finished_ns = finished_ns
        task.result_ref = result_ref
        task.error = error
        task.suspended = False
        waiters, task.waiters = task.waiters, []
        for waiter in waiters:
            waiter()

    def prune(self, keep: int) -> list[int]:
        """Drop the oldest finished records beyond `keep`; returns their numbers."""
        finished = [task.number for task in self._tasks.values() if not task.live]
        gone = finished[: len(finished) - keep] if keep and len(finished) > keep else []
        for number in gone:
            del self._tasks[number]
        return gone


def task_number(ref: str) -> int | None:
    """The N of `task:N` in canonical spelling, else None."""
    digits = ref[len(_PREFIX) :]
    if not ref.startswith(_PREFIX) or not digits.isascii() or not digits.isdigit():
        return None
    if digits[0] == "0" or len(digits) > 18:
        return None
    return int(digits)


def task_of_output(channel: str) -> int | None:
    """The N of `task.N.output`, else None."""
    if not channel.startswith("task.") or not channel.endswith(".output"):
        return None
    return task_number(_PREFIX + channel[len("task.") : -len(".output")])


def end_state(ending: str, cancelling: bool) -> str:
    """The state a task ends in, from how its submission ended (chapter 60 §5.12)."""
    if ending == "value":
        return "completed"
    if cancelling and ending != "failed":
        return "cancelled"
    return "failed"


def worker_lost_json(session: str) -> bytes:
    """The error of a task whose worker or daemon ended."""
    return internal("worker_lost", "session worker ended", session=session).encode()
