"""Schema 1 files become schema 2 (chapter 61 §8.3)."""

from __future__ import annotations

import json
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
import zstandard
from blake3 import blake3

from journal import (
    EVERYTHING,
    EntryFilter,
    LogEvents,
    MigrationFailed,
    Pins,
    QueryEntries,
    ReadBlob,
)
from journal.schema import TABLES, columns_of
from tests.journal.support import blob_file, open_store, rows, run

SCHEMA_1 = """
CREATE TABLE entry (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, principal TEXT NOT NULL,
    ts INTEGER NOT NULL, dur_ns INTEGER, cwd BLOB NOT NULL, env_hash BLOB, src TEXT NOT NULL,
    ast BLOB NOT NULL, effects TEXT NOT NULL, status INTEGER, ok INTEGER, opaque INTEGER NOT NULL
);
CREATE TABLE output (entry_id INTEGER NOT NULL REFERENCES entry(id), kind TEXT NOT NULL,
    hash BLOB NOT NULL, len INTEGER NOT NULL, meta TEXT);
CREATE TABLE undo (entry_id INTEGER NOT NULL, op TEXT NOT NULL, inverse TEXT NOT NULL);
CREATE TABLE blob (hash BLOB PRIMARY KEY, stored_len INTEGER NOT NULL, created_ns INTEGER NOT NULL,
    last_access_ns INTEGER NOT NULL);
CREATE TABLE pin (hash BLOB PRIMARY KEY);
CREATE INDEX idx_entry_ts ON entry(ts);
CREATE INDEX idx_output_entry ON output(entry_id);
"""
TRANSCRIPT_1 = """
CREATE TABLE transcript_event (entry_id INTEGER PRIMARY KEY, ts INTEGER NOT NULL,
    payload TEXT NOT NULL);
"""
HASH = blake3(b"hello").digest()

# (id, session, principal, src, ast, effects, ok)
ENTRIES: list[tuple[int, str, str, str, bytes, str, int | None]] = [
    (1, "work", "uid:1", "  make all\n", b'{"stmts":[]}', '[{"kind":"fs_read"},"fs.write"]', 1),
    (2, "work", "uid:1", "ls", b'{"kind":"cmd"}', "[]", 1),
    (3, "work", "agent:a", "", b'{"stmts":[{}]}', "not json", None),
    (4, "work", "uid:1", "x", b'{"stmts":5}', '[{"kind":"opaque"},{"kind":"opaque"},7]', 0),
    (5, "work", "uid:1", "x", b"[]", "{}", 1),
    (6, "work", "uid:1", "x", b"\xff", "[]", 1),
    (9, "work", "agent:a", "go now", b'{"stmts":[],"kind":"x"}', "[]", 0),
]


def version_1(state: Path, *, version: int = 1, transcript: bool = True, extra: str = "") -> None:
    state.mkdir(mode=0o700)
    connection = sqlite3.connect(state / "journal.db")
    connection.executescript(SCHEMA_1)
    for entry_id, session, principal, src, ast, effects, ok in ENTRIES:
        connection.execute(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, x'2f', NULL, ?, ?, ?, ?, ?, 0)",
            (
                entry_id,
                session,
                principal,
                entry_id * 100,
                None if ok is None else 7,
                src,
                ast,
                effects,
                None if ok is None else 1 - ok,
                ok,
            ),
        )
    connection.execute("INSERT INTO output VALUES (1, 'value', ?, 5, NULL)", (HASH,))
    connection.execute("INSERT INTO undo VALUES (2, 'move_back', '{\"kind\":\"move_back\"}')")
    connection.execute("INSERT INTO blob VALUES (?, 5, 11, 22)", (HASH,))
    connection.execute("INSERT INTO pin VALUES (?)", (HASH,))
    if transcript:
        connection.executescript(TRANSCRIPT_1)
        for entry_id in (1, 9):
            payload = f'{{"n": {entry_id}}}'
            connection.execute(
                "INSERT INTO transcript_event VALUES (?, ?, ?)",
                (entry_id, entry_id * 1000, payload),
            )
    if extra:
        connection.executescript(extra)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    file = blob_file(state, HASH)
    file.parent.mkdir(parents=True)
    file.write_bytes(zstandard.ZstdCompressor().compress(b"hello"))


@pytest.mark.parametrize("version", [0, 1])
def test_entries_get_their_new_columns(state: Path, version: int) -> None:
    version_1(state, version=version)
    open_store(state).close()
    assert rows(state, "PRAGMA user_version") == [(2,)]
    found = rows(
        state, "SELECT id, kind, parent_id, ordinal, owner, head, state, task, ts, ok FROM entry"
    )
    assert found == [
        (1, "submission", None, None, "uid:1", "make", "finished", None, 100, 1),
        (2, "statement", None, None, "uid:1", "ls", "finished", None, 200, 1),
        (3, "submission", None, None, "agent:a", "", "interrupted", None, 300, None),
        (4, "unknown", None, None, "uid:1", "x", "finished", None, 400, 0),
        (5, "unknown", None, None, "uid:1", "x", "finished", None, 500, 1),
        (6, "unknown", None, None, "uid:1", "x", "finished", None, 600, 1),
        (9, "submission", None, None, "agent:a", "go", "finished", None, 900, 0),
    ]


def test_effects_are_indexed_and_plain_strings_count_as_their_kind(state: Path) -> None:
    version_1(state)
    open_store(state).close()
    assert rows(state, "SELECT entry_id, kind FROM entry_effect ORDER BY 1, 2") == [
        (1, "fs_read"),
        (1, "fs_write"),
        (4, "opaque"),
    ]


def test_events_are_numbered_in_id_order_and_read_as_if_they_had_always_been(state: Path) -> None:
    version_1(state)
    with open_store(state) as store:

        def log(channel: Any, space: str) -> list[tuple[int, int, Any]]:
            page = store.fetch(LogEvents(channel, space, -1, None, 100, newest=False))
            return [(event.seq, event.ts, json.loads(event.payload)) for event in page.events]

        every = log("journal", "*")
        assert [(seq, ts, p["v"]["entry_id"]["v"]) for seq, ts, p in every] == [
            (0, 107, 1),
            (1, 300, 3),
            (2, 907, 9),
        ]
        assert [p["v"]["entry_id"]["v"] for _, _, p in log("journal", "agent:a")] == [3, 9]
        assert [seq for seq, _, _ in log("journal", "uid:1")] == [0]
        assert log("session.transcript", "uid:1") == [(0, 1000, {"n": 1})]
        assert log("session.transcript", "agent:a") == [(0, 9000, {"n": 9})]
        _, done = run(store, owner="agent:a")
        assert (done.journal_seq_all, done.journal_seq, done.transcript_seq) == (3, 2, 1)


def test_outputs_undo_blobs_and_pins_come_along(state: Path) -> None:
    version_1(state)
    with open_store(state) as store:
        (row,) = store.fetch(QueryEntries(EntryFilter(head="make"), EVERYTHING))
        assert [(output.kind, output.hash) for output in row.outputs] == [("value", HASH)]
        assert store.fetch(ReadBlob(HASH.hex())).data == b"hello"
        assert [(pin.hash, pin.reason, pin.holder) for pin in store.fetch(Pins())] == [
            (HASH, "manual", "")
        ]
    assert rows(state, "SELECT entry_id, op FROM undo") == [(2, "move_back")]
    size = blob_file(state, HASH).stat().st_size
    assert rows(state, "SELECT stored_len, disk_len, created_ns FROM blob") == [(5, size, 11)]


def test_copy_of_the_old_file_is_kept_and_private(state: Path) -> None:
    version_1(state)
    open_store(state).close()
    copy = state / "journal.db.bak-v1"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    connection = sqlite3.connect(copy)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM entry").fetchone() == (len(ENTRIES),)
    connection.close()
    assert not list(state.glob("*.tmp"))


def test_result_has_the_same_shape_as_a_fresh_store(state: Path, tmp_path: Path) -> None:
    version_1(state)
    open_store(state).close()
    fresh = tmp_path / "fresh"
    open_store(fresh).close()

    def shape(path: Path) -> dict[str, Any]:
        connection = sqlite3.connect(path / "journal.db")
        columns: dict[str, Any] = {name: columns_of(connection, name) for name in TABLES}
        connection.close()
        listed = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        columns["names"] = sorted(rows(path, listed))
        return columns

    assert shape(state) == shape(fresh)


def test_store_without_transcripts_migrates_too(state: Path) -> None:
    version_1(state, transcript=False)
    open_store(state).close()
    assert rows(state, "SELECT count(*) FROM transcript_event") == [(0,)]


def test_ids_that_were_given_out_before_stay_used(state: Path) -> None:
    version_1(state, extra="INSERT INTO entry (id, session, principal, ts, cwd, src, ast, effects,"
              " opaque) VALUES (50, 's', 'p', 1, x'2f', '', x'', '[]', 0);"
              " DELETE FROM entry WHERE id = 50;")  # fmt: skip
    with open_store(state) as store:
        assert store.reserve_entries() == 51


def test_failing_migration_leaves_the_file_as_it_was(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_1(state)

    def wrong(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("journal.migrate._events", wrong)
    with pytest.raises(MigrationFailed):
        open_store(state)
    assert rows(state, "PRAGMA user_version") == [(1,)]
    assert rows(state, "SELECT count(*) FROM entry") == [(len(ENTRIES),)]
    monkeypatch.undo()
    open_store(state).close()
    assert rows(state, "PRAGMA user_version") == [(2,)]


def test_migrated_store_opens_again_without_migrating(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_1(state)
    open_store(state).close()

    def forbidden(*_: object) -> None:
        raise AssertionError("migrated again")

    monkeypatch.setattr("journal.migrate.from_version_1", forbidden)
    open_store(state).close()
