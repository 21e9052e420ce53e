"""`tail(file)`: the lines a file gains, as a stream (chapter 30 §14.2).

A thread reads what is appended and pushes complete lines, without their ends, decoded lossily; a
last line without newline waits for the rest of it. A file that shrank is read again from its start,
and so is a new file in the same place. When the queue is full lines are dropped and counted, and a
`{dropped: n}` record goes before the next line that fits.

Failure: arg_error, type_error and `not_found` from the call; trouble on the thread is delivered as
`io_error` by the pull that meets it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from worker.errors import Raised, arg_error, not_found, os_text, raised, type_error
from worker.evaluate.streams.core import Stream
from worker.evaluate.streams.feed import Feed, FeedSource, StopSignal, start_thread
from worker.evaluate.streams.notify import Notifier, open_notifier
from worker.values.types import Path, Span, Value, display_name, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_READ_BYTES: Final = 1 << 16

# A line is kept in memory until its end comes; past this it is delivered in pieces.
_LINE_BYTES_MAX: Final = 8 << 20


def tail(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Value:
    """`tail(file, from_start: false)`: the lines appended from now on, or all of them."""
    if len(pos) != 1:
        raise arg_error(f"expected 1 argument, got {len(pos)}")
    if type(pos[0]) is not str and type(pos[0]) is not Path:
        raise type_error(f"expected a path, found {type_name(pos[0])}")
    path = ev.absolute(pos[0])
    from worker.builtins.authority import check_read

    check_read(ev, path)
    if not os.path.exists(path):
        raise not_found(f"tail target does not exist: {display_name(path)}")
    feed = Feed()
    try:
        with ExitStack() as undo:
            stop = StopSignal()
            undo.callback(stop.close)
            # The watch is opened before the size is read, so that no growth falls in between.
            notifier = open_notifier(os.path.realpath(path), recursive=False)
            undo.callback(notifier.close)
            # Another file in the same place is another read, for the one who began this.
            lines = Lines(
                path,
                from_start=named.get("from_start") is True,
                may_read=partial(check_read, ev.child()),
            )
            undo.callback(lines.close)
            start_thread("shoal-tail", lambda: lines.run(feed, notifier, stop), stop)
            # From here on the thread owns them.
            undo.pop_all()
    except OSError as error:
        raise raised("io_error", f"tail: {display_name(path)}: {os_text(error)}") from None
    return Stream(FeedSource(feed, stop), "str", bounded=False)


def _granted(_path: str) -> None:
    """Who reads may read."""


class Lines:
    """The thread's side: reads and cuts lines."""

    # `_partial` is the start of a line whose end has not been seen; `_dropped` counts the lines
    # lost since the last one that fitted. Used by the thread alone once it runs.

    def __init__(
        self, path: str, from_start: bool, may_read: Callable[[str], None] = _granted
    ) -> None:
        self._path = path
        self._may_read = may_read
        self._fd = _open(path)
        self._offset = 0 if from_start else os.fstat(self._fd).st_size
        self._partial = b""
        self._dropped = 0

    def run(self, feed: Feed, notifier: Notifier, stop: StopSignal) -> None:
        try:
            self.read_new(feed, stop)
            while notifier.changes(stop) is not None:
                self.read_new(feed, stop)
                if self._reopen_if_replaced():
                    self.read_new(feed, stop)
        except OSError as error:
            text = f"tail: {display_name(self._path)}: {os_text(error)}"
            feed.fail(raised("io_error", text))
        except Raised as refusal:
            feed.fail(refusal)
        finally:
            notifier.close()
            self.close()

    def close(self) -> None:
        os.close(self._fd)

    def read_new(self, feed: Feed, stop: StopSignal) -> None:
        if os.fstat(self._fd).st_size < self._offset:
            self._offset = 0
            self._partial = b""
        while not stop.is_set and (data := os.pread(self._fd, _READ_BYTES, self._offset)):
            self._offset += len(data)
            *whole, self._partial = (self._partial + data).split(b"\n")
            for line in whole:
                self._deliver(feed, line)
            if len(self._partial) > _LINE_BYTES_MAX:
                self._deliver(feed, self._partial)
                self._partial = b""

    def _reopen_if_replaced(self) -> bool:
        with suppress(FileNotFoundError):
            current = os.stat(self._path)
            if not os.path.samestat(current, os.fstat(self._fd)):
                self._may_read(self._path)
                fd = _open(self._path)
                os.close(self._fd)
                self._fd, self._offset, self._partial = fd, 0, b""
                return True
        return False

    def _deliver(self, feed: Feed, raw: bytes) -> None:
        line = raw.removesuffix(b"\r").decode("utf-8", "replace")
        marker = ({"dropped": self._dropped},) if self._dropped else ()
        if feed.push(*marker, line):
            self._dropped = 0
        else:
            self._dropped += 1


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
