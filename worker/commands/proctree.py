"""What the kernel says about processes: parents, groups and start times, read from `/proc`.

A `Snapshot` is one pass over `/proc`. A process is named by pid and start time together, so a pid
that was given to another program later is never mistaken for the first.

Failure: processes that vanish while they are read are left out. Without `/proc` snapshots are
empty, and callers fall back on process groups alone.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process for all time: its pid and the clock tick of its start since boot."""

    pid: int
    start: int


class ProcessEntry(NamedTuple):
    id: ProcessId
    parent: int
    group: int
    state: str

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


class Snapshot:
    """All processes that were visible at one moment."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[int, ProcessEntry]) -> None:
        self.entries = entries

    @classmethod
    def take(cls) -> Snapshot:
        try:
            names = os.listdir("/proc")
        except OSError:
            return cls({})
        found = {}
        for name in names:
            if name.isdigit():
                entry = read_entry(int(name))
                if entry is not None:
                    found[entry.id.pid] = entry
        return cls(found)

    def has(self, process: ProcessId) -> bool:
        """Whether exactly that process was alive."""
        entry = self.entries.get(process.pid)
        return entry is not None and entry.id == process and entry.alive

    def descendants(self, roots: Iterable[int]) -> list[ProcessEntry]:
        """The processes below the roots, parents before children; the roots are not included."""
        children: defaultdict[int, list[ProcessEntry]] = defaultdict(list)
        for entry in self.entries.values():
            children[entry.parent].append(entry)
        found: list[ProcessEntry] = []
        waiting = list(roots)
        seen = set(waiting)
        while waiting:
            for entry in children.get(waiting.pop(), ()):
                if entry.id.pid not in seen:
                    seen.add(entry.id.pid)
                    found.append(entry)
                    waiting.append(entry.id.pid)
        return found

    def members(self, group: int) -> list[ProcessEntry]:
        """Living processes of a process group."""
        return [e for e in self.entries.values() if e.group == group and e.alive]


def read_entry(pid: int) -> ProcessEntry | None:
    """One process, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return ProcessEntry(
        ProcessId(pid, int(fields[19])), int(fields[1]), int(fields[2]), fields[0].decode("ascii")
    )


def signal_process(process: ProcessId, number: int) -> bool:
    """Send a signal to exactly that process; False when it is gone or not ours to signal."""
    try:
        handle = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        return False
    try:
        # Only after the handle is held does the start time prove whose handle it is.
        entry = read_entry(process.pid)
        if entry is None or entry.id != process:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a whole process group; False when it has no members left."""
    try:
        os.killpg(group, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
