"""The durable store: entries, outputs, content, undo rows, sessions, plans, tasks, audit, event numbers.

What a router does with it (chapter 61):

    store = Store.open(StoreConfig(path=state_dir), deliver=lambda batch: loop.call_soon_threadsafe(settle, batch))
    store.apply(Recover(now_ns, task_error))            # blocking, before the loop serves anybody
    entry_id = store.reserve_entries(1)                 # in memory, never blocks
    store.post(BeginSubmission(entry_id=entry_id, ...), done)      # done(result, error), on the loop
    finished = await store.commit(FinishSubmission(...))           # the same as a coroutine
    rows = await store.load(QueryEntries(filter, visibility))      # a read, on a reader thread
    stored = await store.ingest(FileContent(fd, length))           # large content, ahead of its operation
    store.close()

Three ways to wait, for writes and reads alike:

| | callback | coroutine | blocking (command line, tests) |
|---|---|---|---|
| change, an `Operation[R]` of `records` | `post(op, done)` | `await commit(op)` | `apply(op)` |
| read, a `Read[R]` | `read(read, done)` | `await load(read)` | `fetch(read)` |

Threads. One writer thread owns the write connection. It takes every operation that waits, does all of
them in one transaction, commits, and hands the completions of the whole batch to `deliver`, once. A
refused operation changes nothing and spoils no other; a failed commit fails all of its batch. Reads run
on a small pool of threads with read connections of their own and see the last commit; each calls
`deliver` with a batch of one. Without `deliver` completions run on the thread that made them. `post`,
`read`, `reserve_*` and `failure` never block and may be called from any thread; `apply` and `fetch` block
and do not go through `deliver`, so they may be called on the loop's thread too, where that is acceptable.

Order. Operations take effect in the order of their posting. A result is given after its commit.

Errors (`journal.errors`), given to `done`, raised by the other forms:

| Error | When |
|---|---|
| `StoreUnavailable(cause, text)` | the commit failed: `disk_full`, `io_error`, `locked`; nothing of it is stored |
| `OperationRefused` | this operation does not fit the stored state; `ApprovalUnavailable(cause)` is one |
| `StoreClosed` | after `close` |
| `BlobMissing`, `BlobDamaged` | content reads |
| `StoreInUse`, `StoreDamaged`, `SchemaTooNew`, `MigrationFailed`, `StoreUnavailable` | `Store.open` |

`store.failure` is None while commits work, else the `StoreUnavailable` of the last attempt. Every posted
operation is an attempt; while failing the writer also tries by itself every 5 s, and `commit(Probe())`
tries at once. `StoreConfig.on_failure_change` is told of each change, through `deliver`.

Numbers. Entry ids are given out in memory by `reserve_entries(count)` (the first of `count` ascending
ids) and task numbers by `reserve_task()`; what was given out is never given again. Numbers of durable
events are assigned inside the transaction and come with the result, so a failed commit leaves no gap.

Content of an output is `bytes`, `FileContent(fd, length)` (the store closes the descriptor), or `Stored`
(from `ingest`, which hashes, cuts at the output cap and compresses on a thread of its own). Ingest first
whatever has `INGEST_BYTES_MIN` or more.

Reads (each a frozen value whose `run` is called with a `Source`):

| Module | Reads |
|---|---|
| `query` | `QueryEntries`, `QueryEntriesJson`, `EntryById` |
| `cas` | `ReadBlob(name, offset, length)`, `BlobVisible(name, visibility, session_id)`, `BlobsPresent` |
| `event_log` | `LogEvents`, `LogSequences`; `journal_payload(...)` builds the payload of a `journal` event |
| `session_state` | `AllSessions`, `SessionByName`, `SessionCells`, `SessionShares` |
| `plans` | `PlanByKey`, `PlansByRef`, `PlansOfSession`, `PlansOfOthers`, `PlanCounts` |
| `tasks` | `TaskByNumber`, `TasksOfSession`, `TaskCounts` |
| `undo` | `UndoOfEntry`, `NewestUndo` |
| `gc` | `Totals`, `Pins`; `store.collect(limits)` runs a collection, `store.remove_entries(before_ns)` retention |
| `query.CustomRead(run)` | anything else (agent endpoint tables) |

JSON. `ast`, `effects`, payloads and errors go in and come out as bytes. What a read returns in a field
named `*_json` was checked to be one JSON text without control characters: it can be put into a frame as
it is.

Failure: `Store.open` leaves nothing locked or half made when it raises.
"""

from __future__ import annotations
