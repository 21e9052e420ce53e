"""Reader threads, each with a connection of its own, and the reader that stands alone.

Reads see the last commit and never wait for the writer. An in-memory database has one connection
for everybody; its reads take turns with the writer under a guard.

Failure: what SQLite or the system says becomes `StoreUnavailable`; `open_beside` refuses what is
not a database of the current schema.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from journal import schema
from journal.cas import ContentStore
from journal.completion import Completion, Deliver, Done, hand_over
from journal.database import DATABASE_NAME, open_reader, unavailable
from journal.errors import SchemaTooNew, StoreDamaged, StoreError, StoreUnavailable
from journal.source import Read, Source
from journal.writer import error_of

R = TypeVar("R")

BESIDE_BUSY_TIMEOUT_MS: Final = 5000


class Readers:
    """A few threads that answer reads in the order of asking."""

    _items: SimpleQueue[tuple[Read[Any], Done] | None]

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        content: ContentStore,
        *,
        threads: int,
        deliver: Deliver | None,
        touched: Callable[[bytes], None],
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._connect = connect
        self._content = content
        self._deliver = deliver
        self._touched = touched
        self._guard: AbstractContextManager[Any] = guard or nullcontext()
        self._owned = guard is None
        self._items = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"journal-reader-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def post(self, read: Read[Any], done: Done) -> None:
        self._items.put((read, done))

    def stop(self) -> None:
        for _ in self._threads:
            self._items.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while (item := self._items.get()) is not None:
            read, done = item
            try:
                if connection is None:
                    connection = self._connect()
                with self._guard:
                    result = read.run(Source(connection, self._content, self._touched))
                completion = Completion(done, result, None)
            except Exception as error:  # noqa: BLE001 - the rim of a thread
                completion = Completion(done, None, error_of(error))
            hand_over([completion], self._deliver)
        if connection is not None and self._owned:
            connection.close()


class BesideReader:
    """Reads a state directory beside a running daemon, or without one, and changes nothing.

    What the daemon acknowledged in the last 50 ms may still be in its commit log alone, which is
    not read here; nor is what a killed daemon left there for the next one.
    """

    def __init__(self, directory: Path) -> None:
        self._source = Source(
            _open_beside(directory),
            ContentStore(directory / "cas", durable=False, cap_bytes=0, create=False),
            lambda digest: None,
        )

    def fetch(self, read: Read[R]) -> R:
        try:
            return read.run(self._source)
        except (sqlite3.Error, OSError) as error:
            raise unavailable(error) from error

    def close(self) -> None:
        self._source.connection.close()


def _open_beside(directory: Path) -> sqlite3.Connection:
    if not (directory / DATABASE_NAME).exists():
        raise StoreUnavailable("io_error", f"there is no {DATABASE_NAME} in {directory}")
    try:
        connection = open_reader(directory, busy_timeout_ms=BESIDE_BUSY_TIMEOUT_MS)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > schema.SCHEMA_VERSION:
                raise SchemaTooNew(version, schema.SCHEMA_VERSION)
            if version < schema.SCHEMA_VERSION:
                raise StoreError(
                    f"journal.db has schema version {version}; a start of the kernel migrates it"
                )
        except BaseException:
            connection.close()
            raise
    except (sqlite3.OperationalError, OSError) as error:
        raise unavailable(error) from error
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"journal.db is damaged: {error}") from error
    return connection
