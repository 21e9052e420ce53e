"""`journal`, `history` and `undo`: looking at the past and taking it back (chapter 31 §6.2, §6.3).

The journal port of the host answers `rows(kind, head, principal, limit)` with entries in the shape
of chapter 61 §7, newest first; `inverses(entry_id)` with `(entry_id, inverses in recording order)`,
for None the newest entry of this principal in this session that has some, or None when there is no
such entry; and `snapshot_bytes(hash)` with stored content or None.

Failure: `custom` for `undo` without a journal, without a target or refused, `stale_undo` when a
file was changed since, `arg_error` for something that is no entry id.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from leash.undo import Refused, Snapshots, replay
from worker.builtins.authority import check_journal_read, check_write
from worker.builtins.effects import JOURNAL_READ, OPAQUE
from worker.builtins.readers import is_decimal
from worker.builtins.registry import Call, builtin
from worker.errors import Raised, arg_error, raised
from worker.values import temporal
from worker.values.types import DateTime, Record, Table, Value

ROWS_DEFAULT: Final = 100
_KINDS: Final = frozenset(("statement", "submission", "all"))
_COLUMNS: Final = "{id, ts, principal, src, ok, status, effects}"


def _rows(call: Call) -> Table:
    check_journal_read(call.ev)
    port = call.ev.host.journal
    if port is None:
        return Table([])
    kind = call.args.literal_option("kind")
    limit = call.args.literal_option("limit") or ""
    wanted = int(limit) if is_decimal(limit) and len(limit) < 10 else 0
    entries = port.rows(
        kind=kind if kind in _KINDS else "statement",
        head=call.args.literal_option("head"),
        principal=call.args.literal_option("principal"),
        limit=wanted or ROWS_DEFAULT,
    )
    return Table([_row(entry) for entry in entries])


def _row(entry: dict[str, Any]) -> Record:
    return {
        "id": entry["id"],
        "ts": DateTime(entry["ts"], temporal.system_zone()),
        "principal": entry["principal"],
        "src": entry["src"],
        "ok": entry["ok"],
        "status": entry["status"],
        "effects": orjson.dumps(entry["effects"] or []).decode(),
    }


@builtin(
    "journal",
    usage=f"journal [--head=WORD] [--principal=NAME] [--kind=KIND] [--limit=N] -> table {_COLUMNS}",
    effects=JOURNAL_READ,
)
def journal(call: Call) -> Table:
    """The newest journal rows, filtered in the store."""
    return _rows(call)


@builtin(
    "history",
    usage=f"history [--head=WORD] [--principal=NAME] [--kind=KIND] [--limit=N] -> table {_COLUMNS}",
    effects=JOURNAL_READ,
)
def history(call: Call) -> Table:
    """The newest journal rows; another name of `journal`."""
    return _rows(call)


@builtin(
    "undo",
    usage="undo [ENTRY] -> record {entry, undone, actions}",
    effects=(*JOURNAL_READ, *OPAQUE),
)
def undo(call: Call) -> Record:
    """Take back the file changes of a journal entry, the newest first."""
    ev = call.ev
    port = ev.host.journal
    if port is None:
        raise raised("custom", "undo requires a journaled session; none is active")
    wanted = _entry_id(call.args.values())
    check_journal_read(ev)
    found = port.inverses(wanted)
    if found is None and wanted is None:
        raise raised("custom", "nothing to undo: no reversible entry in the journal")
    entry_id, inverses = (wanted, []) if found is None else found

    def allow(path: str) -> None:
        check_write(ev, path)

    snapshots: Snapshots = port.snapshot_bytes
    try:
        steps = replay(inverses, root=ev.cwd, snapshots=snapshots, allow=allow)
    except Refused as refusal:
        raise _refused(entry_id, refusal) from None
    return {
        "entry": entry_id,
        "undone": len(steps),
        "actions": [
            f"{'undid' if step.applied else 'already-undone'}: {step.what}" for step in steps
        ],
    }


def _refused(entry_id: int | None, refusal: Refused) -> Raised:
    return raised(
        "stale_undo" if refusal.stale else "custom",
        f"undo of out:{entry_id} refused: {refusal}",
    )


def _entry_id(values: list[Value]) -> int | None:
    if not values:
        return None
    value = values[0]
    if type(value) is str and is_decimal(value) and len(value) < 20:
        return int(value)
    if type(value) is int and value >= 0:
        return value
    raise arg_error("undo target must be a journal entry id")
