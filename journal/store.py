"""The durable store as its users see it; the contract is in the package's docstring.

Failure: `Store.open` leaves nothing locked or half made when it raises; every other failure is the
result of the operation, read or job it belongs to.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from journal import database
from journal.cas import ContentStore
from journal.checkpoint import Checkpointer
from journal.commit_log import LOG_NAME, CommitLog, applied_sequence, log_identity
from journal.completion import Completion, Deliver, Done, Relay, Waiter, hand_over
from journal.errors import StoreClosed, StoreError, StoreUnavailable
from journal.readers import Readers
from journal.records import Barrier, Content, FileContent, Operation, Stored, TouchBlobs
from journal.source import Read
from journal.state_dir import DirectoryLock, empty_spill, open_spill, secure_directory
from journal.writer import Item, Writer, error_of

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

OUTPUT_CAP_BYTES: Final = 256 * 1024 * 1024
TOUCH_INTERVAL_NS: Final = 60 * 1_000_000_000
TOUCHES_KEPT: Final = 16_384
INGEST_GUARD_S: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """How to open a store. `path` None keeps everything in memory and a private temporary
    directory.

    `lock` is a hold on the directory that the caller has already; without it the store takes its
    own and releases it at the end.
    """

    path: Path | None
    sync: database.Sync = "normal"
    busy_timeout_ms: int = 5000
    output_cap_bytes: int = OUTPUT_CAP_BYTES
    reader_threads: int = 2
    lock: DirectoryLock | None = None
    on_failure_change: Callable[[StoreUnavailable | None], None] | None = None


class Job(Protocol[R_co]):
    """Longer work on the store: collection, retention, cleaning up. `run` is called on the job
    thread.
    """

    def run(self, store: Store) -> R_co: ...


class Store:
    """One open store."""

    # Numbers given out so far, under `_numbers`; content ingested and perhaps not linked yet, with
    # the time of that, and reads noted per blob, under `_notes`. `_closed` only ever becomes True.
    _next_entry: int
    _next_task: int
    _ingested: dict[bytes, float]
    _touches: dict[bytes, int]
    _closed: bool

    def __init__(
        self,
        config: StoreConfig,
        directory: Path,
        connection: sqlite3.Connection,
        lock: DirectoryLock | None,
        deliver: Deliver | None,
    ) -> None:
        self.config = config
        self.directory = directory
        self.content = ContentStore(
            directory / "cas", durable=config.sync == "full", cap_bytes=config.output_cap_bytes
        )
        self._lock = lock
        self._deliver = deliver
        self._numbers = threading.Lock()
        self._notes = threading.Lock()
        self._ingested = {}
        self._touches = {}
        self._closed = False
        in_memory = config.path is None
        guard = threading.RLock() if in_memory else None
        self._connection = connection
        log = None
        if not in_memory:
            log = _recovered_log(connection, self.content, directory, config.sync)
        self._checkpointer = None if in_memory else self._checkpoints(directory)
        self._writer = Writer(
            connection,
            self.content,
            deliver=deliver,
            on_failure_change=config.on_failure_change,
            checkpoint=None if self._checkpointer is None else self._checkpointer.request,
            guard=guard,
            log=log,
        )
        self.content.on_doubt = self._writer.unlink
        self._next_entry = _next_number(connection, "entry", "id")
        self._next_task = _next_number(connection, "task", "number")

        def connect() -> sqlite3.Connection:
            if in_memory:
                return connection
            return database.open_reader(directory, busy_timeout_ms=config.busy_timeout_ms)

        self._readers = Readers(
            connect,
            self.content,
            threads=1 if in_memory else config.reader_threads,
            deliver=deliver,
            touched=self._touched,
            guard=guard,
        )
        self._ingest_pool = ThreadPoolExecutor(1, "journal-ingest")
        self._job_pool = ThreadPoolExecutor(1, "journal-job")
        if self._checkpointer is not None:
            self._checkpointer.start()
        self._writer.start()
        self._readers.start()

    @classmethod
    def open(cls, config: StoreConfig, deliver: Deliver | None = None) -> Store:
        """Open or create; blocking. Errors: see the package."""
        if config.path is None:
            directory = Path(tempfile.mkdtemp(prefix="shoal-"))
            try:
                return cls(config, directory, database.open_memory(), None, deliver)
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
        try:
            secure_directory(config.path)
            lock = config.lock or DirectoryLock(config.path)
        except OSError as error:
            raise database.unavailable(error) from error
        try:
            connection = database.open_writer(
                config.path, sync=config.sync, busy_timeout_ms=config.busy_timeout_ms
            )
            try:
                empty_spill(config.path)
                return cls(config, config.path, connection, lock, deliver)
            except OSError as error:
                connection.close()
                raise database.unavailable(error) from error
            except BaseException:
                connection.close()
                raise
        except BaseException:
            if config.lock is None:
                lock.release()
            raise

    def _checkpoints(self, directory: Path) -> Checkpointer:
        timeout_ms = self.config.busy_timeout_ms
        return Checkpointer(
            lambda: database.open_checkpointer(directory, busy_timeout_ms=timeout_ms)
        )

    # --- numbers ---------------------------------------------------------------------------------

    def reserve_entries(self, count: int = 1) -> int:
        """The first of `count` ascending entry ids that nobody else gets."""
        with self._numbers:
            first = self._next_entry
            self._next_entry += count
            return first

    def reserve_task(self) -> int:
        with self._numbers:
            number = self._next_task
            self._next_task += 1
            return number

    # --- changes ---------------------------------------------------------------------------------

    @property
    def failure(self) -> StoreUnavailable | None:
        """Why the last attempt to commit failed, None while commits work."""
        return self._writer.failure

    @property
    def failures_seen(self) -> int:
        return self._writer.failures_seen

    def post(self, operation: Operation[T], done: Callable[[T, StoreError | None], None]) -> None:
        """Have it done; `done(result, error)` is called after the commit, the result undefined on
        error.
        """
        if self._closed:
            hand_over([Completion(done, None, StoreClosed("the store is closed"))], self._deliver)
            return
        self._writer.post(operation, done)

    def post_all(self, items: Sequence[Item]) -> None:
        """`post` for several, which are done one after the other in one batch: the cheap way for
        what happens together. None depends on the others' success.
        """
        if self._closed:
            closed = StoreClosed("the store is closed")
            hand_over([Completion(done, None, closed) for _, done in items], self._deliver)
            return
        self._writer.post_all(items)

    async def commit(self, operation: Operation[T]) -> T:
        future, done = _future()
        self.post(operation, done)
        result: T = await future
        return result

    def apply(self, operation: Operation[T]) -> T:
        waiter: Waiter[T] = Waiter()
        self.post(operation, waiter)
        return waiter.wait()

    # --- reads -----------------------------------------------------------------------------------

    def read(self, read: Read[T], done: Callable[[T, StoreError | None], None]) -> None:
        if self._closed:
            hand_over([Completion(done, None, StoreClosed("the store is closed"))], self._deliver)
            return
        if self._writer.behind:
            # What was acknowledged must be seen: the read goes on when the database has it.
            self._writer.post(Barrier(), Relay(partial(self._readers.post, read, done)))
        else:
            self._readers.post(read, done)

    async def load(self, read: Read[T]) -> T:
        future, done = _future()
        self.read(read, done)
        result: T = await future
        return result

    def fetch(self, read: Read[T]) -> T:
        waiter: Waiter[T] = Waiter()
        self.read(read, waiter)
        return waiter.wait()

    def _touched(self, digest: bytes) -> None:
        now_ns = time.time_ns()
        with self._notes:
            if now_ns - self._touches.get(digest, 0) < TOUCH_INTERVAL_NS:
                return
            self._touches.pop(digest, None)
            self._touches[digest] = now_ns
            if len(self._touches) > TOUCHES_KEPT:
                del self._touches[next(iter(self._touches))]
        self.post(TouchBlobs((digest,), now_ns), _nobody)

    # --- content ---------------------------------------------------------------------------------

    def open_spill(self) -> int:
        """A private descriptor for one capture in progress; the caller closes it."""
        return open_spill(self.directory)

    def ingest(
        self,
        content: Content,
        done: Callable[[Stored, StoreError | None], None],
        *,
        capped: bool = True,
    ) -> None:
        """Write content ahead of the operation that links it. Content not linked within a day is
        removed.

        `capped` False stores all of it, whatever the output cap (adoption of a spilled capture).
        """
        if self._closed:
            _close(content)
            hand_over([Completion(done, None, StoreClosed("the store is closed"))], self._deliver)
            return

        def work() -> None:
            try:
                completion = Completion(done, self._ingest(content, capped), None)
            except Exception as error:  # noqa: BLE001 - the rim of a thread
                completion = Completion(done, None, error_of(error))
            finally:
                _close(content)
            hand_over([completion], self._deliver)

        self._ingest_pool.submit(work)

    async def ingested(self, content: Content, *, capped: bool = True) -> Stored:
        future, done = _future()
        self.ingest(content, done, capped=capped)
        result: Stored = await future
        return result

    def ingest_now(self, content: Content, *, capped: bool = True) -> Stored:
        waiter: Waiter[Stored] = Waiter()
        self.ingest(content, waiter, capped=capped)
        return waiter.wait()

    def _ingest(self, content: Content, capped: bool) -> Stored:
        if isinstance(content, Stored):
            return content
        if isinstance(content, FileContent):
            written = self.content.put_file(content.fd, content.length, capped=capped)
        else:
            written = self.content.put(content)
        now = time.monotonic()
        with self._notes:
            self._ingested = {
                digest: when
                for digest, when in self._ingested.items()
                if now - when < INGEST_GUARD_S
            }
            self._ingested[written.hash] = now
        return Stored(written.hash, written.length, written.original_length)

    def lately_ingested(self, digest: bytes) -> bool:
        """Whether somebody may be about to link this content."""
        with self._notes:
            when = self._ingested.get(digest)
        return when is not None and time.monotonic() - when < INGEST_GUARD_S

    def unlinked(self, digests: Iterable[bytes]) -> None:
        """The blob rows of this content are gone."""
        for digest in digests:
            self._writer.unlink(digest)

    # --- jobs ------------------------------------------------------------------------------------

    def start(self, job: Job[T], done: Callable[[T, StoreError | None], None]) -> None:
        """Run a job on the job thread, one at a time."""
        if self._closed:
            hand_over([Completion(done, None, StoreClosed("the store is closed"))], self._deliver)
            return

        def work() -> None:
            try:
                completion = Completion(done, job.run(self), None)
            except Exception as error:  # noqa: BLE001 - the rim of a thread
                completion = Completion(done, None, error_of(error))
            hand_over([completion], self._deliver)

        self._job_pool.submit(work)

    async def maintain(self, job: Job[T]) -> T:
        future, done = _future()
        self.start(job, done)
        result: T = await future
        return result

    def perform(self, job: Job[T]) -> T:
        waiter: Waiter[T] = Waiter()
        self.start(job, waiter)
        return waiter.wait()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish what was posted, then let go of everything; blocking. A second call does
        nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._job_pool.shutdown(cancel_futures=True)
        self._ingest_pool.shutdown()
        self._writer.stop()
        self._readers.stop()
        if self._checkpointer is not None:
            self._checkpointer.stop()
        try:
            if self.config.path is not None:
                self._connection.execute("PRAGMA optimize")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error:
            # The log stays and is read at the next start.
            pass
        finally:
            self._connection.close()
            if self.config.path is None:
                shutil.rmtree(self.directory, ignore_errors=True)
            if self._lock is not None and self.config.lock is None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _recovered_log(
    connection: sqlite3.Connection, content: ContentStore, directory: Path, sync: database.Sync
) -> CommitLog | None:
    """The commit log, after everything it held was applied. With `sync` full there is none, but
    one that an earlier process left is applied all the same.
    """
    if sync == "full" and not (directory / LOG_NAME).exists():
        return None
    try:
        identity = database.with_transaction(connection, log_identity)
        log = CommitLog(directory, identity, applied_sequence(connection))
    except (sqlite3.Error, OSError) as error:
        raise database.unavailable(error) from error
    try:
        Writer(connection, content, deliver=None, on_failure_change=None, log=log).replay()
        if sync == "full":
            log.remove()
            return None
    except BaseException:
        log.close()
        raise
    return log


def _next_number(connection: sqlite3.Connection, table: str, column: str) -> int:
    (highest,) = connection.execute(f"SELECT ifnull(max({column}), 0) FROM {table}").fetchone()
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return max(int(highest), 0 if row is None else int(row[0])) + 1


def _future() -> tuple[asyncio.Future[Any], Done]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any, error: StoreError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return future, done


def _close(content: Content) -> None:
    if isinstance(content, FileContent):
        os.close(content.fd)


def _nobody(result: Any, error: StoreError | None) -> None:
    """For changes that nobody waits for."""
