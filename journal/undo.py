"""Undo rows: the inverses that statements recorded (chapter 50 §13, chapter 61 §2.2).

An inverse is JSON whose `kind` equals the row's `op`. One that restores bytes needs its snapshot in
the content store, whole and with the hash it announces; it is pinned for the entry.

Failure: `usable` says no to what must never be replayed; reading raises nothing of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from journal.jsontext import checked_json
from journal.records import UndoRow
from journal.source import Source

NEWEST_ENTRIES_SEARCHED = 500


@dataclass(frozen=True, slots=True)
class UndoStep:
    """One inverse of an entry; `inverse_json` is the stored object."""

    entry_id: int
    op: str
    inverse_json: bytes


def usable(row: UndoRow, snapshot_hash: bytes | None, truncated: bool) -> bool:
    """Whether an inverse may be recorded, given what its snapshot turned out to be."""
    try:
        inverse = json.loads(row.inverse)
    except (ValueError, RecursionError):
        return False
    if not isinstance(inverse, dict) or inverse.get("kind") != row.op:
        return False
    if row.op != "restore_bytes":
        return True
    return (
        snapshot_hash is not None
        and not truncated
        and inverse.get("prior_hash") == snapshot_hash.hex()
    )


@dataclass(frozen=True, slots=True)
class UndoOfEntry:
    """The inverses of an entry and of everything below it, in recording order.

    `principal` limits them to that principal's entries; None is for the operator.
    """

    entry_id: int
    principal: str | None

    def run(self, source: Source) -> list[UndoStep]:
        rows = source.connection.execute(
            """
            WITH RECURSIVE below(id) AS (
                SELECT id FROM entry WHERE id = ? AND (? IS NULL OR principal = ?)
                UNION ALL
                SELECT e.id FROM below b JOIN entry e ON e.parent_id = b.id
            )
            SELECT u.entry_id, u.op, u.inverse FROM below b JOIN undo u ON u.entry_id = b.id
            ORDER BY u.rowid
            """,
            (self.entry_id, self.principal, self.principal),
        )
        return [UndoStep(row[0], row[1], checked_json(row[2]) or b"null") for row in rows]


@dataclass(frozen=True, slots=True)
class NewestUndo:
    """The newest entry with inverses among the last ones of a principal in a session; None
    without.
    """

    owner: str
    session: str
    principal: str

    def run(self, source: Source) -> int | None:
        row = source.connection.execute(
            """
            SELECT id FROM (
                SELECT id FROM entry WHERE owner = ? AND session = ? AND +principal = ?
                ORDER BY id DESC LIMIT ?
            ) e
            WHERE EXISTS (SELECT 1 FROM undo WHERE entry_id = e.id) ORDER BY id DESC LIMIT 1
            """,
            (self.owner, self.session, self.principal, NEWEST_ENTRIES_SEARCHED),
        ).fetchone()
        return None if row is None else int(row[0])
