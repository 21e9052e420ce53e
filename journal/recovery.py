"""Ending what nobody will end any more: submissions of lost workers, the leftovers of a crash.

Failure: sqlite3 errors; the caller's transaction decides.
"""

from __future__ import annotations

import sqlite3

from journal.event_log import ALL_SPACE, Sequences
from journal.records import Interrupted, InterruptSubmissions, Recover, Recovery

_BELOW = """
    WITH RECURSIVE below(id) AS (
        VALUES (?) UNION ALL SELECT e.id FROM below b JOIN entry e ON e.parent_id = b.id
    ) SELECT id FROM below
"""


def interrupt(
    connection: sqlite3.Connection, sequences: Sequences, interrupt: InterruptSubmissions
) -> tuple[Interrupted, ...]:
    """Mark running rows of a session; number the `journal` events of its submissions."""
    where = "owner = ? AND session = ? AND state = 'running'"
    parameters: tuple[object, ...] = (interrupt.owner, interrupt.session)
    if interrupt.entry_id is not None:
        where += f" AND id IN ({_BELOW})"
        parameters += (interrupt.entry_id,)
    return _interrupt(connection, sequences, where, parameters, interrupt.ended_ns)


def _interrupt(
    connection: sqlite3.Connection,
    sequences: Sequences,
    where: str,
    parameters: tuple[object, ...],
    ended_ns: int,
) -> tuple[Interrupted, ...]:
    running = connection.execute(
        f"SELECT id, kind, owner, session, principal, head FROM entry WHERE {where} ORDER BY id",
        parameters,
    ).fetchall()
    connection.executemany(
        "UPDATE entry SET state = 'interrupted', dur_ns = NULL, status = NULL, ok = NULL"
        " WHERE id = ?",
        [(row[0],) for row in running],
    )
    ended = tuple(
        Interrupted(
            entry_id,
            owner,
            session,
            principal,
            head,
            sequences.take("journal", ALL_SPACE),
            sequences.take("journal", owner),
        )
        for entry_id, kind, owner, session, principal, head in running
        if kind == "submission"
    )
    connection.executemany(
        "INSERT INTO event VALUES ('journal', ?, ?, ?, ?)",
        [
            row
            for entry in ended
            for row in (
                (ALL_SPACE, entry.journal_seq_all, entry.entry_id, ended_ns),
                (entry.owner, entry.journal_seq, entry.entry_id, ended_ns),
            )
        ],
    )
    return ended


def recover(connection: sqlite3.Connection, sequences: Sequences, recover: Recover) -> Recovery:
    """End everything that a crash of the daemon left open."""
    interrupted = _interrupt(connection, sequences, "state = 'running'", (), recover.now_ns)
    running = connection.execute(
        """
        SELECT t.number, ifnull(s.name, '') FROM task t LEFT JOIN session s ON s.id = t.session_id
        WHERE t.finished_ns IS NULL ORDER BY t.number
        """
    ).fetchall()
    connection.executemany(
        "UPDATE task SET state = 'failed', finished_ns = ?, error = ? WHERE number = ?",
        [
            (recover.now_ns, recover.task_error(session).decode(), number)
            for number, session in running
        ],
    )
    expired = connection.execute(
        "DELETE FROM plan WHERE expires_ns <= ?", (recover.now_ns,)
    ).rowcount
    dropped = connection.execute(
        """
        DELETE FROM pin WHERE reason = 'value'
        AND holder NOT IN (SELECT CAST(id AS TEXT) FROM session)
        """
    ).rowcount
    return Recovery(
        tuple(entry.entry_id for entry in interrupted),
        tuple(number for number, _ in running),
        expired,
        dropped,
    )
