"""The operations that change the store, and the rows they are made of.

Every operation is a frozen value; posting it to a `Store` makes the writer thread do it in a
transaction (alone in its effect: a refused operation leaves no trace and spoils no other). The type
parameter of `Operation` is the type of the result that its completion gets. JSON members are bytes
as they came; the store keeps them and never encodes them anew. Times are Unix nanoseconds.

Failure: constructing an operation checks nothing; what does not fit the stored state is answered by
`OperationRefused` when it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

R_co = TypeVar("R_co", covariant=True)

OutputKind = Literal["value", "render", "stdout", "stderr", "undo-snapshot"]
EntryState = Literal["running", "finished", "interrupted"]
UndoOp = Literal["trash_move", "restore_bytes", "move_back"]
PinReason = Literal["manual", "value", "undo"]
ShareMode = Literal["full", "read"]
TaskState = Literal["running", "completed", "failed", "cancelled"]

# Content from this size on should be ingested (`Store.ingest`) before the operation that links it
# is posted, so that hashing and compressing it does not hold up the commits of everybody else.
INGEST_BYTES_MIN = 256 * 1024


class Operation(Generic[R_co]):
    """A change of the store whose completion carries an R."""

    __slots__ = ()


# --- content -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileContent:
    """Content behind a readable, seekable descriptor, from offset 0; the store closes it,
    always.
    """

    fd: int
    length: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Content that is in the content store already, as `Store.ingest` answers it."""

    hash: bytes
    length: int
    # The length before truncation to the output cap; None when nothing was cut.
    original_length: int | None = None


Content = bytes | FileContent | Stored


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    """One captured output of an entry; recording order is the order of the tuple it stands in."""

    kind: OutputKind
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement row; session, owner, principal and task are those of the submission.

    `id` comes from `Store.reserve_entries`, is larger than `parent_id` and ascends with `ordinal`.
    A row written before under the same id is replaced in its result columns (state, dur_ns, status,
    ok, effects); its outputs are added.
    """

    id: int
    parent_id: int
    ordinal: int
    ts: int
    cwd: bytes
    src: str
    ast: bytes
    effects: bytes
    effect_kinds: tuple[str, ...]
    dur_ns: int | None
    status: int | None
    ok: bool | None
    state: EntryState = "finished"
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRow:
    """One inverse (chapter 50 §13). `restore_bytes` needs its snapshot, whose hash the store
    computes.

    A row whose snapshot is missing, was truncated, or does not hash to the announced `prior_hash`
    is not recorded; `Finished.undo_skipped` counts it.
    """

    entry_id: int
    op: UndoOp
    inverse: bytes
    snapshot: Content | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An act of authority. `detail` is a JSON object."""

    ts: int
    kind: str
    principal: str
    detail: bytes = b"{}"
    owner: str | None = None
    session: str | None = None
    plan_ref: str | None = None
    entry_id: int | None = None


@dataclass(frozen=True, slots=True)
class PlanKey:
    owner: str
    session_owner: str
    session: str
    ref: str


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The final state of a task record; `error` is the JSON error object."""

    number: int
    state: TaskState
    finished_ns: int
    result_ref: str | None = None
    error: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChanges:
    """What a submission changed in its session's stored state.

    A cell with value None exists but is lost after a restore. `replace` drops every cell that is
    not in `changed`. Changes of a session that is gone are dropped silently.
    """

    session_id: int
    changed: tuple[tuple[str, bytes | None], ...] = ()
    removed: tuple[str, ...] = ()
    next_out: int | None = None
    last_used_ns: int | None = None
    replace: bool = False
    # Content that a live value of the session is backed by, and content no longer backing any.
    pinned: tuple[bytes, ...] = ()
    unpinned: tuple[bytes, ...] = ()


# --- submissions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginSubmission(Operation[None]):
    """Insert the running row; with `approval`, use up that plan's approval in the same commit.

    Refused with `ApprovalUnavailable` when the plan holds no approval valid at `ts`.
    """

    entry_id: int
    owner: str
    session: str
    principal: str
    ts: int
    cwd: bytes
    src: str
    ast: bytes
    effects: bytes
    effect_kinds: tuple[str, ...]
    task: str | None = None
    approval: PlanKey | None = None
    audit: tuple[AuditRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """Numbers of the durable events of an ended submission, and the names of its own outputs."""

    journal_seq_all: int
    journal_seq: int
    transcript_seq: int | None
    output_hashes: tuple[bytes, ...]
    undo_skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishSubmission(Operation[Finished]):
    """Finish a running submission: everything its acknowledged answer promises, in one commit.

    `transcript` is the payload JSON of its `session.transcript` event, None unless it succeeded.
    `ended_ns` becomes the time of the durable events. Refused when the row is not running.
    """

    entry_id: int
    owner: str
    session: str
    principal: str
    ended_ns: int
    dur_ns: int
    status: int | None
    ok: bool
    task: str | None = None
    outputs: tuple[Output, ...] = ()
    transcript: bytes | None = None
    statements: tuple[Statement, ...] = ()
    undo: tuple[UndoRow, ...] = ()
    cells: CellChanges | None = None
    task_end: TaskEnd | None = None
    audit: tuple[AuditRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatements(Operation[int]):
    """Write statement and undo rows while their submission still runs. Result: undo rows
    skipped.
    """

    owner: str
    session: str
    principal: str
    task: str | None = None
    statements: tuple[Statement, ...] = ()
    undo: tuple[UndoRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An interrupted submission with the numbers of its `journal` event."""

    entry_id: int
    owner: str
    session: str
    principal: str
    head: str
    journal_seq_all: int
    journal_seq: int


@dataclass(frozen=True, slots=True)
class InterruptSubmissions(Operation[tuple[Interrupted, ...]]):
    """Mark every running row of one session interrupted; one `journal` event per submission."""

    owner: str
    session: str
    ended_ns: int


# --- sessions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnsureSession(Operation[int]):
    """Create the session row when missing, else set `last_used_ns`. Result: the session id."""

    owner: str
    name: str
    now_ns: int


@dataclass(frozen=True, slots=True)
class TouchSession(Operation[None]):
    session_id: int
    last_used_ns: int


@dataclass(frozen=True, slots=True)
class DeleteSession(Operation[bool]):
    """Delete stored state, shares, plans, task records and value pins; entries and blobs stay.

    Result: whether there was such a session. The id is never used again.
    """

    session_id: int


@dataclass(frozen=True, slots=True)
class SaveCells(Operation[None]):
    """Commit session state outside a submission (or all of it, after a time without commits)."""

    cells: CellChanges


@dataclass(frozen=True, slots=True)
class SetShares(Operation[None]):
    """Make `principals` the complete list of guests of a session."""

    session_id: int
    principals: tuple[str, ...]
    mode: ShareMode


# --- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PutPlan(Operation[tuple[PlanKey, ...]]):
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


@dataclass(frozen=True, slots=True)
class RequestedPlan:
    requested_ns: int
    requested_effects: bytes
    first: bool


@dataclass(frozen=True, slots=True)
class RequestPlan(Operation[RequestedPlan]):
    """Record that the owner asks for approval; a repeated request changes nothing and gets the
    first.

    `requested_effects` is a JSON array of kinds. Refused when the plan is gone.
    """

    key: PlanKey
    requested_ns: int
    requested_effects: bytes = b"[]"


@dataclass(frozen=True, slots=True)
class ApprovePlan(Operation[None]):
    """Refused when the plan is gone or expired at `approved_ns`."""

    key: PlanKey
    approved_by: str
    approved_ns: int
    approval_expires_ns: int | None


@dataclass(frozen=True, slots=True)
class UseApproval(Operation[None]):
    """Use up an approval outside `BeginSubmission`. Refused with `ApprovalUnavailable`."""

    key: PlanKey
    now_ns: int


@dataclass(frozen=True, slots=True)
class ExpirePlans(Operation[tuple[PlanKey, ...]]):
    """Drop plans whose time has passed. Result: their keys."""

    now_ns: int


@dataclass(frozen=True, slots=True)
class DropPlan(Operation[bool]):
    key: PlanKey


# --- tasks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutTask(Operation[None]):
    """Insert a running task record under a number from `Store.reserve_task`."""

    number: int
    session_id: int
    principal: str
    started_ns: int


@dataclass(frozen=True, slots=True)
class FinishTask(Operation[bool]):
    """Result: whether the record was running until now."""

    end: TaskEnd


@dataclass(frozen=True, slots=True)
class FailTasks(Operation[tuple[int, ...]]):
    """Make every running task of a session `failed`. Result: their numbers, ascending."""

    session_id: int
    finished_ns: int
    error: bytes


@dataclass(frozen=True, slots=True)
class PruneTasks(Operation[tuple[int, ...]]):
    """Keep the `keep` newest finished records of a session. Result: the numbers dropped."""

    session_id: int
    keep: int


# --- others --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendAudit(Operation[None]):
    rows: tuple[AuditRow, ...]


@dataclass(frozen=True, slots=True)
class SetPin(Operation[bool]):
    """Pin stored content. Result: whether that changed anything. Refused when there is no such
    blob.
    """

    hash: bytes
    reason: PinReason
    holder: str
    now_ns: int


@dataclass(frozen=True, slots=True)
class ReleasePin(Operation[bool]):
    hash: bytes
    reason: PinReason
    holder: str


@dataclass(frozen=True, slots=True)
class ReleaseManualPins(Operation[bool]):
    """Release every `manual` pin of the content, whoever set it."""

    hash: bytes


@dataclass(frozen=True, slots=True)
class LinkBlob(Operation[None]):
    """Give ingested content its blob row and pin it as a value of a session (chapter 61 §5.4)."""

    content: Stored
    session_id: int
    now_ns: int


@dataclass(frozen=True, slots=True)
class TouchBlobs(Operation[None]):
    hashes: tuple[bytes, ...]
    now_ns: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What `Recover` found: interrupted submissions, failed tasks, dropped plans, dropped pins."""

    interrupted: tuple[int, ...]
    failed_tasks: tuple[int, ...]
    expired_plans: int
    dropped_pins: int


@dataclass(frozen=True, slots=True)
class Recover(Operation[Recovery]):
    """The start of a daemon: end what a crash left open (chapter 81 §8.1 step 6).

    `task_error` makes the JSON error object of a task that was running, from its session's name.
    """

    now_ns: int
    task_error: Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Probe(Operation[None]):
    """Write something harmless, to learn whether commits work again."""


@dataclass(frozen=True, slots=True)
class Together(Operation[tuple[object, ...]]):
    """Several operations as one: all of them or none. Result: theirs, in order."""

    operations: tuple[Operation[object], ...]


@dataclass(frozen=True, slots=True)
class Custom(Operation[R_co], Generic[R_co]):
    """Any other change: `run` gets the write connection inside the transaction (agent endpoint
    tables).

    `run` must not commit, roll back, or keep the connection.
    """

    run: Callable[..., R_co]
