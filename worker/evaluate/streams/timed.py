"""Stages that depend on time or on a second stream (chapter 30 §14.3).

Times are those of the evaluator's monotonic clock. Where two inputs have to be watched, they are
asked in turn, each for a short while, because a pull can wait for one source only.

Failure: none of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.evaluate.streams.core import (
    ALTERNATION_NS,
    END,
    PENDING,
    Source,
    monotonic_ns,
    sooner,
)
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# A deadline that has always passed: take what is there, never wait.
_NO_WAIT: Final = 0

_NOTHING: Final = object()


def _passed(ev: Evaluator, deadline: int | None) -> bool:
    return deadline is not None and deadline <= monotonic_ns(ev)


class Debounce:
    """The newest item once nothing has followed it for an interval; at the end the pending one."""

    # `_held` is the newest item not yet delivered and `_due` when it may go; no item: `_NOTHING`.

    __slots__ = ("_due", "_ended", "_held", "_interval_ns", "_source")

    def __init__(self, source: Source, interval_ns: int) -> None:
        self._source = source
        self._interval_ns = interval_ns
        self._held: Value = _NOTHING
        self._due = 0
        self._ended = False

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        # What fell due between two pulls goes first: were newer items taken before it, a source
        # that is never quiet for a whole turn would hold everything back for ever.
        if self._held is not _NOTHING and not self._ended and _passed(ev, self._due):
            return self._release()
        while not self._ended:
            holding = self._held is not _NOTHING
            item = self._source.pull(ev, sooner(deadline, self._due) if holding else deadline)
            if item is END:
                self._ended = True
                return self._release() if holding else END
            if item is not PENDING:
                self._held = item
                self._due = monotonic_ns(ev) + self._interval_ns
                ev.cancel.check()
            elif holding and _passed(ev, self._due):
                return self._release()
            elif _passed(ev, deadline):
                return PENDING
        return END

    def _release(self) -> Value:
        item, self._held = self._held, _NOTHING
        return item

    def close(self) -> None:
        self._ended = True
        self._source.close()


class Throttle:
    """An item, then none until an interval has passed."""

    __slots__ = ("_interval_ns", "_open_at", "_source")

    def __init__(self, source: Source, interval_ns: int) -> None:
        self._source = source
        self._interval_ns = interval_ns
        self._open_at: int | None = None

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        while True:
            item = self._source.pull(ev, deadline)
            if item is END or item is PENDING:
                return item
            arrived = monotonic_ns(ev)
            if self._open_at is None or arrived >= self._open_at:
                self._open_at = arrived + self._interval_ns
                return item
            ev.cancel.check()

    def close(self) -> None:
        self._source.close()


class TakeUntilStream:
    """Until another stream gives an item, which is seen within one turn."""

    __slots__ = ("_ended", "_signal", "_source")

    def __init__(self, source: Source, signal: Source) -> None:
        self._source = source
        self._signal: Source | None = signal
        self._ended = False

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        while not self._ended:
            limit = deadline
            if self._signal is not None:
                signal = self._signal.pull(ev, _NO_WAIT)
                if signal is PENDING:
                    limit = sooner(deadline, monotonic_ns(ev) + ALTERNATION_NS)
                elif signal is END:
                    self._signal = None
                else:
                    self.close()
                    break
            item = self._source.pull(ev, limit)
            if item is not PENDING or _passed(ev, deadline):
                return item
        return END

    def close(self) -> None:
        self._ended = True
        self._source.close()
        if self._signal is not None:
            self._signal.close()


class Merge:
    """The items of both; the receiver is asked first, each for one turn."""

    # `_open` are the inputs that have not ended, the receiver before the argument.

    __slots__ = ("_inputs", "_open")

    def __init__(self, first: Source, second: Source) -> None:
        self._inputs = (first, second)
        self._open = [first, second]

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        while self._open:
            for source in list(self._open):
                limit = deadline
                if len(self._open) > 1:
                    limit = sooner(deadline, monotonic_ns(ev) + ALTERNATION_NS)
                item = source.pull(ev, limit)
                if item is END:
                    self._open.remove(source)
                elif item is not PENDING:
                    return item
            if self._open and _passed(ev, deadline):
                return PENDING
        return END

    def close(self) -> None:
        self._open = []
        for source in self._inputs:
            source.close()


class Zip:
    """Pairs, until one input ends."""

    # `_left` is the left half of a pair whose right half has not come yet.

    __slots__ = ("_ended", "_first", "_left", "_second")

    def __init__(self, first: Source, second: Source) -> None:
        self._first = first
        self._second = second
        self._left: Value = _NOTHING
        self._ended = False

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        if self._ended:
            return END
        if self._left is _NOTHING:
            item = self._first.pull(ev, deadline)
            if item is PENDING:
                return PENDING
            if item is END:
                self.close()
                return END
            self._left = item
        item = self._second.pull(ev, deadline)
        if item is PENDING:
            return PENDING
        if item is END:
            self.close()
            return END
        pair = [self._left, item]
        self._left = _NOTHING
        return pair

    def close(self) -> None:
        self._ended = True
        self._first.close()
        self._second.close()
