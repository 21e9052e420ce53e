"""`parallel`, `retry` and `on` (chapter 30 §12.2, §12.3), as call forms of worker.builtins.

Failure: argument errors as in the chapter; the errors of the called functions; Cancelled when the
calling evaluation is cancelled while one of them waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from worker import memory
from worker.errors import Cancelled, Raised, arg_error, raised, type_error
from worker.evaluate.callables import is_callable
from worker.evaluate.calls import recursion_limit
from worker.evaluate.tasks import Task, start_task
from worker.evaluate.threads import evaluator_thread
from worker.values.types import Duration, Span, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

Named = dict[str, Value]

NANOSECONDS_PER_SECOND: Final = 1_000_000_000


class _Branch:
    """One thunk of `parallel`: its result or failure once `ended`."""

    def __init__(self) -> None:
        self.value: Value = None
        self.failure: Raised | Cancelled | None = raised("custom", "the thunk ended unexpectedly")


def parallel(ev: Evaluator, pos: list[Value], named: Named, span: Span | None) -> Value:
    """Call every argument at once, each on a thread and child evaluator of its own."""
    settle = _option(named, "settle", False)
    if type(settle) is not bool:
        raise type_error(f"expected bool, found {type_name(settle)}")
    branches = [_Branch() for _ in pos]
    if not branches:
        return []
    waiting = threading.Semaphore(0)
    for branch, thunk in zip(branches, pos, strict=True):
        evaluator_thread(_branch_work(ev, branch, thunk, waiting.release), "parallel")
    with ev.cancel.on_cancel(lambda: waiting.release(len(branches))):
        for _ in branches:
            waiting.acquire()
            ev.cancel.check()
    memory.settle()
    return [_settled(branch) if settle else _result(branch) for branch in branches]


def _branch_work(
    ev: Evaluator, branch: _Branch, thunk: Value, ended: Callable[[], None]
) -> Callable[[], None]:
    nested = ev.child()

    def run() -> None:
        try:
            branch.value = nested.call(thunk, [])
            branch.failure = None
        except (Raised, Cancelled) as failure:
            branch.failure = failure.with_traceback(None)
        except RecursionError:
            branch.failure = recursion_limit()
        except MemoryError as failure:
            branch.failure = memory.out_of_memory(failure)
        finally:
            ended()

    return run


def _result(branch: _Branch) -> Value:
    if branch.failure is not None:
        raise branch.failure
    return branch.value


def _settled(branch: _Branch) -> Value:
    if isinstance(branch.failure, Raised):
        return branch.failure.error
    return _result(branch)


def _option(named: Named, name: str, default: Value) -> Value:
    """The one named argument of a call; any other is unknown."""
    for given in named:
        if given != name:
            raise arg_error(f"unknown argument `{given}`")
    return named.get(name, default)


def retry(ev: Evaluator, pos: list[Value], named: Named, span: Span | None) -> Value:
    """Call a thunk up to n times; the first success, else the last error."""
    delay = _option(named, "delay", None)
    attempts = pos[0] if pos else None
    if type(attempts) is not int or attempts <= 0:
        raise arg_error("retry expects a positive attempt count")
    if len(pos) != 2 or not is_callable(pos[1]):
        raise arg_error("retry expects a thunk")
    if delay is not None and (type(delay) is not Duration or delay.ns < 0):
        raise type_error(f"expected a non-negative duration, found {type_name(delay)}")
    for attempt in range(1, attempts + 1):
        try:
            return ev.call(pos[1], [])
        except Raised:
            if attempt == attempts:
                raise
        if delay is not None and ev.cancel.wait(delay.ns / NANOSECONDS_PER_SECOND):
            raise Cancelled
        ev.cancel.check()
    raise AssertionError("the last attempt returns or raises")


def on(ev: Evaluator, pos: list[Value], named: Named, span: Span | None) -> Value:
    """Start a task that calls a handler for every event of a channel, the kept ones first."""
    name = channel_name(pos[0]) if pos else None
    if name is None:
        raise arg_error("on expects a channel handle or a channel name")
    if len(pos) < 2 or not is_callable(pos[1]):
        raise arg_error("on expects a handler as its second argument")
    return handle_events(ev, name, pos[1])


def channel_name(value: Value) -> str | None:
    """The name in a channel handle, or a plain name; None for anything else."""
    if type(value) is dict and list(value) == ["channel"]:
        value = value["channel"]
    return value if type(value) is str else None


def handle_events(ev: Evaluator, name: str, handler: Value) -> Task:
    # Subscribed here, before the call returns, so that nothing emitted after it is missed.
    subscription = ev.channels.subscribe(name)

    def work(nested: Evaluator) -> Value:
        handle = nested.callback(handler)
        with subscription:
            while True:
                handle(subscription.next(nested.cancel))

    return start_task(ev, f"on channel({name})", work)


FUNCTIONS: Final[dict[str, Callable[[Any, list[Value], Named, Span | None], Value]]] = {
    "parallel": parallel,
    "retry": retry,
    "on": on,
}
