"""Operations that are acknowledged by the commit log and wait for the database.

A batch of loggable operations becomes one record of the log: their fields, the time, and the event
numbers given to submissions that end. From then on they are done, whatever happens to the process;
the database gets them later, many at once, by the writer's hands.

Failure: `accept` raises `NotLogged` when nothing was acknowledged and the database must decide;
what it took note of by then is worthless, see `forget`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from journal.admission import Admission
from journal.cas import ContentStore
from journal.commit_log import CommitLog
from journal.errors import StoreError
from journal.event_log import EventNumbers, Sequences
from journal.records import (
    AppendAudit,
    AuditRow,
    BeginSubmission,
    Content,
    FileContent,
    Finished,
    FinishSubmission,
    FinishTask,
    Operation,
    PutTask,
    SaveCells,
    Statement,
    Stored,
    TouchBlobs,
    TouchSession,
    UndoRow,
    WriteStatements,
)
from journal.undo import usable

# When the database gets what waits: nothing came for so long, the oldest waits for so long, or
# there is so much.
IDLE_S: Final = 0.01
AGE_MAX_S: Final = 0.05
OPERATIONS_MAX: Final = 512
BYTES_MAX: Final = 4 * 1024 * 1024
# A log with nothing to keep is emptied when it is longer than this.
LOG_BYTES_KEPT: Final = 2 * 1024 * 1024
# What is longer goes to the database at once.
RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
# On a disk with less room than this the database could be unable to take what the log promised, so
# it decides about each batch itself: what is acknowledged is then also there to be read.
ROOM_BYTES_MIN: Final = 64 * 1024 * 1024

Loggable = (
    BeginSubmission
    | FinishSubmission
    | WriteStatements
    | PutTask
    | FinishTask
    | SaveCells
    | TouchSession
    | TouchBlobs
    | AppendAudit
)


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One record of the log. `numbers` are those of its `FinishSubmission`s, in order."""

    ns: int
    operations: list[Loggable]
    numbers: list[EventNumbers]


class Waiting(NamedTuple):
    """A record that the database does not have."""

    sequence: int
    record: Record


class NotLogged(Exception):
    """The batch, or its beginning, could not be acknowledged this way."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class WriteBehind:
    # `waiting` is what the log holds and the database does not; `_bytes`, `_count` and `_since`
    # (monotonic) are its size and age. Other threads look at `waiting`; it is changed, like
    # everything here, by the writer thread alone.
    waiting: list[Waiting]

    def __init__(
        self,
        log: CommitLog,
        connection: sqlite3.Connection,
        begin: Callable[[], None],
        sequences: Sequences,
        content: ContentStore,
    ) -> None:
        self._log = log
        # Takes the write lock of the database, which is held as long as something waits.
        self._take_lock = begin
        self._admission = Admission(connection)
        self._sequences = sequences
        self._content = content
        self.waiting = []
        self._bytes = 0
        self._count = 0
        self._since = 0.0

    # --- taking operations -----------------------------------------------------------------------

    def accept(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Acknowledge the operations from the first on up to one that needs the database. Returns
        their results. Raises sqlite3.Error when the database cannot be locked.
        """
        admitted: list[Any] = []
        numbers: list[EventNumbers] = []
        results: list[Any] = []
        admits = self._admission.admits
        try:
            for operation in operations:
                if not admits(operation):
                    break
                results.append(self._result(operation, numbers))
                admitted.append(operation)
            if admitted:
                self._take_lock()
                self._append(Record(time.time_ns(), admitted, numbers))
        except (OSError, ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            raise NotLogged from error
        return results

    def _append(self, record: Record) -> None:
        payload = _encode(record)
        if len(payload) > RECORD_BYTES_MAX or self._log.room() < ROOM_BYTES_MIN:
            raise NotLogged
        # What does not read back as it was, or holds what no column can, is the database's to
        # refuse.
        _decode(payload)
        sequence = self._log.append(payload)
        if not self.waiting:
            self._since = time.monotonic()
        self.waiting.append(Waiting(sequence, record))
        self._bytes += len(payload)
        self._count += len(record.operations)

    def _result(self, operation: Operation[Any], numbers: list[EventNumbers]) -> Any:
        """The result of an admitted operation; raises for what its rows could not hold."""
        if isinstance(operation, BeginSubmission):
            operation.effects.decode()
            _check_audit(operation.audit)
        elif isinstance(operation, FinishSubmission):
            return self._finished(operation, numbers)
        elif isinstance(operation, WriteStatements):
            self._check_statements(operation.statements)
            return self._skipped(operation.undo)
        elif isinstance(operation, AppendAudit):
            _check_audit(operation.rows)
        elif isinstance(operation, FinishTask):
            (operation.end.error or b"").decode()
            return True
        return None

    def _finished(self, finish: FinishSubmission, numbers: list[EventNumbers]) -> Finished:
        self._check_statements(finish.statements)
        _check_audit(finish.audit)
        hashes = tuple([self._hash(output.content) for output in finish.outputs])
        skipped = self._skipped(finish.undo) if finish.undo else 0
        if finish.task_end is not None:
            (finish.task_end.error or b"").decode()
        if finish.transcript is not None:
            finish.transcript.decode()
        given = self._sequences.of_ending(finish.owner, transcript=finish.transcript is not None)
        numbers.append(given)
        return Finished(*given, hashes, skipped)

    def _check_statements(self, statements: Sequence[Statement]) -> None:
        """Raise for what the rows of these statements could not hold."""
        for statement in statements:
            statement.effects.decode()
            for output in statement.outputs:
                if type(output.content) is not bytes:
                    self._hash(output.content)

    def _hash(self, content: Content) -> bytes:
        if type(content) is bytes:
            return self._content.hash(self._content.cut(content)[0])
        if not isinstance(content, Stored) or not self._content.exists(content.hash):
            raise NotLogged
        return content.hash

    def _skipped(self, undo: Sequence[UndoRow]) -> int:
        skipped = 0
        for row in undo:
            digest, truncated = None, False
            match row.snapshot:
                case bytes() as snapshot:
                    kept, original = self._content.cut(snapshot)
                    digest, truncated = self._content.hash(kept), original is not None
                case Stored() as stored:
                    digest, truncated = self._hash(stored), stored.original_length is not None
                case FileContent():
                    raise NotLogged
            if usable(row, digest, truncated):
                row.inverse.decode()
            else:
                skipped += 1
        return skipped

    # --- towards the database --------------------------------------------------------------------

    def replay(self) -> None:
        """Find what an earlier process acknowledged and the database does not have."""
        for sequence, payload in self._log.unapplied():
            self.waiting.append(Waiting(sequence, _decode(payload)))

    def operations(self) -> Iterator[tuple[Operation[Any], int, EventNumbers | None]]:
        """What waits, in order: each operation, its time, the numbers of a submission that ends."""
        for _, record in self.waiting:
            numbers = iter(record.numbers)
            for operation in record.operations:
                ending = isinstance(operation, FinishSubmission)
                yield operation, record.ns, next(numbers) if ending else None

    @property
    def sequence(self) -> int:
        """The number of the last record."""
        return self._log.sequence

    @property
    def log_bytes(self) -> int:
        return self._log.size

    def patience(self) -> float:
        """Seconds until the database gets what waits when nothing else comes."""
        return max(0.0, min(IDLE_S, self._since + AGE_MAX_S - time.monotonic()))

    @property
    def due(self) -> bool:
        """Whether the database gets it now, whatever comes."""
        return bool(self.waiting) and (
            self._count >= OPERATIONS_MAX
            or self._bytes >= BYTES_MAX
            or time.monotonic() - self._since >= AGE_MAX_S
        )

    def applied(self) -> None:
        """The database has everything."""
        self.waiting.clear()
        self._bytes = self._count = 0

    def clear(self) -> None:
        """Empty the log, whose records are all applied. Raises OSError."""
        self._log.clear()

    def forget(self) -> None:
        """The database alone is right about what comes next."""
        self._admission.forget()
        self._sequences.forget()

    def learn(self, operation: Operation[Any], result: Any, error: StoreError | None) -> None:
        """An operation was done directly."""
        self._admission.done_directly(operation, result, error)

    def close(self) -> None:
        self._log.close()


def _check_audit(rows: Sequence[AuditRow]) -> None:
    for row in rows:
        row.detail.decode()
