"""The operations that change the store, and the rows they are made of.

Every operation is a frozen value; posting it to a `Store` makes the writer thread do it in a
transaction (alone in its effect: a refused operation leaves no trace and spoils no other). The type
parameter of `Operation` is the type of the result that its completion gets. JSON members are bytes
as they came; the store keeps them and never encodes them anew. Times are Unix nanoseconds.

Operations and parts that are `array_like` stand in the commit log in the order of their fields: a
field may be added at the end, with a default, and nothing else may change.

Failure: constructing an operation checks nothing; what does not fit the stored state is answered by
`OperationRefused` when it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct

R_co = TypeVar("R_co", covariant=True)

# What an integer column holds.
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

OutputKind = Literal["value", "render", "stdout", "stderr", "undo-snapshot"]
EntryState = Literal["running", "finished", "interrupted"]
UndoOp = Literal["trash_move", "restore_bytes", "move_back"]
PinReason = Literal["manual", "value", "undo"]
ShareMode = Literal["full", "read"]
TaskState = Literal["running", "completed", "failed", "cancelled"]

# Content from this size on should be ingested (`Store.ingest`) before the operation that links it
# is posted, so that hashing and compressing it does not hold up the commits of everybody else.
INGEST_BYTES_MIN = 256 * 1024


class Operation(Struct, Generic[R_co], frozen=True):
    """A change of the store whose completion carries an R."""


# --- content -------------------------------------------------------------------------------------


class FileContent(Struct, frozen=True, array_like=True, tag="file"):
    """Content behind a readable, seekable descriptor, from offset 0; the store closes it,
    always.
    """

    fd: Int64
    length: Int64


class Stored(Struct, frozen=True, array_like=True, tag="stored"):
    """Content that is in the content store already, as `Store.ingest` answers it."""

    hash: bytes
    length: Int64
    # The length before truncation to the output cap; None when nothing was cut.
    original_length: Int64 | None = None


Content = bytes | FileContent | Stored


# --- rows ----------------------------------------------------------------------------------------


class Output(Struct, frozen=True, array_like=True):
    """One captured output of an entry; recording order is the order of the tuple it stands in."""

    kind: OutputKind
    content: Content


class Statement(Struct, frozen=True, kw_only=True, array_like=True):
    """A statement row; session, owner, principal and task are those of the submission.

    `id` comes from `Store.reserve_entries`, is larger than `parent_id` and ascends with `ordinal`.
    A row written before under the same id is replaced in its result columns (state, dur_ns, status,
    ok, effects); its outputs are added.
    """

    id: Int64
    parent_id: Int64
    ordinal: Int64
    ts: Int64
    cwd: bytes
    src: str
    ast: bytes
    effects: bytes
    effect_kinds: tuple[str, ...]
    dur_ns: Int64 | None
    status: Int64 | None
    ok: bool | None
    state: EntryState = "finished"
    outputs: tuple[Output, ...] = ()


class UndoRow(Struct, frozen=True, kw_only=True, array_like=True):
    """One inverse (chapter 50 §13). `restore_bytes` needs its snapshot, whose hash the store
    computes.

    A row whose snapshot is missing, was truncated, or does not hash to the announced `prior_hash`
    is not recorded; `Finished.undo_skipped` counts it.
    """

    entry_id: Int64
    op: UndoOp
    inverse: bytes
    snapshot: Content | None = None


class AuditRow(Struct, frozen=True, array_like=True):
    """An act of authority. `detail` is a JSON object."""

    ts: Int64
    kind: str
    principal: str
    detail: bytes = b"{}"
    owner: str | None = None
    session: str | None = None
    plan_ref: str | None = None
    entry_id: Int64 | None = None


class PlanKey(Struct, frozen=True, array_like=True):
    owner: str
    session_owner: str
    session: str
    ref: str


class TaskEnd(Struct, frozen=True, array_like=True):
    """The final state of a task record; `error` is the JSON error object."""

    number: Int64
    state: TaskState
    finished_ns: Int64
    result_ref: str | None = None
    error: bytes | None = None


class CellChanges(Struct, frozen=True, kw_only=True, array_like=True):
    """What a submission changed in its session's stored state.

    A cell with value None exists but is lost after a restore. `replace` drops every cell that is
    not in `changed`. Changes of a session that is gone are dropped silently.
    """

    session_id: Int64
    changed: tuple[tuple[str, bytes | None], ...] = ()
    removed: tuple[str, ...] = ()
    next_out: Int64 | None = None
    last_used_ns: Int64 | None = None
    replace: bool = False
    # Content that a live value of the session is backed by, and content no longer backing any.
    pinned: tuple[bytes, ...] = ()
    unpinned: tuple[bytes, ...] = ()


# --- submissions ---------------------------------------------------------------------------------


class BeginSubmission(Operation[None], frozen=True, kw_only=True, array_like=True, tag="begin"):
    """Insert the running row; with `approval`, use up that plan's approval in the same commit.

    Refused with `ApprovalUnavailable` when the plan holds no approval valid at `ts`.
    """

    entry_id: Int64
    owner: str
    session: str
    principal: str
    ts: Int64
    cwd: bytes
    src: str
    ast: bytes
    effects: bytes
    effect_kinds: tuple[str, ...]
    task: str | None = None
    approval: PlanKey | None = None
    audit: tuple[AuditRow, ...] = ()


class Finished(Struct, frozen=True):
    """Numbers of the durable events of an ended submission, and the names of its own outputs."""

    journal_seq_all: int
    journal_seq: int
    transcript_seq: int | None
    output_hashes: tuple[bytes, ...]
    undo_skipped: int


class FinishSubmission(
    Operation[Finished], frozen=True, kw_only=True, array_like=True, tag="finish"
):
    """Finish a running submission: everything its acknowledged answer promises, in one commit.

    `transcript` is the payload JSON of its `session.transcript` event, None unless it succeeded.
    `ended_ns` becomes the time of the durable events. Refused when the row is not running.
    """

    entry_id: Int64
    owner: str
    session: str
    principal: str
    ended_ns: Int64
    dur_ns: Int64
    status: Int64 | None
    ok: bool
    task: str | None = None
    outputs: tuple[Output, ...] = ()
    transcript: bytes | None = None
    statements: tuple[Statement, ...] = ()
    undo: tuple[UndoRow, ...] = ()
    cells: CellChanges | None = None
    task_end: TaskEnd | None = None
    audit: tuple[AuditRow, ...] = ()


class WriteStatements(Operation[int], frozen=True, kw_only=True, array_like=True, tag="statements"):
    """Write statement and undo rows while their submission still runs. Result: undo rows
    skipped.
    """

    owner: str
    session: str
    principal: str
    task: str | None = None
    statements: tuple[Statement, ...] = ()
    undo: tuple[UndoRow, ...] = ()


class Interrupted(Struct, frozen=True):
    """An interrupted submission with the numbers of its `journal` event."""

    entry_id: int
    owner: str
    session: str
    principal: str
    head: str
    journal_seq_all: int
    journal_seq: int


class InterruptSubmissions(Operation[tuple[Interrupted, ...]], frozen=True):
    """Mark every running row of one session interrupted, or with `entry_id` those of that
    submission alone; one `journal` event per submission.
    """

    owner: str
    session: str
    ended_ns: int
    entry_id: int | None = None


# --- sessions ------------------------------------------------------------------------------------


class EnsureSession(Operation[int], frozen=True):
    """Create the session row when missing, else set `last_used_ns`. Result: the session id."""

    owner: str
    name: str
    now_ns: int


class TouchSession(Operation[None], frozen=True, array_like=True, tag="session"):
    session_id: Int64
    last_used_ns: Int64


class DeleteSession(Operation[bool], frozen=True):
    """Delete stored state, shares, plans, task records and value pins; entries and blobs stay.

    Result: whether there was such a session. The id is never used again.
    """

    session_id: int


class SaveCells(Operation[None], frozen=True, array_like=True, tag="cells"):
    """Commit session state outside a submission (or all of it, after a time without commits)."""

    cells: CellChanges


class SetShares(Operation[None], frozen=True):
    """Make `principals` the complete list of guests of a session."""

    session_id: int
    principals: tuple[str, ...]
    mode: ShareMode


# --- plans ---------------------------------------------------------------------------------------


class PutPlan(Operation[tuple[PlanKey, ...]], frozen=True, kw_only=True):
    """Store a plan, or renew it: expiry anew, requests and approvals forgotten, creation time kept.

    Beyond `owner_quota` plans of the owner (0: no limit) the oldest not-approved one is dropped,
    else the oldest. Result: the plans dropped. `expires_ns` None means never.
    """

    key: PlanKey
    src: str
    ast: bytes
    effects: bytes
    reversibility: str
    estimates: bytes
    created_ns: int
    expires_ns: int | None
    allowed: bool
    owner_quota: int


class RequestedPlan(Struct, frozen=True):
    requested_ns: int
    requested_effects: bytes
    first: bool


class RequestPlan(Operation[RequestedPlan], frozen=True):
    """Record that the owner asks for approval; a repeated request changes nothing and gets the
    first.

    `requested_effects` is a JSON array of kinds. Refused when the plan is gone.
    """

    key: PlanKey
    requested_ns: int
    requested_effects: bytes = b"[]"


class ApprovePlan(Operation[None], frozen=True):
    """Refused when the plan is gone or expired at `approved_ns`."""

    key: PlanKey
    approved_by: str
    approved_ns: int
    approval_expires_ns: int | None


class UseApproval(Operation[None], frozen=True):
    """Use up an approval outside `BeginSubmission`. Refused with `ApprovalUnavailable`."""

    key: PlanKey
    now_ns: int


class ExpirePlans(Operation[tuple[PlanKey, ...]], frozen=True):
    """Drop plans whose time has passed. Result: their keys."""

    now_ns: int


class DropPlan(Operation[bool], frozen=True):
    key: PlanKey


# --- tasks ---------------------------------------------------------------------------------------


class PutTask(Operation[None], frozen=True, array_like=True, tag="task"):
    """Insert a running task record under a number from `Store.reserve_task`."""

    number: Int64
    session_id: Int64
    principal: str
    started_ns: Int64


class FinishTask(Operation[bool], frozen=True, array_like=True, tag="task-end"):
    """Result: whether the record was running until now."""

    end: TaskEnd


class FailTasks(Operation[tuple[int, ...]], frozen=True):
    """Make every running task of a session `failed`. Result: their numbers, ascending."""

    session_id: int
    finished_ns: int
    error: bytes


class PruneTasks(Operation[tuple[int, ...]], frozen=True):
    """Keep the `keep` newest finished records of a session. Result: the numbers dropped."""

    session_id: int
    keep: int


# --- others --------------------------------------------------------------------------------------


class AppendAudit(Operation[None], frozen=True, array_like=True, tag="audit"):
    rows: tuple[AuditRow, ...]


class SetPin(Operation[bool], frozen=True):
    """Pin stored content. Result: whether that changed anything. Refused when there is no such
    blob.
    """

    hash: bytes
    reason: PinReason
    holder: str
    now_ns: int


class ReleasePin(Operation[bool], frozen=True):
    hash: bytes
    reason: PinReason
    holder: str


class ReleaseManualPins(Operation[bool], frozen=True):
    """Release every `manual` pin of the content, whoever set it."""

    hash: bytes


class LinkBlob(Operation[None], frozen=True):
    """Give ingested content its blob row and pin it as a value of a session (chapter 61 §5.4)."""

    content: Stored
    session_id: int
    now_ns: int


class TouchBlobs(Operation[None], frozen=True, array_like=True, tag="blobs"):
    hashes: tuple[bytes, ...]
    now_ns: Int64


class Recovery(Struct, frozen=True):
    """What `Recover` found: interrupted submissions, failed tasks, dropped plans, dropped pins."""

    interrupted: tuple[int, ...]
    failed_tasks: tuple[int, ...]
    expired_plans: int
    dropped_pins: int


class Recover(Operation[Recovery], frozen=True):
    """The start of a daemon: end what a crash left open (chapter 81 §8.1 step 6).

    `task_error` makes the JSON error object of a task that was running, from its session's name.
    """

    now_ns: int
    task_error: Callable[[str], bytes]


class Probe(Operation[None], frozen=True):
    """Write something harmless, to learn whether commits work again."""


class Barrier(Operation[None], frozen=True):
    """Change nothing: done when everything posted before is in the database."""


class Together(Operation[tuple[object, ...]], frozen=True):
    """Several operations as one: all of them or none. Result: theirs, in order."""

    operations: tuple[Operation[object], ...]


class Custom(Operation[R_co], Generic[R_co], frozen=True):
    """Any other change: `run` gets the write connection inside the transaction (agent endpoint
    tables).

    `run` must not commit, roll back, or keep the connection.
    """

    run: Callable[..., R_co]
