"""When the world is in the way: full disk, lock, input and output errors (chapter 61 §8.2)."""

from __future__ import annotations

import asyncio
import os
import queue
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from journal import (
    EVERYTHING,
    Completion,
    Custom,
    CustomRead,
    EntryFilter,
    OperationRefused,
    Output,
    Probe,
    QueryEntries,
    ReadBlob,
    Store,
    StoreConfig,
    StoreError,
    StoreUnavailable,
    database,
    settle,
)
from tests.journal.support import begin, finish, open_store, run


def limit_pages(store: Store, extra: int | None) -> None:
    """Let the database grow by so many pages only, as a full disk would; None lifts that.

    Behind the store's back, since while the disk is full it does nothing more.
    """
    connection = store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    most = 1_000_000 if extra is None else pages + extra
    connection.execute(f"PRAGMA max_page_count = {most}")


def failing(store: Store) -> bool:
    return store.failure is not None


def fill(store: Store) -> StoreUnavailable:
    """Run submissions until the disk is full."""
    for _ in range(1000):
        try:
            run(store, src="x" * 3000)
        except StoreUnavailable as error:
            return error
    raise AssertionError("the disk never filled")


def test_full_disk_fails_commits_and_leaves_reads_working(any_store: Store) -> None:
    _, done = run(any_store, outputs=(Output("value", b"kept"),))
    limit_pages(any_store, 4)

    error = fill(any_store)

    assert error.cause == "disk_full"
    assert any_store.failure is not None and any_store.failure.cause == "disk_full"
    assert any_store.failures_seen >= 1
    assert any_store.fetch(ReadBlob(done.output_hashes[0].hex())).data == b"kept"
    assert any_store.fetch(QueryEntries(EntryFilter(), EVERYTHING))


def test_next_submission_is_the_next_attempt(any_store: Store) -> None:
    limit_pages(any_store, 4)
    fill(any_store)

    limit_pages(any_store, None)
    run(any_store)

    assert any_store.failure is None


def test_failed_commit_leaves_nothing_and_no_gap_in_the_numbers(any_store: Store) -> None:
    limit_pages(any_store, 4)
    fill(any_store)
    limit_pages(any_store, None)
    _, done = run(any_store)
    numbers = any_store.fetch(
        CustomRead(lambda c: c.execute("SELECT seq FROM event WHERE space = '*'").fetchall())
    )
    assert numbers == [(number,) for number in range(done.journal_seq_all + 1)]


def test_store_that_fails_is_tried_again_by_itself(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.writer.RETRY_S", 0.05)
    told: queue.Queue[StoreUnavailable | None] = queue.Queue()
    with open_store(state, on_failure_change=told.put, busy_timeout_ms=1) as store:
        other = sqlite3.connect(state / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable) as caught:
            run(store)
        assert caught.value.cause == "locked"
        seen = told.get(timeout=5)
        assert seen is not None and seen.cause == "locked"

        other.execute("ROLLBACK")
        other.close()

        assert told.get(timeout=5) is None
        assert store.failure is None


def test_locked_database_is_waited_for_up_to_the_timeout(state: Path) -> None:
    with open_store(state, busy_timeout_ms=10_000) as store:
        other = sqlite3.connect(state / "journal.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        outcomes: queue.Queue[StoreError | None] = queue.Queue()
        store.post(begin(store.reserve_entries()), lambda _, error: outcomes.put(error))
        assert outcomes.empty()
        other.execute("ROLLBACK")
        assert outcomes.get(timeout=9) is None
        other.close()


def test_file_size_limit_is_a_failure_and_not_the_end(state: Path) -> None:
    """A real limit of the system, in a process of its own."""
    code = """
import resource, signal, sys
from pathlib import Path
from journal import Output, ReadBlob, StoreUnavailable
from tests.journal.support import open_store, run
store = open_store(Path(sys.argv[1]))
_, done = run(store, outputs=(Output("value", b"kept"),))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    for number in range(1000):
        run(store, src="x" * 3000)
except StoreUnavailable as error:
    print(error.cause)
print(store.fetch(ReadBlob(done.output_hashes[0].hex())).data.decode())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run(store)
print(store.failure)
store.close()
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(state)],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
        timeout=60,
    )
    cause, content, failure = done.stdout.split()
    assert cause in ("disk_full", "io_error")
    assert (content, failure) == ("kept", "None")


def test_content_that_cannot_be_written_fails_its_operation_alone(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, os.strerror(28))

    store = open_store(state, sync="full")
    good, bad = store.reserve_entries(), store.reserve_entries()
    store.apply(begin(good))
    store.apply(begin(bad))
    monkeypatch.setattr(store.content, "_place", full)
    with pytest.raises(StoreUnavailable) as caught:
        store.apply(finish(bad, outputs=(Output("value", b"new content"),)))
    assert caught.value.cause == "disk_full"
    assert failing(store)
    store.apply(finish(good))
    assert not failing(store)

    monkeypatch.undo()
    store.apply(finish(bad, outputs=(Output("value", b"new content"),)))
    store.close()


@pytest.mark.parametrize(
    "broken",
    [
        {"effects": b"\xff\xfe"},
        {"src": "\ud800"},
        {"ts": 1 << 70},
        {"cwd": None},
    ],
    ids=["no text", "lone surrogate", "number too large", "missing"],
)
def test_record_that_does_not_fit_is_refused_and_the_store_goes_on(
    store: Store, broken: dict[str, Any]
) -> None:
    with pytest.raises(OperationRefused):
        store.apply(begin(store.reserve_entries(), **broken))
    assert store.failure is None
    run(store)


def test_unexpected_error_of_a_custom_change_is_its_own(store: Store) -> None:
    def wrong(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO counter VALUES ('half', 1)")
        raise ZeroDivisionError

    with pytest.raises(OperationRefused):
        store.apply(Custom(wrong))
    count = CustomRead(
        lambda c: c.execute("SELECT count(*) FROM counter WHERE name = 'half'").fetchone()
    )
    assert store.fetch(count) == (0,)
    run(store)


async def test_completions_of_a_batch_reach_the_loop_in_one_piece(state: Path) -> None:
    loop = asyncio.get_running_loop()
    batches: list[int] = []

    def deliver(batch: list[Completion]) -> None:
        batches.append(len(batch))
        loop.call_soon_threadsafe(settle, batch)

    gate = queue.Queue[None]()
    started = threading.Semaphore(0)

    def hold(connection: sqlite3.Connection) -> None:
        started.release()
        gate.get()

    store = Store.open(StoreConfig(path=state), deliver)
    try:
        held = asyncio.ensure_future(store.commit(Custom(hold)))
        await asyncio.sleep(0)
        await loop.run_in_executor(None, started.acquire)
        waiting = [asyncio.ensure_future(store.commit(Probe())) for _ in range(50)]
        await asyncio.sleep(0)
        gate.put(None)
        await asyncio.gather(held, *waiting)
        assert batches == [1, 50]
        rows = await store.load(QueryEntries(EntryFilter(), EVERYTHING))
        assert rows == []
        stored = await store.ingested(b"content")
        assert stored.length == 7
        with pytest.raises(OperationRefused):
            await store.commit(finish(77))
    finally:
        store.close()


async def test_blocking_form_works_on_the_loop_itself(state: Path) -> None:
    loop = asyncio.get_running_loop()
    store = Store.open(StoreConfig(path=state), lambda b: loop.call_soon_threadsafe(settle, b))
    run(store)
    assert len(store.fetch(QueryEntries(EntryFilter(), EVERYTHING))) == 1
    store.close()


def test_failing_callback_does_not_keep_others_from_their_results(store: Store) -> None:
    outcomes: list[str] = []

    def wrong(result: object, error: StoreError | None) -> None:
        outcomes.append("wrong")
        raise ZeroDivisionError

    store.post(Probe(), wrong)
    store.post(Probe(), lambda result, error: outcomes.append("right"))
    store.apply(Probe())
    assert outcomes == ["wrong", "right"]


def test_sigxfsz_is_ignored_so_that_limits_are_errors() -> None:
    """The store relies on it; Python does this for every program."""
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    assert resource.RLIMIT_FSIZE is not None


def test_pause_after_many_commits_is_used_for_a_checkpoint(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.writer.IDLE_S", 0.01)
    done: queue.Queue[str] = queue.Queue()
    real = database.open_checkpointer

    def traced(directory: Path, *, busy_timeout_ms: int) -> sqlite3.Connection:
        connection = real(directory, busy_timeout_ms=busy_timeout_ms)
        connection.set_trace_callback(done.put)
        return connection

    monkeypatch.setattr(database, "open_checkpointer", traced)
    with open_store(state) as store:
        before = (state / "journal.db").stat().st_size
        for _ in range(40):
            run(store, src="x" * 2000)
        assert "wal_checkpoint" in done.get(timeout=10)
        store.apply(Probe())
    assert (state / "journal.db").stat().st_size > before
