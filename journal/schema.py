"""Tables and indexes of `journal.db`, schema 2 (chapter 61 §2.2).

Beyond the chapter's list stand: `counter` (high-water marks that outlive the rows they counted, and
the database's place in its commit log), `plan.allowed` and `plan.requested_effects` (what a plan's
answers need after a restart), and the indexes that keep queries by owner, running rows, tasks and
expiring plans independent of the table's size.

Failure: `create` raises the sqlite3 error of the statement that failed; the caller's transaction
decides.
"""

from __future__ import annotations

import sqlite3
from typing import Final

SCHEMA_VERSION: Final = 2

ENTRY_COLUMNS: Final = """
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    parent_id INTEGER REFERENCES entry(id),
    ordinal INTEGER,
    session TEXT NOT NULL,
    owner TEXT NOT NULL,
    principal TEXT NOT NULL,
    task TEXT,
    ts INTEGER NOT NULL,
    dur_ns INTEGER,
    cwd BLOB NOT NULL,
    env_hash BLOB,
    src TEXT NOT NULL,
    head TEXT NOT NULL,
    ast BLOB NOT NULL,
    effects TEXT NOT NULL,
    status INTEGER,
    ok INTEGER,
    opaque INTEGER NOT NULL,
    state TEXT NOT NULL
"""

OUTPUT_COLUMNS: Final = """
    entry_id INTEGER NOT NULL, kind TEXT NOT NULL, hash BLOB NOT NULL, len INTEGER NOT NULL,
    meta TEXT
"""
UNDO_COLUMNS: Final = "entry_id INTEGER NOT NULL, op TEXT NOT NULL, inverse TEXT NOT NULL"
TRANSCRIPT_COLUMNS: Final = (
    "entry_id INTEGER PRIMARY KEY NOT NULL, ts INTEGER NOT NULL, payload TEXT NOT NULL"
)
BLOB_COLUMNS: Final = """
    hash BLOB PRIMARY KEY NOT NULL, stored_len INTEGER NOT NULL, disk_len INTEGER NOT NULL,
    created_ns INTEGER NOT NULL, last_access_ns INTEGER NOT NULL
"""
PIN_COLUMNS: Final = """
    hash BLOB NOT NULL, reason TEXT NOT NULL, holder TEXT NOT NULL, created_ns INTEGER NOT NULL,
    PRIMARY KEY (hash, reason, holder)
"""

TABLES: Final[dict[str, str]] = {
    "entry": ENTRY_COLUMNS,
    "entry_effect": """
        entry_id INTEGER NOT NULL, kind TEXT NOT NULL, PRIMARY KEY (entry_id, kind)""",
    "output": OUTPUT_COLUMNS,
    "blob": BLOB_COLUMNS,
    "pin": PIN_COLUMNS,
    "undo": UNDO_COLUMNS,
    "transcript_event": TRANSCRIPT_COLUMNS,
    "event": """
        channel TEXT NOT NULL, space TEXT NOT NULL, seq INTEGER NOT NULL, entry_id INTEGER NOT NULL,
        ts INTEGER NOT NULL, PRIMARY KEY (channel, space, seq)""",
    "session": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, name TEXT NOT NULL,
        created_ns INTEGER NOT NULL, last_used_ns INTEGER NOT NULL, next_out INTEGER NOT NULL,
        UNIQUE (owner, name)""",
    "session_cell": """
        session_id INTEGER NOT NULL, cell TEXT NOT NULL, value BLOB,
        PRIMARY KEY (session_id, cell)""",
    "session_share": """
        session_id INTEGER NOT NULL, principal TEXT NOT NULL, mode TEXT NOT NULL,
        PRIMARY KEY (session_id, principal)""",
    "plan": """
        owner TEXT NOT NULL, session_owner TEXT NOT NULL, session TEXT NOT NULL, ref TEXT NOT NULL,
        src TEXT NOT NULL, ast BLOB NOT NULL, effects TEXT NOT NULL, reversibility TEXT NOT NULL,
        estimates TEXT NOT NULL, created_ns INTEGER NOT NULL, expires_ns INTEGER,
        requested_ns INTEGER, requested_effects TEXT, approved_by TEXT, approved_ns INTEGER,
        approval_expires_ns INTEGER, applied_ns INTEGER, allowed INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (owner, session_owner, session, ref)""",
    "task": """
        number INTEGER PRIMARY KEY AUTOINCREMENT, session_id INTEGER NOT NULL,
        principal TEXT NOT NULL, state TEXT NOT NULL, started_ns INTEGER NOT NULL,
        finished_ns INTEGER, result_ref TEXT, error TEXT""",
    "audit": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, ts INTEGER NOT NULL, kind TEXT NOT NULL,
        principal TEXT NOT NULL, owner TEXT, session TEXT, plan_ref TEXT, entry_id INTEGER,
        detail TEXT NOT NULL""",
    "counter": "name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL",
}

WITHOUT_ROWID: Final = frozenset({"entry_effect", "event", "session_share"})

INDEXES: Final = (
    "CREATE INDEX IF NOT EXISTS idx_entry_ts ON entry(ts)",
    "CREATE INDEX IF NOT EXISTS idx_output_entry ON output(entry_id)",
    "CREATE INDEX IF NOT EXISTS idx_undo_entry ON undo(entry_id)",
    "CREATE INDEX IF NOT EXISTS idx_entry_principal ON entry(principal, id)",
    "CREATE INDEX IF NOT EXISTS idx_entry_session ON entry(owner, session, id)",
    "CREATE INDEX IF NOT EXISTS idx_entry_head ON entry(head, id)",
    "CREATE INDEX IF NOT EXISTS idx_entry_parent ON entry(parent_id, ordinal)",
    "CREATE INDEX IF NOT EXISTS idx_effect_kind ON entry_effect(kind, entry_id)",
    "CREATE INDEX IF NOT EXISTS idx_output_hash ON output(hash)",
    "CREATE INDEX IF NOT EXISTS idx_entry_owner ON entry(owner, id)",
    "CREATE INDEX IF NOT EXISTS idx_entry_running ON entry(owner, session) WHERE state = 'running'",
    "CREATE INDEX IF NOT EXISTS idx_pin_holder ON pin(reason, holder)",
    "CREATE INDEX IF NOT EXISTS idx_plan_ref ON plan(ref)",
    "CREATE INDEX IF NOT EXISTS idx_plan_expires ON plan(expires_ns)",
    "CREATE INDEX IF NOT EXISTS idx_task_session ON task(session_id, number)",
    "CREATE INDEX IF NOT EXISTS idx_task_running ON task(session_id) WHERE finished_ns IS NULL",
    "CREATE INDEX IF NOT EXISTS idx_audit_ts ON audit(ts)",
)


def table_sql(name: str, columns: str) -> str:
    suffix = " WITHOUT ROWID" if name in WITHOUT_ROWID else ""
    return f"CREATE TABLE IF NOT EXISTS {name} ({columns}){suffix}"


def create(connection: sqlite3.Connection) -> None:
    """Create what is missing and set the version; the caller owns the transaction."""
    for name, columns in TABLES.items():
        connection.execute(table_sql(name, columns))
    for statement in INDEXES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def tables_of(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {str(name) for (name,) in rows}


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}
