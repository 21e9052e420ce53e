"""What changed under a directory: by inotify on Linux, by comparing listings elsewhere.

A notifier is made on the thread that opens the watch, so that nothing is missed from then on, and
used by the source's thread. `changes(stop)` waits and gives `(path, kind)` pairs, or None once the
stop signal is set. A path of None stands for changes the system has lost count of.

New directories below a recursive watch are watched as soon as they are seen; what was put into them
before that is found by listing them and reported as created.

Failure: OSError, from the constructor for a root that cannot be watched and from `changes` for
anything that breaks later. A directory that vanishes while it is being added is no failure.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Protocol

from worker.evaluate.streams.feed import StopSignal

Change = tuple[str | None, str]

CREATED: Final = "created"
MODIFIED: Final = "modified"
REMOVED: Final = "removed"

_SCAN_INTERVAL_MS: Final = 250


class Notifier(Protocol):
    def changes(self, stop: StopSignal) -> list[Change] | None: ...

    def close(self) -> None: ...


def open_notifier(root: str, recursive: bool) -> Notifier:
    """Watch a directory (with everything below it when recursive) or a single file."""
    return _NOTIFIER(root, recursive)


def _directory_and_name(root: str) -> tuple[str, str | None]:
    """What to watch for a root: the directory itself, or a file's directory and the file's name.

    A file is watched through its directory, so that a new file moved into its place is seen.
    """
    if os.path.isdir(root):
        return root, None
    directory, name = os.path.split(root)
    return directory or "/", name


if sys.platform == "linux":
    import ctypes

    import inotify_simple
    from inotify_simple import INotify, flags

    # The package would look the C library up by running the linker's tools; it is in this process.
    inotify_simple._libc = ctypes.CDLL(None, use_errno=True)

    _MASK: Final = (
        flags.CREATE
        | flags.DELETE
        | flags.MODIFY
        | flags.ATTRIB
        | flags.MOVED_FROM
        | flags.MOVED_TO
        | flags.DELETE_SELF
        | flags.EXCL_UNLINK
    )

    class _Inotify:
        # Watched directories by descriptor. `_listed` are paths reported from a listing whose own
        # event may still be on its way.

        def __init__(self, root: str, recursive: bool) -> None:
            self._recursive = recursive
            self._directory, self._name = _directory_and_name(root)
            self._root = root
            self._watched: dict[int, str] = {}
            self._listed: set[str] = set()
            self._inotify: Any = INotify(nonblocking=True)
            try:
                self._watch(self._directory)
                if self._name is None and recursive:
                    deque(self._add(self._directory), maxlen=0)
            except OSError:
                self.close()
                raise

        def _add(self, top: str) -> Iterator[str]:
            """Watch a directory and all below it; gives everything found there."""
            pending = [top]
            while pending:
                directory = pending.pop()
                # What is gone again or closed to us is left out.
                with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                    self._watch(directory)
                    with os.scandir(directory) as entries:
                        found = list(entries)
                    for entry in found:
                        yield entry.path
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)

        def _watch(self, directory: str) -> None:
            mask = _MASK | flags.ONLYDIR
            if directory != self._directory:
                mask |= flags.DONT_FOLLOW
            self._watched[self._inotify.add_watch(directory, mask)] = directory

        def changes(self, stop: StopSignal) -> list[Change] | None:
            poller = select.poll()
            poller.register(self._inotify.fileno(), select.POLLIN)
            poller.register(stop.fd, select.POLLIN)
            ready = dict(poller.poll())
            if stop.is_set or stop.fd in ready:
                return None
            found: list[Change] = []
            for event in self._inotify.read(timeout=0):
                found.extend(self._translate(event))
            return found

        def _translate(self, event: Any) -> Iterator[Change]:
            mask = event.mask
            if mask & flags.Q_OVERFLOW:
                yield None, MODIFIED
                return
            directory = self._watched.get(event.wd)
            if directory is None:
                return
            if mask & flags.IGNORED:
                del self._watched[event.wd]
                return
            if mask & flags.DELETE_SELF:
                if directory == self._directory:
                    yield self._root, REMOVED
                return
            if not event.name:
                # The directory itself: its parent's watch tells it too, except for the root.
                if directory == self._directory and self._name is None:
                    yield self._root, MODIFIED
                return
            if self._name is not None and event.name != self._name:
                return
            path = os.path.join(directory, event.name)
            if mask & flags.CREATE and path in self._listed:
                self._listed.discard(path)
            else:
                yield path, self._kind(mask)
            if mask & flags.ISDIR and self._recursive and self._name is None:
                yield from self._follow(path, mask)

        @staticmethod
        def _kind(mask: int) -> str:
            if mask & flags.CREATE:
                return CREATED
            return REMOVED if mask & flags.DELETE else MODIFIED

        def _follow(self, path: str, mask: int) -> Iterator[Change]:
            """Keep the watches of directories that came or went."""
            if mask & flags.MOVED_FROM:
                below = path + "/"
                for wd, directory in list(self._watched.items()):
                    if directory == path or directory.startswith(below):
                        with suppress(OSError):
                            self._inotify.rm_watch(wd)
            elif mask & (flags.CREATE | flags.MOVED_TO):
                for found in self._add(path):
                    self._listed.add(found)
                    yield found, CREATED
            elif mask & flags.DELETE:
                self._listed = {known for known in self._listed if not known.startswith(path + "/")}

        def close(self) -> None:
            self._inotify.close()


_Identity = tuple[int, int, int]


class Scans:
    """Compares listings at a fixed interval, where the system has no cheaper way."""

    def __init__(self, root: str, recursive: bool) -> None:
        self._root = root
        self._recursive = recursive
        self._known = self._scan()

    def _scan(self) -> dict[str, _Identity]:
        found: dict[str, _Identity] = {}
        info = _identity(self._root)
        if info is not None:
            found[self._root] = info
        pending = [self._root]
        while pending:
            with suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    info = _identity(entry.path)
                    if info is None:
                        continue
                    found[entry.path] = info
                    if self._recursive and entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        return found

    def changes(self, stop: StopSignal) -> list[Change] | None:
        poller = select.poll()
        poller.register(stop.fd, select.POLLIN)
        while not stop.is_set:
            if poller.poll(_SCAN_INTERVAL_MS):
                break
            before, self._known = self._known, self._scan()
            found = list(_differences(before, self._known))
            if found:
                return found
        return None

    def close(self) -> None:
        self._known = {}


def _identity(path: str) -> _Identity | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    # A directory's own size and time change with every entry; its entries tell that already.
    if stat.S_ISDIR(info.st_mode):
        return (info.st_ino, info.st_mode, 0)
    return (info.st_ino, info.st_size, info.st_mtime_ns)


def _differences(before: dict[str, _Identity], after: dict[str, _Identity]) -> Iterator[Change]:
    for path in before.keys() - after.keys():
        yield path, REMOVED
    for path, info in after.items():
        known = before.get(path)
        if known is None:
            yield path, CREATED
        elif known != info:
            yield path, MODIFIED


if sys.platform == "linux":
    _NOTIFIER: Final = _Inotify
else:
    _NOTIFIER: Final = Scans
