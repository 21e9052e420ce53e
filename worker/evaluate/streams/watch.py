"""`watch(target)`: file changes as a stream of events (chapter 30 §14.2).

A thread reads the system's notifications and pushes `{path, kind, ts}` records. When the queue is
full events are dropped and one summary event for the root is owed; it goes out as soon as there is
room. A glob watches its longest literal directory and keeps the paths that match all of it.

Failure: arg_error, type_error and `not_found` from the call; trouble on the thread is delivered as
`io_error` by the pull that meets it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from worker.errors import arg_error, not_found, os_text, raised, type_error
from worker.evaluate.streams.core import PENDING, Stream
from worker.evaluate.streams.feed import Feed, FeedSource, StopSignal, start_thread
from worker.evaluate.streams.notify import MODIFIED, Notifier, open_notifier
from worker.values.temporal import now
from worker.values.types import Glob, Path, Record, Span, Value, display_name, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_WILDCARDS: Final = re.compile(r"[*?\[]")


def watch(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Value:
    """`watch(target, recursive: true)`: changes of a file, a directory or the matches of a glob."""
    if len(pos) != 1:
        raise arg_error(f"expected 1 argument, got {len(pos)}")
    root, matches = _target(ev, pos[0])
    recursive = named.get("recursive", True) is True
    from worker.builtins.authority import check_read

    check_read(ev, root)
    if not os.path.lexists(root):
        raise not_found(f"watch target does not exist: {display_name(root)}")
    feed = Feed()
    events = Events(feed, ev.host.clock, root, matches)
    feed.owed = events.take_summary
    try:
        with ExitStack() as undo:
            stop = StopSignal()
            undo.callback(stop.close)
            notifier = open_notifier(root, recursive)
            undo.callback(notifier.close)
            start_thread("shoal-watch", lambda: events.run(notifier, stop), stop)
            # From here on the thread owns them.
            undo.pop_all()
    except OSError as error:
        raise raised("io_error", f"watch: {display_name(root)}: {os_text(error)}") from None
    return Stream(FeedSource(feed, stop), "event", bounded=False)


def _target(ev: Evaluator, target: Value) -> tuple[str, Callable[[str], bool] | None]:
    """The root to watch and, for a glob, the test for paths below it."""
    if type(target) is Glob:
        return _glob_target(os.path.join(target.origin, target.pattern))
    if type(target) is str and _WILDCARDS.search(target):
        return _glob_target(ev.absolute(target))
    if type(target) is str or type(target) is Path:
        return _without_dots(ev.absolute(target)), None
    raise type_error(f"watch expects a path, string or glob, found {type_name(target)}")


def _without_dots(path: str) -> str:
    """The path without `.` components and a trailing slash; `..` keeps its meaning."""
    kept = "/".join(part for part in path.split("/") if part not in ("", "."))
    return "/" + kept


def _glob_target(pattern: str) -> tuple[str, Callable[[str], bool]]:
    pattern = _without_dots(pattern)
    literal = pattern[: pattern.rindex("/", 0, _first_wildcard(pattern))]
    return literal or "/", path_test(pattern)


def _first_wildcard(pattern: str) -> int:
    found = _WILDCARDS.search(pattern)
    return found.start() + 1 if found else len(pattern)


def path_test(pattern: str) -> Callable[[str], bool]:
    """The test for a whole absolute path; other than in an expansion, wildcards also match `/`."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            parts.append(".*")
        elif char == "?":
            parts.append(".")
        elif char == "[":
            close = pattern.find("]", at + 2 if pattern[at : at + 1] in ("!", "^") else at + 1)
            if close < 0:
                raise arg_error(f"invalid glob pattern `{display_name(pattern)}`: unclosed class")
            body = pattern[at:close]
            negated = body[:1] in ("!", "^")
            members = re.sub(r"([\\\[\]^&~|])", r"\\\1", body[1:] if negated else body)
            parts.append(f"[{'^' if negated else ''}{members}]")
            at = close + 1
        else:
            parts.append(re.escape(char))
    try:
        compiled = re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise arg_error(f"invalid glob pattern `{display_name(pattern)}`: {error}") from None
    return lambda path: compiled.fullmatch(path) is not None


class Events:
    """The thread's side: turns changes into event records."""

    # `_owes_summary` is set by the thread when an event did not fit and taken by the pulling side,
    # both under the feed's lock.

    def __init__(
        self, feed: Feed, clock: Any, root: str, matches: Callable[[str], bool] | None
    ) -> None:
        self._feed = feed
        self._clock = clock
        self._root = root
        self._matches = matches
        self._owes_summary = False

    def _event(self, path: str, kind: str, **extra: Value) -> Record:
        return {"path": Path(path), "kind": kind, "ts": now(self._clock.now_ns()), **extra}

    def take_summary(self) -> Value:
        if not self._owes_summary:
            return PENDING
        self._owes_summary = False
        return self._event(self._root, MODIFIED, coalesced=True)

    def run(self, notifier: Notifier, stop: StopSignal) -> None:
        try:
            while (changes := notifier.changes(stop)) is not None:
                for path, kind in changes:
                    self.deliver(path, kind)
        except OSError as error:
            text = f"watch: {display_name(self._root)}: {os_text(error)}"
            self._feed.fail(raised("io_error", text))
        finally:
            notifier.close()

    def deliver(self, path: str | None, kind: str) -> None:
        if path is not None:
            if self._matches is not None and not self._matches(path):
                return
            if self._feed.push(self._event(path, kind)):
                return
        with self._feed.changed:
            if self._feed.is_full:
                self._owes_summary = True
                return
        # The system lost count, but there is room to say so at once.
        self._feed.push(self._event(self._root, MODIFIED, coalesced=True))
