"""Session rows, their stored cells and their guests (chapter 61 §2.2, chapter 60 §10).

A cell is one opaque value under a name that only workers of the session understand; a cell without
value is lost. Session ids are never used twice, so nothing that names one can come to mean another.

Failure: changes of an unknown session are refused, except cells, which are dropped: a submission
may end after its session was closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from journal.errors import OperationRefused
from journal.records import DeleteSession, EnsureSession, Operation, SetShares, TouchSession
from journal.source import Source


@dataclass(frozen=True, slots=True)
class Session:
    id: int
    owner: str
    name: str
    created_ns: int
    last_used_ns: int
    next_out: int


@dataclass(frozen=True, slots=True)
class Shares:
    """The guests of a session, sorted; `mode` is None exactly when there are none."""

    principals: tuple[str, ...]
    mode: str | None


COLUMNS: Final = "id, owner, name, created_ns, last_used_ns, next_out"
FIRST_OUT: Final = 1


# --- changes -------------------------------------------------------------------------------------


def ensure(connection: sqlite3.Connection, session: EnsureSession) -> int:
    row = connection.execute(
        """
        INSERT INTO session (owner, name, created_ns, last_used_ns, next_out) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (owner, name) DO UPDATE SET last_used_ns = excluded.last_used_ns
        RETURNING id
        """,
        (session.owner, session.name, session.now_ns, session.now_ns, FIRST_OUT),
    ).fetchall()
    return int(row[0][0])


def touch(connection: sqlite3.Connection, session: TouchSession) -> None:
    connection.execute(
        "UPDATE session SET last_used_ns = ? WHERE id = ?",
        (session.last_used_ns, session.session_id),
    )


def delete(connection: sqlite3.Connection, session: DeleteSession) -> bool:
    row = connection.execute(
        "SELECT owner, name FROM session WHERE id = ?", (session.session_id,)
    ).fetchone()
    if row is None:
        return False
    connection.execute("DELETE FROM plan WHERE session_owner = ? AND session = ?", row)
    for table in ("session_cell", "session_share", "task"):
        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (session.session_id,))
    connection.execute(
        "DELETE FROM pin WHERE reason = 'value' AND holder = ?", (str(session.session_id),)
    )
    connection.execute("DELETE FROM session WHERE id = ?", (session.session_id,))
    return True


def set_shares(connection: sqlite3.Connection, shares: SetShares) -> None:
    found = connection.execute(
        "SELECT 1 FROM session WHERE id = ?", (shares.session_id,)
    ).fetchone()
    if found is None:
        raise OperationRefused("unknown session")
    connection.execute("DELETE FROM session_share WHERE session_id = ?", (shares.session_id,))
    connection.executemany(
        "INSERT OR IGNORE INTO session_share (session_id, principal, mode) VALUES (?, ?, ?)",
        [(shares.session_id, principal, shares.mode) for principal in shares.principals],
    )


WRITES: Final[Mapping[type[Operation[Any]], Callable[[sqlite3.Connection, Any], Any]]] = {
    EnsureSession: ensure,
    TouchSession: touch,
    DeleteSession: delete,
    SetShares: set_shares,
}


# --- reads ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllSessions:
    """Every session with its guests, by owner and name."""

    def run(self, source: Source) -> list[tuple[Session, Shares]]:
        shares: dict[int, list[tuple[str, str]]] = {}
        for session_id, principal, mode in source.connection.execute(
            "SELECT session_id, principal, mode FROM session_share ORDER BY principal"
        ):
            shares.setdefault(session_id, []).append((principal, mode))
        rows = source.connection.execute(f"SELECT {COLUMNS} FROM session ORDER BY owner, name")
        return [(Session(*row), _shares(shares.get(row[0], []))) for row in rows]


@dataclass(frozen=True, slots=True)
class SessionByName:
    owner: str
    name: str

    def run(self, source: Source) -> Session | None:
        row = source.connection.execute(
            f"SELECT {COLUMNS} FROM session WHERE owner = ? AND name = ?", (self.owner, self.name)
        ).fetchone()
        return None if row is None else Session(*row)


@dataclass(frozen=True, slots=True)
class SessionCells:
    """The stored state of a session, by cell name; None marks a lost value."""

    session_id: int

    def run(self, source: Source) -> list[tuple[str, bytes | None]]:
        return source.connection.execute(
            "SELECT cell, value FROM session_cell WHERE session_id = ? ORDER BY cell",
            (self.session_id,),
        ).fetchall()


@dataclass(frozen=True, slots=True)
class Restorable:
    """What a worker needs to take a session up again. `later` are cells left out, with their sizes;
    `pinned` is content that values of the session are backed by, with its length."""

    cells: list[tuple[str, bytes | None]]
    later: list[tuple[str, int]]
    pinned: list[tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class RestorableState:
    """The stored state of a session, without cells that begin with `optional` once these are larger
    than `single_bytes_max` or, the last ones first, `total_bytes_max` together."""

    session_id: int
    optional: str
    single_bytes_max: int
    total_bytes_max: int

    def run(self, source: Source) -> Restorable:
        connection = source.connection
        start, end = self.optional, self.optional[:-1] + chr(ord(self.optional[-1]) + 1)
        cells = connection.execute(
            """
            SELECT cell, value FROM session_cell
            WHERE session_id = ? AND NOT (cell >= ? AND cell < ?) ORDER BY cell
            """,
            (self.session_id, start, end),
        ).fetchall()
        sizes = connection.execute(
            """
            SELECT cell, length(value) FROM session_cell
            WHERE session_id = ? AND cell >= ? AND cell < ? ORDER BY length(cell) DESC, cell DESC
            """,
            (self.session_id, start, end),
        ).fetchall()
        later: list[tuple[str, int]] = []
        total = 0
        for cell, size in sizes:
            total += size or 0
            if size is not None and (size > self.single_bytes_max or total > self.total_bytes_max):
                later.append((cell, size))
        left_out = {cell for cell, _size in later}
        cells += [
            row
            for row in connection.execute(
                """
                SELECT cell, CASE WHEN length(value) > ? THEN NULL ELSE value END FROM session_cell
                WHERE session_id = ? AND cell >= ? AND cell < ?
                """,
                (self.single_bytes_max, self.session_id, start, end),
            )
            if row[0] not in left_out
        ]
        pinned = connection.execute(
            """
            SELECT hash, stored_len FROM pin JOIN blob USING (hash)
            WHERE reason = 'value' AND holder = ?
            """,
            (str(self.session_id),),
        ).fetchall()
        return Restorable(cells, later, pinned)


@dataclass(frozen=True, slots=True)
class SessionCell:
    """One stored cell; None when it is lost or not there."""

    session_id: int
    cell: str

    def run(self, source: Source) -> bytes | None:
        row = source.connection.execute(
            "SELECT value FROM session_cell WHERE session_id = ? AND cell = ?",
            (self.session_id, self.cell),
        ).fetchone()
        return None if row is None else row[0]


@dataclass(frozen=True, slots=True)
class SessionShares:
    session_id: int

    def run(self, source: Source) -> Shares:
        return _shares(
            source.connection.execute(
                "SELECT principal, mode FROM session_share WHERE session_id = ? ORDER BY principal",
                (self.session_id,),
            ).fetchall()
        )


def _shares(rows: list[tuple[str, str]]) -> Shares:
    return Shares(tuple(principal for principal, _ in rows), rows[0][1] if rows else None)
