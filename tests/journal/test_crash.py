"""Killing the process at any moment leaves the old state or the new one (chapter 61 §13)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from journal import (
    EVERYTHING,
    EntryFilter,
    LogEvents,
    QueryEntries,
    ReadBlob,
    Recover,
    SessionByName,
    SessionCells,
    Sweep,
)
from tests.journal.support import OWNER, SESSION, open_store

WRITER = """
import sys
from pathlib import Path
from journal import CellChanges, Output
from tests.journal.support import begin, finish, open_store, session_id, statement
store = open_store(Path(sys.argv[1]))
session = session_id(store)
number = int(sys.argv[2])
def told(number):
    def done(finished, error):
        if error is None:
            print(number, finished.output_hashes[0].hex(), flush=True)
    return done
while True:
    number += 1
    first = store.reserve_entries(2)
    store.post(begin(first, src=f"echo {number}"), lambda result, error: None)
    value = f"value {number}".encode() * 50
    store.post(
        finish(
            first,
            outputs=(Output("value", value), Output("render", value[:20])),
            statements=(statement(first + 1, first, outputs=(Output("render", value[:20]),)),),
            cells=CellChanges(
                session_id=session, changed=(("n", str(number).encode()),), next_out=number + 1
            ),
        ),
        told(number),
    )
    if number % 20 == 0:
        store.apply(begin(store.reserve_entries(), src="left running"))
"""


@pytest.mark.parametrize("acknowledged", [1, 37, 150, 400])
def test_acknowledged_results_survive_sigkill(state: Path, acknowledged: int) -> None:
    last = 0
    hashes: dict[int, str] = {}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(state), str(last)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    for _ in range(acknowledged):
        told, name = process.stdout.readline().split()
        hashes[int(told)] = name
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    for line in rest.splitlines():
        if len(line.split()) == 2 and len(line.split()[1]) == 64:
            hashes[int(line.split()[0])] = line.split()[1]
    last = max(hashes)

    with open_store(state) as store:
        store.apply(Recover(1, lambda name: b"{}"))
        store.perform(Sweep(0.0))

        session = store.fetch(SessionByName(OWNER, SESSION))
        assert session is not None
        cells = dict(store.fetch(SessionCells(session.id)))
        saved = int(cells["n"] or 0)
        assert saved >= last
        assert session.next_out == saved + 1
        for number in (min(hashes), last):
            content = store.fetch(ReadBlob(hashes[number])).data
            assert content == f"value {number}".encode() * 50

        rows = store.fetch(QueryEntries(EntryFilter(limit=100_000), EVERYTHING))
        finished = [row for row in rows if row.state == "finished"]
        assert sorted(int(row.src.split()[1]) for row in finished) == list(range(1, saved + 1))
        assert {row.state for row in rows} <= {"finished", "interrupted"}
        log = store.fetch(LogEvents("journal", OWNER, -1, None, 100_000, newest=False))
        assert [event.seq for event in log.events] == list(range(len(rows)))
        transcript = LogEvents("session.transcript", OWNER, -1, None, 100_000, newest=False)
        assert [event.seq for event in store.fetch(transcript).events] == list(range(saved))
