"""Tables of the agent endpoint: sessions, visible transcript, checkpoints, uploads (chapter 70
§13).

They live in the journal's database and are written by its writer thread only. Writes are functions
that give a `Custom` operation, reads give a `CustomRead`; a session is named by (session id, mode).
Messages and tool rows of a session share one row numbering, which is the visible transcript: rows
are appended, never renumbered.

Failure: `OperationRefused` for a session row that is gone; the errors of the store otherwise.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from journal.errors import OperationRefused
from journal.query import CustomRead
from journal.records import Custom

Key = tuple[str, str]

TABLES: Final = (
    """
    CREATE TABLE IF NOT EXISTS agent_sessions (
        session_id TEXT NOT NULL, mode TEXT NOT NULL, principal_id TEXT, agent_alias TEXT NOT NULL,
        workspace_dir TEXT NOT NULL, interaction_surface TEXT, token_count INTEGER NOT NULL,
        killed_at INTEGER, plan_json TEXT, trim_breadcrumb TEXT, trim_event TEXT,
        retained_context_json TEXT, retained_context_frontier INTEGER NOT NULL DEFAULT -1,
        external_session TEXT, tool_calls INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL, last_activity INTEGER NOT NULL,
        PRIMARY KEY (session_id, mode))
    """,
    """
    CREATE TABLE IF NOT EXISTS agent_messages (
        session_id TEXT NOT NULL, mode TEXT NOT NULL, row INTEGER NOT NULL, role TEXT NOT NULL,
        content TEXT NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (session_id, mode, row),
        FOREIGN KEY (session_id, mode) REFERENCES agent_sessions ON DELETE CASCADE)
    """,
    """
    CREATE TABLE IF NOT EXISTS agent_tool_calls (
        session_id TEXT NOT NULL, mode TEXT NOT NULL, row INTEGER NOT NULL,
        tool_call_id TEXT NOT NULL, tool_name TEXT NOT NULL, event_kind TEXT NOT NULL,
        payload TEXT NOT NULL, outcome TEXT, created_at INTEGER NOT NULL,
        PRIMARY KEY (session_id, mode, row),
        FOREIGN KEY (session_id, mode) REFERENCES agent_sessions ON DELETE CASCADE)
    """,
    """
    CREATE TABLE IF NOT EXISTS agent_session_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, mode TEXT NOT NULL,
        action TEXT NOT NULL, outcome TEXT NOT NULL, payload TEXT NOT NULL, ts INTEGER NOT NULL)
    """,
    """
    CREATE TABLE IF NOT EXISTS agent_turn_checkpoints (
        session_id TEXT NOT NULL, mode TEXT NOT NULL, turn_id TEXT NOT NULL,
        started_at INTEGER NOT NULL, prompt TEXT NOT NULL, PRIMARY KEY (session_id, mode),
        FOREIGN KEY (session_id, mode) REFERENCES agent_sessions ON DELETE CASCADE)
    """,
    """
    CREATE TABLE IF NOT EXISTS agent_turn_checkpoint_events (
        session_id TEXT NOT NULL, mode TEXT NOT NULL, seq INTEGER NOT NULL, payload TEXT NOT NULL,
        PRIMARY KEY (session_id, mode, seq),
        FOREIGN KEY (session_id, mode) REFERENCES agent_turn_checkpoints ON DELETE CASCADE)
    """,
    """
    CREATE TABLE IF NOT EXISTS agent_uploads_index (
        session_id TEXT NOT NULL, mode TEXT NOT NULL, content_hash TEXT NOT NULL,
        file_name TEXT NOT NULL, marker TEXT NOT NULL, path TEXT NOT NULL,
        PRIMARY KEY (session_id, mode, content_hash),
        FOREIGN KEY (session_id, mode) REFERENCES agent_sessions ON DELETE CASCADE)
    """,
    """
    CREATE VIRTUAL TABLE IF NOT EXISTS agent_messages_text USING fts5(
        content, session_id UNINDEXED, mode UNINDEXED)
    """,
    "CREATE INDEX IF NOT EXISTS idx_agent_activity ON agent_sessions(last_activity)",
)


# --- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A durable session; `principal_id` None is the shared operator's."""

    session_id: str
    mode: str
    principal_id: str | None
    agent_alias: str
    workspace_dir: str
    interaction_surface: str | None
    token_count: int
    killed_at: int | None
    plan_json: str | None
    trim_breadcrumb: str | None
    trim_event: str | None
    retained_context_json: str | None
    retained_context_frontier: int
    external_session: str | None
    tool_calls: int
    created_at: int
    last_activity: int

    @property
    def key(self) -> Key:
        return self.session_id, self.mode


@dataclass(frozen=True, slots=True)
class TextRow:
    """A visible message to append."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A visible tool call (`in`, payload is its input as JSON) or result (`out`) to append."""

    tool_call_id: str
    tool_name: str
    event_kind: str
    payload: str
    outcome: str | None = None


VisibleRow = TextRow | ToolRow


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An unfinished turn with its events, in order of their sequence numbers."""

    turn_id: str
    started_at: int
    prompt: str
    events: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """One visible row as read back; tool members are None for messages."""

    row: int
    role: str | None
    content: str
    created_at: int
    tool_call_id: str | None = None
    tool_name: str | None = None
    event_kind: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class UploadRow:
    content_hash: str
    file_name: str
    marker: str
    path: str


@dataclass(frozen=True, slots=True)
class ListedRow:
    session: SessionRow
    message_count: int


_COLUMNS: Final = ", ".join(SessionRow.__dataclass_fields__)


# --- writes -------------------------------------------------------------------------------------


def create_tables() -> Custom[None]:
    def run(db: sqlite3.Connection) -> None:
        for statement in TABLES:
            db.execute(statement)

    return Custom(run)


def put_session(row: SessionRow) -> Custom[None]:
    """Insert a new session. Refused when there is one."""

    def run(db: sqlite3.Connection) -> None:
        values = [getattr(row, name) for name in SessionRow.__dataclass_fields__]
        marks = ", ".join("?" * len(values))
        try:
            db.execute(f"INSERT INTO agent_sessions ({_COLUMNS}) VALUES ({marks})", values)
        except sqlite3.IntegrityError:
            raise OperationRefused("the session exists") from None
        _audit(db, row.key, "created", "ok", "{}", row.created_at)

    return Custom(run)


def begin_turn(key: Key, turn_id: str, prompt: str, now_ns: int) -> Custom[None]:
    """Commit the checkpoint of a turn. Refused when the session is gone or has one."""

    def run(db: sqlite3.Connection) -> None:
        try:
            db.execute(
                "INSERT INTO agent_turn_checkpoints VALUES (?, ?, ?, ?, ?)",
                (*key, turn_id, now_ns, prompt),
            )
        except sqlite3.IntegrityError:
            raise OperationRefused("no session, or a turn is unfinished") from None
        _touch(db, key, now_ns)

    return Custom(run)


def add_events(
    key: Key, turn_id: str, first: int, payloads: Sequence[str], plan_json: str | None = None
) -> Custom[None]:
    """Append checkpoint events numbered from `first`; a plan is stored with the session as well."""

    def run(db: sqlite3.Connection) -> None:
        _require_turn(db, key, turn_id)
        db.executemany(
            "INSERT INTO agent_turn_checkpoint_events VALUES (?, ?, ?, ?)",
            [(*key, first + index, payload) for index, payload in enumerate(payloads)],
        )
        if plan_json is not None:
            db.execute(
                "UPDATE agent_sessions SET plan_json = ? WHERE session_id = ? AND mode = ?",
                (plan_json, *key),
            )

    return Custom(run)


def add_trim(
    key: Key,
    turn_id: str,
    seq: int,
    payload: str,
    context_json: str,
    breadcrumb: str,
    trim_event: str,
) -> Custom[None]:
    """A trim: its event, the new snapshot and its frontier, in one."""

    def run(db: sqlite3.Connection) -> None:
        _require_turn(db, key, turn_id)
        db.execute(
            "INSERT INTO agent_turn_checkpoint_events VALUES (?, ?, ?, ?)", (*key, seq, payload)
        )
        db.execute(
            """
            UPDATE agent_sessions SET retained_context_json = ?, retained_context_frontier = ?,
            trim_breadcrumb = ?, trim_event = ? WHERE session_id = ? AND mode = ?
            """,
            (context_json, seq, breadcrumb, trim_event, *key),
        )

    return Custom(run)


def finish_turn(
    key: Key,
    turn_id: str,
    rows: Sequence[VisibleRow],
    context_json: str | None,
    *,
    action: str,
    outcome: str,
    tokens: int,
    now_ns: int,
) -> Custom[int]:
    """End a turn (or recover one): append rows, store the snapshot, drop the checkpoint, audit.

    `context_json` None leaves the session without a snapshot. Result: the count of visible rows.
    """

    def run(db: sqlite3.Connection) -> int:
        _require_turn(db, key, turn_id)
        count = append_rows(db, key, rows, now_ns)
        calls = sum(1 for row in rows if isinstance(row, ToolRow) and row.event_kind == "in")
        db.execute(
            """
            UPDATE agent_sessions SET retained_context_json = ?, retained_context_frontier = -1,
            token_count = token_count + ?, tool_calls = tool_calls + ?
            WHERE session_id = ? AND mode = ?
            """,
            (context_json, tokens, calls, *key),
        )
        db.execute("DELETE FROM agent_turn_checkpoints WHERE session_id = ? AND mode = ?", key)
        _audit(db, key, action, outcome, f'{{"turn_id":"{turn_id}"}}', now_ns)
        _touch(db, key, now_ns)
        return count

    return Custom(run)


def append_rows(db: sqlite3.Connection, key: Key, rows: Sequence[VisibleRow], now_ns: int) -> int:
    """Append visible rows under the next numbers; returns how many there are now."""
    number = visible_count(db, key)
    for row in rows:
        if isinstance(row, TextRow):
            db.execute(
                "INSERT INTO agent_messages VALUES (?, ?, ?, ?, ?, ?)",
                (*key, number, row.role, row.content, now_ns),
            )
            db.execute("INSERT INTO agent_messages_text VALUES (?, ?, ?)", (row.content, *key))
        else:
            db.execute(
                "INSERT INTO agent_tool_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *key, number, row.tool_call_id, row.tool_name, row.event_kind, row.payload,
                    row.outcome, now_ns,
                ),
            )  # fmt: skip
        number += 1
    return number


def visible_count(db: sqlite3.Connection, key: Key) -> int:
    row = db.execute(
        """
        SELECT max((SELECT coalesce(max(row), -1) FROM agent_messages
                    WHERE session_id = ?1 AND mode = ?2),
                   (SELECT coalesce(max(row), -1) FROM agent_tool_calls
                    WHERE session_id = ?1 AND mode = ?2)) + 1
        """,
        key,
    ).fetchone()
    return int(row[0])


def kill_session(key: Key, now_ns: int) -> Custom[bool]:
    """Set the tombstone; whether it was not there before. Refused when the row is gone."""

    def run(db: sqlite3.Connection) -> bool:
        row = db.execute(
            "SELECT killed_at FROM agent_sessions WHERE session_id = ? AND mode = ?", key
        ).fetchone()
        if row is None:
            raise OperationRefused("no such session")
        if row[0] is not None:
            return False
        db.execute(
            "UPDATE agent_sessions SET killed_at = ? WHERE session_id = ? AND mode = ?",
            (now_ns, *key),
        )
        _audit(db, key, "killed", "ok", "{}", now_ns)
        return True

    return Custom(run)


def delete_session(key: Key, now_ns: int) -> Custom[bool]:
    """Delete the session with everything below it; whether it was there."""

    def run(db: sqlite3.Connection) -> bool:
        found = db.execute(
            "DELETE FROM agent_sessions WHERE session_id = ? AND mode = ?", key
        ).rowcount
        db.execute("DELETE FROM agent_messages_text WHERE session_id = ? AND mode = ?", key)
        if found:
            _audit(db, key, "deleted", "ok", "{}", now_ns)
        return bool(found)

    return Custom(run)


def put_upload(key: Key, row: UploadRow, now_ns: int) -> Custom[None]:
    """Index stored content; the first name and marker of a content stay."""

    def run(db: sqlite3.Connection) -> None:
        try:
            db.execute(
                "INSERT OR IGNORE INTO agent_uploads_index VALUES (?, ?, ?, ?, ?, ?)",
                (*key, row.content_hash, row.file_name, row.marker, row.path),
            )
        except sqlite3.IntegrityError:
            raise OperationRefused("no such session") from None
        _touch(db, key, now_ns)

    return Custom(run)


def set_external(key: Key, external: str | None) -> Custom[None]:
    """Keep the id that an external agent program gave its own session."""

    def run(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE agent_sessions SET external_session = ? WHERE session_id = ? AND mode = ?",
            (external, *key),
        )

    return Custom(run)


def audit_session(key: Key, action: str, outcome: str, payload: str, now_ns: int) -> Custom[None]:
    def run(db: sqlite3.Connection) -> None:
        _audit(db, key, action, outcome, payload, now_ns)

    return Custom(run)


def _require_turn(db: sqlite3.Connection, key: Key, turn_id: str) -> None:
    row = db.execute(
        "SELECT turn_id FROM agent_turn_checkpoints WHERE session_id = ? AND mode = ?", key
    ).fetchone()
    if row is None or row[0] != turn_id:
        raise OperationRefused("the turn has no checkpoint")


def _audit(
    db: sqlite3.Connection, key: Key, action: str, outcome: str, payload: str, now_ns: int
) -> None:
    db.execute(
        """
        INSERT INTO agent_session_events (session_id, mode, action, outcome, payload, ts)
        VALUES (?, ?, ?, ?, ?, ?)
        """,
        (*key, action, outcome, payload, now_ns),
    )


def _touch(db: sqlite3.Connection, key: Key, now_ns: int) -> None:
    db.execute(
        "UPDATE agent_sessions SET last_activity = ? WHERE session_id = ? AND mode = ?",
        (now_ns, *key),
    )


# --- reads --------------------------------------------------------------------------------------


def sessions_by_id(session_id: str) -> CustomRead[list[SessionRow]]:
    """The rows of an id, one per mode."""

    def run(db: sqlite3.Connection) -> list[SessionRow]:
        found = db.execute(
            f"SELECT {_COLUMNS} FROM agent_sessions WHERE session_id = ? ORDER BY mode",
            (session_id,),
        )
        return [SessionRow(*row) for row in found]

    return CustomRead(run)


def listed_sessions(
    principal_id: str | None, everyone: bool, words: Sequence[str], limit: int | None
) -> CustomRead[list[ListedRow]]:
    """Sessions of a principal (or all), newest activity first, whose messages hold all words."""

    def run(db: sqlite3.Connection) -> list[ListedRow]:
        condition, parameters = "1", []
        if not everyone:
            condition, parameters = "principal_id = ?", [principal_id]
        wanted: set[Key] | None = None
        for word in words:
            keys = {
                (str(found[0]), str(found[1]))
                for found in db.execute(
                    "SELECT DISTINCT session_id, mode FROM agent_messages_text"
                    " WHERE agent_messages_text MATCH ?",
                    ('"' + word.replace('"', '""') + '"',),
                )
            }
            wanted = keys if wanted is None else wanted & keys
        rows: list[ListedRow] = []
        for values in db.execute(
            f"SELECT {_COLUMNS} FROM agent_sessions WHERE {condition}"
            " ORDER BY last_activity DESC, session_id",
            parameters,
        ):
            session = SessionRow(*values)
            if wanted is not None and session.key not in wanted:
                continue
            rows.append(ListedRow(session, visible_count(db, session.key)))
            if limit is not None and len(rows) >= limit:
                break
        return rows

    return CustomRead(run)


def count_by_alias() -> CustomRead[list[tuple[str, str | None]]]:
    """Alias and owner of every session."""

    def run(db: sqlite3.Connection) -> list[tuple[str, str | None]]:
        return db.execute("SELECT agent_alias, principal_id FROM agent_sessions").fetchall()

    return CustomRead(run)


def transcript(key: Key, start: int, end: int) -> CustomRead[list[TranscriptRow]]:
    """Visible rows start..end-1 in order."""

    def run(db: sqlite3.Connection) -> list[TranscriptRow]:
        return _transcript(db, key, start, end)

    return CustomRead(run)


def _transcript(db: sqlite3.Connection, key: Key, start: int, end: int) -> list[TranscriptRow]:
    bounds: tuple[Any, ...] = (*key, start, end)
    rows = [
        TranscriptRow(*values)
        for values in db.execute(
            """
            SELECT row, role, content, created_at FROM agent_messages
            WHERE session_id = ? AND mode = ? AND row >= ? AND row < ?
            """,
            bounds,
        )
    ]
    rows += [
        TranscriptRow(row, None, payload, created_at, call_id, name, kind, outcome)
        for row, payload, created_at, call_id, name, kind, outcome in db.execute(
            """
            SELECT row, payload, created_at, tool_call_id, tool_name, event_kind, outcome
            FROM agent_tool_calls WHERE session_id = ? AND mode = ? AND row >= ? AND row < ?
            """,
            bounds,
        )
    ]
    return sorted(rows, key=lambda row: row.row)


def transcript_length(key: Key) -> CustomRead[int]:
    def run(db: sqlite3.Connection) -> int:
        return visible_count(db, key)

    return CustomRead(run)


def whole_transcript(key: Key) -> CustomRead[list[TranscriptRow]]:
    return transcript(key, 0, 2**62)


def checkpoint(key: Key) -> CustomRead[Checkpoint | None]:
    """The unfinished turn of a session."""

    def run(db: sqlite3.Connection) -> Checkpoint | None:
        row = db.execute(
            """
            SELECT turn_id, started_at, prompt FROM agent_turn_checkpoints
            WHERE session_id = ? AND mode = ?
            """,
            key,
        ).fetchone()
        if row is None:
            return None
        events = db.execute(
            """
            SELECT seq, payload FROM agent_turn_checkpoint_events
            WHERE session_id = ? AND mode = ? ORDER BY seq
            """,
            key,
        ).fetchall()
        return Checkpoint(row[0], row[1], row[2], tuple(events))

    return CustomRead(run)


def uploads(key: Key) -> CustomRead[list[UploadRow]]:
    """The index of stored attachments of a session."""

    def run(db: sqlite3.Connection) -> list[UploadRow]:
        found = db.execute(
            """
            SELECT content_hash, file_name, marker, path FROM agent_uploads_index
            WHERE session_id = ? AND mode = ?
            """,
            key,
        )
        return [UploadRow(*row) for row in found]

    return CustomRead(run)
