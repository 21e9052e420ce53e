"""`shoal journal`: look into the durable record (chapter 81, section 7.6).

Failure: exit 1 for an unknown entry or blob and an unreadable store, 2 for usage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.history import (
    BLOB_PIECE_BYTES,
    Entry,
    Filters,
    History,
    RemoteHistory,
    StoredHistory,
)
from supervisor.cli.options import UsageError
from supervisor.cli.output import path_text

_HASH: Final = re.compile(r"[0-9a-f]{64}")


def _history(call: Call) -> History:
    return RemoteHistory(call) if call.flag("remote") else StoredHistory(call)


def query(call: Call) -> int:
    filters: Filters = {
        name: value
        for name, value in (
            ("since", call.number("since")),
            ("until", call.number("until")),
            ("principal", call.text("principal")),
            ("session", call.text("of_session")),
            ("head", call.text("head")),
            ("ok", call.arguments.values.get("status")),
            ("effects", call.many("effects")),
            ("kind", call.text("kind")),
            ("limit", call.number("limit")),
        )
        if value is not None
    }
    with closing(_history(call)) as history:
        entries = history.query(filters)
        if call.out.json:
            present = history.present(_hashes(entries))
            call.out.document([as_document(entry, present) for entry in entries])
            return Exit.SUCCESS
    for entry in entries:
        call.out.line(summary(entry))
    return Exit.SUCCESS


def show(call: Call) -> int:
    number = read_entry(call.operands[0])
    with closing(_history(call)) as history:
        entry = history.entry(number)
        if entry is None:
            raise Failure(f"entry {number} not found")
        present = history.present(_hashes([entry]))
    if call.out.json:
        call.out.document(as_document(entry, present))
        return Exit.SUCCESS
    call.out.line(summary(entry))
    for output in entry["outputs"]:
        call.out.line(f"    {_output_line(output, output['hash'] in present)}")
    return Exit.SUCCESS


def blob(call: Call) -> int:
    name = read_hash(call.operands[0])
    offset, left = call.number("offset") or 0, call.number("length")
    with closing(StoredHistory(call)) as history:
        while left is None or left > 0:
            wanted = BLOB_PIECE_BYTES if left is None else min(left, BLOB_PIECE_BYTES)
            data, total = history.blob(name, offset, wanted)
            call.out.bytes(data)
            offset += len(data)
            left = None if left is None else left - len(data)
            if not data or offset >= total:
                break
    return Exit.SUCCESS


def tail(call: Call) -> int:
    from supervisor.cli.events import follow

    return follow(call, "journal", autostart=False)


def read_entry(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"not an entry id: `{text}`")
    return int(text)


def read_hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise Failure(f"not a hash: `{text}`")
    return text


def _hashes(entries: Iterable[Entry]) -> set[str]:
    return {output["hash"] for entry in entries for output in entry["outputs"]}


def summary(entry: Entry) -> str:
    ending = {True: "ok", False: "failed"}.get(entry["ok"], "unfinished")
    first = entry["src"].split("\n", 1)[0]
    return f"{entry['id']}  {entry['principal']}  {ending}  {first}"


def _output_line(output: dict[str, Any], present: bool) -> str:
    state = "available" if present else "aged out"
    meta = output.get("meta") or {}
    cut = f", truncated from {meta['original_len']} bytes" if meta.get("truncated") else ""
    return f"{output['kind']}: {output['len']} bytes, {state}{cut} [{output['hash']}]"


_SAME: Final = ("src", "ast", "effects", "status", "ok", "opaque")
_ADDED: Final = ("kind", "parent_id", "ordinal", "owner", "state", "task")


def as_document(entry: Entry, present: set[str]) -> dict[str, Any]:
    """An entry as `--json` prints it."""
    return {
        "id": entry["id"],
        "session": entry["session"],
        "principal": entry["principal"],
        "ts_ns": entry["ts"],
        "dur_ns": entry["dur_ns"],
        "cwd": path_text(entry["cwd"]),
        **{name: entry[name] for name in _SAME},
        "outputs": [
            {
                "kind": output["kind"],
                "hash": output["hash"],
                "stored_len": output["len"],
                "meta": output.get("meta"),
                "available": output["hash"] in present,
                "aged_out": output["hash"] not in present,
            }
            for output in entry["outputs"]
        ],
        **{name: entry.get(name) for name in _ADDED},
    }
