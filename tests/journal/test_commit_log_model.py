"""With and without a commit log the same operations give the same results and the same database."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import (
    AppendAudit,
    AuditRow,
    CellChanges,
    DeleteSession,
    EnsureSession,
    FailTasks,
    FinishTask,
    InterruptSubmissions,
    Operation,
    Output,
    Probe,
    PruneTasks,
    PutTask,
    Recover,
    SaveCells,
    Store,
    StoreError,
    TaskEnd,
    Together,
    TouchBlobs,
    TouchSession,
    UndoRow,
    WriteStatements,
)
from tests.journal.support import begin, finish, open_store, settle, statement

# Small ranges, so that operations meet: entries and their statements, tasks, sessions, contents.
ids = st.integers(1, 12)
numbers = st.integers(1, 4)
sessions = st.integers(1, 3)
owners = st.sampled_from(["uid:1000", "agent:fmt"])
contents = st.sampled_from([b"", b"one", b"two", b"three" * 100])
outputs = st.lists(st.builds(Output, st.sampled_from(["value", "render"]), contents), max_size=2)
text = st.sampled_from([b"{}", b'{"a":1}', b"\xff"])
states = st.sampled_from(["running", "finished"])


def cells(session: int, put: dict[str, bytes | None], gone: set[str], out: int) -> CellChanges:
    return CellChanges(
        session_id=session, changed=tuple(put.items()), removed=tuple(sorted(gone)), next_out=out
    )


names = st.sampled_from(["a", "b", "c"])
changes = st.builds(
    cells,
    sessions,
    st.dictionaries(names, st.none() | contents, max_size=2),
    st.sets(names, max_size=1),
    st.integers(1, 9),
)
statements = st.lists(
    st.builds(
        lambda row, parent, ordinal, state, captured: statement(
            row, parent, ordinal, state=state, outputs=tuple(captured)
        ),
        ids, ids, st.integers(0, 2), states, outputs,
    ),
    max_size=2,
)  # fmt: skip
undo = st.lists(
    st.builds(
        lambda row, kind: UndoRow(
            entry_id=row, op="move_back", inverse=b'{"kind":"%b"}' % kind.encode()
        ),
        ids,
        st.sampled_from(["move_back", "other"]),
    ),
    max_size=1,
)
finishes = st.builds(
    lambda entry, owner, ok, captured, below, inverses, changed: finish(
        entry, owner=owner, ok=ok, outputs=tuple(captured), statements=tuple(below),
        undo=tuple(inverses), cells=changed,
    ),
    ids, owners, st.booleans(), outputs, statements, undo, st.none() | changes,
)  # fmt: skip
begins = st.builds(
    lambda entry, owner, effects: begin(entry, owner=owner, effects=effects),
    ids,
    owners,
    st.sampled_from([b"[]", b"[]", b"[]", b"\xff"]),
)
written = st.builds(
    lambda owner, below, inverses: WriteStatements(
        owner=owner, session="build", principal=owner, statements=tuple(below), undo=tuple(inverses)
    ),
    owners, statements, undo,
)  # fmt: skip
operations: st.SearchStrategy[Operation[Any]] = st.one_of(
    begins,
    begins,
    finishes,
    finishes,
    written,
    st.builds(PutTask, numbers, sessions, owners, st.just(5)),
    st.builds(lambda number: FinishTask(TaskEnd(number, "failed", 6, None, b"{}")), numbers),
    st.builds(SaveCells, changes),
    st.builds(TouchSession, sessions, st.integers(10, 20)),
    st.builds(TouchBlobs, st.just((b"h" * 32,)), st.just(7)),
    st.builds(lambda detail: AppendAudit((AuditRow(7, "denied", "x", detail),)), text),
    st.builds(EnsureSession, owners, st.just("build"), st.just(3)),
    st.builds(DeleteSession, sessions),
    st.builds(InterruptSubmissions, owners, st.just("build"), st.just(9)),
    st.builds(FailTasks, sessions, st.just(8), st.just(b"{}")),
    st.builds(PruneTasks, sessions, st.integers(0, 1)),
    st.just(Probe()),
    st.builds(lambda first, second: Together((first, second)), begins, finishes),
)
# A list is posted as one batch; None is a process that is killed and another that begins.
steps = st.lists(st.lists(operations, min_size=1, max_size=5) | st.none(), max_size=12)

# Times at which content was stored are those of the test's run.
TABLES = {
    "entry": "*",
    "entry_effect": "*",
    "output": "rowid, *",
    "blob": "hash, stored_len, disk_len",
    "pin": "hash, reason, holder",
    "undo": "rowid, *",
    "transcript_event": "*",
    "event": "*",
    "session": "*",
    "session_cell": "session_id, cell, value",
    "task": "*",
    "audit": "*",
    "counter": "*",
}


def content(store: Store) -> dict[str, list[Any]]:
    settle(store)
    return {
        table: sorted(
            store._connection.execute(
                f"SELECT {columns} FROM {table}"
                + (" WHERE name NOT LIKE 'log:%'" if table == "counter" else "")
            ).fetchall(),
            key=repr,
        )
        for table, columns in TABLES.items()
    }


def outcomes(store: Store, batch: list[Operation[Any]]) -> list[object]:
    """Results, or the kinds of error, of a batch that was posted in one piece."""
    told: list[object] = []
    last = threading.Event()

    def note(result: object, error: StoreError | None) -> None:
        told.append(result if error is None else type(error).__name__)
        if len(told) == len(batch):
            last.set()

    store.post_all([(operation, note) for operation in batch])
    assert last.wait(30)
    return told


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_a_log_changes_neither_results_nor_content(
    steps: list[list[Operation[Any]] | None],
) -> None:
    with (
        # Applied only when something needs the database, so that much waits in the log.
        patch("journal.write_behind.IDLE_S", 600.0),
        patch("journal.write_behind.AGE_MAX_S", 600.0),
        tempfile.TemporaryDirectory() as folder,
        open_store(None) as plain,
    ):
        state = Path(folder, "0")
        logged = open_store(state)
        try:
            for number, batch in enumerate(steps, 1):
                if batch is not None:
                    assert outcomes(logged, batch) == outcomes(plain, batch)
                    continue
                # The directory as the process leaves it when it is killed now.
                state = Path(shutil.copytree(state, Path(folder, str(number))))
                logged.close()
                logged = open_store(state)
                recover = Recover(11, lambda name: b"{}")
                assert logged.apply(recover) == plain.apply(recover)
            assert content(logged) == content(plain)
        finally:
            logged.close()
