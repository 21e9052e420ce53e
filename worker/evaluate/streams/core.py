"""The stream value, and how its parts pull from each other (chapter 30 §14).

A stream is a handle on a `Source`. The first combinator or sink takes the source out of the handle;
every later one finds it empty. Copies of the value are the same handle, so they share that state.

`Source.pull(ev, deadline)` gives the next item, `END` when there is none and never will be, or
`PENDING` when the deadline (a time of the evaluator's monotonic clock in nanoseconds, None: wait as
long as it takes) has passed first. The evaluator is the one that drives the sink: callbacks of all
stages run in it and its token ends every wait. A source is pulled by one thread at a time.

`close` stops a source and frees what it holds: threads, watches, files. Sinks close when they
finish, however they finish; sources with something to free also do it when the last reference to
them goes away.

Failure: `consume` raises `stream_consumed`; `need_end` raises `stream_unbounded`; a pull raises
what the source or a callback raises, and Cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from worker.errors import Raised, raised
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.cancel import CancelToken
    from worker.evaluate.evaluator import Evaluator

NS_PER_S: Final = 1_000_000_000

# How long one of two inputs is waited for before the other is asked (chapter 30 §14.3).
ALTERNATION_NS: Final = 20_000_000


class _Mark:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


END: Final = _Mark("END")
PENDING: Final = _Mark("PENDING")


class Source(Protocol):
    def pull(self, ev: Evaluator, deadline: int | None) -> Value: ...

    def close(self) -> None: ...


def consumed() -> Raised:
    return raised(
        "stream_consumed",
        "stream already consumed",
        hint="collect first (`.collect()`), or `.tee(2)` to split",
    )


def unbounded() -> Raised:
    return raised(
        "stream_unbounded",
        "this stream has no natural end",
        hint="bound it with `.take(n)` or `.take_until(...)`, or handle items with `.each(f)`",
    )


class Stream:
    """A single-consumption sequence. `label` is what its inline form shows."""

    # `_source` goes from a source to None once, under `_lock`: two threads that use the same handle
    # must not both get it.

    __slots__ = ("__weakref__", "_lock", "_source", "bounded", "label")
    TYPE_NAME: ClassVar[str] = "stream"

    def __init__(self, source: Source, label: str, bounded: bool) -> None:
        self._source: Source | None = source
        self._lock = threading.Lock()
        self.label = label
        self.bounded = bounded

    @property
    def is_consumed(self) -> bool:
        return self._source is None

    def check_unused(self) -> None:
        if self._source is None:
            raise consumed()

    def consume(self) -> Source:
        """Take the source out of the handle."""
        with self._lock:
            source, self._source = self._source, None
        if source is None:
            raise consumed()
        return source

    def need_end(self) -> None:
        """Check that everything can be collected, without consuming anything."""
        self.check_unused()
        if not self.bounded:
            raise unbounded()

    def __repr__(self) -> str:
        return f"stream<{self.label}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a live stream cannot be saved")


def monotonic_ns(ev: Evaluator) -> int:
    return ev.host.clock.monotonic_ns()  # type: ignore[no-any-return]


def sooner(left: int | None, right: int) -> int:
    return right if left is None else min(left, right)


class Calling:
    """A stage with one input and one callback, which runs in whatever evaluator drives the stage.

    A stage asks for its callback per item: `call = self.call if ev is self.ev else self.bind(ev)`.
    """

    __slots__ = ("_fn", "call", "ev", "source")

    def __init__(self, source: Source, fn: Value) -> None:
        self.source = source
        self._fn = fn
        self.ev: Evaluator | None = None
        self.call: Callable[..., Value] = _unbound

    def bind(self, ev: Evaluator) -> Callable[..., Value]:
        self.call = ev.callback(self._fn)
        self.ev = ev
        return self.call

    def close(self) -> None:
        self.source.close()


def _unbound(*args: Value) -> Value:
    raise AssertionError("a stage binds its callback before the first call")


def wait_on(
    ev: Evaluator,
    condition: threading.Condition,
    ready: Callable[[], Value],
    deadline: int | None,
) -> Value:
    """Wait until `ready`, called with the condition held, gives something other than PENDING.

    Gives PENDING once the deadline has passed. Whoever changes what `ready` looks at notifies the
    condition; so does a cancellation, which then raises Cancelled.
    """
    with condition:
        found = ready()
    if found is not PENDING or (deadline is not None and deadline <= monotonic_ns(ev)):
        return found
    if deadline is None:
        return wait_for_ready(ev.cancel, condition, ready, lambda: None)
    return wait_for_ready(
        ev.cancel, condition, ready, lambda: (deadline - monotonic_ns(ev)) / NS_PER_S
    )


def wait_for_ready(
    cancel: CancelToken,
    condition: threading.Condition,
    ready: Callable[[], Value],
    left_s: Callable[[], float | None],
) -> Value:
    """The waiting itself; `left_s` gives the seconds left, None for as long as it takes."""

    def wake() -> None:
        with condition:
            condition.notify_all()

    # Registered before the condition is taken: a token cancelled already calls back at once.
    with cancel.on_cancel(wake), condition:
        while True:
            cancel.check()
            found = ready()
            if found is not PENDING:
                return found
            left = left_s()
            if left is not None and left <= 0:
                return PENDING
            condition.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
