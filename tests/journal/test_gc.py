"""Pins, collection, retention and the cleaning after a start (chapter 61 §6)."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from journal import (
    EVERYTHING,
    AppendAudit,
    AuditRow,
    BlobMissing,
    CellChanges,
    Collect,
    Custom,
    CustomRead,
    DeleteSession,
    EntryFilter,
    LinkBlob,
    LogEvents,
    OperationRefused,
    Output,
    Pins,
    Probe,
    QueryEntries,
    ReadBlob,
    Recover,
    ReleaseManualPins,
    ReleasePin,
    RemoveEntries,
    SaveCells,
    SetPin,
    Store,
    StoreUnavailable,
    Sweep,
    Totals,
    UndoRow,
)
from tests.journal.support import (
    OWNER,
    begin,
    blob_file,
    change,
    finish,
    open_store,
    rows,
    run,
    session_id,
    statement,
)

DAY_S = 86_400


def age(state: Path, digest: bytes, access_ns: int) -> None:
    change(state, "UPDATE blob SET last_access_ns = ? WHERE hash = ?", access_ns, digest)


def blobs(store: Store, state: Path, *contents: bytes) -> list[bytes]:
    """Stored content, referenced by outputs, accessed in the order given, long ago."""
    found = []
    for number, content in enumerate(contents):
        _, done = run(store, outputs=(Output("value", content),))
        age(state, done.output_hashes[0], 1000 + number)
        found.append(done.output_hashes[0])
    return found


def unreference(state: Path, digest: bytes) -> None:
    change(state, "DELETE FROM output WHERE hash = ?", digest)


def test_without_limits_everything_is_kept(store: Store, state: Path) -> None:
    blobs(store, state, b"a", b"b")
    report = store.perform(Collect(apply=True))
    assert (report.candidates, report.reclaimed_bytes, report.remaining_bytes) == ((), 0, 2)


def test_dry_run_reports_and_removes_nothing(store: Store, state: Path) -> None:
    a, b = blobs(store, state, b"aaaa", b"bb")
    report = store.perform(Collect(ttl_s=1))
    assert report.dry_run
    assert [blob.hash for blob in report.candidates] == [a, b]
    assert (report.deleted, report.reclaimed_bytes, report.remaining_bytes) == ((), 6, 0)
    assert store.fetch(ReadBlob(a.hex())).data == b"aaaa"


def test_time_to_live_takes_referenced_content_too_and_the_rows_stay(
    store: Store, state: Path
) -> None:
    old, young = blobs(store, state, b"old", b"young")
    age(state, young, time.time_ns())

    report = store.perform(Collect(ttl_s=DAY_S, apply=True))

    assert [(blob.hash, blob.length, blob.referenced) for blob in report.deleted] == [
        (old, 3, True)
    ]
    assert (report.reclaimed_bytes, report.remaining_bytes) == (3, 5)
    assert not blob_file(state, old).exists()
    with pytest.raises(BlobMissing):
        store.fetch(ReadBlob(old.hex()))
    outputs = [row.outputs[0] for row in store.fetch(QueryEntries(EntryFilter(), EVERYTHING))]
    assert [(output.hash, output.length) for output in outputs] == [(young, 5), (old, 3)]


def test_access_exactly_at_the_cutoff_is_taken(
    store: Store, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, after = blobs(store, state, b"at", b"after")
    now = 10**18
    age(state, at, now - 5 * 10**9)
    age(state, after, now - 5 * 10**9 + 1)
    monkeypatch.setattr("journal.gc.time.time_ns", lambda: now)
    report = store.perform(Collect(ttl_s=5))
    assert [blob.hash for blob in report.candidates] == [at]


def test_budget_takes_unreferenced_before_referenced_then_oldest_access(
    store: Store, state: Path
) -> None:
    a, b, c, d = blobs(store, state, b"a" * 10, b"b" * 20, b"c" * 30, b"d" * 40)
    unreference(state, c)
    unreference(state, d)
    order = [c, d, a, b]
    for budget, count in ((100, 0), (99, 1), (70, 1), (69, 2), (30, 2), (29, 3), (0, 4)):
        report = store.perform(Collect(budget=budget))
        assert [blob.hash for blob in report.candidates] == order[:count], budget
        assert report.remaining_bytes <= budget or count == 4


def test_pins_are_the_only_hard_protection(store: Store, state: Path) -> None:
    pinned, free = blobs(store, state, b"pinned", b"free")
    assert store.apply(SetPin(pinned, "manual", OWNER, 5))
    assert not store.apply(SetPin(pinned, "manual", OWNER, 6))

    report = store.perform(Collect(ttl_s=1, budget=0, apply=True))
    assert [blob.hash for blob in report.deleted] == [free]
    assert report.remaining_bytes == 6

    assert store.apply(ReleasePin(pinned, "manual", OWNER))
    assert not store.apply(ReleasePin(pinned, "manual", OWNER))
    assert [b.hash for b in store.perform(Collect(budget=0, apply=True)).deleted] == [pinned]


def test_pin_of_unknown_content_is_refused(store: Store) -> None:
    with pytest.raises(OperationRefused):
        store.apply(SetPin(b"\0" * 32, "manual", OWNER, 5))


def test_every_manual_pin_of_a_blob_goes_with_one_release(store: Store, state: Path) -> None:
    (blob,) = blobs(store, state, b"x")
    for holder in ("", OWNER):
        store.apply(SetPin(blob, "manual", holder, 5))
    assert store.apply(ReleaseManualPins(blob))
    assert not store.apply(ReleaseManualPins(blob))
    assert store.fetch(Pins()) == []


def test_pinned_between_choice_and_removal_is_kept(
    store: Store, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = blobs(store, state, b"first", b"second")
    real = store.fetch

    def fetch(read: Any) -> Any:
        result = real(read)
        store.apply(SetPin(first, "manual", OWNER, 1))
        return result

    monkeypatch.setattr(store, "fetch", fetch)
    report = store.perform(Collect(ttl_s=1, apply=True, vacuum=False))
    assert [blob.hash for blob in report.deleted] == [second]
    assert (report.reclaimed_bytes, report.remaining_bytes) == (6, 5)


def test_content_being_read_is_skipped(store: Store, state: Path) -> None:
    (blob,) = blobs(store, state, b"busy")
    with store.content._opened(blob, blob.hex()):
        assert store.perform(Collect(budget=0, apply=True)).deleted == ()
    assert len(store.perform(Collect(budget=0, apply=True)).deleted) == 1


def test_content_ingested_a_moment_ago_is_skipped(store: Store, state: Path) -> None:
    (blob,) = blobs(store, state, b"again")
    stored = store.ingest_now(b"again")
    assert stored.hash == blob
    assert store.perform(Collect(budget=0, apply=True)).deleted == ()


def test_content_recorded_again_after_its_collection_is_written_again(
    store: Store, state: Path
) -> None:
    (blob,) = blobs(store, state, b"phoenix")
    store.perform(Collect(budget=0, apply=True))
    _, done = run(store, outputs=(Output("value", b"phoenix"),))
    assert done.output_hashes == (blob,)
    assert store.fetch(ReadBlob(blob.hex())).data == b"phoenix"


def test_file_that_cannot_be_removed_keeps_its_name_and_ends_the_run(
    store: Store, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = blobs(store, state, b"one", b"two", b"three")
    real = os.unlink

    def unlink(path: str) -> None:
        if second.hex() in str(path):
            raise PermissionError(1, "Operation not permitted")
        real(path)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(StoreUnavailable, match="not permitted"):
        store.perform(Collect(ttl_s=1, apply=True))
    monkeypatch.undo()
    assert [blob_file(state, blob).exists() for blob in (first, second, third)] == [
        False,
        True,
        True,
    ]
    assert {digest for (digest,) in rows(state, "SELECT hash FROM blob")} == {second, third}
    assert store.fetch(ReadBlob(second.hex())).data == b"two"


def test_collection_during_writing_loses_nothing(store: Store, state: Path) -> None:
    """A writer that records the same few contents over and over, and a collector that wants
    them all.
    """
    stop = threading.Event()
    hashes: set[bytes] = set()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            _, done = run(store, outputs=(Output("value", b"content %d" % (number % 5)),))
            hashes.update(done.output_hashes)

    session = session_id(store)
    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(15):
        store.perform(Collect(budget=0, apply=True))
    stop.set()
    writer.join()
    for digest in hashes:
        known = rows(state, "SELECT 1 FROM blob WHERE hash = ?", digest)
        assert bool(known) == blob_file(state, digest).exists()
    for number in range(5):
        stored = store.ingest_now(b"content %d" % number)
        store.apply(LinkBlob(stored, session, 1))
        assert store.fetch(ReadBlob(stored.hash.hex())).data == b"content %d" % number


# --- value and undo pins -------------------------------------------------------------------------


def test_value_pins_come_and_go_with_values_and_sessions(store: Store, state: Path) -> None:
    session = session_id(store)
    stored = store.ingest_now(b"spilled capture" * 100)
    store.apply(LinkBlob(stored, session, 7))
    assert [(pin.hash, pin.reason, pin.holder) for pin in store.fetch(Pins())] == [
        (stored.hash, "value", str(session))
    ]
    store.apply(SaveCells(CellChanges(session_id=session, unpinned=(stored.hash,))))
    assert store.fetch(Pins()) == []
    store.apply(SaveCells(CellChanges(session_id=session, pinned=(stored.hash,))))
    assert store.apply(DeleteSession(session))
    assert store.fetch(Pins()) == []


def test_value_pins_of_vanished_sessions_are_dropped_at_the_start(state: Path) -> None:
    with open_store(state) as store:
        session = session_id(store)
        store.apply(LinkBlob(store.ingest_now(b"kept"), session, 7))
    change(state, "INSERT INTO pin SELECT hash, 'value', '99', 1 FROM blob")
    with open_store(state) as store:
        assert store.apply(Recover(1, lambda name: b"{}")).dropped_pins == 1
        assert [pin.holder for pin in store.fetch(Pins())] == [str(session)]


def test_snapshot_is_pinned_for_its_entry_until_the_entry_goes(store: Store, state: Path) -> None:
    prior = b"prior content"
    name = blake3(prior).hexdigest()
    inverse = b'{"kind":"restore_bytes","path":"/p","prior_hash":"%b"}' % name.encode()
    first = store.reserve_entries(2)
    store.apply(begin(first))
    store.apply(
        finish(
            first,
            statements=(statement(first + 1, first),),
            undo=(
                UndoRow(entry_id=first + 1, op="restore_bytes", inverse=inverse, snapshot=prior),
            ),
        )
    )
    assert [(p.reason, p.holder) for p in store.fetch(Pins())] == [("undo", str(first + 1))]
    assert store.perform(Collect(budget=0, apply=True)).deleted == ()
    store.perform(RemoveEntries(before_ns=10**19 // 2))
    assert store.fetch(Pins()) == []


# --- retention -----------------------------------------------------------------------------------


def fill_old(store: Store, number: int, ts: int) -> list[int]:
    found = []
    for _ in range(number):
        first = store.reserve_entries(3)
        store.apply(begin(first, ts=ts, kinds=("time",), effects=b'[{"kind":"time"}]'))
        store.apply(
            finish(
                first,
                outputs=(Output("value", b"v"),),
                statements=(
                    statement(first + 1, first, outputs=(Output("render", b"r"),)),
                    statement(first + 2, first + 1),
                ),
            )
        )
        found.append(first)
    return found


def test_old_submissions_go_with_all_that_hangs_on_them(store: Store, state: Path) -> None:
    fill_old(store, 230, ts=100)
    kept = fill_old(store, 2, ts=10_000)
    store.apply(AppendAudit((AuditRow(50, "denied", OWNER), AuditRow(20_000, "denied", OWNER))))

    assert store.perform(RemoveEntries(before_ns=5_000)) == 690

    for table, count in (
        ("entry", 6),
        ("output", 4),
        ("entry_effect", 2),
        ("transcript_event", 2),
        ("event", 6),
        ("audit", 1),
    ):
        assert rows(state, f"SELECT count(*) FROM {table}") == [(count,)], table
    found = store.fetch(QueryEntries(EntryFilter(), EVERYTHING))
    assert [row.id for row in found] == kept[::-1]
    log = store.fetch(LogEvents("journal", OWNER, -1, None, 10, newest=False))
    assert [event.seq for event in log.events] == [230, 231]
    assert rows(state, "PRAGMA foreign_key_check") == []


def test_numbers_of_removed_events_are_never_given_again(state: Path) -> None:
    with open_store(state) as store:
        fill_old(store, 3, ts=100)
        store.perform(RemoveEntries(before_ns=5_000))
        assert rows(state, "SELECT count(*) FROM event") == [(0,)]
        _, done = run(store)
        assert (done.journal_seq_all, done.journal_seq, done.transcript_seq) == (3, 3, 3)
        change(state, "DELETE FROM event")
    with open_store(state) as store:
        _, done = run(store)
        assert done.journal_seq == 3


def test_running_submissions_are_never_removed(store: Store) -> None:
    entry_id = store.reserve_entries()
    store.apply(begin(entry_id, ts=1))
    assert store.perform(RemoveEntries(before_ns=5_000)) == 0
    store.apply(finish(entry_id))


def test_free_pages_are_given_back(store: Store, state: Path) -> None:
    for number in range(300):
        run(store, src=f"{number}" + "x" * 5000, ts=1)

    def pages(connection: sqlite3.Connection) -> tuple[int, int]:
        one = connection.execute
        return (
            int(one("PRAGMA page_count").fetchone()[0]),
            int(one("PRAGMA freelist_count").fetchone()[0]),
        )

    before, _ = store.fetch(CustomRead(pages))
    store.perform(RemoveEntries(before_ns=100))
    after, free = store.fetch(CustomRead(pages))
    assert after < before / 2
    assert free < 10


# --- after a start -------------------------------------------------------------------------------


def test_sweep_removes_what_belongs_to_nothing(store: Store, state: Path) -> None:
    kept, lost = blobs(store, state, b"kept", b"lost")
    blob_file(state, lost).unlink()
    folder = blob_file(state, kept).parent
    interrupted = folder / f"{kept.hex()}.zst.gc-12345"
    temporary = folder / ".abc.1-2.tmp"
    stray = blob_file(state, blake3(b"stray").digest())
    fresh = blob_file(state, blake3(b"fresh").digest())
    for path in (interrupted, temporary, stray, fresh):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    old = time.time() - 2 * DAY_S
    for path in (temporary, stray):
        os.utime(path, (old, old))

    swept = store.perform(Sweep(started_s=time.time() - 60))

    assert (swept.files, swept.rows) == (3, 1)
    assert [p.exists() for p in (interrupted, temporary, stray, fresh)] == [
        False,
        False,
        False,
        True,
    ]
    assert rows(state, "SELECT hash FROM blob") == [(kept,)]
    assert store.fetch(ReadBlob(kept.hex())).data == b"kept"


def test_totals_count_entries_blobs_and_bytes(store: Store) -> None:
    run(store, outputs=(Output("value", b"12345"),))
    totals = store.fetch(Totals())
    assert (totals.entries, totals.blobs, totals.blob_bytes) == (1, 1, 5)
    assert totals.database_bytes > 0
    store.apply(Custom(lambda connection: None))
    store.apply(Probe())
