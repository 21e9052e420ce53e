"""Undo rows and their snapshots (chapter 50 §13, chapter 61 §2.2, §3.3)."""

from __future__ import annotations

import json

import pytest
from blake3 import blake3

from journal import (
    EVERYTHING,
    EntryById,
    NewestUndo,
    ReadBlob,
    Store,
    UndoOfEntry,
    UndoRow,
    WriteStatements,
)
from tests.journal.support import OWNER, SESSION, begin, finish, open_store, run, statement

MOVE = b'{"kind":"move_back","from":"/p/new","to":"/p/old","expected_from":null}'
PRIOR = b"prior content"


def restore(entry_id: int, prior: bytes | None = PRIOR, name: str | None = None) -> UndoRow:
    inverse = {
        "kind": "restore_bytes",
        "path": "/p/f",
        "prior_hash": name or blake3(PRIOR).hexdigest(),
    }
    return UndoRow(
        entry_id=entry_id, op="restore_bytes", inverse=json.dumps(inverse).encode(), snapshot=prior
    )


def move(entry_id: int) -> UndoRow:
    return UndoRow(entry_id=entry_id, op="move_back", inverse=MOVE)


def submission(store: Store, statements: int = 1, principal: str = OWNER) -> int:
    first = store.reserve_entries(statements + 1)
    store.apply(begin(first, principal=principal))
    store.apply(
        finish(
            first,
            principal=principal,
            statements=tuple(statement(first + 1 + n, first, n) for n in range(statements)),
            undo=tuple(move(first + 1 + n) for n in range(statements)),
        )
    )
    return first


def test_inverse_and_snapshot_belong_to_the_statement(any_store: Store) -> None:
    first = any_store.reserve_entries(2)
    any_store.apply(begin(first))
    done = any_store.apply(
        finish(
            first,
            statements=(statement(first + 1, first),),
            undo=(restore(first + 1), move(first + 1)),
        )
    )

    assert done.undo_skipped == 0
    steps = any_store.fetch(UndoOfEntry(first + 1, OWNER))
    assert [(step.entry_id, step.op) for step in steps] == [
        (first + 1, "restore_bytes"),
        (first + 1, "move_back"),
    ]
    assert json.loads(steps[1].inverse_json)["to"] == "/p/old"
    row = any_store.fetch(EntryById(first + 1, EVERYTHING))
    assert row is not None
    assert [output.kind for output in row.outputs] == ["undo-snapshot"]
    assert any_store.fetch(ReadBlob(blake3(PRIOR).hexdigest())).data == PRIOR


def test_inverses_survive_although_the_submission_never_ended(any_store: Store) -> None:
    first = any_store.reserve_entries(2)
    any_store.apply(begin(first))
    early = statement(first + 1, first, state="running", dur_ns=None, status=None, ok=None)
    skipped = any_store.apply(
        WriteStatements(
            owner=OWNER,
            session=SESSION,
            principal=OWNER,
            statements=(early,),
            undo=(restore(first + 1), restore(first + 1, None)),
        )
    )
    assert skipped == 1
    assert len(any_store.fetch(UndoOfEntry(first, OWNER))) == 1


@pytest.mark.parametrize(
    "row",
    [
        restore(2, None),
        restore(2, b"other content"),
        restore(2, name="ab" * 32),
        UndoRow(entry_id=2, op="trash_move", inverse=MOVE),
        UndoRow(entry_id=2, op="move_back", inverse=b"{broken"),
        UndoRow(entry_id=2, op="move_back", inverse=b"[]"),
    ],
    ids=["no snapshot", "other snapshot", "other hash", "other kind", "no json", "no object"],
)
def test_what_must_not_be_replayed_is_not_recorded(any_store: Store, row: UndoRow) -> None:
    first = any_store.reserve_entries(2)
    any_store.apply(begin(first))
    done = any_store.apply(
        finish(first, statements=(statement(first + 1, first),), undo=(row, move(2)))
    )
    assert done.undo_skipped == 1
    assert [step.op for step in any_store.fetch(UndoOfEntry(first, None))] == ["move_back"]


def test_truncated_snapshot_is_no_inverse() -> None:
    with open_store(None, output_cap_bytes=5) as store:
        first = store.reserve_entries(2)
        store.apply(begin(first))
        cut = store.content.cut(PRIOR)[0]
        row = restore(first + 1, PRIOR, blake3(cut).hexdigest())
        done = store.apply(finish(first, statements=(statement(first + 1, first),), undo=(row,)))
        assert done.undo_skipped == 1
        assert store.fetch(UndoOfEntry(first, None)) == []


def test_id_of_a_submission_stands_for_all_its_statements(any_store: Store) -> None:
    first = any_store.reserve_entries(4)
    any_store.apply(begin(first))
    any_store.apply(
        finish(
            first,
            statements=(
                statement(first + 1, first, 0),
                statement(first + 2, first + 1, 0),
                statement(first + 3, first, 1),
            ),
            undo=(move(first + 1), move(first + 2), move(first + 3)),
        )
    )

    def below(entry_id: int) -> list[int]:
        return [step.entry_id for step in any_store.fetch(UndoOfEntry(entry_id, OWNER))]

    assert below(first) == [first + 1, first + 2, first + 3]
    assert below(first + 1) == [first + 1, first + 2]
    assert below(first + 3) == [first + 3]


def test_entries_of_another_principal_have_no_inverses(any_store: Store) -> None:
    first = submission(any_store, principal="agent:g")
    assert any_store.fetch(UndoOfEntry(first, OWNER)) == []
    assert any_store.fetch(UndoOfEntry(first, "agent:g"))
    assert any_store.fetch(UndoOfEntry(first, None))
    assert any_store.fetch(UndoOfEntry(99, None)) == []


def test_newest_undo_is_looked_for_in_the_last_500_entries_of_the_principal(
    any_store: Store,
) -> None:
    assert any_store.fetch(NewestUndo(OWNER, SESSION, OWNER)) is None
    older = submission(any_store)
    newer = submission(any_store, statements=2)
    submission(any_store, principal="agent:g")
    assert any_store.fetch(NewestUndo(OWNER, SESSION, OWNER)) == newer + 2
    assert older < newer

    for _ in range(498):
        run(any_store)
    assert any_store.fetch(NewestUndo(OWNER, SESSION, OWNER)) == newer + 2
    for _ in range(2):
        run(any_store)
    assert any_store.fetch(NewestUndo(OWNER, SESSION, OWNER)) is None
