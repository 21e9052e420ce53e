"""The bounded queue between a source's own thread and whoever pulls the stream.

The thread pushes and never waits; what does not fit is the thread's to count. The pulling side
takes items in order and meets the thread's error after the items before it. Dropping the last
reference to the `FeedSource`, or closing it, stops the thread, which then frees what it holds: the
thread knows the feed and the stop signal, never the source.

Failure: `take` raises the error of the thread, once and for all.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from worker.errors import Raised
from worker.evaluate.streams.core import END, PENDING, wait_on
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

FEED_ITEMS: Final = 64


class StopSignal:
    """A flag a thread can wait for together with other descriptors. The thread closes it."""

    # `_write_fd` is None once closed; changed under `_lock`, so that nobody writes to a descriptor
    # that has been given to something else.

    def __init__(self) -> None:
        self.fd, self._write_fd = _pipe()
        self._lock = threading.Lock()
        self.is_set = False

    def set(self) -> None:
        with self._lock:
            if not self.is_set and self._write_fd is not None:
                os.write(self._write_fd, b"\0")
            self.is_set = True

    def close(self) -> None:
        with self._lock:
            write_fd, self._write_fd = self._write_fd, None
            if write_fd is not None:
                os.close(write_fd)
                os.close(self.fd)


def _pipe() -> tuple[int, int | None]:
    read_fd, write_fd = os.pipe()
    return read_fd, write_fd


class Feed:
    # All of it changes under `changed`. `owed` is called when an item is taken and may give one
    # that stands for items lost in between.

    __slots__ = ("_failure", "_items", "changed", "owed")

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._items: deque[Value] = deque()
        self._failure: Raised | None = None
        self.owed: Callable[[], Value] | None = None

    @property
    def is_full(self) -> bool:
        return len(self._items) >= FEED_ITEMS

    def push(self, *items: Value) -> bool:
        """Add items that belong together; False, and nothing added, when they do not fit."""
        with self.changed:
            if len(self._items) + len(items) > FEED_ITEMS:
                return False
            self._items.extend(items)
            self.changed.notify_all()
            return True

    def fail(self, error: Raised) -> None:
        with self.changed:
            self._failure = error
            self.changed.notify_all()

    def take(self) -> Value:
        """Called with `changed` held."""
        if self._items:
            item = self._items.popleft()
            if self.owed is not None:
                owed = self.owed()
                if owed is not PENDING:
                    self._items.append(owed)
            return item
        if self._failure is not None:
            raise self._failure
        return PENDING


class FeedSource:
    __slots__ = ("__weakref__", "_feed", "_stop")

    def __init__(self, feed: Feed, stop: StopSignal) -> None:
        self._feed: Feed | None = feed
        self._stop = stop

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        feed = self._feed
        return END if feed is None else wait_on(ev, feed.changed, feed.take, deadline)

    def close(self) -> None:
        self._feed = None
        self._stop.set()

    def __del__(self) -> None:
        self._stop.set()


def start_thread(name: str, work: Callable[[], None], stop: StopSignal) -> None:
    """Run the work of a source; the thread is not waited for, it ends when `stop` is set.

    Raises OSError when the system has no thread left.
    """

    def run() -> None:
        try:
            work()
        finally:
            stop.close()

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        stop.close()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
