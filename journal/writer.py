"""The writer thread: everything that waits becomes one record of the commit log, or one
transaction.

With a commit log, what the log alone can promise is acknowledged as soon as it stands there, and
reaches the database later, many records in one transaction. From the first operation of a batch on
that needs the database, the batch is done directly, after everything acknowledged before it. The
write lock is taken before anything is acknowledged, and kept until it is applied: a database that
another program has locked refuses as ever.

Directly done, a batch is first done without savepoints. If an operation turns out bad, the
transaction is rolled back and the batch is done again with one savepoint for each, so that only the
bad ones fail: all operations can be done twice, since content is named by its hash and rows vanish
with the rollback.
After the commit the completions of the whole batch leave in one piece.

Failure: an operation that does not fit gets `OperationRefused`; when the world is in the way
(`StoreUnavailable`) what could not be committed fails, `failure` says why, and the store is tried
again with every batch and at least every RETRY_S seconds. What was acknowledged is kept, in memory
and in the log, until it is in the database; while that fails nothing more is acknowledged.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from journal.apply import Changes
from journal.cas import ContentStore
from journal.commit_log import CommitLog, note_applied
from journal.completion import Completion, Deliver, Done, hand_over
from journal.database import unavailable
from journal.errors import OperationRefused, StoreError, StoreUnavailable
from journal.event_log import Sequences
from journal.records import (
    Barrier,
    Content,
    FileContent,
    FinishSubmission,
    Operation,
    Probe,
    Together,
    WriteStatements,
)
from journal.write_behind import LOG_BYTES_KEPT, NotLogged, WriteBehind

RETRY_S: Final = 5.0
# After so many commits a pause of so long is used for a checkpoint.
COMMITS_PER_CHECKPOINT: Final = 32
IDLE_S: Final = 0.2
BATCH_MAX: Final = 4096
# Errors of the operation itself; every other error of SQLite or the system is the world's.
OWN_ERRORS: Final = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    OverflowError,
    UnicodeError,
    ValueError,
    TypeError,
    KeyError,
)
BAD_DESCRIPTOR_ERRNOS: Final = frozenset({errno.EBADF, errno.ESPIPE, errno.EISDIR})

log = logging.getLogger("shoal.journal")

Item = tuple[Operation[Any], Done]


class Writer:
    """Owns the write connection from `start` to `stop`."""

    # `failure` is written by the writer thread alone and read by anybody. `_in_transaction` mirrors
    # the connection for the writer thread. Items are posted from any thread; None ends the thread.
    # `_commits` counts those since the last checkpoint that was asked for.
    failure: StoreUnavailable | None
    _items: SimpleQueue[Sequence[Item] | None]

    def __init__(
        self,
        connection: sqlite3.Connection,
        content: ContentStore,
        *,
        deliver: Deliver | None,
        on_failure_change: Callable[[StoreUnavailable | None], None] | None,
        checkpoint: Callable[[], None] | None = None,
        guard: AbstractContextManager[Any] | None = None,
        log: CommitLog | None = None,
    ) -> None:
        self._connection = connection
        self._deliver = deliver
        self._on_failure_change = on_failure_change
        self._checkpoint = checkpoint
        self._commits = 0
        # Held during a batch; only an in-memory database, whose one connection is shared, has one.
        self._guard: AbstractContextManager[Any] = guard or nullcontext()
        sequences = Sequences(connection)
        self._changes = Changes(connection, content, sequences, self._begin)
        self._behind = (
            None if log is None else WriteBehind(log, connection, self._begin, sequences, content)
        )
        self._items = SimpleQueue()
        self._in_transaction = False
        self.failure = None
        self.failures_seen = 0
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def replay(self) -> None:
        """Apply what an earlier process left in the log; before `start`. Raises
        StoreUnavailable.
        """
        if self._behind is None:
            return
        self._behind.replay()
        failure = self._catch_up(self._behind)
        if failure is not None:
            raise failure
        self._empty_log(self._behind)

    def post(self, operation: Operation[Any], done: Done) -> None:
        self._items.put(((operation, done),))

    def post_all(self, items: Sequence[Item]) -> None:
        """Several operations that take effect one after the other, surely in one batch."""
        self._items.put(items)

    @property
    def behind(self) -> bool:
        """Whether reads must wait for a `Barrier` to see everything acknowledged. While the store
        fails they see what is there.
        """
        return self._behind is not None and bool(self._behind.waiting) and self.failure is None

    def stop(self) -> None:
        """Do what was posted before, then end the thread."""
        self._items.put(None)
        self._thread.join()
        if self._behind is not None:
            if self._catch_up(self._behind) is None:
                self._empty_log(self._behind)
            self._behind.close()

    def unlink(self, digest: bytes) -> None:
        """Content turned out missing or damaged; any thread may say so."""
        self._changes.unlink(digest)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        for batch in self._batches():
            try:
                with self._guard:
                    completions = self._do(batch)
            except Exception as error:
                log.exception("a batch of the store failed")
                completions = self._all_failed(batch, StoreUnavailable("io_error", str(error)))
            for operation, _ in batch:
                close_descriptors(operation)
            hand_over(completions, self._deliver)
            if self._behind is not None and self._behind.due and self.failure is None:
                self._catch_up(self._behind)

    def _batches(self) -> Iterator[list[Item]]:
        items = self._items
        while True:
            try:
                first = items.get(timeout=self._patience())
            except Empty:
                batch = self._idle()
                if batch:
                    yield batch
                continue
            if first is None:
                return
            batch = list(first)
            try:
                while len(batch) < BATCH_MAX:
                    more = items.get_nowait()
                    if more is None:
                        yield batch
                        return
                    batch += more
            except Empty:
                pass
            yield batch

    def _patience(self) -> float | None:
        """How long to wait for work before there is something else to do."""
        if self.failure is not None:
            return RETRY_S
        if self._behind is not None and self._behind.waiting:
            return self._behind.patience()
        due = self._checkpoint is not None and self._commits >= COMMITS_PER_CHECKPOINT
        return IDLE_S if due else None

    def _idle(self) -> list[Item]:
        """Nothing came for as long as there is patience: do that something else."""
        if self.failure is not None:
            return [(Probe(), _nobody)]
        if self._behind is not None and self._behind.waiting:
            self._catch_up(self._behind)
        elif self._checkpoint is not None:
            self._commits = 0
            self._checkpoint()
        return []

    def _do(self, batch: list[Item]) -> list[Completion]:
        if self._behind is None:
            return self._do_directly(batch)
        logged, failure = self._acknowledge(self._behind, batch)
        rest = batch[len(logged) :]
        if not rest:
            return logged
        failure = failure or self._catch_up(self._behind)
        if failure is not None:
            return [*logged, *self._all_failed(rest, failure)]
        if all(type(operation) is Barrier for operation, _ in rest):
            return [*logged, *(Completion(done, None, None) for _, done in rest)]
        direct = self._do_directly(rest)
        for (operation, _), (_, result, error) in zip(rest, direct, strict=True):
            self._behind.learn(operation, result, error)
        return logged + direct

    # --- with a commit log -----------------------------------------------------------------------

    def _acknowledge(
        self, behind: WriteBehind, batch: list[Item]
    ) -> tuple[list[Completion], StoreUnavailable | None]:
        """Have the log promise the beginning of the batch, as far as it can alone."""
        if self.failure is not None:
            return [], None
        try:
            results = behind.accept([operation for operation, _ in batch])
        except sqlite3.Error as error:
            # The write lock is not to be had, so nothing waits either.
            behind.forget()
            return [], unavailable(error)
        except NotLogged as error:
            if isinstance(error.__cause__, OSError):
                log.warning("the commit log cannot be written: %s", error.__cause__)
            failure = self._catch_up(behind)
            behind.forget()
            return [], failure
        return [
            Completion(done, result, None)
            for (_, done), result in zip(batch, results, strict=False)
        ], None

    def _catch_up(self, behind: WriteBehind) -> StoreUnavailable | None:
        """Bring everything acknowledged into the database. Returns why that failed."""
        if not behind.waiting:
            return None
        try:
            try:
                self._begin()
                for operation, ns, numbers in behind.operations():
                    self._changes.redo(operation, ns, numbers)
                self._changes.flush()
            except Exception as error:
                if isinstance(error_of(error), StoreUnavailable):
                    raise
                self._roll_back(numbers=False)
                self._catch_up_carefully(behind)
            note_applied(self._connection, behind.sequence)
            self._commit()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing acknowledged is dropped
            self._roll_back(numbers=False)
            failure = error_of(error)
            if not isinstance(failure, StoreUnavailable):
                failure = StoreUnavailable("io_error", str(failure))
            self._set_failure(failure)
            return failure
        self._changes.committed()
        behind.applied()
        if self.failure is not None:
            # What was promised is safe; what failed meanwhile left its traces in memory.
            behind.forget()
            self._set_failure(None)
        if behind.log_bytes > LOG_BYTES_KEPT:
            self._empty_log(behind)
        return None

    def _catch_up_carefully(self, behind: WriteBehind) -> None:
        """The same with a savepoint around every operation: one that does not fit, which only a
        database that somebody else changed can bring about, is dropped and takes nothing with it.
        """
        self._begin()
        for operation, ns, numbers in behind.operations():
            _, error = self._do_one(partial(self._changes.redo, operation, ns, numbers))
            if isinstance(error, StoreUnavailable):
                raise error
            if error is not None:
                log.error(
                    "an acknowledged %s does not fit the database and is dropped: %s",
                    type(operation).__name__,
                    error,
                )

    def _empty_log(self, behind: WriteBehind) -> None:
        try:
            behind.clear()
        except OSError as error:
            log.warning("the commit log could not be emptied: %s", error)

    # --- without it ------------------------------------------------------------------------------

    def _do_directly(self, batch: list[Item]) -> list[Completion]:
        try:
            results = [self._changes.apply(operation) for operation, _ in batch]
            self._changes.flush()
        except (StoreError, sqlite3.Error, OSError, *OWN_ERRORS) as error:
            self._roll_back()
            failure = error_of(error)
            if isinstance(failure, StoreUnavailable) and failure.cause == "locked":
                return self._all_failed(batch, failure)
            if len(batch) == 1:
                if isinstance(failure, StoreUnavailable):
                    return self._all_failed(batch, failure)
                return [Completion(batch[0][1], None, failure)]
            return self._do_carefully(batch)
        except Exception:
            log.exception("an operation of the store failed")
            self._roll_back()
            return self._do_carefully(batch)
        try:
            self._commit()
        except sqlite3.Error as error:
            self._roll_back()
            return self._all_failed(batch, unavailable(error))
        self._changes.committed()
        self._set_failure(None)
        return [
            Completion(done, result, None) for (_, done), result in zip(batch, results, strict=True)
        ]

    def _do_carefully(self, batch: list[Item]) -> list[Completion]:
        """The same with a savepoint around every operation."""
        completions: list[Completion] = []
        failure: StoreUnavailable | None = None
        try:
            self._begin()
            for operation, done in batch:
                result, error = self._do_one(partial(self._changes.apply, operation))
                if isinstance(error, StoreUnavailable):
                    failure = error
                completions.append(Completion(done, result, error))
            self._commit()
        except sqlite3.Error as error:
            self._roll_back()
            return self._all_failed(batch, unavailable(error))
        self._changes.committed()
        self._set_failure(failure)
        return completions

    def _do_one(self, change: Callable[[], Any]) -> tuple[Any, StoreError | None]:
        self._connection.execute("SAVEPOINT one")
        try:
            result = change()
            self._changes.flush()
        except Exception as error:
            if not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO one")
            self._connection.execute("RELEASE one")
            self._changes.forget(all_of_it=False)
            return None, error_of(error)
        self._connection.execute("RELEASE one")
        self._changes.settled()
        return result, None

    def _begin(self) -> None:
        if not self._in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
            self._in_transaction = True

    def _commit(self) -> None:
        if self._in_transaction:
            self._connection.execute("COMMIT")
            self._in_transaction = False
            self._commits += 1

    def _roll_back(self, *, numbers: bool = True) -> None:
        self._in_transaction = False
        self._changes.forget(all_of_it=True, numbers=numbers)
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                log.exception("a transaction of the store could not be rolled back")

    def _all_failed(self, batch: list[Item], failure: StoreUnavailable) -> list[Completion]:
        self._set_failure(failure)
        return [Completion(done, None, failure) for _, done in batch]

    def _set_failure(self, failure: StoreUnavailable | None) -> None:
        if failure is not None:
            self.failures_seen += 1
        before, self.failure = self.failure, failure
        changed = (before is None) != (failure is None)
        if changed and self._on_failure_change is not None:
            tell = self._on_failure_change
            hand_over([Completion(lambda *_: tell(failure), None, None)], self._deliver)


def error_of(error: Exception) -> StoreError:
    """The error that the poster of an operation gets."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OWN_ERRORS):
        refused = OperationRefused(str(error))
        refused.__cause__ = error
        return refused
    if isinstance(error, OSError) and error.errno in BAD_DESCRIPTOR_ERRNOS:
        return OperationRefused(f"unreadable content: {error.strerror}")
    if isinstance(error, sqlite3.Error | OSError):
        return unavailable(error)
    log.error("an operation of the store failed", exc_info=error)
    refused = OperationRefused(f"unexpected {type(error).__name__}")
    refused.__cause__ = error
    return refused


def close_descriptors(operation: Operation[Any]) -> None:
    """Close what the operation's content was read from."""
    for content in _contents(operation):
        if isinstance(content, FileContent):
            try:
                os.close(content.fd)
            except OSError:
                log.debug("a content descriptor was closed already")


def _contents(operation: Operation[Any]) -> Iterator[Content | None]:
    if isinstance(operation, FinishSubmission):
        for output in operation.outputs:
            yield output.content
    if isinstance(operation, FinishSubmission | WriteStatements):
        for statement in operation.statements:
            for output in statement.outputs:
                yield output.content
        for row in operation.undo:
            yield row.snapshot
    elif isinstance(operation, Together):
        for part in operation.operations:
            yield from _contents(part)


def _nobody(result: Any, error: StoreError | None) -> None:
    """The completion of the writer's own attempts."""
