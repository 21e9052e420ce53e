"""The journal rows of one submission below its own: statements and inverses, as its worker sends
them.

Rows come in the order of their start, each perhaps twice: while it runs and when it is over. A row
gets its entry id when it is first seen, so ids ascend with the place of the statement.

Failure: ProtocolError for rows that do not fit together.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipc.messages import ProtocolError, Undo
from ipc.messages import Statement as StatementMessage
from journal.records import Content as StoredContent
from journal.records import Output, Statement, UndoRow
from journal.store import Store
from supervisor.contents import Contents, Excerpt


class SubmissionRows:
    # `_ids` are the entry ids of the statement rows seen so far, by their index.

    def __init__(self, store: Store, entry: int) -> None:
        self._store = store
        self.entry = entry
        self._ids: list[int] = []

    def statements(
        self, rows: Sequence[StatementMessage], contents: Contents
    ) -> tuple[Statement, ...]:
        if not rows:
            return ()
        fresh = max(row.index for row in rows) + 1 - len(self._ids)
        if fresh > len(rows):
            raise ProtocolError("a statement row is missing")
        if fresh > 0:
            first = self._store.reserve_entries(fresh)
            self._ids += range(first, first + fresh)
        return tuple([self._statement(row, contents) for row in rows])

    def _statement(self, row: StatementMessage, contents: Contents) -> Statement:
        if row.parent >= row.index or row.index < 0:
            raise ProtocolError("a statement before its parent")
        return Statement(
            id=self._ids[row.index],
            parent_id=self.entry if row.parent < 0 else self._ids[row.parent],
            ordinal=row.ordinal,
            ts=row.ts,
            dur_ns=row.dur_ns,
            cwd=row.cwd,
            src=row.src,
            ast=row.ast,
            effects=row.effects,
            effect_kinds=tuple(dict.fromkeys(row.effect_kinds)),
            status=row.status,
            ok=row.ok,
            state="finished" if row.done else "running",
            outputs=tuple(
                Output(output.kind, contents.stored(output.content))  # type: ignore[arg-type]
                for output in row.outputs
            ),
        )

    @staticmethod
    def _snapshot(item: Undo, contents: Contents) -> StoredContent | None:
        """The prior content of an inverse; one that would be cut cannot restore anything."""
        if item.snapshot is None:
            return None
        stored = contents.stored(item.snapshot)
        return None if isinstance(stored, Excerpt) else stored

    def undo(self, items: Sequence[Undo], contents: Contents) -> tuple[UndoRow, ...]:
        rows = []
        for item in items:
            if not 0 <= item.row < len(self._ids):
                raise ProtocolError("an inverse of no statement")
            rows.append(
                UndoRow(
                    entry_id=self._ids[item.row],
                    op=item.op,  # type: ignore[arg-type]
                    inverse=item.inverse.encode(),
                    snapshot=self._snapshot(item, contents),
                )
            )
        return tuple(rows)
