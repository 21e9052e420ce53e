"""Threads that can hold 10,000 nested calls (chapter 30 §6.5).

Evaluation is pure Python function calls, which CPython keeps off the C stack; only calls that go
through C code (a sort with a key function, a callback of a library) take a little of it. So deep
recursion needs two things: a recursion limit far above what 10,000 calls of any sensible function
take, and a thread whose stack is large enough for those that do pass through C. Stack is address
space only: pages that are never touched cost nothing.

Failure: what the function raises is raised to the caller of `run_on_evaluator_stack`. A thread that
cannot be started raises RuntimeError.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from worker import memory

T = TypeVar("T")

# Python frames of the deepest evaluation: more than a hundred for each of 10,000 nested calls.
PYTHON_FRAMES_MAX: Final = 1_200_000

# threading.stack_size is one setting of the whole process: whoever changes it holds this.
_starting: Final = threading.Lock()


def evaluator_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread with a stack for deep evaluation."""
    if sys.getrecursionlimit() < PYTHON_FRAMES_MAX:
        sys.setrecursionlimit(PYTHON_FRAMES_MAX)
    # Whose call it works for goes on to the new thread.
    context = contextvars.copy_context()

    thread = threading.Thread(target=context.run, args=(target,), name=name, daemon=True)
    with memory.lifted(), _starting:
        before = threading.stack_size(memory.STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


def run_on_evaluator_stack(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call `function` on a thread with a stack for deep evaluation and wait for it."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function(*args, **kwargs))
        except BaseException as failure:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(failure)

    evaluator_thread(run, "evaluator").join()
    if failures:
        raise failures[0]
    return results[0]
