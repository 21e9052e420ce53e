"""Opening `journal.db`: version first, then soundness, then settings (chapter 61 §2.1, §8.3).

Nothing is created or changed before the version is known. A file of a newer schema is left exactly
as it is; an older one is migrated after a copy was made.

Failure: `SchemaTooNew`, `StoreDamaged`, `MigrationFailed`, or `StoreUnavailable` when the disk or a
lock is in the way.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeVar

from journal import migrate, schema
from journal.errors import SchemaTooNew, StoreDamaged, StoreUnavailable
from journal.state_dir import FILE_MODE, tighten_file

DATABASE_NAME: Final = "journal.db"
FILE_MAGIC: Final = b"SQLite format 3\0"
FILE_HEADER_BYTES: Final = 100
VERSION_OFFSET: Final = 60
STATEMENTS_CACHED: Final = 512
MMAP_BYTES: Final = 256 * 1024 * 1024
CACHE_KIB: Final = 16 * 1024
WAL_KEPT_BYTES: Final = 64 * 1024 * 1024
# Beyond this many pages of log a commit does the checkpoint itself, however long that takes.
LOG_PAGES_MAX: Final = 4 * 1024

T = TypeVar("T")

Sync = Literal["normal", "full"]

FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def unavailable(error: sqlite3.Error | OSError) -> StoreUnavailable:
    """What a failure of the world means for the store."""
    if isinstance(error, OSError):
        full = error.errno in FULL_ERRNOS
        return StoreUnavailable("disk_full" if full else "io_error", error.strerror or str(error))
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable("disk_full", str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable("locked", str(error))
    return StoreUnavailable("io_error", str(error))


def open_memory() -> sqlite3.Connection:
    """The same schema in memory, on one connection that threads share by turns."""
    connection = _connect(":memory:", 0)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    with_transaction(connection, schema.create)
    return connection


def open_writer(directory: Path, *, sync: Sync, busy_timeout_ms: int) -> sqlite3.Connection:
    """The write connection of a state directory, after every check and migration."""
    path = directory / DATABASE_NAME
    try:
        version = _stored_version(path)
        if version is not None and version > schema.SCHEMA_VERSION:
            raise SchemaTooNew(version, schema.SCHEMA_VERSION)
        for name in (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm"):
            tighten_file(directory / name)
        if version is None:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        connection = _connect(str(path), busy_timeout_ms)
    except (sqlite3.OperationalError, OSError) as error:
        raise unavailable(error) from error
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"journal.db is damaged: {error}") from error
    try:
        _prepare(connection, directory, sync, fresh=version is None)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(directory: Path, *, busy_timeout_ms: int) -> sqlite3.Connection:
    """A connection that cannot write, on a database that a writer has opened before."""
    connection = _connect(str(directory / DATABASE_NAME), busy_timeout_ms)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA mmap_size = {MMAP_BYTES}")
    return connection


def open_checkpointer(directory: Path, *, busy_timeout_ms: int) -> sqlite3.Connection:
    """A connection for checkpoints alone; SQLite counts one as a write."""
    connection = _connect(str(directory / DATABASE_NAME), busy_timeout_ms)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def with_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` in one transaction; any exception rolls back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _connect(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS_CACHED,
    )


def _stored_version(path: Path) -> int | None:
    """The version in the file, None when there is no file; the file and its folder stay as they
    are.
    """
    try:
        with path.open("rb") as file:
            header = file.read(FILE_HEADER_BYTES)
    except FileNotFoundError:
        return None
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists() and wal.stat().st_size:
        connection = sqlite3.connect(
            f"file:{file_uri(path)}?mode=ro", uri=True, isolation_level=None
        )
        try:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
        finally:
            connection.close()
    if not header:
        return None
    if len(header) < FILE_HEADER_BYTES or not header.startswith(FILE_MAGIC):
        raise StoreDamaged("journal.db is damaged: not a database file")
    return int.from_bytes(header[VERSION_OFFSET : VERSION_OFFSET + 4], "big", signed=True)


def file_uri(path: Path) -> str:
    """A path as it may stand after `file:`."""
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _prepare(connection: sqlite3.Connection, directory: Path, sync: Sync, *, fresh: bool) -> None:
    try:
        if fresh:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        else:
            _check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if sync == 'full' else 'NORMAL'}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA mmap_size = {MMAP_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES_MAX}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
        _upgrade(connection, directory)
        connection.execute("PRAGMA foreign_keys = ON")
    except (sqlite3.OperationalError, OSError) as error:
        raise unavailable(error) from error
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"journal.db is damaged: {error}") from error


def _check(connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreDamaged(f"journal.db is damaged: {str(verdict).splitlines()[0]}")


def _upgrade(connection: sqlite3.Connection, directory: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = schema.tables_of(connection) - {"sqlite_sequence"}
    if version == 0 and not tables:
        with_transaction(connection, schema.create)
        return
    if "entry" not in tables:
        raise StoreDamaged("journal.db is damaged: there is no entry table")
    if version in (0, 1):
        migrate.from_version_1(connection, directory)
        return
    missing = sorted(set(schema.TABLES) - tables)
    if missing:
        raise StoreDamaged(f"journal.db is damaged: there is no {missing[0]} table")
