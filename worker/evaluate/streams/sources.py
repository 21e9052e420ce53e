"""Sources without a thread: finished collections, lines of text, and the ticks of `every`.

A finished collection is iterated in place, never copied; lines are cut as they are pulled, so a
large text costs no second copy. `every` needs nothing while nobody pulls: which ticks have fired,
and which of them was the oldest, follows from the time alone.

Failure: `every` raises arg_error and type_error for its argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from worker.errors import arg_error, type_error
from worker.evaluate.streams.core import END, NS_PER_S, PENDING, Stream, monotonic_ns
from worker.values.temporal import now
from worker.values.types import Duration, Span, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


class Finite:
    """The items of a Python iterable that never waits."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Value]) -> None:
        self._items: Iterator[Value] = iter(items)

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        return next(self._items, END)

    def close(self) -> None:
        self._items = iter(())


def finite(items: Iterable[Value]) -> Stream:
    """A bounded stream of the items."""
    return Stream(Finite(items), "value", bounded=True)


def lines_of(text: str) -> Iterator[str]:
    """The lines, cut at `\\n` and `\\r\\n`; a last separator adds no empty line."""
    start = 0
    end = len(text)
    while start < end:
        cut = text.find("\n", start)
        if cut < 0:
            yield text[start:]
            return
        yield text[start : cut - 1 if cut > start and text[cut - 1] == "\r" else cut]
        start = cut + 1


def stream_of_lines(text: str) -> Stream:
    return finite(lines_of(text))


class Ticks:
    """Ticks at `start + k * interval`; only the oldest undelivered one is kept, others are lost."""

    # `_next` is the number of the oldest tick that has not been delivered or lost; changed by the
    # pulling thread alone.

    __slots__ = ("_closed", "_interval_ns", "_next", "_start_ns")

    def __init__(self, start_ns: int, interval_ns: int) -> None:
        self._start_ns = start_ns
        self._interval_ns = interval_ns
        self._next = 1
        self._closed = False

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        if self._closed:
            return END
        due = self._start_ns + self._next * self._interval_ns
        # A tick that is due already is there to be taken, even by a pull that must not wait.
        if deadline is not None and deadline < due and monotonic_ns(ev) < due:
            _sleep_until(ev, deadline)
            return PENDING
        _sleep_until(ev, due)
        passed = monotonic_ns(ev)
        self._next = max((passed - self._start_ns) // self._interval_ns, self._next) + 1
        return now(ev.host.clock.now_ns() - (passed - due))

    def close(self) -> None:
        self._closed = True


def _sleep_until(ev: Evaluator, moment: int) -> None:
    """Wait for a time of the monotonic clock; raises Cancelled when the wait is cut short."""
    while (left_ns := moment - monotonic_ns(ev)) > 0:
        ev.cancel.wait(left_ns / NS_PER_S)
        ev.cancel.check()


def every(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Value:
    """`every(d)`: the local time, every `d`, starting one interval from now."""
    if len(pos) != 1:
        raise arg_error(f"expected 1 argument, got {len(pos)}")
    interval = pos[0]
    if type(interval) is not Duration:
        raise type_error(f"every expects a duration, found {type_name(interval)}")
    if interval.ns < 0:
        raise type_error("every expects a duration that is not negative")
    if interval.ns == 0:
        raise arg_error("every expects a positive interval")
    return Stream(Ticks(monotonic_ns(ev), interval.ns), "datetime", bounded=False)
