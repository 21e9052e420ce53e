"""Collection of content, retention of rows, and the cleaning after a crash (chapter 61 §6).

Choosing what to remove is a read; removing is done by the writer thread in small operations, each
of which looks again whether the blob may go, so that nothing linked, pinned or being read meanwhile
is touched. Jobs run one at a time on the store's job thread.

Failure: a blob whose file cannot be removed stays, with its row, and ends the run with
`StoreUnavailable`; what was removed before stays removed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from journal.cas import NAME
from journal.errors import StoreUnavailable
from journal.event_log import keep_marks
from journal.query import CustomRead
from journal.records import Custom
from journal.source import Source
from journal.store import Store

T = TypeVar("T")

BLOBS_PER_OPERATION: Final = 64
ENTRIES_PER_OPERATION: Final = 100
EVENTS_PER_OPERATION: Final = 2000
VACUUM_PAGES_PER_OPERATION: Final = 256
STRAY_FILE_AGE_S: Final = 24 * 3600
SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Collectable:
    """A blob that a collection has chosen; sizes are uncompressed."""

    hash: bytes
    length: int
    referenced: bool
    last_access_ns: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a collection chose and did."""

    dry_run: bool
    candidates: tuple[Collectable, ...]
    deleted: tuple[Collectable, ...]
    reclaimed_bytes: int
    remaining_bytes: int

    def as_document(self) -> dict[str, Any]:
        """The form in which `store.gc` answers and `shoal journal gc --json` prints it."""
        return {
            "dry_run": self.dry_run,
            "candidates": _blob_documents(self.candidates),
            "deleted": _blob_documents(self.deleted),
            "reclaimed_bytes": self.reclaimed_bytes,
            "remaining_bytes": self.remaining_bytes,
        }


def _blob_documents(blobs: Iterable[Collectable]) -> list[dict[str, Any]]:
    return [
        {"hash": blob.hash.hex(), "bytes": blob.length, "referenced": blob.referenced}
        for blob in blobs
    ]


@dataclass(frozen=True, slots=True)
class PinRow:
    hash: bytes
    reason: str
    holder: str
    created_ns: int


@dataclass(frozen=True, slots=True)
class Pins:
    """Every pin, by hash."""

    def run(self, source: Source) -> list[PinRow]:
        rows = source.connection.execute(
            "SELECT hash, reason, holder, created_ns FROM pin ORDER BY hash, reason, holder"
        )
        return [PinRow(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class StoreTotals:
    entries: int
    blobs: int
    blob_bytes: int
    database_bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sizes for status and metrics. `entries` is the highest id, so that it costs nothing to
    know.
    """

    def run(self, source: Source) -> StoreTotals:
        one = source.connection.execute
        (entries,) = one("SELECT ifnull(max(id), 0) FROM entry").fetchone()
        blobs, size = one("SELECT count(*), ifnull(sum(stored_len), 0) FROM blob").fetchone()
        (pages,) = one("PRAGMA page_count").fetchone()
        (page,) = one("PRAGMA page_size").fetchone()
        return StoreTotals(entries, blobs, size, pages * page)


# --- collection ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a collection with these limits would remove, in order, and how many bytes would stay."""

    ttl_s: float | None
    budget: int | None
    now_ns: int

    def run(self, source: Source) -> tuple[list[Collectable], int]:
        (total,) = source.connection.execute(
            "SELECT ifnull(sum(stored_len), 0) FROM blob"
        ).fetchone()
        rows = source.connection.execute(
            """
            SELECT hash, stored_len,
                   EXISTS (SELECT 1 FROM output o WHERE o.hash = b.hash) AS linked, last_access_ns
            FROM blob b WHERE NOT EXISTS (SELECT 1 FROM pin p WHERE p.hash = b.hash)
            ORDER BY linked, last_access_ns, hash
            """
        )
        unpinned = [Collectable(row[0], row[1], bool(row[2]), row[3]) for row in rows]
        chosen: list[Collectable] = []
        rest = unpinned
        if self.ttl_s is not None:
            cutoff = self.now_ns - int(self.ttl_s * SECOND_NS)
            chosen = [blob for blob in unpinned if blob.last_access_ns <= cutoff]
            rest = [blob for blob in unpinned if blob.last_access_ns > cutoff]
        remaining = total - sum(blob.length for blob in chosen)
        if self.budget is not None:
            for blob in rest:
                if remaining <= self.budget:
                    break
                chosen.append(blob)
                remaining -= blob.length
        return chosen, remaining


@dataclass(frozen=True, slots=True)
class Collect:
    """One collection. None as a limit means: keep. Without `apply` nothing is removed."""

    ttl_s: float | None = None
    budget: int | None = None
    apply: bool = False
    vacuum: bool = True

    def run(self, store: Store) -> Report:
        read = Candidates(self.ttl_s, self.budget, time.time_ns())
        candidates, remaining = store.fetch(read)
        if not self.apply:
            return Report(
                True, tuple(candidates), (), sum(blob.length for blob in candidates), remaining
            )
        deleted: list[Collectable] = []
        for chunk in _chunks(iter(candidates), BLOBS_PER_OPERATION):
            removed, error = store.apply(Custom(partial(_remove_blobs, store, chunk)))
            deleted.extend(removed)
            if error is not None:
                raise StoreUnavailable("io_error", error)
        if self.vacuum and deleted:
            _vacuum(store)
        reclaimed = sum(blob.length for blob in deleted)
        kept = sum(blob.length for blob in candidates) - reclaimed
        return Report(False, tuple(candidates), tuple(deleted), reclaimed, remaining + kept)


def _remove_blobs(
    store: Store, chunk: list[Collectable], connection: sqlite3.Connection
) -> tuple[list[Collectable], str | None]:
    """Remove files and rows, on the writer thread: nothing can be linked or pinned meanwhile."""
    removed: list[Collectable] = []
    for blob in chunk:
        unchanged = connection.execute(
            """
            SELECT 1 FROM blob b WHERE hash = ? AND last_access_ns = ?
            AND NOT EXISTS (SELECT 1 FROM pin p WHERE p.hash = b.hash)
            """,
            (blob.hash, blob.last_access_ns),
        ).fetchone()
        if (
            unchanged is None
            or store.content.being_read(blob.hash)
            or store.lately_ingested(blob.hash)
        ):
            continue
        try:
            store.content.remove(blob.hash)
        except OSError as error:
            return removed, error.strerror or str(error)
        connection.execute("DELETE FROM blob WHERE hash = ?", (blob.hash,))
        store.unlinked((blob.hash,))
        removed.append(blob)
    return removed, None


def _vacuum(store: Store) -> None:
    """Give free pages back to the file system, a few at a time between other commits."""
    pages = CustomRead(lambda connection: _pragma(connection, "freelist_count"))
    before = store.fetch(pages)
    while before:
        store.apply(Custom(_vacuum_some))
        after = store.fetch(pages)
        if after >= before:
            return
        before = after


def _vacuum_some(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES_PER_OPERATION})").fetchall()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


# --- retention -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoveEntries:
    """Remove ended submissions that started before a time, with all that hangs on them, and audit
    rows.

    Result: the number of entry rows removed. Numbers of their events are never given again.
    """

    before_ns: int
    vacuum: bool = True

    def run(self, store: Store) -> int:
        removed = 0
        while True:
            step = store.apply(Custom(partial(_remove_entries, self.before_ns)))
            if not step:
                break
            removed += step
        spaces = store.fetch(CustomRead(_stale_spaces))
        for channel, space in spaces:
            _remove_events(store, channel, space)
        store.apply(Custom(partial(_remove_audit, self.before_ns)))
        if self.vacuum and removed:
            _vacuum(store)
        return removed


# What hangs on an entry, by table and column; the entries themselves go last.
HANGING: Final = (
    ("output", "entry_id"),
    ("undo", "entry_id"),
    ("entry_effect", "entry_id"),
    ("transcript_event", "entry_id"),
)


def _remove_entries(before_ns: int, connection: sqlite3.Connection) -> int:
    ids = [
        entry_id
        for (entry_id,) in connection.execute(
            """
            WITH RECURSIVE gone(id) AS (
                SELECT * FROM (
                    SELECT id FROM entry INDEXED BY idx_entry_ts
                    WHERE ts < ? AND parent_id IS NULL AND state <> 'running' LIMIT ?
                )
                UNION ALL
                SELECT e.id FROM gone g JOIN entry e ON e.parent_id = g.id
            )
            SELECT id FROM gone ORDER BY id DESC
            """,
            (before_ns, ENTRIES_PER_OPERATION),
        )
    ]
    keys = [(entry_id,) for entry_id in ids]
    for table, column in HANGING:
        connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", keys)
    connection.executemany(
        "DELETE FROM pin WHERE reason = 'undo' AND holder = ?", [(str(key),) for key in ids]
    )
    # Children have the larger ids, so in descending order nothing is removed before what refers to
    # it.
    connection.executemany("DELETE FROM entry WHERE id = ?", keys)
    return len(ids)


def _stale_spaces(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The (channel, space) pairs that have events of removed entries."""
    return connection.execute(
        """
        SELECT DISTINCT channel, space FROM event v
        WHERE NOT EXISTS (SELECT 1 FROM entry e WHERE e.id = v.entry_id)
        """
    ).fetchall()


def _remove_events(store: Store, channel: str, space: str) -> None:
    def stale(connection: sqlite3.Connection) -> list[tuple[int]]:
        return connection.execute(
            """
            SELECT seq FROM event v WHERE channel = ? AND space = ?
            AND NOT EXISTS (SELECT 1 FROM entry e WHERE e.id = v.entry_id)
            """,
            (channel, space),
        ).fetchall()

    def remove(chunk: list[tuple[int]], connection: sqlite3.Connection) -> None:
        keep_marks(connection, [(channel, space)])
        connection.executemany(
            "DELETE FROM event WHERE channel = ? AND space = ? AND seq = ?",
            [(channel, space, seq) for (seq,) in chunk],
        )

    for chunk in _chunks(iter(store.fetch(CustomRead(stale))), EVENTS_PER_OPERATION):
        store.apply(Custom(partial(remove, chunk)))


def _remove_audit(before_ns: int, connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM audit WHERE ts < ?", (before_ns,))


# --- after a start -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed: files that belong to nothing, and rows without a file."""

    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove what interrupted writes and collections left: files without a row, rows without a
    file.

    `started_s` is when this process began to use the directory: temporary files older than that are
    nobody's.
    """

    started_s: float

    def run(self, store: Store) -> Swept:
        names, files = self._files(store)
        rows = store.fetch(CustomRead(_blob_hashes))
        missing = [digest for digest in rows if digest not in names]
        removed = 0
        for chunk in _chunks(iter(missing), BLOBS_PER_OPERATION):
            removed += store.apply(Custom(partial(_remove_rows, store, chunk)))
        old = time.time() - STRAY_FILE_AGE_S
        known = set(rows)
        strays = [
            digest for digest, changed in names.items() if digest not in known and changed < old
        ]
        for chunk in _chunks(iter(strays), BLOBS_PER_OPERATION):
            files += store.apply(Custom(partial(_remove_strays, store, chunk)))
        return Swept(files, removed)

    def _files(self, store: Store) -> tuple[Mapping[bytes, float], int]:
        """Content files with their times; leftovers are removed on the way and counted."""
        names: dict[bytes, float] = {}
        removed = 0
        for path in _walk(store.content.root):
            stem, _, suffix = path.name.partition(".")
            if suffix == "zst" and NAME.match(stem):
                names[bytes.fromhex(stem)] = _changed(path)
            elif ".gc-" in path.name or (path.suffix == ".tmp" and _changed(path) < self.started_s):
                path.unlink(missing_ok=True)
                removed += 1
        return names, removed


def _walk(root: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(root):
        for name in files:
            yield Path(folder, name)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _blob_hashes(connection: sqlite3.Connection) -> list[bytes]:
    return [digest for (digest,) in connection.execute("SELECT hash FROM blob")]


def _remove_rows(store: Store, chunk: list[bytes], connection: sqlite3.Connection) -> int:
    gone = [digest for digest in chunk if not store.content.exists(digest)]
    connection.executemany("DELETE FROM blob WHERE hash = ?", [(digest,) for digest in gone])
    store.unlinked(gone)
    return len(gone)


def _remove_strays(store: Store, chunk: list[bytes], connection: sqlite3.Connection) -> int:
    removed = 0
    for digest in chunk:
        row = connection.execute("SELECT 1 FROM blob WHERE hash = ?", (digest,)).fetchone()
        if row is None and not store.lately_ingested(digest):
            store.content.remove(digest)
            removed += 1
    return removed


def _chunks(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while chunk := list(islice(items, size)):
        yield chunk
