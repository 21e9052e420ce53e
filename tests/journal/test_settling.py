"""What was acknowledged before a backup began is in it (chapter 81 §9.2)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal import EVERYTHING, EntryFilter, QueryEntries, Store, StoreError
from journal.backup import create_archive, restore_archive
from journal.commit_log import LOG_NAME, CommitLog, newest_sequence
from journal.settling import settle
from tests.journal.support import begin, finish, open_store

LAZY_S = 0.3


@pytest.fixture
def lazy(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that leaves what it acknowledges to its log for a while."""
    monkeypatch.setattr("journal.write_behind.IDLE_S", LAZY_S)
    monkeypatch.setattr("journal.write_behind.AGE_MAX_S", LAZY_S)
    with open_store(state) as store:
        yield store


def submit(store: Store, src: str) -> None:
    entry_id = store.reserve_entries()
    store.apply(begin(entry_id, src=src))
    store.apply(finish(entry_id))


def sources(state: Path) -> list[str]:
    with open_store(state) as store:
        found = store.fetch(QueryEntries(EntryFilter(kind="submission"), EVERYTHING))
        return [row.src for row in reversed(found) if row.state == "finished"]


def restored(archive: Path, into: Path) -> list[str]:
    restore_archive(archive, into)
    return sources(into)


def test_a_backup_waits_for_what_only_the_log_holds(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    submit(lazy, "acknowledged")
    made = create_archive(state, tmp_path / "b.tar", version="1")
    assert made.lacking == 0
    assert restored(tmp_path / "b.tar", tmp_path / "restored") == ["acknowledged"]


def test_a_backup_takes_what_a_killed_daemon_left_in_the_log(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    submit(lazy, "acknowledged")
    killed = tmp_path / "killed"
    shutil.copytree(state, killed)
    made = create_archive(killed, tmp_path / "b.tar", version="1")
    assert made.lacking == 0
    assert restored(tmp_path / "b.tar", tmp_path / "restored") == ["acknowledged"]


def test_what_the_database_does_not_take_in_time_is_counted(
    lazy: Store, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any longer than the test.
    monkeypatch.setattr("journal.write_behind.IDLE_S", 600.0)
    monkeypatch.setattr("journal.write_behind.AGE_MAX_S", 600.0)
    before = newest(state)
    submit(lazy, "first")
    submit(lazy, "second")
    lacking = newest(state) - before
    assert lacking >= 2
    assert settle(state, within_s=0.0) == lacking


def newest(state: Path) -> int:
    log = state / LOG_NAME
    identity = int.from_bytes(log.read_bytes()[12:20], "little")
    return newest_sequence(log, identity)


def test_without_a_log_there_is_nothing_to_wait_for(state: Path) -> None:
    with open_store(state, sync="full") as store:
        submit(store, "one")
        assert not (state / LOG_NAME).exists()
        assert settle(state, within_s=0.0) == 0


def test_what_is_no_database_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database, whatever its name says" * 100)
    with pytest.raises(StoreError, match="not a database"):
        create_archive(tmp_path, tmp_path / "b.tar", version="1")
    assert not (tmp_path / "b.tar").exists()


# --- the log from outside ------------------------------------------------------------------------


def written(path: Path, *payloads: bytes) -> Path:
    log = CommitLog(path, 7, 4)
    assert list(log.unapplied()) == []
    for payload in payloads:
        log.append(payload)
    log.close()
    return path / LOG_NAME


def test_the_newest_record_is_the_last_whole_one(tmp_path: Path) -> None:
    log = written(tmp_path, b"one", b"two", b"three")
    assert newest_sequence(log, 7) == 7
    os.truncate(log, log.stat().st_size - 1)
    assert newest_sequence(log, 7) == 6


def test_a_log_of_another_database_a_bare_one_and_none_have_no_records(tmp_path: Path) -> None:
    log = written(tmp_path, b"one")
    assert newest_sequence(log, 8) == 0
    os.truncate(log, 20)
    assert newest_sequence(log, 7) == 0
    log.unlink()
    assert newest_sequence(log, 7) == 0
