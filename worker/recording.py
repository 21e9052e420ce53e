"""What a submission leaves for the journal: its statement rows, outputs and undo records.

The evaluator reports every top-level statement through the hooks; this turns them into the messages
that travel with the end of the submission. Undo records belong to the statement that is current
when they are made (chapter 61 §3.3).

Failure: recording never stops evaluation; a value whose rendering fails is recorded without one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ipc.messages import Content, Output, Statement, Undo
from worker.errors import Raised
from worker.link import Parcel
from worker.planning import Plan
from worker.values.render import block
from worker.values.types import MISSING, ErrorValue, LazyBytes, Outcome, Value

if TYPE_CHECKING:
    from worker.submission import Prepared

# Inverses travel together: that many, or as many as come in that time.
UNDO_KEPT_MAX: Final = 64
UNDO_KEPT_S: Final = 0.05

_encode_json = msgspec.json.Encoder().encode


def first_word(source: str) -> str:
    """The `head` of an entry: the first whitespace-separated word."""
    words = source.split(None, 1)
    return words[0] if words else ""


@dataclass(slots=True)
class StatementRow:
    """A statement while it runs and after; `index` is its place among the submission's rows.

    `snapshots` are prior contents of files by hash, kept for the inverses that will name them.
    `handed_over`: its final form was; `announced`: it was while it ran.
    """

    recorder: Recorder
    index: int
    parent: int
    ordinal: int
    started_ns: int
    cwd: bytes
    src: str
    ast: bytes
    plan: Plan
    dur_ns: int | None = None
    status: int | None = None
    ok: bool | None = None
    outputs: list[tuple[str, bytes | LazyBytes]] = field(default_factory=list)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    done: bool = False
    announced: bool = False
    handed_over: bool = False

    def message(self, parcel: Parcel) -> Statement:
        # Of a row that is still running nothing is looked at that may change meanwhile.
        done = self.done
        outputs = self.outputs if done else []
        return Statement(
            index=self.index,
            parent=self.parent,
            ordinal=self.ordinal,
            ts=self.started_ns,
            dur_ns=self.dur_ns if done else None,
            cwd=self.cwd,
            src=self.src,
            head=first_word(self.src),
            ast=self.ast,
            effects=self.plan.effects_json,
            effect_kinds=self.plan.kinds,
            opaque=self.plan.opaque,
            status=self.status if done else None,
            ok=self.ok if done else None,
            done=done,
            outputs=[Output(kind, packed(parcel, data)) for kind, data in outputs],
        )


class Inverse(NamedTuple):
    """An inverse as stored, the index of its row, and the prior content it restores."""

    row: int
    stored: dict[str, Any]
    snapshot: bytes | None

    def message(self, parcel: Parcel) -> Undo:
        return Undo(
            self.row,
            str(self.stored["kind"]),
            _encode_json(self.stored).decode(),
            None if self.snapshot is None else parcel.content(self.snapshot),
        )


class Recorder:
    """The statement hooks of one submission, and the inverses recorded in its name."""

    # `rows` in the order of their start; `_open` is the stack of statements that are running, since
    # a sourced file runs statements inside a statement. Both change on the evaluator thread only.
    # `_first` is the first row whose final form was not handed over, `_undo` are inverses that were
    # not; both, and what rows say about it, change under `_lock`. `reporting` becomes True when the
    # submission takes longer: from then on `on_news` is called for every new row.

    def __init__(
        self,
        cwd: Callable[[], bytes],
        prepared: Prepared,
        derive: Callable[[Any], Plan],
        on_news: Callable[[Recorder], None],
    ) -> None:
        self.rows: list[StatementRow] = []
        self._open: list[StatementRow] = []
        self._cwd = cwd
        self._prepared = prepared
        self._derive = derive
        self._on_news = on_news
        self._lock = threading.Lock()
        self._first = 0
        self._undo: list[Inverse] = []
        self._handed_over_at = time.monotonic()
        self.reporting = False

    def started(self, program: Any, ordinal: int, source: str) -> StatementRow:
        if program is self._prepared.program:
            ast, plan = self._prepared.statements[ordinal]
        else:
            statement = program.stmts[ordinal]
            ast, plan = _encode_json(statement), self._derive(statement)
        row = StatementRow(
            recorder=self,
            index=len(self.rows),
            parent=self._open[-1].index if self._open else -1,
            ordinal=ordinal,
            started_ns=time.time_ns(),
            cwd=self._cwd(),
            src=source,
            ast=ast,
            plan=plan,
        )
        self.rows.append(row)
        self._open.append(row)
        if self.reporting or self._undo:
            self._on_news(self)
        return row

    def finished(
        self, row: StatementRow, value: Value, error: BaseException | ErrorValue | None, dur_ns: int
    ) -> None:
        if self._open and self._open[-1] is row:
            self._open.pop()
        row.dur_ns = dur_ns
        if error is not None:
            row.ok = False
            raised = error.error if isinstance(error, Raised) else error
            if isinstance(raised, ErrorValue):
                row.status = raised.status
                if raised.stderr:
                    row.outputs.append(("stderr", raised.stderr.encode("utf-8", "replace")))
        elif value is not MISSING:
            _describe_value(row, value)
        row.done = True

    def record_undo(self, row: StatementRow, inverse: dict[str, Any]) -> None:
        """Take note of an inverse, on any thread. It soon travels on by itself: what was done to
        files must be undoable even if this process ends now."""
        snapshot = row.snapshots.get(inverse.get("prior_hash", ""))
        with self._lock:
            self._undo.append(Inverse(row.index, inverse, snapshot))
            waited_s = time.monotonic() - self._handed_over_at
            due = len(self._undo) >= UNDO_KEPT_MAX or waited_s > UNDO_KEPT_S
        if due or self.reporting:
            self._on_news(self)

    def hand_over(self, parcel: Parcel) -> tuple[list[Statement], list[Undo]]:
        """Rows and inverses that were not handed over yet."""
        with self._lock:
            statements = []
            for row in self.rows[self._first :]:
                if not row.handed_over and (row.done or not row.announced):
                    message = row.message(parcel)
                    row.announced, row.handed_over = True, message.done
                    statements.append(message)
            while self._first < len(self.rows) and self.rows[self._first].handed_over:
                self._first += 1
            undo, self._undo = self._undo, []
            self._handed_over_at = time.monotonic()
        return statements, [inverse.message(parcel) for inverse in undo]


def packed(parcel: Parcel, data: bytes | LazyBytes) -> Content:
    """An output for a message; what the store has already goes by its name."""
    if isinstance(data, LazyBytes):
        return Content(length=data.length, hash=bytes.fromhex(data.hash))
    return parcel.content(data)


def _describe_value(row: StatementRow, value: Value) -> None:
    row.ok = True
    row.status = 0
    if value is None:
        return
    rendered = block(value)
    if rendered:
        row.outputs.append(("render", rendered.encode("utf-8", "replace")))
    if isinstance(value, Outcome):
        row.ok = value.ok
        row.status = value.status
        row.outputs.extend(outcome_outputs(value, empty_stdout=False))


def outcome_outputs(outcome: Outcome, *, empty_stdout: bool) -> list[tuple[str, bytes | LazyBytes]]:
    """The `stdout` and `stderr` outputs of an outcome."""
    found: list[tuple[str, bytes | LazyBytes]] = []
    stdout = outcome.stdout
    if isinstance(stdout, LazyBytes) or stdout or empty_stdout:
        found.append(("stdout", stdout))
    if outcome.stderr:
        found.append(("stderr", outcome.stderr))
    return found
