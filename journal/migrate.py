"""The step from schema 1 to schema 2 (chapter 61 §8.3).

A copy `journal.db.bak-v1` is made first; then everything happens in one transaction: new tables are
filled from the old ones, counted, checked, and put in their place.

Failure: `MigrationFailed`; the transaction was rolled back and the database is as it was.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Final

from journal import schema
from journal.errors import MigrationFailed
from journal.event_log import ALL_SPACE
from journal.state_dir import FILE_MODE

BACKUP_NAME: Final = "journal.db.bak-v1"
OLD: Final = "v1_"
# Tables of schema 1 in the order of their copying, with the columns both schemas share.
CARRIED: Final = {
    "output": "entry_id, kind, hash, len, meta",
    "undo": "entry_id, op, inverse",
    "transcript_event": "entry_id, ts, payload",
}
ENTRY_CARRIED: Final = (
    "id, session, principal, ts, dur_ns, cwd, env_hash, src, ast, effects, status, ok, opaque"
)


def from_version_1(connection: sqlite3.Connection, directory: Path) -> None:
    """Migrate the database of `directory`; the connection must not enforce foreign keys yet."""
    try:
        _back_up(connection, directory / BACKUP_NAME)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.create_function("entry_kind", 1, _kind_of_ast, deterministic=True)
        connection.create_function("first_word", 1, _first_word, deterministic=True)
        connection.execute("BEGIN IMMEDIATE")
        try:
            _migrate(connection, directory)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except (sqlite3.Error, OSError, ValueError) as error:
        raise MigrationFailed(f"journal.db could not be migrated from schema 1: {error}") from error


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    """Write the copy beside its final name first, so that a name that is there is a whole copy."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    copy = sqlite3.connect(temporary)
    try:
        connection.backup(copy)
    finally:
        copy.close()
    temporary.replace(path)


def _migrate(connection: sqlite3.Connection, directory: Path) -> None:
    found = schema.tables_of(connection)
    old = [name for name in ("entry", "blob", "pin", *CARRIED) if name in found]
    sequence = _sequence(connection, found)
    for (index,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall():
        connection.execute(f'DROP INDEX "{index}"')
    for name in old:
        connection.execute(f"ALTER TABLE {name} RENAME TO {OLD}{name}")
    schema.create(connection)
    _entries(connection)
    for name, columns in CARRIED.items():
        if name in old:
            connection.execute(
                f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {OLD}{name} ORDER BY rowid"
            )
    if "blob" in old:
        _blobs(connection, directory)
    if "pin" in old:
        connection.execute(f"INSERT OR IGNORE INTO pin SELECT hash, 'manual', '', 0 FROM {OLD}pin")
    _effects(connection)
    _events(connection)
    _check(connection, old)
    for name in old:
        connection.execute(f"DROP TABLE {OLD}{name}")
    connection.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'entry'", (sequence,)
    )
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise ValueError(f"a row of {broken[0]} refers to nothing")


def _sequence(connection: sqlite3.Connection, found: set[str]) -> int:
    """The highest entry id that was ever given out, as far as it is known."""
    (highest,) = connection.execute("SELECT ifnull(max(id), 0) FROM entry").fetchone()
    if "sqlite_sequence" not in found:
        return int(highest)
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entry'").fetchone()
    return max(int(highest), 0 if row is None else int(row[0]))


def _entries(connection: sqlite3.Connection) -> None:
    connection.execute(
        f"""
        INSERT INTO entry (kind, owner, head, state, {ENTRY_CARRIED})
        SELECT entry_kind(ast), principal, first_word(src),
               iif(ok IS NULL, 'interrupted', 'finished'), {ENTRY_CARRIED}
        FROM {OLD}entry ORDER BY id
        """
    )
    # An empty table has no row in sqlite_sequence, and the highest id must be kept all the same.
    connection.execute(
        """
        INSERT INTO sqlite_sequence (name, seq)
        SELECT 'entry', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'entry')
        """
    )


def _kind_of_ast(ast: bytes | str) -> str:
    try:
        node = json.loads(ast)
    except (ValueError, RecursionError, TypeError):
        return "unknown"
    if not isinstance(node, dict):
        return "unknown"
    if "stmts" in node:
        return "submission" if isinstance(node["stmts"], list) else "unknown"
    return "statement" if isinstance(node.get("kind"), str) else "unknown"


def _first_word(src: str) -> str:
    words = src.split(None, 1)
    return words[0] if words else ""


def _blobs(connection: sqlite3.Connection, directory: Path) -> None:
    rows = connection.execute(f"SELECT hash, stored_len, created_ns, last_access_ns FROM {OLD}blob")
    connection.executemany(
        "INSERT INTO blob VALUES (?, ?, ?, ?, ?)",
        (
            (digest, length, _disk_length(directory, digest), created, accessed)
            for digest, length, created, accessed in rows.fetchall()
        ),
    )


def _disk_length(directory: Path, digest: bytes) -> int:
    name = digest.hex()
    try:
        return (directory / "cas" / name[:2] / name[2:4] / f"{name}.zst").stat().st_size
    except OSError:
        return 0


def _effects(connection: sqlite3.Connection) -> None:
    def kinds() -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for entry_id, text in connection.execute("SELECT id, effects FROM entry"):
            try:
                effects = json.loads(text)
            except (ValueError, RecursionError):
                continue
            for effect in effects if isinstance(effects, list) else []:
                kind = effect.get("kind") if isinstance(effect, dict) else effect
                if isinstance(kind, str):
                    found.append((entry_id, kind.replace(".", "_")))
        return found

    connection.executemany("INSERT OR IGNORE INTO entry_effect VALUES (?, ?)", kinds())


def _events(connection: sqlite3.Connection) -> None:
    """Number the submissions in id order: in `*`, and per owner; those with a transcript row
    likewise.
    """
    ended = "ts + ifnull(dur_ns, 0)"
    connection.execute(
        f"""
        INSERT INTO event
        SELECT 'journal', '{ALL_SPACE}', row_number() OVER (ORDER BY id) - 1, id, {ended}
        FROM entry WHERE kind = 'submission'
        """
    )
    connection.execute(
        f"""
        INSERT INTO event
        SELECT 'journal', owner, row_number() OVER (PARTITION BY owner ORDER BY id) - 1, id, {ended}
        FROM entry WHERE kind = 'submission'
        """
    )
    connection.execute(
        """
        INSERT INTO event SELECT 'session.transcript', e.owner,
               row_number() OVER (PARTITION BY e.owner ORDER BY e.id) - 1, e.id, t.ts
        FROM entry e JOIN transcript_event t ON t.entry_id = e.id WHERE e.kind = 'submission'
        """
    )


def _check(connection: sqlite3.Connection, old: list[str]) -> None:
    for name in old:
        (before,) = connection.execute(f"SELECT count(*) FROM {OLD}{name}").fetchone()
        (after,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
        if before != after:
            raise ValueError(f"{before} rows of {name} became {after}")
