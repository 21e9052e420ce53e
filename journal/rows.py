"""The rows of submissions, collected for a whole batch and written table by table.

Failure: `write` raises `OperationRefused` when a submission that should end is not running, and
sqlite3 errors; what was written before then is the caller's to roll back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from journal import tasks
from journal.errors import OperationRefused

INSERT_ENTRY: Final = """
    INSERT INTO entry (id, kind, parent_id, ordinal, session, owner, principal, task, ts, dur_ns,
                       cwd, src, head, ast, effects, status, ok, opaque, state)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        dur_ns = excluded.dur_ns, status = excluded.status, ok = excluded.ok,
        state = excluded.state,
        effects = excluded.effects, opaque = excluded.opaque
    WHERE entry.kind = 'statement' AND excluded.kind = 'statement'
      AND entry.parent_id = excluded.parent_id AND entry.state = 'running'
"""
FINISH_ENTRY: Final = """
    UPDATE entry SET dur_ns = ?, status = ?, ok = ?, state = 'finished'
    WHERE id = ? AND owner = ? AND session = ? AND state = 'running'
"""
# Linking content that is there already counts as an access: what was recorded now is not old.
INSERT_BLOB: Final = """
    INSERT INTO blob VALUES (?, ?, ?, ?, ?) ON CONFLICT (hash) DO UPDATE SET
        disk_len = excluded.disk_len, last_access_ns = max(last_access_ns, excluded.last_access_ns)
"""
INSERT_PIN: Final = "INSERT OR IGNORE INTO pin VALUES (?, ?, ?, ?)"
# A submission may end after its session was closed: its cells then have nowhere to go.
PUT_CELL: Final = """
    INSERT INTO session_cell (session_id, cell, value)
    SELECT id, ?, ? FROM session WHERE id = ?
    ON CONFLICT (session_id, cell) DO UPDATE SET value = excluded.value
"""
UPDATE_SESSION: Final = """
    UPDATE session SET next_out = max(next_out, ifnull(?, next_out)),
                       last_used_ns = max(last_used_ns, ifnull(?, last_used_ns))
    WHERE id = ?
"""
INSERT_AUDIT: Final = """
    INSERT INTO audit (ts, kind, principal, owner, session, plan_ref, entry_id, detail)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

# The statements of one flush, in an order that satisfies every reference: (attribute, SQL).
FLUSH: Final = (
    ("entries", INSERT_ENTRY),
    ("effects", "INSERT OR IGNORE INTO entry_effect VALUES (?, ?)"),
    ("finishes", FINISH_ENTRY),
    ("blobs", INSERT_BLOB),
    ("outputs", "INSERT INTO output VALUES (?, ?, ?, ?, ?)"),
    ("undo", "INSERT INTO undo VALUES (?, ?, ?)"),
    ("pins", INSERT_PIN),
    ("transcripts", "INSERT INTO transcript_event VALUES (?, ?, ?)"),
    ("events", "INSERT INTO event VALUES (?, ?, ?, ?, ?)"),
    ("sessions", UPDATE_SESSION),
    ("task_ends", tasks.END_TASK),
    ("audit", INSERT_AUDIT),
)

Row = tuple[Any, ...]


def head_of(src: str) -> str:
    """The first whitespace-separated word of a source text, empty when there is none."""
    words = src.split(None, 1)
    return words[0] if words else ""


class Rows:
    """What a flush will write."""

    __slots__ = (
        "audit",
        "blobs",
        "cells",
        "effects",
        "entries",
        "events",
        "finishes",
        "open_entries",
        "outputs",
        "pins",
        "sessions",
        "task_ends",
        "transcripts",
        "undo",
    )

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self.open_entries: dict[int, list[Any]] = {}
        self.effects: list[Row] = []
        self.finishes: list[Row] = []
        self.blobs: list[Row] = []
        self.outputs: list[Row] = []
        self.undo: list[Row] = []
        self.pins: list[Row] = []
        self.transcripts: list[Row] = []
        self.events: list[Row] = []
        self.sessions: list[Row] = []
        self.task_ends: list[Row] = []
        self.audit: list[Row] = []
        # (session id, cell) -> (has a row, value): the last change of a cell wins.
        self.cells: dict[tuple[int, str], tuple[bool, bytes | None]] = {}


def write(connection: sqlite3.Connection, rows: Rows) -> None:
    """Write everything collected; refused when a submission it ends is not running."""
    for name, statement in FLUSH:
        pending = getattr(rows, name)
        if not pending:
            continue
        changed = connection.executemany(statement, pending).rowcount
        if name in ("finishes", "entries") and changed != len(pending):
            raise OperationRefused("the submission is not running")
    if rows.cells:
        _write_cells(connection, rows.cells)


def _write_cells(
    connection: sqlite3.Connection,
    cells: Mapping[tuple[int, str], tuple[bool, bytes | None]],
) -> None:
    kept = [(cell, value, session) for (session, cell), (there, value) in cells.items() if there]
    gone = [key for key, (there, _) in cells.items() if not there]
    if kept:
        connection.executemany(PUT_CELL, kept)
    if gone:
        connection.executemany("DELETE FROM session_cell WHERE session_id = ? AND cell = ?", gone)
