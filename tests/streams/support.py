"""A driver of streams with a clock of its own, and sources that follow a script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from worker.evaluate.cancel import CancelToken
from worker.evaluate.host import Clock, Host
from worker.evaluate.streams.core import END, PENDING, Stream
from worker.values.operators import truth
from worker.values.types import Value

MS = 1_000_000


class FakeClock(Clock):
    """Time stands still until somebody moves it."""

    def __init__(self) -> None:
        self.ns = 1_000 * MS

    def now_ns(self) -> int:
        return self.ns

    def monotonic_ns(self) -> int:
        return self.ns


class Driver:
    """As much of an evaluator as streams need; callbacks are Python functions."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.host = Host(clock=clock or Clock())
        self.cancel = CancelToken()
        self.shown: list[Value] = []

    def callback(self, fn: Callable[..., Value]) -> Callable[..., Value]:
        return fn

    def condition(self, value: Value) -> bool:
        return truth(value)

    def sink(self, value: Value) -> None:
        self.shown.append(value)


class Script:
    """Items at given times of a fake clock; a pull moves the clock to what it waits for."""

    def __init__(self, clock: FakeClock, *steps: tuple[int, Value]) -> None:
        self._clock = clock
        self._steps = [(clock.ns + at_ms * MS, item) for at_ms, item in steps]
        self.closed = False

    def pull(self, ev: Any, deadline: int | None) -> Value:
        if not self._steps:
            return END
        at, item = self._steps[0]
        if at > self._clock.ns and deadline is not None and deadline < at:
            self._clock.ns = max(self._clock.ns, deadline)
            return PENDING
        self._clock.ns = max(self._clock.ns, at)
        self._steps.pop(0)
        return item

    def close(self) -> None:
        self.closed = True


class Hanging:
    """Never gives anything; says when it is being pulled."""

    def __init__(self) -> None:
        self.pulled = threading.Event()
        self.closed = threading.Event()

    def pull(self, ev: Any, deadline: int | None) -> Value:
        self.pulled.set()
        if deadline is None:
            ev.cancel.wait()
        elif (left := deadline - ev.host.clock.monotonic_ns()) > 0:
            ev.cancel.wait(left / 1e9)
        ev.cancel.check()
        return PENDING

    def close(self) -> None:
        self.closed.set()


def stream_of(source: Any, *, bounded: bool = False) -> Stream:
    return Stream(source, "value", bounded)
