"""Building blocks of the store's tests: stores, submissions, and a look into the files."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from journal import (
    Barrier,
    BeginSubmission,
    CellChanges,
    EnsureSession,
    Finished,
    FinishSubmission,
    Output,
    PlanKey,
    Statement,
    Store,
    StoreConfig,
    TaskEnd,
    UndoRow,
)

OWNER = "uid:1000"
SESSION = "build"


def open_store(path: Path | None, **options: Any) -> Store:
    return Store.open(StoreConfig(path=path, **options))


def begin(
    entry_id: int,
    *,
    src: str = "6 * 7",
    owner: str = OWNER,
    session: str = SESSION,
    principal: str | None = None,
    ts: int = 1000,
    ast: bytes = b'{"stmts":[]}',
    effects: bytes = b"[]",
    kinds: tuple[str, ...] = (),
    cwd: bytes = b"/srv/app",
    approval: PlanKey | None = None,
    task: str | None = None,
) -> BeginSubmission:
    return BeginSubmission(
        entry_id=entry_id,
        owner=owner,
        session=session,
        principal=principal or owner,
        ts=ts,
        cwd=cwd,
        src=src,
        ast=ast,
        effects=effects,
        effect_kinds=kinds,
        approval=approval,
        task=task,
    )


def finish(
    entry_id: int,
    *,
    owner: str = OWNER,
    session: str = SESSION,
    principal: str | None = None,
    ended_ns: int = 2000,
    ok: bool = True,
    outputs: tuple[Output, ...] = (),
    transcript: bytes | None = b'{"n":1}',
    statements: tuple[Statement, ...] = (),
    undo: tuple[UndoRow, ...] = (),
    cells: CellChanges | None = None,
    task_end: TaskEnd | None = None,
) -> FinishSubmission:
    return FinishSubmission(
        entry_id=entry_id,
        owner=owner,
        session=session,
        principal=principal or owner,
        ended_ns=ended_ns,
        dur_ns=1000,
        status=0 if ok else None,
        ok=ok,
        outputs=outputs,
        transcript=transcript if ok else None,
        statements=statements,
        undo=undo,
        cells=cells,
        task_end=task_end,
    )


def statement(entry_id: int, parent_id: int, ordinal: int = 0, **options: Any) -> Statement:
    fields: dict[str, Any] = {
        "ts": 1000,
        "cwd": b"/srv/app",
        "src": "6 * 7",
        "ast": b'{"kind":"expr"}',
        "effects": b"[]",
        "effect_kinds": (),
        "dur_ns": 500,
        "status": 0,
        "ok": True,
    }
    return Statement(id=entry_id, parent_id=parent_id, ordinal=ordinal, **(fields | options))


def run(
    store: Store, *, src: str = "6 * 7", ok: bool = True, **options: Any
) -> tuple[int, Finished]:
    """One whole submission, down to the database; options go to its beginning, `outputs` and the
    like to its end.
    """
    ends = ("outputs", "transcript", "statements", "undo", "cells", "task_end", "ended_ns")
    at_end = {name: options.pop(name) for name in ends if name in options}
    shared = {name: options[name] for name in ("owner", "session", "principal") if name in options}
    entry_id = store.reserve_entries()
    store.apply(begin(entry_id, src=src, **options))
    finished = store.apply(finish(entry_id, ok=ok, **shared, **at_end))
    settle(store)
    return entry_id, finished


def settle(store: Store) -> None:
    """Have everything acknowledged in the database, where a test wants to look at it."""
    store.apply(Barrier())


def session_id(store: Store, owner: str = OWNER, name: str = SESSION) -> int:
    return store.apply(EnsureSession(owner, name, 1))


def rows(path: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Look into the database as another program would."""
    connection = sqlite3.connect(path / "journal.db")
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.close()


def change(path: Path, sql: str, *parameters: object) -> None:
    """Change the database behind the store's back."""
    connection = sqlite3.connect(path / "journal.db")
    try:
        with connection:
            connection.execute(sql, parameters)
    finally:
        connection.close()


def blob_file(path: Path, digest: bytes) -> Path:
    name = digest.hex()
    return path / "cas" / name[:2] / name[2:4] / f"{name}.zst"
