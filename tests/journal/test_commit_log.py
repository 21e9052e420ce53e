"""What the commit log promises: acknowledged is kept, once, in order, whatever happens next."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal import (
    EVERYTHING,
    AppendAudit,
    AuditRow,
    Barrier,
    CellChanges,
    Custom,
    DeleteSession,
    EnsureSession,
    EntryFilter,
    FailTasks,
    FinishTask,
    InterruptSubmissions,
    LogEvents,
    OperationRefused,
    Output,
    Probe,
    PutTask,
    QueryEntries,
    ReadBlob,
    SaveCells,
    SessionCells,
    Store,
    StoreUnavailable,
    TaskByNumber,
    TaskEnd,
    Together,
    UndoRow,
)
from journal.backup import create_archive, restore_archive
from journal.commit_log import LOG_NAME, CommitLog
from journal.write_behind import ROOM_BYTES_MIN
from tests.journal.support import (
    OWNER,
    SESSION,
    begin,
    change,
    finish,
    open_store,
    rows,
    session_id,
    settle,
    statement,
)


@pytest.fixture
def lazy(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that applies only when it must."""
    monkeypatch.setattr("journal.write_behind.IDLE_S", 600.0)
    monkeypatch.setattr("journal.write_behind.AGE_MAX_S", 600.0)
    with open_store(state) as store:
        yield store


def submit(store: Store, src: str = "6 * 7", **options: object) -> tuple[int, object]:
    """One acknowledged submission; unlike `run` it may still be in the log alone."""
    entry_id = store.reserve_entries()
    store.apply(begin(entry_id, src=src))
    return entry_id, store.apply(finish(entry_id, **options))  # type: ignore[arg-type]


def killed(state: Path, into: Path) -> Path:
    """The directory as a process that dies now leaves it."""
    shutil.copytree(state, into)
    return into


def sources(store: Store) -> list[str]:
    found = store.fetch(QueryEntries(EntryFilter(kind="submission"), EVERYTHING))
    return [row.src for row in reversed(found) if row.state == "finished"]


def log_bytes(state: Path) -> int:
    return (state / LOG_NAME).stat().st_size


@pytest.mark.parametrize(("missing", "waits"), [(0, True), (1, False)])
def test_with_little_room_on_the_disk_the_database_decides(
    lazy: Store, state: Path, monkeypatch: pytest.MonkeyPatch, missing: int, waits: bool
) -> None:
    settle(lazy)
    before = log_bytes(state)
    monkeypatch.setattr(CommitLog, "room", lambda _: ROOM_BYTES_MIN - missing)
    submit(lazy, "1")
    assert (log_bytes(state) > before) is waits
    assert sources(lazy) == ["1"]


def test_the_room_is_that_of_the_disk(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, 7, 0)
    free = shutil.disk_usage(tmp_path).free
    # Other programs write too.
    assert abs(log.room() - free) < 1024 * 1024 * 1024
    log.close()


# --- the file ------------------------------------------------------------------------------------


def records(path: Path, *, applied: int = 0) -> list[tuple[int, bytes]]:
    log = CommitLog(path, 7, applied)
    found = list(log.unapplied())
    log.close()
    return found


def written(path: Path, *payloads: bytes) -> None:
    log = CommitLog(path, 7, 0)
    assert list(log.unapplied()) == []
    for payload in payloads:
        log.append(payload)
    log.close()


def test_records_come_back_in_order_behind_the_last_one_applied(tmp_path: Path) -> None:
    written(tmp_path, b"one", b"", b"three")
    assert records(tmp_path) == [(1, b"one"), (2, b""), (3, b"three")]
    assert records(tmp_path, applied=2) == [(3, b"three")]
    assert stat.S_IMODE((tmp_path / LOG_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("cut", range(1, 21))
def test_torn_tail_is_cut_wherever_it_is_torn(tmp_path: Path, cut: int) -> None:
    written(tmp_path, b"whole", b"torn")
    os.truncate(tmp_path / LOG_NAME, log_bytes(tmp_path) - cut)

    assert records(tmp_path) == [(1, b"whole")]
    log = CommitLog(tmp_path, 7, 0)
    list(log.unapplied())
    assert log.append(b"next") == 2
    log.close()
    assert records(tmp_path) == [(1, b"whole"), (2, b"next")]


@pytest.mark.parametrize("offset", range(1, 21))
def test_damaged_record_ends_the_log(tmp_path: Path, offset: int) -> None:
    written(tmp_path, b"whole", b"hurt")
    with (tmp_path / LOG_NAME).open("r+b") as file:
        file.seek(-offset, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-offset, os.SEEK_END)
        file.write(bytes([byte ^ 0x40]))
    assert records(tmp_path) == [(1, b"whole")]


@pytest.mark.parametrize("content", [b"not a log of anybody" * 9, None], ids=["garbage", "other"])
def test_log_of_another_database_is_set_aside(tmp_path: Path, content: bytes | None) -> None:
    if content is None:
        other = CommitLog(tmp_path, 8, 0)
        other.append(b"of another")
        other.close()
        content = (tmp_path / LOG_NAME).read_bytes()
    else:
        (tmp_path / LOG_NAME).write_bytes(content)
    assert records(tmp_path) == []
    assert (tmp_path / f"{LOG_NAME}.foreign").read_bytes() == content


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CommitLog(tmp_path, 7, 0)
    log.append(b"one")
    real = os.pwrite

    def half(fd: int, data: bytes, at: int) -> int:
        if at == before:
            return real(fd, data[: len(data) // 2], at)
        raise OSError(28, os.strerror(28))

    before = log_bytes(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", half)
        with pytest.raises(OSError, match="No space"):
            log.append(b"two, which does not fit")
    assert log_bytes(tmp_path) == before
    assert log.append(b"two") == 2
    log.close()
    assert records(tmp_path) == [(1, b"one"), (2, b"two")]


# --- acknowledged --------------------------------------------------------------------------------


def test_acknowledged_is_kept_by_the_log_alone(lazy: Store, state: Path, tmp_path: Path) -> None:
    session = session_id(lazy)
    value = b"a value of some length" * 9
    entry, done = submit(
        lazy,
        outputs=(Output("value", value),),
        cells=CellChanges(session_id=session, changed=(("n", b"1"), ("lost", None)), next_out=4),
    )
    number = lazy.reserve_task()
    lazy.apply(PutTask(number, session, OWNER, 5))
    assert lazy.apply(FinishTask(TaskEnd(number, "failed", 6, None, b'{"kind":"x"}')))
    lazy.apply(AppendAudit((AuditRow(7, "denied", OWNER),)))
    assert rows(state, "SELECT count(*) FROM entry") == [(0,)]

    with open_store(killed(state, tmp_path / "killed")) as store:
        assert sources(store) == ["6 * 7"]
        assert store.fetch(ReadBlob(done.output_hashes[0].hex())).data == value  # type: ignore[attr-defined]
        assert store.fetch(SessionCells(session)) == [("lost", None), ("n", b"1")]
        task = store.fetch(TaskByNumber(number))
        assert task is not None and (task.state, task.error_json) == ("failed", b'{"kind":"x"}')
        assert store.reserve_entries() == entry + 1
        assert store.reserve_task() == number + 1
        assert rows(tmp_path / "killed", "SELECT kind FROM audit") == [("denied",)]


def test_numbers_of_events_are_the_same_after_replay(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    told = [submit(lazy, f"echo {number}", ok=number % 3 != 1) for number in range(9)]
    with open_store(killed(state, tmp_path / "killed")) as store:
        found = {
            entry: (seq_all, seq, transcript)
            for entry, seq_all, seq, transcript in rows(
                tmp_path / "killed",
                """
                SELECT a.entry_id, a.seq, o.seq, t.seq FROM event a
                JOIN event o ON o.entry_id = a.entry_id AND o.channel = 'journal' AND o.space = ?
                LEFT JOIN event t ON t.entry_id = a.entry_id AND t.channel = 'session.transcript'
                WHERE a.channel = 'journal' AND a.space = '*'
                """,
                OWNER,
            )
        }
        assert found == {
            entry: (done.journal_seq_all, done.journal_seq, done.transcript_seq)  # type: ignore[attr-defined]
            for entry, done in told
        }
        _, next_one = submit(store)
        assert next_one.journal_seq_all == 9  # type: ignore[attr-defined]


def test_record_counts_once_when_the_log_outlives_its_application(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    submit(lazy, "one")
    settle(lazy)
    lazy.apply(AppendAudit((AuditRow(7, "denied", OWNER),)))
    assert log_bytes(state) > 24, "what is applied is still in the log"

    first = killed(state, tmp_path / "first")
    for _ in range(2):
        with open_store(first) as store:
            assert sources(store) == ["one"]
            assert rows(first, "SELECT count(*) FROM audit") == [(1,)]
            assert rows(first, "SELECT count(*) FROM output") == [(0,)]


def test_closed_store_has_an_empty_log(state: Path) -> None:
    with open_store(state) as store:
        submit(store)
    assert log_bytes(state) == 20
    assert rows(state, "SELECT count(*) FROM entry") == [(1,)]


def test_log_is_emptied_when_it_is_long_and_applied(
    lazy: Store, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.writer.LOG_BYTES_KEPT", 5_000)
    submit(lazy, "x" * 2000)
    settle(lazy)
    assert log_bytes(state) > 2000
    submit(lazy, "x" * 4000)
    settle(lazy)
    assert log_bytes(state) == 20
    submit(lazy, "after")
    assert sources(lazy)[-1] == "after"


def test_full_sync_takes_over_what_a_log_holds_and_uses_none(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    submit(lazy, "one")
    copy = killed(state, tmp_path / "killed")
    with open_store(copy, sync="full") as store:
        assert sources(store) == ["one"]
        assert not (copy / LOG_NAME).exists()
        submit(store, "two")
        assert rows(copy, "SELECT count(*) FROM entry") == [(2,)]


def test_torn_last_record_loses_nothing_before_it(lazy: Store, state: Path, tmp_path: Path) -> None:
    submit(lazy, "one")
    submit(lazy, "two")
    copy = killed(state, tmp_path / "killed")
    os.truncate(copy / LOG_NAME, log_bytes(copy) - 3)
    with open_store(copy) as store:
        assert sources(store) == ["one"]
        submit(store, "three")
        assert sources(store) == ["one", "three"]


# --- order ---------------------------------------------------------------------------------------


def test_read_sees_everything_acknowledged(lazy: Store) -> None:
    for number in range(5):
        submit(lazy, str(number))
        assert sources(lazy) == [str(n) for n in range(number + 1)]
        log = LogEvents("journal", OWNER, -1, None, 100, newest=False)
        assert len(lazy.fetch(log).events) == number + 1


def test_what_needs_the_database_comes_after_everything_acknowledged(lazy: Store) -> None:
    submit(lazy, "one")
    count = Custom(lambda c: c.execute("SELECT count(*) FROM entry").fetchone()[0])
    assert lazy.apply(count) == 1
    entry = lazy.reserve_entries()
    results: list[object] = []
    lazy.post_all(
        [
            (begin(entry), lambda result, error: results.append(error)),
            (count, lambda result, error: results.append(result)),
            (finish(entry), lambda result, error: results.append(result.journal_seq_all)),
        ]
    )
    lazy.apply(Barrier())
    assert results == [None, 2, 1]


def test_what_does_not_fit_is_refused_at_once(lazy: Store) -> None:
    entry, _ = submit(lazy)
    running = lazy.reserve_entries()
    lazy.apply(begin(running))
    for wrong in (
        finish(entry),
        finish(running + 100),
        finish(running, owner="uid:7"),
        begin(running),
        finish(running, statements=(statement(running + 5, 999),)),
        finish(running, statements=(statement(entry, running),)),
        PutTask(1, 999, OWNER, 5),
    ):
        with pytest.raises(OperationRefused):
            lazy.apply(wrong)
    lazy.apply(finish(running))
    assert len(sources(lazy)) == 2


def test_what_ended_otherwise_ends_no_second_time(lazy: Store) -> None:
    session = session_id(lazy)
    entry, number = lazy.reserve_entries(), lazy.reserve_task()
    lazy.apply(begin(entry))
    lazy.apply(PutTask(number, session, OWNER, 5))

    assert [row.entry_id for row in lazy.apply(InterruptSubmissions(OWNER, SESSION, 9))] == [entry]
    with pytest.raises(OperationRefused):
        lazy.apply(finish(entry))
    assert lazy.apply(FailTasks(session, 6, b"{}")) == (number,)
    assert not lazy.apply(FinishTask(TaskEnd(number, "completed", 7)))
    lazy.apply(DeleteSession(session))
    with pytest.raises(OperationRefused):
        lazy.apply(PutTask(lazy.reserve_task(), session, OWNER, 5))


def test_change_of_any_kind_is_reckoned_with(lazy: Store) -> None:
    entry = lazy.reserve_entries()
    lazy.apply(begin(entry))
    lazy.apply(Custom(lambda c: c.execute("UPDATE entry SET state = 'interrupted'").rowcount))
    with pytest.raises(OperationRefused):
        lazy.apply(finish(entry))


def test_number_used_by_a_change_of_any_kind_is_used(lazy: Store) -> None:
    entry = lazy.reserve_entries()
    lazy.apply(Together((begin(entry), finish(entry))))
    with pytest.raises(OperationRefused):
        lazy.apply(begin(entry))
    submit(lazy)
    assert len(sources(lazy)) == 2


def test_number_that_was_skipped_may_still_be_used(lazy: Store) -> None:
    first = lazy.reserve_entries(3)
    lazy.apply(begin(first + 2, src="later"))
    lazy.apply(begin(first, src="earlier"))
    lazy.apply(finish(first + 2, statements=(statement(first + 3, first + 2),)))
    with pytest.raises(OperationRefused):
        lazy.apply(begin(first))
    lazy.apply(finish(first))
    assert sources(lazy) == ["earlier", "later"]


def test_skipped_inverses_are_counted_alike(lazy: Store, state: Path) -> None:
    good = lazy.content.hash(b"before").hex()
    undo = (
        UndoRow(entry_id=1, op="move_back", inverse=b'{"kind":"move_back"}'),
        UndoRow(entry_id=1, op="move_back", inverse=b'{"kind":"trash_move"}'),
        UndoRow(
            entry_id=1,
            op="restore_bytes",
            inverse=b'{"kind":"restore_bytes","prior_hash":"%b"}' % good.encode(),
            snapshot=b"before",
        ),
        UndoRow(
            entry_id=1, op="restore_bytes", inverse=b'{"kind":"restore_bytes","prior_hash":"00"}'
        ),
    )
    _, done = submit(lazy, undo=undo)
    assert done.undo_skipped == 2  # type: ignore[attr-defined]
    settle(lazy)
    assert rows(state, "SELECT op FROM undo") == [("move_back",), ("restore_bytes",)]


# --- failures ------------------------------------------------------------------------------------


def full(*_: object, **__: object) -> int:
    raise OSError(28, os.strerror(28))


def test_log_that_cannot_be_written_is_gone_around(
    lazy: Store, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(lazy, "one")
    with monkeypatch.context() as patched:
        patched.setattr("journal.commit_log.os.pwrite", full)
        _, done = submit(lazy, "two")
        assert done.journal_seq_all == 1  # type: ignore[attr-defined]
        assert rows(state, "SELECT count(*) FROM entry") == [(2,)]
        assert lazy.failure is None
    _, done = submit(lazy, "three")
    assert done.journal_seq_all == 2  # type: ignore[attr-defined]
    assert sources(lazy) == ["one", "two", "three"]


def failing(store: Store) -> bool:
    return store.failure is not None


def limit_pages(store: Store, extra: int | None) -> None:
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    most = 1_000_000 if extra is None else pages + extra
    store._connection.execute(f"PRAGMA max_page_count = {most}")


def test_disk_that_is_full_for_log_and_database_keeps_nothing_of_the_batch(
    lazy: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(lazy, "one")
    settle(lazy)
    entry = lazy.reserve_entries()
    with monkeypatch.context() as patched:
        limit_pages(lazy, 0)
        patched.setattr("journal.commit_log.os.pwrite", full)
        with pytest.raises(StoreUnavailable) as caught:
            lazy.apply(begin(entry, src="x" * 100_000))
        assert caught.value.cause == "disk_full"
        assert failing(lazy)
        limit_pages(lazy, None)
    lazy.apply(begin(entry, src="y"))
    lazy.apply(finish(entry))
    assert sources(lazy) == ["one", "y"]
    assert not failing(lazy)


def test_failed_application_keeps_what_was_acknowledged_and_acknowledges_no_more(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    limit_pages(lazy, 0)
    submit(lazy, "x" * 100_000)
    with pytest.raises(StoreUnavailable):
        lazy.apply(Barrier())
    assert failing(lazy)
    with pytest.raises(StoreUnavailable):
        lazy.apply(begin(lazy.reserve_entries()))
    assert sources(lazy) == [], "reads go on, with what the database has"
    with open_store(killed(state, tmp_path / "killed")) as store:
        assert sources(store) == ["x" * 100_000]

    limit_pages(lazy, None)
    lazy.apply(Probe())

    assert not failing(lazy)
    assert sources(lazy) == ["x" * 100_000]
    _, done = submit(lazy, "next")
    assert done.journal_seq_all == 1  # type: ignore[attr-defined]


def test_locked_database_acknowledges_nothing(state: Path) -> None:
    with open_store(state, busy_timeout_ms=1) as store:
        other = sqlite3.connect(state / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        entry = store.reserve_entries()
        with pytest.raises(StoreUnavailable) as caught:
            store.apply(begin(entry))
        assert caught.value.cause == "locked"
        other.execute("ROLLBACK")
        other.close()
        store.apply(begin(entry))
        store.apply(finish(entry))
        assert sources(store) == ["6 * 7"]


def test_operation_that_no_longer_fits_is_dropped_and_takes_nothing_with_it(
    lazy: Store, state: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = lazy.reserve_entries()
    lazy.apply(begin(entry, src="vanishes"))
    settle(lazy)
    submit(lazy, "one")
    lazy.apply(finish(entry))
    submit(lazy, "two")
    copy = killed(state, tmp_path / "killed")
    change(copy, "DELETE FROM entry WHERE id = ?", entry)

    with open_store(copy) as store:
        assert sources(store) == ["one", "two"]
    assert "FinishSubmission does not fit" in caplog.text


def test_content_of_an_acknowledged_output_may_age_out(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    stored = lazy.ingest_now(b"large" * 1000)
    submit(lazy, "one", outputs=(Output("stdout", stored),))
    copy = killed(state, tmp_path / "killed")
    shutil.rmtree(copy / "cas")
    with open_store(copy) as store:
        assert sources(store) == ["one"]
        assert rows(copy, "SELECT hash, len FROM output") == [(stored.hash, 5000)]


def test_operation_refused_by_a_batch_spoils_no_other(lazy: Store) -> None:
    session = lazy.apply(EnsureSession(OWNER, "other", 1))
    good = lazy.reserve_entries()
    outcomes: list[str] = []

    def note(_result: object, error: object) -> None:
        outcomes.append(type(error).__name__)

    lazy.post_all(
        [
            (begin(good), note),
            (begin(lazy.reserve_entries(), effects=b"\xff"), note),
            (SaveCells(CellChanges(session_id=session, changed=(("a", b"b"),))), note),
            (finish(good), note),
        ]
    )
    settle(lazy)
    assert outcomes == ["NoneType", "OperationRefused", "NoneType", "NoneType"]
    assert sources(lazy) == ["6 * 7"]
    assert lazy.fetch(SessionCells(session)) == [("a", b"b")]


def test_restored_backup_is_not_changed_by_an_old_log(
    lazy: Store, state: Path, tmp_path: Path
) -> None:
    submit(lazy, "backed up")
    settle(lazy)
    create_archive(state, tmp_path / "backup.tar", version="1")
    submit(lazy, "later")
    copy = killed(state, tmp_path / "killed")
    restore_archive(tmp_path / "backup.tar", copy, force=True)
    with open_store(copy) as store:
        assert sources(store) == ["backed up"]
