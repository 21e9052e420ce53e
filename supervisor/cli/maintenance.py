"""The parts of `shoal journal` that change something: pins, collection, undo.

What writes to the store takes the lock of the state directory when it is free, and asks the running
kernel when it is not (chapter 81, section 7.6).

Failure: Failure for what the store or the file system refuses, RpcError from the kernel.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Any

import orjson

from journal.errors import BlobDamaged, BlobMissing, StoreError, StoreInUse
from journal.gc import Candidates, Collect, Pins, Report
from journal.readers import BesideReader
from journal.records import ReleaseManualPins, SetPin
from journal.store import Store, StoreConfig
from leash.undo import Refused, Step, replay
from supervisor.cli.call import Call, absolute
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.history import StoredHistory
from supervisor.cli.journal import read_entry, read_hash
from supervisor.cli.options import UsageError
from supervisor.cli.output import local_time


def _open_store(call: Call) -> Store | None:
    """The store, to write to; None when a kernel holds it. It is never created here."""
    directory = call.paths.state_dir
    if not (directory / "journal.db").exists():
        raise Failure(f"there is no journal.db in {directory}")
    journal = call.config.journal
    try:
        return Store.open(
            StoreConfig(
                path=directory,
                sync="full" if journal.sync == "full" else "normal",
                busy_timeout_ms=journal.busy_timeout_ms,
            )
        )
    except StoreInUse:
        return None
    except StoreError as error:
        raise Failure(str(error)) from error


def _ask_kernel(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    with call.connect(autostart=False) as client:
        call.attached(client)
        answer: dict[str, Any] = client.call("kernel.store", params)
    return answer


def pin(call: Call) -> int:
    name = read_hash(call.operands[0])
    holder = f"uid:{os.geteuid()}"
    change = SetPin(bytes.fromhex(name), "manual", holder, time.time_ns())
    return _change_pin(call, "pin", name, change)


def unpin(call: Call) -> int:
    name = read_hash(call.operands[0])
    return _change_pin(call, "unpin", name, ReleaseManualPins(bytes.fromhex(name)))


def _change_pin(call: Call, op: str, name: str, change: SetPin | ReleaseManualPins) -> int:
    store = _open_store(call)
    if store is None:
        _ask_kernel(call, {"op": op, "hash": name})
        return Exit.SUCCESS
    with closing(store):
        try:
            store.apply(change)
        except StoreError as error:
            raise Failure(str(error)) from error
    return Exit.SUCCESS


def pins(call: Call) -> int:
    try:
        with closing(BesideReader(call.paths.state_dir)) as reader:
            rows = reader.fetch(Pins())
    except StoreError as error:
        raise Failure(str(error)) from error
    if call.out.json:
        call.out.document(
            [
                {
                    "hash": row.hash.hex(),
                    "reason": row.reason,
                    "holder": row.holder,
                    "created_ns": row.created_ns,
                }
                for row in rows
            ]
        )
    else:
        table = (
            (row.hash.hex(), row.reason, row.holder, local_time(row.created_ns)) for row in rows
        )
        call.out.table(("HASH", "REASON", "HOLDER", "CREATED"), table)
    return Exit.SUCCESS


def gc(call: Call) -> int:
    """Always one line of JSON; a dry run only reads."""
    call.out.record(_apply_gc(call) if call.flag("apply") else _plan_gc(call))
    return Exit.SUCCESS


def _plan_gc(call: Call) -> dict[str, Any]:
    wanted = Candidates(call.number("ttl"), call.number("budget"), time.time_ns())
    try:
        with closing(BesideReader(call.paths.state_dir)) as reader:
            chosen, remaining = reader.fetch(wanted)
    except StoreError as error:
        raise Failure(str(error)) from error
    reclaimed = sum(blob.length for blob in chosen)
    return Report(True, tuple(chosen), (), reclaimed, remaining).as_document()


def _apply_gc(call: Call) -> dict[str, Any]:
    ttl_s, budget = call.number("ttl"), call.number("budget")
    store = _open_store(call)
    if store is None:
        params = {"op": "gc", "ttl_s": ttl_s, "budget": budget, "apply": True}
        return _ask_kernel(call, params)
    vacuum = call.config.retention.vacuum
    with closing(store):
        try:
            return Collect(ttl_s, budget, apply=True, vacuum=vacuum).run(store).as_document()
        except StoreError as error:
            raise Failure(str(error)) from error


def undo(call: Call) -> int:
    """Replay the inverses of an entry, as the calling user, below a root."""
    number = read_entry(call.operands[0])
    root = call.text("root")
    if root is None:
        raise UsageError("undo requires --root PATH")
    history = StoredHistory(call)
    with closing(history):
        steps = history.undo_steps(number)
        try:
            done = replay(
                [orjson.loads(step.inverse_json) for step in steps],
                root=absolute(root),
                snapshots=lambda name: _snapshot(history, name),
            )
        except Refused as error:
            raise Failure(str(error)) from error
    if call.out.json:
        call.out.document({"entry_id": number, "steps": [_step(step) for step in done]})
    else:
        call.out.line(f"undid entry {number} ({len(done)} steps)")
    return Exit.SUCCESS


def _step(step: Step) -> dict[str, Any]:
    status = "applied" if step.applied else "already_applied"
    return {"status": status, "inverse": step.inverse}


def _snapshot(history: StoredHistory, name: str) -> bytes | None:
    try:
        return history.content(name)
    except (BlobMissing, BlobDamaged):
        return None
