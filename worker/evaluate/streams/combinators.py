"""The stages between a source and a sink that look at items one by one (chapter 30 §14.3).

Every stage is a small class with the state it needs between pulls. It passes `END` and `PENDING`
through, so a stage can be interrupted by a deadline at any point and go on where it was.

Failure: what the callbacks raise; type_error for a `flat_map` result that cannot be iterated.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from worker.errors import type_error
from worker.evaluate.streams.core import END, PENDING, Calling, Source, Stream, monotonic_ns
from worker.evaluate.streams.sources import Finite
from worker.values.equality_index import EqualityIndex
from worker.values.operators import equal
from worker.values.types import Range, Table, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_NOTHING: Final = object()


class Map(Calling):
    __slots__ = ()

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        item = self.source.pull(ev, deadline)
        if item is END or item is PENDING:
            return item
        return (self.call if ev is self.ev else self.bind(ev))(item)


class Where(Calling):
    __slots__ = ()

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        call = self.call if ev is self.ev else self.bind(ev)
        pull = self.source.pull
        while True:
            item = pull(ev, deadline)
            if item is END or item is PENDING:
                return item
            kept = call(item)
            if kept is True or (kept is not False and ev.condition(kept)):
                return item


class Scan(Calling):
    __slots__ = ("_accumulator",)

    def __init__(self, source: Source, init: Value, f: Value) -> None:
        super().__init__(source, f)
        self._accumulator = init

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        item = self.source.pull(ev, deadline)
        if item is END or item is PENDING:
            return item
        call = self.call if ev is self.ev else self.bind(ev)
        self._accumulator = call(self._accumulator, item)
        return self._accumulator


class FlatMap(Calling):
    # `_inner` is the result that is being gone through.

    __slots__ = ("_inner",)

    def __init__(self, source: Source, f: Value) -> None:
        super().__init__(source, f)
        self._inner: Source | None = None

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        while True:
            if self._inner is not None:
                item = self._inner.pull(ev, deadline)
                if item is not END:
                    return item
                self._inner.close()
                self._inner = None
            item = self.source.pull(ev, deadline)
            if item is END or item is PENDING:
                return item
            self._inner = _inner_source((self.call if ev is self.ev else self.bind(ev))(item))

    def close(self) -> None:
        self.source.close()
        if self._inner is not None:
            self._inner.close()


def _inner_source(result: Value) -> Source:
    kind = type(result)
    if kind is Stream:
        return result.consume()  # type: ignore[no-any-return]
    if kind is list:
        return Finite(result)
    if kind is Table:
        return Finite(result.rows)
    if kind is Range:
        return Finite(result.python_range())
    raise type_error(
        f"flat_map expects each result to be a stream or list, found {type_name(result)}"
    )


class Take:
    __slots__ = ("_left", "_source")

    def __init__(self, source: Source, n: int) -> None:
        self._source = source
        self._left = n

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        if self._left <= 0:
            self._source.close()
            return END
        item = self._source.pull(ev, deadline)
        if item is not END and item is not PENDING:
            self._left -= 1
            if self._left == 0:
                # Nothing more will be asked for: a watch or a file need not wait for the sink.
                self._source.close()
        return item

    def close(self) -> None:
        self._left = 0
        self._source.close()


class TakeUntil(Calling):
    """Until a predicate holds; the item it holds for is not delivered."""

    __slots__ = ("_ended",)

    def __init__(self, source: Source, f: Value) -> None:
        super().__init__(source, f)
        self._ended = False

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        if self._ended:
            return END
        item = self.source.pull(ev, deadline)
        if item is END or item is PENDING:
            return item
        reached = (self.call if ev is self.ev else self.bind(ev))(item)
        if reached is False or (reached is not True and not ev.condition(reached)):
            return item
        self.close()
        return END

    def close(self) -> None:
        self._ended = True
        self.source.close()


class Dedupe:
    __slots__ = ("_previous", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._previous: Value = _NOTHING

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        while True:
            item = self._source.pull(ev, deadline)
            if item is END or item is PENDING:
                return item
            if self._previous is _NOTHING or not equal(self._previous, item):
                self._previous = item
                return item
            ev.cancel.check()

    def close(self) -> None:
        self._source.close()


class Distinct:
    __slots__ = ("_seen", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._seen = EqualityIndex()

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        while True:
            item = self._source.pull(ev, deadline)
            if item is END or item is PENDING or self._seen.find_or_add(item) is None:
                return item
            ev.cancel.check()

    def close(self) -> None:
        self._source.close()


class CountWindow:
    """The last n items, once there are n."""

    __slots__ = ("_items", "_n", "_source")

    def __init__(self, source: Source, n: int) -> None:
        self._source = source
        self._n = n
        self._items: deque[Value] = deque(maxlen=n)

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        while True:
            item = self._source.pull(ev, deadline)
            if item is END or item is PENDING:
                return item
            self._items.append(item)
            if len(self._items) == self._n:
                return list(self._items)

    def close(self) -> None:
        self._source.close()


class TimeWindow:
    """For every item, those that arrived no longer than an interval before it."""

    __slots__ = ("_interval_ns", "_items", "_source")

    def __init__(self, source: Source, interval_ns: int) -> None:
        self._source = source
        self._interval_ns = interval_ns
        self._items: deque[tuple[int, Value]] = deque()

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        item = self._source.pull(ev, deadline)
        if item is END or item is PENDING:
            return item
        arrived = monotonic_ns(ev)
        self._items.append((arrived, item))
        while self._items[0][0] < arrived - self._interval_ns:
            self._items.popleft()
        return [kept for _, kept in self._items]

    def close(self) -> None:
        self._source.close()


class Enumerate:
    __slots__ = ("_index", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._index = 0

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        item = self._source.pull(ev, deadline)
        if item is END or item is PENDING:
            return item
        pair = [self._index, item]
        self._index += 1
        return pair

    def close(self) -> None:
        self._source.close()
