"""One source pulled by several forks (chapter 30 §14.5).

Whichever fork finds nothing in its own queue pulls the source and copies what it gets into the
queues of the others. Forks may be driven by different threads: one pulls at a time, the others wait
for its result. Queues of a bounded source hold everything, so every fork replays all of it; those
of a live source hold LIVE_QUEUE_ITEMS. A fork that falls behind loses the newest items and is told
how many by one `{dropped: n}` record as soon as its queue has room.

Failure: an error of the source is raised by every fork, after the items before it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from worker.errors import Raised
from worker.evaluate.streams.core import END, PENDING, Source, Stream, wait_on
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

LIVE_QUEUE_ITEMS: Final = 64


class _Shared:
    # Everything here changes under `changed` only. `pulling` is set while one fork waits for the
    # source without holding the lock. `forks` are those not yet closed.

    __slots__ = ("capacity", "changed", "ended", "failure", "forks", "pulling", "source")

    def __init__(self, source: Source, capacity: int | None) -> None:
        self.source = source
        self.capacity = capacity
        self.changed = threading.Condition()
        self.forks: set[_Queue] = set()
        self.pulling = False
        self.ended = False
        self.failure: Raised | None = None


class _Queue:
    """What one fork has not taken yet. `dropped` is above zero only while the queue is full."""

    __slots__ = ("dropped", "items")

    def __init__(self) -> None:
        self.items: deque[Value] = deque()
        self.dropped = 0

    def put(self, item: Value, capacity: int | None) -> None:
        if capacity is None or len(self.items) < capacity:
            self.items.append(item)
        else:
            self.dropped += 1

    def take(self) -> Value:
        item = self.items.popleft()
        if self.dropped:
            self.items.append({"dropped": self.dropped})
            self.dropped = 0
        return item


class _Fork:
    __slots__ = ("_queue", "_shared")

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._queue = _Queue()
        shared.forks.add(self._queue)

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        shared = self._shared
        while True:
            found = wait_on(ev, shared.changed, self._ready, deadline)
            if found is not self:
                return found
            item = self._pull_source(ev, deadline)
            if item is not PENDING or deadline is not None:
                return item

    def _ready(self) -> Value:
        """An item, END, PENDING while another fork pulls, or the fork itself: its turn to pull."""
        shared = self._shared
        if self._queue.items:
            return self._queue.take()
        if shared.failure is not None:
            raise shared.failure
        if shared.ended:
            return END
        if shared.pulling:
            return PENDING
        shared.pulling = True
        return self

    def _pull_source(self, ev: Evaluator, deadline: int | None) -> Value:
        shared = self._shared
        item: Value = PENDING
        failure: Raised | None = None
        try:
            item = shared.source.pull(ev, deadline)
        except Raised as error:
            failure = error
            raise
        finally:
            with shared.changed:
                shared.pulling = False
                shared.failure = failure
                if item is END:
                    shared.ended = True
                elif item is not PENDING:
                    for queue in shared.forks:
                        if queue is not self._queue:
                            queue.put(item, shared.capacity)
                shared.changed.notify_all()
        return item

    def close(self) -> None:
        shared = self._shared
        with shared.changed:
            shared.forks.discard(self._queue)
            self._queue.items.clear()
            self._queue.dropped = 0
            last = not shared.forks and not shared.pulling
            if last:
                shared.ended = True
        if last:
            shared.source.close()

    def __del__(self) -> None:
        # A fork nobody drives must not keep the source alive, nor the others' items for itself.
        self.close()


def tee(stream: Stream, forks: int) -> list[Stream]:
    """Split a stream into several; consumes it."""
    capacity = None if stream.bounded else LIVE_QUEUE_ITEMS
    shared = _Shared(stream.consume(), capacity)
    label = "value" if stream.bounded else stream.label
    return [Stream(_Fork(shared), label, stream.bounded) for _ in range(forks)]
