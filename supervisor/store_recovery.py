"""What is made good when the store can commit again (chapter 61 §8.2).

A submission whose final commit failed has a row that still says `running`; a session whose commits
failed has state that only its worker knows. Both are remembered here and by the sessions, and
written with the first chance.

Failure: what fails again is kept for the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal.errors import StoreError
from journal.records import CellChanges, Interrupted, InterruptSubmissions, SaveCells

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session


class StoreRecovery:
    # `_unended` are submissions whose rows say that they run although they do not, by entry id; on
    # the loop's thread.

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._unended: dict[int, Session] = {}

    def unended(self, session: Session, entry: int) -> None:
        """The row of an ended submission could not be finished."""
        self._unended[entry] = session

    def recovered(self) -> None:
        """The store commits again."""
        unended, self._unended = self._unended, {}
        for entry, session in unended.items():
            self._interrupt(session, entry)
        for session in self._kernel.sessions:
            if session.unsaved:
                self._save(session)

    def _interrupt(self, session: Session, entry: int) -> None:
        kernel, ended_ns = self._kernel, self._kernel.now_ns()

        def done(rows: tuple[Interrupted, ...] | None, error: StoreError | None) -> None:
            if error is not None or rows is None:
                self._unended[entry] = session
                return
            for row in rows:
                kernel.events.submission_interrupted(session, row, ended_ns)

        session.posts.post(InterruptSubmissions(session.owner, session.name, ended_ns, entry), done)

    def _save(self, session: Session) -> None:
        cells = session.unsaved.take(
            CellChanges(session_id=session.row_id, next_out=session.next_out)
        )

        def done(_result: None, error: StoreError | None) -> None:
            if error is not None:
                session.unsaved.add(cells)

        session.posts.post(SaveCells(cells), done)
