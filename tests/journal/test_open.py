"""Opening the store: versions, soundness, modes, the lock (chapter 61 §1, §2.1, §8.2, §8.3)."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from journal import (
    EVERYTHING,
    BesideReader,
    CustomRead,
    EntryFilter,
    Output,
    Probe,
    QueryEntries,
    SchemaTooNew,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreInUse,
    StoreUnavailable,
)
from journal.schema import INDEXES, TABLES
from tests.journal.support import change, open_store, rows, run


def test_fresh_store_has_schema_2_and_every_table(state: Path) -> None:
    open_store(state).close()
    assert rows(state, "PRAGMA user_version") == [(2,)]
    names = {name for (name,) in rows(state, "SELECT name FROM sqlite_master")}
    assert set(TABLES) <= names
    assert {statement.split()[5] for statement in INDEXES} <= names


def test_everything_is_private_to_its_owner(state: Path) -> None:
    with open_store(state) as store:
        run(store, outputs=(Output("value", b"content"),))
        store.ingest_now(b"more")
        found = [state, *state.rglob("*")]
        assert len(found) > 8
        for path in found:
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_loose_modes_of_our_own_are_tightened(state: Path) -> None:
    open_store(state).close()
    state.chmod(0o755)
    (state / "journal.db").chmod(0o644)
    open_store(state).close()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "journal.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(("sync", "level"), [("normal", 1), ("full", 2)])
def test_settings_of_the_write_connection(state: Path, sync: str, level: int) -> None:
    from journal.database import open_writer

    state.mkdir()
    connection = open_writer(state, sync=sync, busy_timeout_ms=1234)  # type: ignore[arg-type]

    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == level
    assert pragma("foreign_keys") == 1
    assert pragma("busy_timeout") == 1234
    connection.close()


def test_second_store_on_one_directory_is_refused_with_the_pid(state: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from journal import Store, StoreConfig\n"
        "store = Store.open(StoreConfig(path=Path(sys.argv[1])))\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == "open\n"

    with pytest.raises(StoreInUse) as caught:
        open_store(state)
    assert str(caught.value) == f"state directory in use by pid {holder.pid}"
    assert caught.value.pid == holder.pid

    holder.kill()
    holder.wait()
    open_store(state).close()


def test_lock_file_tells_who_holds_it(state: Path) -> None:
    with open_store(state):
        assert json.loads((state / "lock").read_bytes())["pid"] == os.getpid()


def test_newer_schema_is_refused_and_nothing_is_touched(state: Path) -> None:
    open_store(state).close()
    change(state, "PRAGMA user_version = 3")
    before = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}

    with pytest.raises(SchemaTooNew) as caught:
        open_store(state)

    assert str(caught.value) == (
        "journal.db schema version 3 is newer than this program understands (max 2)"
    )
    after = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}
    assert {n: c for n, c in after.items() if n != "lock"} == {
        n: c for n, c in before.items() if n != "lock"
    }


def test_newer_schema_still_in_the_write_ahead_log_is_seen(state: Path) -> None:
    """A crash may leave the version change in the log: the database file alone would not tell."""
    open_store(state).close()
    writer = sqlite3.connect(state / "journal.db", isolation_level=None)
    writer.execute("PRAGMA user_version = 9")
    crashed = state.parent / "crashed"
    shutil.copytree(state, crashed)
    writer.close()
    assert (crashed / "journal.db-wal").stat().st_size
    before = (crashed / "journal.db").read_bytes(), (crashed / "journal.db-wal").read_bytes()

    with pytest.raises(SchemaTooNew, match="version 9"):
        open_store(crashed)

    after = (crashed / "journal.db").read_bytes(), (crashed / "journal.db-wal").read_bytes()
    assert after == before


@pytest.mark.parametrize("damage", ["not a database", "overwritten pages", "cut short"])
def test_damaged_file_is_refused_with_its_name(state: Path, damage: str) -> None:
    with open_store(state) as store:
        for number in range(200):
            run(store, src=f"echo {number} " + "x" * 400)
    path = state / "journal.db"
    content = bytearray(path.read_bytes())
    if damage == "not a database":
        content[:16] = b"something else!!"
    elif damage == "overwritten pages":
        content[4096 * 3 :] = os.urandom(len(content) - 4096 * 3)
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)

    with pytest.raises(StoreDamaged, match=r"^journal\.db is damaged"):
        open_store(state)


def test_foreign_database_is_not_taken_over(state: Path) -> None:
    state.mkdir()
    change(state, "CREATE TABLE poems (line TEXT)")
    with pytest.raises(StoreDamaged, match=r"^journal\.db is damaged"):
        open_store(state)


def test_failed_open_leaves_the_directory_unlocked(state: Path) -> None:
    state.mkdir()
    (state / "journal.db").write_bytes(b"nonsense" * 100)
    with pytest.raises(StoreDamaged):
        open_store(state)
    (state / "journal.db").unlink()
    open_store(state).close()


def test_empty_database_file_is_a_fresh_store(state: Path) -> None:
    state.mkdir()
    (state / "journal.db").touch()
    with open_store(state) as store:
        run(store)


def test_spill_folder_is_emptied_at_the_start(state: Path) -> None:
    open_store(state).close()
    (state / "spill" / "left-over").write_bytes(b"x")
    with open_store(state) as store:
        assert list((state / "spill").iterdir()) == []
        fd = store.open_spill()
        os.write(fd, b"capture")
        assert os.pread(fd, 10, 0) == b"capture"
        assert list((state / "spill").iterdir()) == []
        os.close(fd)


def test_ids_go_on_after_a_restart_and_are_never_given_twice(state: Path) -> None:
    with open_store(state) as store:
        first, _ = run(store)
        second, _ = run(store)
    change(state, "DELETE FROM event")
    change(state, "DELETE FROM entry WHERE id = ?", second)
    with open_store(state) as store:
        assert store.reserve_entries() == second + 1 == first + 2


def test_memory_store_leaves_nothing_behind() -> None:
    store = open_store(None)
    run(store, outputs=(Output("value", b"gone tomorrow"),))
    directory = store.directory
    assert directory.is_dir()
    store.close()
    assert not directory.exists()


def test_closed_store_answers_instead_of_hanging(state: Path) -> None:
    store = open_store(state)
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.apply(Probe())
    with pytest.raises(StoreClosed):
        store.fetch(CustomRead(lambda connection: None))
    with pytest.raises(StoreClosed):
        store.ingest_now(b"x")


def test_close_finishes_what_was_posted(state: Path) -> None:
    store = open_store(state)
    outcomes: list[StoreError | None] = []
    from tests.journal.support import begin

    for _ in range(200):
        store.post(begin(store.reserve_entries()), lambda _, error: outcomes.append(error))
    store.close()
    assert outcomes == [None] * 200
    assert rows(state, "SELECT count(*) FROM entry") == [(200,)]


def test_reader_beside_a_running_store_sees_commits_and_cannot_write(state: Path) -> None:
    with open_store(state) as store:
        run(store)
        reader = BesideReader(state)
        assert len(reader.fetch(QueryEntries(EntryFilter(), EVERYTHING))) == 1
        run(store)
        assert len(reader.fetch(QueryEntries(EntryFilter(), EVERYTHING))) == 2
        with pytest.raises(StoreUnavailable, match="readonly"):
            reader.fetch(CustomRead(lambda connection: connection.execute("DELETE FROM entry")))
        reader.close()


def test_reader_without_a_store_says_so(state: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"no journal\.db"):
        BesideReader(state)
    assert not state.exists()
