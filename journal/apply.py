"""How each operation changes the database.

Submissions are what a daemon commits all day, so their rows are collected and written table by
table for the whole batch; a submission that begins and ends in one batch is written once, in its
final form. Every other operation first flushes what was collected and then runs its own statements,
so that effects come in the order of posting.

Failure: an operation that does not fit raises `OperationRefused` or an sqlite3 error, and then the
rows collected so far are worthless: the caller rolls back and calls `forget`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from journal import pins, plans, recovery, session_state, tasks
from journal.cas import ContentStore, Written
from journal.errors import OperationRefused
from journal.event_log import ALL_SPACE, EventNumbers, Sequences
from journal.records import (
    AppendAudit,
    AuditRow,
    Barrier,
    BeginSubmission,
    CellChanges,
    Content,
    Custom,
    FileContent,
    Finished,
    FinishSubmission,
    Interrupted,
    InterruptSubmissions,
    LinkBlob,
    Operation,
    Output,
    Probe,
    Recover,
    Recovery,
    SaveCells,
    Statement,
    Stored,
    Together,
    UndoRow,
    UseApproval,
    WriteStatements,
)
from journal.rows import Rows, head_of, write
from journal.undo import usable

LINKED_KEPT: Final = 32_768
# The disk length of content that has no file.
GONE: Final = -1
RELINK_NS: Final = 3600 * 1_000_000_000


class Changes:
    """Applies operations on the write connection. Used by the writer thread alone."""

    # `_rows`: collected and not yet flushed. `_linked`: hashes of content that was written and
    # whose blob row is committed, with the time of that, oldest first; `_kept` and `_fresh`: the
    # same, not committed yet, up to the last `settled` and since then.
    # `_logged_ns` and `_logged_numbers` belong to an operation that the log acknowledged and that
    # is done now; None while an operation is done directly.
    _rows: Rows
    _linked: dict[bytes, int]
    _kept: dict[bytes, int]
    _fresh: dict[bytes, int]
    _logged_ns: int | None
    _logged_numbers: EventNumbers | None

    def __init__(
        self,
        connection: sqlite3.Connection,
        content: ContentStore,
        sequences: Sequences,
        begin: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._content = content
        self._begin = begin
        self._sequences = sequences
        self._logged_ns = None
        self._logged_numbers = None
        self._rows = Rows()
        self._linked = {}
        self._kept = {}
        self._fresh = {}

    # --- the writer's side -----------------------------------------------------------------------

    def apply(self, operation: Operation[Any]) -> Any:
        collect = COLLECTED.get(type(operation))
        if collect is not None:
            return collect(self, operation)
        self.flush()
        self._begin()
        own = OWN.get(type(operation))
        if own is not None:
            return own(self, operation)
        return PLAIN[type(operation)](self._connection, operation)

    def redo(self, operation: Operation[Any], ns: int, numbers: EventNumbers | None) -> None:
        """Apply what the log acknowledged at that time, with these numbers of its events."""
        self._logged_ns, self._logged_numbers = ns, numbers
        try:
            self.apply(operation)
        finally:
            self._logged_ns = self._logged_numbers = None

    def flush(self) -> None:
        rows = self._rows
        self._rows = Rows()
        self._begin()
        write(self._connection, rows)

    def committed(self) -> None:
        """What was applied is durable now."""
        self.settled()
        if self._kept:
            self._linked.update(self._kept)
            self._kept = {}
            while len(self._linked) > LINKED_KEPT:
                del self._linked[next(iter(self._linked))]

    def settled(self) -> None:
        """What was applied stays unless the whole transaction is rolled back."""
        if self._fresh:
            self._kept.update(self._fresh)
            self._fresh = {}

    def forget(self, *, all_of_it: bool, numbers: bool = True) -> None:
        """Rolled back: what was applied since `settled`, or all since the last commit. `numbers`
        says that event numbers were taken there.
        """
        self._rows = Rows()
        self._fresh = {}
        if numbers:
            self._sequences.forget()
        if all_of_it:
            self._kept = {}

    def unlink(self, digest: bytes) -> None:
        """The blob's row or file is gone or doubtful: the next content with this hash is written
        anew.
        """
        self._linked.pop(digest, None)
        self._fresh.pop(digest, None)

    # --- content ---------------------------------------------------------------------------------

    def _link(self, content: Content, now_ns: int) -> Written:
        """Store content; make sure its blob row is written before whatever refers to it."""
        if type(content) is bytes:
            kept, original = self._content.cut(content)
            digest = self._content.hash(kept)
            if self._is_linked(digest, now_ns):
                return Written(digest, len(kept), 0, original)
            written = self._content.put_hashed(digest, kept, original)
        elif isinstance(content, FileContent):
            written = self._content.put_file(content.fd, content.length)
        elif isinstance(content, Stored):
            written = self._stored(content)
        else:
            raise OperationRefused("content of an unknown kind")
        if written.disk_length != GONE and not self._is_linked(written.hash, now_ns):
            self._fresh[written.hash] = now_ns
            self._rows.blobs.append(
                (written.hash, written.length, written.disk_length, now_ns, now_ns)
            )
        return written

    def _is_linked(self, digest: bytes, now_ns: int) -> bool:
        """Whether the blob row is there, with an access time that is not old."""
        linked = self._linked.get(digest)
        if linked is None:
            linked = self._fresh.get(digest) or self._kept.get(digest)
        return linked is not None and now_ns - linked < RELINK_NS

    def _stored(self, content: Stored) -> Written:
        disk_length = self._content.disk_length(content.hash)
        if disk_length is None:
            if self._logged_ns is None:
                raise OperationRefused("ingested content is gone")
            # It was there when this was acknowledged; now it is content that aged out.
            disk_length = GONE
        return Written(content.hash, content.length, disk_length, content.original_length)

    def _outputs(self, entry_id: int, outputs: Iterable[Output], now_ns: int) -> list[bytes]:
        hashes = []
        for output in outputs:
            written = self._link(output.content, now_ns)
            self._rows.outputs.append(
                (entry_id, output.kind, written.hash, written.length, _meta(written))
            )
            hashes.append(written.hash)
        return hashes

    def _undo_rows(self, undo: Iterable[UndoRow], now_ns: int) -> int:
        skipped = 0
        for row in undo:
            written = None if row.snapshot is None else self._link(row.snapshot, now_ns)
            digest = None if written is None else written.hash
            truncated = written is not None and written.original_length is not None
            if not usable(row, digest, truncated):
                skipped += 1
                continue
            self._rows.undo.append((row.entry_id, row.op, row.inverse.decode()))
            if written is not None:
                self._rows.outputs.append(
                    (row.entry_id, "undo-snapshot", written.hash, written.length, None)
                )
                self._rows.pins.append((written.hash, "undo", str(row.entry_id), now_ns))
        return skipped

    # --- submissions -----------------------------------------------------------------------------

    def begin_submission(self, begin: BeginSubmission) -> None:
        if begin.approval is not None:
            self.flush()
            plans.use_approval(self._connection, UseApproval(begin.approval, begin.ts))
        row = [
            begin.entry_id,
            "submission",
            None,
            None,
            begin.session,
            begin.owner,
            begin.principal,
            begin.task,
            begin.ts,
            None,
            begin.cwd,
            begin.src,
            head_of(begin.src),
            begin.ast,
            begin.effects.decode(),
            None,
            None,
            "opaque" in begin.effect_kinds,
            "running",
        ]
        rows = self._rows
        rows.entries.append(row)
        rows.open_entries[begin.entry_id] = row
        for kind in begin.effect_kinds:
            rows.effects.append((begin.entry_id, kind))
        self._audit(begin.audit)

    def finish_submission(self, finish: FinishSubmission) -> Finished:
        rows = self._rows
        entry_id, ended = finish.entry_id, finish.ended_ns
        opened = rows.open_entries.pop(entry_id, None)
        if opened is not None and opened[4] == finish.session and opened[5] == finish.owner:
            opened[9] = finish.dur_ns
            opened[15] = finish.status
            opened[16] = finish.ok
            opened[18] = "finished"
        else:
            rows.finishes.append(
                (finish.dur_ns, finish.status, finish.ok, entry_id, finish.owner, finish.session)
            )
        self._statements(finish, finish.statements, ended)
        hashes = self._outputs(entry_id, finish.outputs, ended)
        skipped = self._undo_rows(finish.undo, ended)
        numbers = self._logged_numbers or self._sequences.of_ending(
            finish.owner, transcript=finish.transcript is not None
        )
        all_seq, own_seq, transcript_seq = numbers
        rows.events.append(("journal", ALL_SPACE, all_seq, entry_id, ended))
        rows.events.append(("journal", finish.owner, own_seq, entry_id, ended))
        if finish.transcript is not None:
            rows.transcripts.append((entry_id, ended, finish.transcript.decode()))
            rows.events.append(
                ("session.transcript", finish.owner, transcript_seq, entry_id, ended)
            )
        if finish.cells is not None:
            self._cells(finish.cells, ended)
        self._audit(finish.audit)
        if finish.task_end is not None:
            rows.task_ends.append(tasks.end_row(finish.task_end))
        return Finished(all_seq, own_seq, transcript_seq, tuple(hashes), skipped)

    def write_statements(self, write: WriteStatements) -> int:
        now_ns = self._logged_ns or time.time_ns()
        self._statements(write, write.statements, now_ns)
        return self._undo_rows(write.undo, now_ns)

    def _statements(
        self,
        of: FinishSubmission | WriteStatements,
        statements: Iterable[Statement],
        now_ns: int,
    ) -> None:
        rows = self._rows
        for statement in statements:
            rows.entries.append(
                [
                    statement.id,
                    "statement",
                    statement.parent_id,
                    statement.ordinal,
                    of.session,
                    of.owner,
                    of.principal,
                    of.task,
                    statement.ts,
                    statement.dur_ns,
                    statement.cwd,
                    statement.src,
                    head_of(statement.src),
                    statement.ast,
                    statement.effects.decode(),
                    statement.status,
                    statement.ok,
                    "opaque" in statement.effect_kinds,
                    statement.state,
                ]
            )
            for kind in statement.effect_kinds:
                rows.effects.append((statement.id, kind))
            if statement.outputs:
                self._outputs(statement.id, statement.outputs, now_ns)

    def _cells(self, cells: CellChanges, now_ns: int) -> None:
        session_id = cells.session_id
        rows = self._rows
        if cells.replace:
            self.flush()
            rows = self._rows
            self._connection.execute("DELETE FROM session_cell WHERE session_id = ?", (session_id,))
        for cell in cells.removed:
            rows.cells[session_id, cell] = (False, None)
        for cell, value in cells.changed:
            rows.cells[session_id, cell] = (True, value)
        if cells.next_out is not None or cells.last_used_ns is not None:
            rows.sessions.append((cells.next_out, cells.last_used_ns, session_id))
        if cells.pinned or cells.unpinned:
            self._value_pins(cells, now_ns)

    def _value_pins(self, cells: CellChanges, now_ns: int) -> None:
        self.flush()
        holder = str(cells.session_id)
        self._connection.executemany(
            "DELETE FROM pin WHERE hash = ? AND reason = 'value' AND holder = ?",
            [(digest, holder) for digest in cells.unpinned],
        )
        self._connection.executemany(
            """
            INSERT OR IGNORE INTO pin SELECT b.hash, 'value', ?, ? FROM blob b
            WHERE b.hash = ? AND EXISTS (SELECT 1 FROM session WHERE id = ?)
            """,
            [(holder, now_ns, digest, cells.session_id) for digest in cells.pinned],
        )

    def _audit(self, audit: Iterable[AuditRow]) -> None:
        for row in audit:
            self._rows.audit.append(
                (
                    row.ts,
                    row.kind,
                    row.principal,
                    row.owner,
                    row.session,
                    row.plan_ref,
                    row.entry_id,
                    row.detail.decode(),
                )
            )

    def save_cells(self, save: SaveCells) -> None:
        self._cells(save.cells, self._logged_ns or time.time_ns())

    def append_audit(self, append: AppendAudit) -> None:
        self._audit(append.rows)

    # --- everything else -------------------------------------------------------------------------

    def together(self, together: Together) -> tuple[object, ...]:
        results = tuple(self.apply(operation) for operation in together.operations)
        self.flush()
        return results

    def interrupt(self, interrupt: InterruptSubmissions) -> tuple[Interrupted, ...]:
        return recovery.interrupt(self._connection, self._sequences, interrupt)

    def recover(self, recover: Recover) -> Recovery:
        return recovery.recover(self._connection, self._sequences, recover)

    def link_blob(self, link: LinkBlob) -> None:
        self._link(link.content, link.now_ns)
        self._value_pins(
            CellChanges(session_id=link.session_id, pinned=(link.content.hash,)), link.now_ns
        )

    def barrier(self, barrier: Barrier) -> None:
        """Nothing: what came before it was done by then."""

    def custom(self, custom: Custom[Any]) -> Any:
        return custom.run(self._connection)

    def probe(self, probe: Probe) -> None:
        self._connection.execute(
            """
            INSERT INTO counter (name, value) VALUES ('probe', 1)
            ON CONFLICT (name) DO UPDATE SET value = value + 1
            """
        )


def _meta(written: Written) -> str | None:
    if written.original_length is None:
        return None
    original, stored = written.original_length, written.length
    return f'{{"truncated":true,"original_len":{original},"stored_len":{stored}}}'


# Operations whose rows are collected; operations that need more than the connection; all others.
COLLECTED: Final[Mapping[type[Operation[Any]], Callable[[Changes, Any], Any]]] = {
    BeginSubmission: Changes.begin_submission,
    FinishSubmission: Changes.finish_submission,
    WriteStatements: Changes.write_statements,
    SaveCells: Changes.save_cells,
    AppendAudit: Changes.append_audit,
}
OWN: Final[Mapping[type[Operation[Any]], Callable[[Changes, Any], Any]]] = {
    Together: Changes.together,
    InterruptSubmissions: Changes.interrupt,
    Recover: Changes.recover,
    LinkBlob: Changes.link_blob,
    Custom: Changes.custom,
    Barrier: Changes.barrier,
    Probe: Changes.probe,
}
PLAIN: Final[Mapping[type[Operation[Any]], Callable[[sqlite3.Connection, Any], Any]]] = {
    **plans.WRITES,
    **session_state.WRITES,
    **tasks.WRITES,
    **pins.WRITES,
}
