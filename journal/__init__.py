"""The durable store: entries, outputs, content, undo rows, sessions, plans, tasks, audit, event
numbers.

What a router does with it (chapter 61):

    def deliver(batch): loop.call_soon_threadsafe(settle, batch)
    store = Store.open(StoreConfig(path=state_dir), deliver)
    store.apply(Recover(now_ns, task_error))            # blocking, before the loop serves anybody
    entry_id = store.reserve_entries(1)                 # in memory, never blocks
    store.post(BeginSubmission(entry_id=entry_id, ...), done)   # done(result, error), on the loop
    finished = await store.commit(FinishSubmission(...))           # the same as a coroutine
    rows = await store.load(QueryEntries(filter, visibility))      # a read, on a reader thread
    stored = await store.ingested(FileContent(fd, length))         # large content, ahead of it
    store.close()

Three ways to wait, for writes and reads alike:

| | callback | coroutine | blocking (command line, tests) |
|---|---|---|---|
| change, an `Operation[R]` | `post(op, done)`, `post_all` | `await commit(op)` | `apply(op)` |
| read, a `Read[R]` | `read(read, done)` | `await load(read)` | `fetch(read)` |

Threads. One writer thread owns the write connection. It takes every operation that waits, makes all
of them durable at once, and hands the completions of the whole batch to `deliver`, once. A refused
operation changes nothing and spoils no other; a failed commit fails all of its batch. Reads run on
a small pool of threads with read connections of their own and see everything acknowledged before
they were asked for; each calls `deliver` with a batch of one. Without `deliver` completions run on
the thread that made them. `post`, `read`, `reserve_*` and `failure` never block and may be called
from any thread; `apply` and `fetch` block and do not go through `deliver`, so they may be called on
the loop's thread too, where that is acceptable.

Order. Operations take effect in the order of their posting, those of `post_all` in one batch. A
result is given after its commit.

Commit. On disk with `sync` normal, what needs nothing of the database is committed by one write to
`commit.log` and applied to the database later: when nothing else came for 10 ms, after 50 ms, or
when there is much of it; before anything that needs the database; before a read; at close. So other
programs that read the database beside the daemon (`BesideReader`) lag by up to 50 ms, and after a
kill by what the next `Store.open` replays. With `sync` full, and in memory, a commit is the
database's own.

Errors (`journal.errors`), given to `done`, raised by the other forms:

| Error | When |
|---|---|
| `StoreUnavailable(cause, text)` | the commit failed: `disk_full`, `io_error`, `locked` |
| `OperationRefused` | it does not fit the stored state; `ApprovalUnavailable(cause)` is one |
| `StoreClosed` | after `close` |
| `BlobMissing`, `BlobDamaged` | content reads |
| `StoreInUse`, `StoreDamaged`, `SchemaTooNew`, `MigrationFailed`, the first | `Store.open` |

`store.failure` is None while commits work, else the `StoreUnavailable` of the last attempt. Every
posted operation is an attempt; while failing the writer also tries by itself every 5 s, and
`commit(Probe())` tries at once. `StoreConfig.on_failure_change` is told of each change, through
`deliver`.

Numbers. Entry ids are given out in memory by `reserve_entries(count)` (the first of `count`
ascending ids) and task numbers by `reserve_task()`; what was given out is never given again.
Numbers of durable events are assigned by the commit and come with the result, so a failed one
leaves no gap.

Content of an output is `bytes`, `FileContent(fd, length)` (the store closes the descriptor), or
`Stored` (from `ingest`, which hashes, cuts at the output cap and compresses on a thread of its
own). Ingest first whatever has `INGEST_BYTES_MIN` or more.

Reads (each a frozen value whose `run` is called with a `Source`):

| Module | Reads |
|---|---|
| `query` | `QueryEntries`, `QueryEntriesJson`, `EntryById` |
| `blobs` | `ReadBlob(name, offset, length, ...)`, `BlobVisible`, `BlobsPresent` |
| `event_log` | `LogEvents`, `CountEvents`, `LogSequences`; `journal_payload(...)` |
| `session_state` | `AllSessions`, `SessionByName`, `SessionCells`, `SessionShares` |
| `plans` | `PlanByKey`, `PlansByRef`, `PlansOfSession`, `PlansOfOthers`, `AllPlans` |
| `tasks` | `TaskByNumber`, `TasksOfSession` |
| `undo` | `UndoOfEntry`, `NewestUndo` |
| `gc` | `Totals`, `Pins`; jobs `Collect`, `RemoveEntries`, `Sweep` |
| `query.CustomRead(run_on)` | anything else (agent endpoint tables) |

Jobs (`start(job, done)`, `await maintain(job)`, `perform(job)`) run on a thread of their own, one
at a time: `Collect(ttl_s, budget, apply)`, `RemoveEntries(before_ns)`, `Sweep()` (after a start).

Beside a running daemon `BesideReader(directory)` answers the same reads with `fetch` and changes
nothing; `journal.backup` makes, verifies and restores archives.

JSON. `ast`, `effects`, payloads and errors go in and come out as bytes. What a read returns in a
field named `*_json` was checked to be one JSON text without control characters: it can be put into
a frame as it is.

Failure: `Store.open` leaves nothing locked or half made when it raises.
"""

from __future__ import annotations

from journal.blobs import BlobsPresent, BlobVisible, ReadBlob
from journal.cas import BlobPiece
from journal.completion import Completion, Deliver, settle
from journal.errors import (
    ApprovalUnavailable,
    BlobDamaged,
    BlobMissing,
    FailureCause,
    MigrationFailed,
    OperationRefused,
    SchemaTooNew,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreInUse,
    StoreUnavailable,
)
from journal.event_log import (
    CountEvents,
    LogEvents,
    LoggedEvent,
    LoggedEvents,
    LogSequences,
    journal_payload,
)
from journal.gc import Collect, Pins, RemoveEntries, Report, Sweep, Totals
from journal.plans import AllPlans, Plan, PlanByKey, PlansByRef, PlansOfOthers, PlansOfSession
from journal.query import (
    EVERYTHING,
    CustomRead,
    EntryById,
    EntryFilter,
    EntryRow,
    QueryEntries,
    QueryEntriesJson,
    Visibility,
)
from journal.readers import BesideReader
from journal.records import (
    INGEST_BYTES_MIN,
    AppendAudit,
    ApprovePlan,
    AuditRow,
    Barrier,
    BeginSubmission,
    CellChanges,
    Custom,
    DeleteSession,
    DropPlan,
    EnsureSession,
    ExpirePlans,
    FailTasks,
    FileContent,
    Finished,
    FinishSubmission,
    FinishTask,
    Interrupted,
    InterruptSubmissions,
    LinkBlob,
    Operation,
    Output,
    PlanKey,
    Probe,
    PruneTasks,
    PutPlan,
    PutTask,
    Recover,
    Recovery,
    ReleaseManualPins,
    ReleasePin,
    RequestedPlan,
    RequestPlan,
    SaveCells,
    SetPin,
    SetShares,
    Statement,
    Stored,
    TaskEnd,
    Together,
    TouchBlobs,
    TouchSession,
    UndoRow,
    UseApproval,
    WriteStatements,
)
from journal.rows import head_of
from journal.session_state import (
    AllSessions,
    Session,
    SessionByName,
    SessionCells,
    SessionShares,
    Shares,
)
from journal.state_dir import DirectoryLock
from journal.store import Job, Store, StoreConfig
from journal.tasks import Task, TaskByNumber, TasksOfSession
from journal.undo import NewestUndo, UndoOfEntry, UndoStep

__all__ = [
    "EVERYTHING",
    "INGEST_BYTES_MIN",
    "AllPlans",
    "AllSessions",
    "AppendAudit",
    "ApprovalUnavailable",
    "ApprovePlan",
    "AuditRow",
    "Barrier",
    "BeginSubmission",
    "BesideReader",
    "BlobDamaged",
    "BlobMissing",
    "BlobPiece",
    "BlobVisible",
    "BlobsPresent",
    "CellChanges",
    "Collect",
    "Completion",
    "CountEvents",
    "Custom",
    "CustomRead",
    "DeleteSession",
    "Deliver",
    "DirectoryLock",
    "DropPlan",
    "EnsureSession",
    "EntryById",
    "EntryFilter",
    "EntryRow",
    "ExpirePlans",
    "FailTasks",
    "FailureCause",
    "FileContent",
    "FinishSubmission",
    "FinishTask",
    "Finished",
    "InterruptSubmissions",
    "Interrupted",
    "Job",
    "LinkBlob",
    "LogEvents",
    "LogSequences",
    "LoggedEvent",
    "LoggedEvents",
    "MigrationFailed",
    "NewestUndo",
    "Operation",
    "OperationRefused",
    "Output",
    "Pins",
    "Plan",
    "PlanByKey",
    "PlanKey",
    "PlansByRef",
    "PlansOfOthers",
    "PlansOfSession",
    "Probe",
    "PruneTasks",
    "PutPlan",
    "PutTask",
    "QueryEntries",
    "QueryEntriesJson",
    "ReadBlob",
    "Recover",
    "Recovery",
    "ReleaseManualPins",
    "ReleasePin",
    "RemoveEntries",
    "Report",
    "RequestPlan",
    "RequestedPlan",
    "SaveCells",
    "SchemaTooNew",
    "Session",
    "SessionByName",
    "SessionCells",
    "SessionShares",
    "SetPin",
    "SetShares",
    "Shares",
    "Statement",
    "Store",
    "StoreClosed",
    "StoreConfig",
    "StoreDamaged",
    "StoreError",
    "StoreInUse",
    "StoreUnavailable",
    "Stored",
    "Sweep",
    "Task",
    "TaskByNumber",
    "TaskEnd",
    "TasksOfSession",
    "Together",
    "Totals",
    "TouchBlobs",
    "TouchSession",
    "UndoOfEntry",
    "UndoRow",
    "UndoStep",
    "UseApproval",
    "Visibility",
    "WriteStatements",
    "head_of",
    "journal_payload",
    "settle",
]
