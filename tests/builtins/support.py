"""A bare evaluator in a directory of its own, and what the tests of builtins ask of it.

Programs go in as source text; out comes the inline form of the value, or the code of the error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.evaluate.host import Host
from worker.values.inline import inline
from worker.values.types import ErrorValue, Outcome, Value


@dataclass
class Shell:
    """One session: `folder` is where it started, `notes` what it wrote to the worker's stderr."""

    folder: Path
    evaluator: Evaluator
    notes: list[str]

    def run(self, source: str) -> Value:
        return self.evaluator.evaluate_source(source)

    def inline(self, source: str) -> str:
        return inline(self.run(source))

    def out(self, source: str) -> Value:
        """The structured value inside the outcome of a command."""
        outcome = self.run(source)
        assert type(outcome) is Outcome
        return outcome.structured

    def fails(self, source: str) -> ErrorValue:
        try:
            value = self.run(source)
        except Raised as error:
            return error.error
        raise AssertionError(f"{source!r} gave {inline(value)}")

    def code(self, source: str) -> str:
        return self.fails(source).code


def shell_in(folder: Path, **services: Any) -> Shell:
    """A session with only the given services, everything shown is dropped."""
    notes: list[str] = []
    host = Host(sink=lambda value: None, stderr_note=notes.append, **services)
    return Shell(folder, bare_evaluator(str(folder), host), notes)


class Entry:
    """A journal entry, as opaque to the builtins as the real one."""


@dataclass
class MemoryJournal:
    """The journal port, kept in memory: one list of inverses per recorded entry."""

    records: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    current: int = 1
    full: bool = False

    def record_undo(self, entry: Any, inverse: dict[str, Any]) -> None:
        assert isinstance(entry, Entry)
        if self.full:
            raise OSError(28, "No space left on device")
        self.records.setdefault(self.current, []).append(inverse)

    def snapshot(self, entry: Any, content: bytes) -> str | None:
        if self.full:
            raise OSError(28, "No space left on device")
        digest = blake3(content).hexdigest()
        self.contents[digest] = content
        return digest

    def snapshot_bytes(self, content_hash: str) -> bytes | None:
        return self.contents.get(content_hash)

    def inverses(self, entry_id: int | None) -> tuple[int, list[dict[str, Any]]] | None:
        wanted = max(self.records, default=0) if entry_id is None else entry_id
        return (wanted, self.records[wanted]) if wanted in self.records else None

    def rows(self, **filters: Any) -> list[dict[str, Any]]:
        self.asked = filters
        return self.entries[: filters["limit"]]


def journaled_shell(folder: Path) -> tuple[Shell, MemoryJournal]:
    journal = MemoryJournal()
    shell = shell_in(folder, journal=journal)
    shell.evaluator.entry = Entry()
    return shell, journal


def raw_name(name: bytes) -> str:
    return os.fsdecode(name)
