"""What must be true after every round of a chaos run, looked at from outside.

Failure: each check gives the list of what it found wrong; an empty list is a pass.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from typing import Any, Final

from tests.chaos.ledger import Ledger, SessionLedger
from tests.chaos.world import World
from tests.system.daemon import Wire

READY_S: Final = 20.0
VALUES_CHECKED: Final = 40


def promises(world: World, ledger: Ledger) -> list[str]:
    """Everything acknowledged is there and right; nothing else is half there."""
    problems: list[str] = []
    for session in ledger.sessions.values():
        with world.daemon.wire() as wire:
            if not _attach(wire, session.name):
                problems.append(f"{session.name} cannot be attached")
                continue
            problems += _values(wire, session) + _counters(wire, session)
    return problems


def _attach(wire: Wire, session: str) -> bool:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        answer = wire.request("session.attach", {"session": session})
        if "result" in answer:
            return True
        time.sleep(0.1)
    return False


def _values(wire: Wire, session: SessionLedger) -> list[str]:
    problems = []
    # The newest ones, which this round made, and a few old ones.
    refs = list(session.acknowledged)
    for ref in refs[:5] + refs[5:][-VALUES_CHECKED:]:
        answer = wire.request("value.get", {"ref": ref})
        got = answer.get("result", {}).get("value")
        if got != session.acknowledged[ref]:
            problems.append(f"{session.name} {ref}: promised {session.acknowledged[ref]}, {answer}")
    for ref, length in list(session.large.items())[-3:]:
        page = {
            "ref": ref,
            "path": "stdout",
            "format": "raw",
            "offset": length - 8,
            "length": 8,
        }
        answer = wire.request("value.get", page)
        if answer.get("result", {}).get("total") != length:
            problems.append(f"{session.name} {ref}: promised {length} bytes, {answer}")
    return problems


def _counters(wire: Wire, session: SessionLedger) -> list[str]:
    if not session.declared:
        return []
    answer = wire.request("exec", {"src": "[n, twin]"})
    if "result" not in answer:
        return [f"{session.name}: state cannot be read: {answer}"]
    result = answer["result"]
    session.acknowledged[result["ref"]] = result["value"]
    n, twin = (item["v"] for item in result["value"]["v"])
    problems = []
    if n != twin:
        problems.append(f"{session.name}: half a submission: n = {n}, twin = {twin}")
    if not session.counted <= n <= session.counted + session.open:
        problems.append(
            f"{session.name}: n = {n} after {session.counted} and {session.open} open submissions"
        )
    session.counted, session.open = n, 0
    return problems


def history(world: World, ledger: Ledger) -> list[str]:
    """Rows and event numbers: nothing still running, no number twice, none missing."""
    problems = []
    with world.daemon.wire() as wire:
        if not _attach(wire, "observer"):
            return ["observer cannot be attached"]
        running = [
            row["id"]
            for row in wire.result("journal.query", {"kind": "all", "limit": 1000})
            if row["state"] == "running"
        ]
        if running:
            problems.append(f"rows still running: {running}")
        for channel in ("journal", "session.transcript"):
            problems += _numbers(wire, channel)
    return problems


def _numbers(wire: Wire, channel: str) -> list[str]:
    problems = []
    events = wire.result("events.read", {"channel": channel, "limit": 5000})["events"]
    numbers = [event["seq"] for event in events]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        gaps = [(a, b) for a, b in pairwise(numbers) if b != a + 1]
        problems.append(f"{channel}: numbers jump at {gaps[:5]}")
    return problems


def database(world: World) -> list[str]:
    """The files of a stopped daemon: sound, and every row that names another finds it."""
    problems = []
    with closing(sqlite3.connect(world.state / "journal.db")) as connection:
        one = connection.execute
        (verdict,) = one("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            problems.append(f"integrity check: {verdict}")
        questions: dict[str, str] = {
            "foreign keys": "SELECT count(*) FROM pragma_foreign_key_check",
            "outputs of no entry": "SELECT count(*) FROM output o LEFT JOIN entry e"
            " ON e.id = o.entry_id WHERE e.id IS NULL",
            "outputs without content": "SELECT count(*) FROM output o LEFT JOIN blob b"
            " USING (hash) WHERE b.hash IS NULL",
            "events of no entry": "SELECT count(*) FROM event v LEFT JOIN entry e"
            " ON e.id = v.entry_id WHERE e.id IS NULL",
            # No index leads from an entry to its event: a join would compare each with each.
            "submissions that ended without event": "SELECT count(*) FROM entry WHERE"
            " kind = 'submission' AND state != 'running' AND id NOT IN (SELECT entry_id FROM event"
            " WHERE channel = 'journal' AND space = '*' AND entry_id IS NOT NULL)",
            "undo rows of no entry": "SELECT count(*) FROM undo u LEFT JOIN entry e"
            " ON e.id = u.entry_id WHERE e.id IS NULL",
        }
        for what, question in questions.items():
            (count,) = one(question).fetchone()
            if count:
                problems.append(f"{count} {what}")
        problems += _files(world, [row[0].hex() for row in one("SELECT hash FROM blob")])
    return problems


def _files(world: World, hashes: list[str]) -> list[str]:
    missing = [
        name
        for name in hashes
        if not (world.state / "cas" / name[:2] / name[2:4] / f"{name}.zst").exists()
    ]
    return [f"{len(missing)} blobs without file: {missing[:3]}"] if missing else []


def left_behind(world: World) -> list[str]:
    """A stopped daemon leaves neither processes nor sockets nor temporary files."""
    deadline = time.monotonic() + READY_S / 4
    while (processes := world.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    problems: list[Any] = [f"process {pid} is left" for pid in processes]
    return problems + [f"{name} is left" for name in world.leftovers()]
