"""Results on their way back: who waits, and how a batch of results reaches a loop.

`deliver` gets a whole batch and passes it to `settle` on the thread that should see the results.
Waiters of blocking calls are told at once, on whatever thread finished their work.

Failure: a callback that raises is logged and does not keep the others from their results.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from journal.errors import StoreError

T = TypeVar("T")

log = logging.getLogger("shoal.journal")

Done = Callable[[Any, StoreError | None], None]


class Completion(NamedTuple):
    """One result or error, and the callback that wants it."""

    done: Done
    result: Any
    error: StoreError | None


# What it returns is not looked at, so that `loop.call_soon_threadsafe` can be its last word.
Deliver = Callable[[list[Completion]], object]


def settle(batch: Sequence[Completion]) -> None:
    """Call every callback of a batch."""
    for done, result, error in batch:
        try:
            done(result, error)
        except Exception:
            log.exception("a completion of the store failed")


class Waiter(Generic[T]):
    """A callback that a thread waits for."""

    __slots__ = ("_error", "_lock", "_result")

    _result: T
    _error: StoreError | None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._error = None

    def __call__(self, result: T, error: StoreError | None) -> None:
        self._result = result
        self._error = error
        self._lock.release()

    def wait(self) -> T:
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._result


class Relay:
    """A callback of the store's own, called at once on the thread that finished the work."""

    __slots__ = ("_go_on",)

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    def __call__(self, result: Any, error: StoreError | None) -> None:
        self._go_on()


def hand_over(batch: list[Completion], deliver: Deliver | None) -> None:
    """Tell blocking waiters and relays now and give the rest to `deliver` in one piece."""
    if deliver is None:
        settle(batch)
        return
    now = [completion for completion in batch if isinstance(completion.done, Waiter | Relay)]
    if now:
        settle(now)
        batch = [done for done in batch if not isinstance(done.done, Waiter | Relay)]
    if batch:
        try:
            deliver(batch)
        except RuntimeError:
            # The loop is closed: nobody is left who could want these results.
            log.debug("results of the store came after the end of their loop")
