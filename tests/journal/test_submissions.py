"""The life of an entry: what a submission leaves in the store (chapter 61 §3, §4)."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import zstandard
from blake3 import blake3

from journal import (
    EVERYTHING,
    ApprovalUnavailable,
    ApprovePlan,
    BlobMissing,
    CellChanges,
    EntryById,
    EntryFilter,
    EntryRow,
    FileContent,
    InterruptSubmissions,
    LogEvents,
    OperationRefused,
    Output,
    PlanByKey,
    PlanKey,
    Probe,
    PutPlan,
    PutTask,
    QueryEntries,
    ReadBlob,
    Recover,
    SessionByName,
    SessionCells,
    Store,
    StoreError,
    TaskByNumber,
    TaskEnd,
    Together,
    WriteStatements,
)
from tests.journal.support import (
    OWNER,
    SESSION,
    begin,
    blob_file,
    finish,
    open_store,
    rows,
    run,
    session_id,
    statement,
)


def entry(store: Store, entry_id: int) -> EntryRow:
    found = store.fetch(EntryById(entry_id, EVERYTHING))
    assert found is not None
    return found


def test_running_row_is_there_before_the_end(any_store: Store) -> None:
    entry_id = any_store.reserve_entries()

    any_store.apply(begin(entry_id, src="  make all", kinds=("proc_spawn", "opaque")))

    row = entry(any_store, entry_id)
    assert (row.state, row.ok, row.status, row.dur_ns) == ("running", None, None, None)
    assert (row.head, row.opaque, row.kind, row.parent_id) == ("make", True, "submission", None)


def test_finish_completes_row_outputs_events_and_cells_at_once(any_store: Store) -> None:
    session = session_id(any_store)
    cells = CellChanges(session_id=session, changed=(("x", b"1"), ("y", None)), next_out=2)

    entry_id, done = run(
        any_store,
        outputs=(Output("value", b'{"$":"int","v":42}'), Output("render", b"42")),
        cells=cells,
    )

    row = entry(any_store, entry_id)
    assert (row.state, row.ok, row.status, row.dur_ns) == ("finished", True, 0, 1000)
    assert [(output.kind, output.length) for output in row.outputs] == [
        ("value", 18),
        ("render", 2),
    ]
    assert tuple(output.hash for output in row.outputs) == done.output_hashes
    assert done.output_hashes[1] == blake3(b"42").digest()
    assert (done.journal_seq_all, done.journal_seq, done.transcript_seq) == (0, 0, 0)
    assert any_store.fetch(SessionCells(session)) == [("x", b"1"), ("y", None)]
    found = any_store.fetch(SessionByName(OWNER, SESSION))
    assert found is not None and found.next_out == 2


def test_three_statements_make_one_submission_row_and_one_journal_event(any_store: Store) -> None:
    first = any_store.reserve_entries(4)
    any_store.apply(begin(first))
    any_store.apply(
        finish(first, statements=tuple(statement(first + 1 + n, first, n) for n in range(3)))
    )

    submissions = any_store.fetch(QueryEntries(EntryFilter(), EVERYTHING))
    everything = any_store.fetch(QueryEntries(EntryFilter(kind="all"), EVERYTHING))
    assert [row.id for row in submissions] == [first]
    assert [(row.kind, row.parent_id, row.ordinal) for row in everything] == [
        ("statement", first, 2),
        ("statement", first, 1),
        ("statement", first, 0),
        ("submission", None, None),
    ]
    for channel in ("journal", "session.transcript"):
        log = LogEvents(channel, OWNER, -1, None, 10, newest=False)
        assert [event.seq for event in any_store.fetch(log).events] == [0]


def test_begin_and_finish_in_one_batch_give_the_same_rows_as_apart(tmp_path: Path) -> None:
    def rows_of(path: Path, together: bool) -> list[tuple[object, ...]]:
        with open_store(path) as store:
            first = store.reserve_entries(2)
            start = begin(first, effects=b'[{"kind":"time"}]', kinds=("time",))
            end = finish(
                first,
                outputs=(Output("render", b"42"),),
                statements=(statement(first + 1, first, outputs=(Output("render", b"42"),)),),
            )
            if together:
                store.apply(Together((start, end)))
            else:
                store.apply(start)
                store.apply(end)
        return [
            row
            for table in ("entry", "entry_effect", "output", "event", "transcript_event")
            for row in rows(path, f"SELECT * FROM {table} ORDER BY 1, 2")
        ]

    assert rows_of(tmp_path / "a", True) == rows_of(tmp_path / "b", False)


def test_statement_row_written_early_is_completed_at_the_end(any_store: Store) -> None:
    first = any_store.reserve_entries(2)
    any_store.apply(begin(first))
    early = statement(first + 1, first, state="running", dur_ns=None, status=None, ok=None)
    any_store.apply(
        WriteStatements(owner=OWNER, session=SESSION, principal=OWNER, statements=(early,))
    )
    assert entry(any_store, first + 1).state == "running"

    any_store.apply(finish(first, statements=(statement(first + 1, first, ok=False, status=3),)))

    row = entry(any_store, first + 1)
    assert (row.state, row.ok, row.status) == ("finished", False, 3)


def test_failed_submission_has_a_journal_event_and_no_transcript_event(any_store: Store) -> None:
    run(any_store)
    _, failed = run(any_store, ok=False, outputs=(Output("stderr", b"boom"),))

    assert (failed.journal_seq, failed.transcript_seq) == (1, None)
    log = LogEvents("session.transcript", OWNER, -1, None, 10, newest=False)
    assert [event.seq for event in any_store.fetch(log).events] == [0]


def test_interruption_leaves_status_null_and_publishes_not_ok(any_store: Store) -> None:
    first = any_store.reserve_entries(2)
    any_store.apply(begin(first, src="sleep 5", principal="agent:a"))
    early = statement(first + 1, first, state="running", dur_ns=None, status=None, ok=None)
    any_store.apply(
        WriteStatements(owner=OWNER, session=SESSION, principal="agent:a", statements=(early,))
    )
    other = any_store.reserve_entries()
    any_store.apply(begin(other, session="else"))

    (ended,) = any_store.apply(InterruptSubmissions(OWNER, SESSION, 3000))

    assert (ended.entry_id, ended.head, ended.principal) == (first, "sleep", "agent:a")
    for entry_id in (first, first + 1):
        row = entry(any_store, entry_id)
        assert (row.state, row.ok, row.status, row.dur_ns) == ("interrupted", None, None, None)
    assert entry(any_store, other).state == "running"
    (event,) = any_store.fetch(LogEvents("journal", OWNER, -1, None, 10, newest=False)).events
    assert b'"ok":{"$":"bool","v":false}' in event.payload
    for ok in (True, False):
        assert any_store.fetch(QueryEntries(EntryFilter(ok=ok), EVERYTHING)) == []


def test_finish_of_what_is_not_running_is_refused(any_store: Store) -> None:
    entry_id, _ = run(any_store)
    with pytest.raises(OperationRefused):
        any_store.apply(finish(entry_id))
    with pytest.raises(OperationRefused):
        any_store.apply(finish(any_store.reserve_entries()))


def test_finish_under_another_session_is_refused(any_store: Store) -> None:
    entry_id = any_store.reserve_entries()
    any_store.apply(begin(entry_id))
    with pytest.raises(OperationRefused):
        any_store.apply(finish(entry_id, session="other"))
    assert entry(any_store, entry_id).state == "running"


def test_refused_finish_takes_no_event_number(any_store: Store) -> None:
    run(any_store)
    with pytest.raises(OperationRefused):
        any_store.apply(finish(any_store.reserve_entries()))
    _, done = run(any_store)
    assert (done.journal_seq_all, done.journal_seq, done.transcript_seq) == (1, 1, 1)


# --- outputs -------------------------------------------------------------------------------------


def test_same_content_twice_is_two_rows_and_one_blob(store: Store, state: Path) -> None:
    run(store, outputs=(Output("value", b"same"), Output("render", b"same")))
    run(store, outputs=(Output("value", b"same"),))

    assert rows(state, "SELECT count(*) FROM output") == [(3,)]
    assert rows(state, "SELECT hash, stored_len FROM blob") == [(blake3(b"same").digest(), 4)]


def test_empty_content_is_stored_like_any_other(any_store: Store) -> None:
    _, done = run(any_store, outputs=(Output("stdout", b""),))
    piece = any_store.fetch(ReadBlob(done.output_hashes[0].hex()))
    assert (piece.total, piece.data) == (0, b"")


@pytest.mark.parametrize("source", ["bytes", "descriptor"])
def test_output_beyond_the_cap_is_cut_with_the_marker(state: Path, source: str) -> None:
    marker = b"\n[shoal: output truncated; see journal metadata]\n"
    content = b"x" * 300
    with open_store(state, output_cap_bytes=200) as store:
        _, done = run(store, outputs=(Output("stdout", _content(content, source)),))
        (output,) = store.fetch(QueryEntries(EntryFilter(), EVERYTHING))[0].outputs
        stored = store.fetch(ReadBlob(done.output_hashes[0].hex())).data

    assert stored == b"x" * (200 - len(marker)) + marker
    assert output.meta_json == b'{"truncated":true,"original_len":300,"stored_len":200}'
    assert output.length == 200
    assert blake3(stored).digest() == output.hash


def test_cap_below_the_marker_shortens_the_marker(state: Path) -> None:
    with open_store(state, output_cap_bytes=10) as store:
        _, done = run(store, outputs=(Output("stdout", b"y" * 11),))
        assert store.fetch(ReadBlob(done.output_hashes[0].hex())).data == b"\n[shoal: o"


def test_content_exactly_at_the_cap_is_whole(state: Path) -> None:
    with open_store(state, output_cap_bytes=100) as store:
        _, done = run(store, outputs=(Output("stdout", b"z" * 100),))
        (output,) = store.fetch(QueryEntries(EntryFilter(), EVERYTHING))[0].outputs
        assert output.meta_json is None
        assert store.fetch(ReadBlob(done.output_hashes[0].hex())).data == b"z" * 100


def test_descriptor_content_is_stored_and_the_descriptor_closed(store: Store, state: Path) -> None:
    content = os.urandom(3 * 1024 * 1024 + 5)
    taken = _content(content, "descriptor")
    assert isinstance(taken, FileContent)

    _, done = run(store, outputs=(Output("stdout", taken),))

    with pytest.raises(OSError):
        os.fstat(taken.fd)
    file = blob_file(state, done.output_hashes[0])
    reader = zstandard.ZstdDecompressor().stream_reader(
        file.open("rb"), read_across_frames=True, closefd=True
    )
    assert reader.read() == content


def test_descriptor_of_a_refused_operation_is_closed_too(store: Store) -> None:
    taken = _content(b"abc", "descriptor")
    assert isinstance(taken, FileContent)
    with pytest.raises(OperationRefused):
        store.apply(finish(99, outputs=(Output("stdout", taken),)))
    with pytest.raises(OSError):
        os.fstat(taken.fd)


def test_ingested_content_is_linked_without_its_bytes(any_store: Store) -> None:
    stored = any_store.ingest_now(_content(b"k" * 2_000_000, "descriptor"))
    assert stored.hash == blake3(b"k" * 2_000_000).digest()

    _, done = run(any_store, outputs=(Output("stdout", stored),))

    assert done.output_hashes == (stored.hash,)
    piece = any_store.fetch(ReadBlob(stored.hash.hex(), 1_999_990, 100))
    assert (piece.total, piece.data) == (2_000_000, b"k" * 10)


def test_ingested_content_that_is_gone_refuses_the_operation(store: Store, state: Path) -> None:
    stored = store.ingest_now(b"short-lived")
    blob_file(state, stored.hash).unlink()
    entry_id = store.reserve_entries()
    store.apply(begin(entry_id))
    with pytest.raises(OperationRefused, match="gone"):
        store.apply(finish(entry_id, outputs=(Output("value", stored),)))


def _content(content: bytes, source: str) -> bytes | FileContent:
    if source == "bytes":
        return content
    fd = os.memfd_create("content")
    os.write(fd, content)
    return FileContent(fd, len(content))


# --- approvals, tasks, recovery ------------------------------------------------------------------

KEY = PlanKey(OWNER, OWNER, SESSION, "plan:" + "ab" * 16)


def put_plan(store: Store) -> None:
    store.apply(
        PutPlan(
            key=KEY,
            src="rm x",
            ast=b"{}",
            effects=b"[]",
            reversibility="reversible",
            estimates=b"{}",
            created_ns=100,
            expires_ns=10**18,
            allowed=False,
            owner_quota=0,
        )
    )


def test_one_approval_admits_one_submission(any_store: Store) -> None:
    put_plan(any_store)
    any_store.apply(ApprovePlan(KEY, "uid:0", 500, 5000))

    any_store.apply(begin(any_store.reserve_entries(), approval=KEY, ts=1000))
    again = any_store.reserve_entries()
    with pytest.raises(ApprovalUnavailable) as caught:
        any_store.apply(begin(again, approval=KEY, ts=1001))

    assert caught.value.cause == "approval_used"
    assert any_store.fetch(EntryById(again, EVERYTHING)) is None


def test_expired_approval_admits_nothing_and_says_so(any_store: Store) -> None:
    put_plan(any_store)
    any_store.apply(ApprovePlan(KEY, "uid:0", 500, 900))
    with pytest.raises(ApprovalUnavailable) as caught:
        any_store.apply(begin(any_store.reserve_entries(), approval=KEY, ts=1000))
    assert caught.value.cause == "approval_expired"


def test_refused_begin_leaves_the_approval_unused(any_store: Store) -> None:
    put_plan(any_store)
    any_store.apply(ApprovePlan(KEY, "uid:0", 500, 5000))
    taken = any_store.reserve_entries()
    any_store.apply(begin(taken))

    with pytest.raises(OperationRefused):
        any_store.apply(begin(taken, approval=KEY, ts=1000))

    plan = any_store.fetch(PlanByKey(KEY))
    assert plan is not None and plan.holds_approval(1000)


def test_task_ends_with_its_submission(any_store: Store) -> None:
    session = session_id(any_store)
    number = any_store.reserve_task()
    any_store.apply(PutTask(number, session, OWNER, 500))

    run(any_store, task_end=TaskEnd(number, "completed", 2000, "out:1"), task=f"task:{number}")

    task = any_store.fetch(TaskByNumber(number))
    assert task is not None
    assert (task.state, task.finished_ns, task.result_ref) == ("completed", 2000, "out:1")


def test_restart_interrupts_running_rows_and_fails_running_tasks(state: Path) -> None:
    with open_store(state) as store:
        session = session_id(store)
        store.apply(PutTask(store.reserve_task(), session, OWNER, 1))
        run(store)
        entry_id = store.reserve_entries()
        store.apply(begin(entry_id))

    with open_store(state) as store:
        found = store.apply(Recover(9000, lambda name: b'{"session":"%b"}' % name.encode()))

        assert (found.interrupted, found.failed_tasks) == ((entry_id,), (1,))
        assert entry(store, entry_id).state == "interrupted"
        task = store.fetch(TaskByNumber(1))
        assert task is not None
        assert (task.state, task.finished_ns, task.error_json) == (
            "failed",
            9000,
            b'{"session":"build"}',
        )
        again = store.apply(Recover(9001, lambda name: b"{}"))
        assert (again.interrupted, again.failed_tasks) == ((), ())


# --- batches -------------------------------------------------------------------------------------


def test_bad_operation_does_not_spoil_its_neighbours(any_store: Store) -> None:
    outcomes: dict[int, StoreError | None] = {}

    def note(entry_id: int, result: object, error: StoreError | None) -> None:
        outcomes[entry_id] = error

    ids = [any_store.reserve_entries() for _ in range(7)]
    bad = {ids[2], ids[5]}
    for entry_id in ids:
        any_store.post(begin(entry_id), lambda result, error: None)
        end = finish(entry_id, session="wrong" if entry_id in bad else SESSION)
        any_store.post(end, partial(note, entry_id))
    any_store.apply(Probe())

    assert {entry_id for entry_id, error in outcomes.items() if error is not None} == bad
    assert all(isinstance(outcomes[entry_id], OperationRefused) for entry_id in bad)
    log = any_store.fetch(LogEvents("journal", "*", -1, None, 20, newest=False))
    assert [event.seq for event in log.events] == list(range(5))
    for entry_id in ids:
        assert entry(any_store, entry_id).state == ("running" if entry_id in bad else "finished")


def test_content_of_a_refused_neighbour_is_written_again_when_needed(any_store: Store) -> None:
    good, bad = any_store.reserve_entries(), any_store.reserve_entries()
    errors: list[StoreError | None] = []
    any_store.post(begin(good), lambda result, error: None)
    content = (Output("value", b"shared content"),)
    any_store.post(finish(bad, outputs=content), lambda result, error: errors.append(error))
    any_store.post(finish(good, outputs=content), lambda result, error: errors.append(error))
    any_store.apply(Probe())

    assert [error is None for error in errors] == [False, True]
    name = blake3(b"shared content").hexdigest()
    assert any_store.fetch(ReadBlob(name)).data == b"shared content"


def test_operations_that_belong_together_fail_together(any_store: Store) -> None:
    first = any_store.reserve_entries(2)
    with pytest.raises(OperationRefused):
        any_store.apply(Together((begin(first), finish(first + 1))))
    assert any_store.fetch(EntryById(first, EVERYTHING)) is None


def test_last_change_of_a_cell_wins_within_a_batch(any_store: Store) -> None:
    session = session_id(any_store)
    changes = [
        CellChanges(session_id=session, changed=(("a", b"1"), ("b", b"1"))),
        CellChanges(session_id=session, removed=("a",), changed=(("b", b"2"),)),
        CellChanges(session_id=session, changed=(("a", b"3"),), removed=("b",)),
    ]
    for cells in changes:
        entry_id = any_store.reserve_entries()
        any_store.post(begin(entry_id), lambda result, error: None)
        any_store.post(finish(entry_id, cells=cells), lambda result, error: None)
    any_store.apply(Probe())
    assert any_store.fetch(SessionCells(session)) == [("a", b"3")]


def test_blob_of_unknown_name_is_missing(any_store: Store) -> None:
    for name in ("00" * 32, "zz" * 32, "AB" * 32, "../../../etc/passwd", ""):
        with pytest.raises(BlobMissing):
            any_store.fetch(ReadBlob(name))
