"""What a submission leaves for the journal: its statement rows, outputs and undo records.

The evaluator reports every top-level statement through the hooks; this turns them into the messages
that travel with the end of the submission. Undo records belong to the statement that is current
when they are made (chapter 61 §3.3).

Failure: recording never stops evaluation; a value whose rendering fails is recorded without one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ipc.messages import Output, Statement, Undo
from worker.errors import Raised
from worker.link import Parcel
from worker.planning import Plan
from worker.values.render import block
from worker.values.types import MISSING, ErrorValue, LazyBytes, Outcome, Value

if TYPE_CHECKING:
    from worker.submission import Prepared

_encode_json = msgspec.json.Encoder().encode


def first_word(source: str) -> str:
    """The `head` of an entry: the first whitespace-separated word."""
    words = source.split(None, 1)
    return words[0] if words else ""


@dataclass(slots=True)
class StatementRow:
    """A statement while it runs and after; `index` is its place among the submission's rows."""

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
    outputs: list[tuple[str, bytes]] = field(default_factory=list)
    undo: list[Undo] = field(default_factory=list)
    snapshots: list[bytes] = field(default_factory=list)


class Recorder:
    """The statement hooks of one submission."""

    # `rows` in the order of their start; `_open` is the stack of statements that are running, since
    # a sourced file runs statements inside a statement. Both change on the evaluator thread only.

    def __init__(
        self, cwd: Callable[[], bytes], prepared: Prepared, derive: Callable[[Any], Plan]
    ) -> None:
        self.rows: list[StatementRow] = []
        self._open: list[StatementRow] = []
        self._cwd = cwd
        self._prepared = prepared
        self._derive = derive

    def started(self, program: Any, ordinal: int, source: str) -> StatementRow:
        if program is self._prepared.program:
            ast, plan = self._prepared.statements[ordinal]
        else:
            statement = program.stmts[ordinal]
            ast, plan = _encode_json(statement), self._derive(statement)
        row = StatementRow(
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

    def messages(self, parcel: Parcel) -> list[Statement]:
        return [
            Statement(
                parent=row.parent,
                ordinal=row.ordinal,
                ts=row.started_ns,
                dur_ns=row.dur_ns,
                cwd=row.cwd,
                src=row.src,
                head=first_word(row.src),
                ast=row.ast,
                effects=row.plan.effects_json,
                effect_kinds=row.plan.kinds,
                opaque=row.plan.opaque,
                status=row.status,
                ok=row.ok,
                outputs=[Output(kind, parcel.content(data)) for kind, data in row.outputs],
                undo=row.undo,
            )
            for row in self.rows
        ]


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


def outcome_outputs(outcome: Outcome, *, empty_stdout: bool) -> list[tuple[str, bytes]]:
    """The `stdout` and `stderr` outputs of an outcome."""
    found: list[tuple[str, bytes]] = []
    stdout = outcome.stdout
    if isinstance(stdout, LazyBytes):
        stdout = stdout.load(0, None) if stdout.load else stdout.preview
    if stdout or empty_stdout:
        found.append(("stdout", stdout))
    if outcome.stderr:
        found.append(("stderr", outcome.stderr))
    return found
