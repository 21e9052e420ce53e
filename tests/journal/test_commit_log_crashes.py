"""SIGKILL at every step between an acknowledgement and the emptied log; full disks for real."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from journal import EVERYTHING, EntryFilter, QueryEntries, Recover, SessionByName, SessionCells
from journal.commit_log import LOG_NAME
from tests.journal.support import OWNER, SESSION, open_store, rows

ROOT = Path(__file__).parents[2]

# Where the process dies, once it is armed: (what is replaced, when it dies).
FAULTS = """
import os, signal, sys
from pathlib import Path
import journal.commit_log, journal.writer
from journal.commit_log import CommitLog
from journal.writer import Writer
from journal.write_behind import WriteBehind

armed = False

def die(*_):
    if armed:
        os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    real = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: (die(), real(*given, **named))[1])

def after(owner, name):
    real = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: (real(*given, **named), die())[0])

def torn_write():
    real = os.pwrite
    def write(fd, data, at):
        if armed:
            real(fd, data[: len(data) * 2 // 3], at)
            die()
        return real(fd, data, at)
    journal.commit_log.os.pwrite = write

PLACES = {
    "before the record is written": lambda: before(CommitLog, "append"),
    "while the record is written": torn_write,
    "after the record was written": lambda: after(CommitLog, "append"),
    "before anything is applied": lambda: before(WriteBehind, "operations"),
    "while it is applied": lambda: before(journal.writer, "note_applied"),
    "before the commit": lambda: after(journal.writer, "note_applied"),
    "after the commit": lambda: before(WriteBehind, "applied"),
    "before the log is emptied": lambda: before(CommitLog, "clear"),
    "after the log was emptied": lambda: after(CommitLog, "clear"),
}
PLACES[sys.argv[2]]()
"""

WRITER = """
from journal import CellChanges, Output, Recover
from tests.journal.support import begin, finish, open_store, session_id, statement

journal.writer.LOG_BYTES_KEPT = 0
store = open_store(Path(sys.argv[1]))
store.apply(Recover(1, lambda name: b"{}"))
session = session_id(store)
for number in range(1, 100_000):
    first = store.reserve_entries(2)
    def told(done, error, first=first, number=number):
        if error is None:
            print(number, first, done.journal_seq_all, done.journal_seq, done.transcript_seq,
                  flush=True)
    store.post(begin(first, src=f"echo {number}"), lambda result, error: None)
    store.post(
        finish(
            first,
            outputs=(Output("value", b"value %d" % number * 20),),
            statements=(statement(first + 1, first),),
            cells=CellChanges(
                session_id=session, changed=(("n", b"%d" % number),), next_out=number + 1
            ),
        ),
        told,
    )
    if number == 30:
        armed = True
    if number % 7 == 0:
        store.apply(begin(store.reserve_entries(), src="left running"))
"""

REPLAY = """
from tests.journal.support import open_store

armed = True
open_store(Path(sys.argv[1]))
raise SystemExit("nobody killed it")
"""

PLACES = (
    "before the record is written",
    "while the record is written",
    "after the record was written",
    "before anything is applied",
    "while it is applied",
    "before the commit",
    "after the commit",
    "before the log is emptied",
    "after the log was emptied",
)

Told = dict[int, tuple[int, ...]]


def run_until_killed(state: Path, code: str, place: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", FAULTS + code, str(state), place],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    return process.stdout


def told_by(output: str) -> Told:
    """What the process said was acknowledged: the number's entry and its event numbers."""
    lines = [line.split() for line in output.splitlines() if line.count(" ") == 4]
    return {int(words[0]): tuple(int(word) for word in words[1:]) for words in lines}


def check(state: Path, told: Told) -> None:
    """Everything acknowledged is there once, under the numbers it was given; nothing is half
    there.
    """
    with open_store(state) as store:
        store.apply(Recover(1, lambda name: b"{}"))
        found = store.fetch(QueryEntries(EntryFilter(limit=100_000), EVERYTHING))
        session = store.fetch(SessionByName(OWNER, SESSION))
        assert session is not None
        cells = dict(store.fetch(SessionCells(session.id)))
    finished = {int(row.src.split()[1]): row.id for row in found if row.state == "finished"}
    last = max(finished)
    assert sorted(finished) == list(range(1, last + 1))
    assert set(told) <= set(finished)
    assert cells["n"] == b"%d" % last
    events = {
        (channel, space, entry): seq
        for channel, space, seq, entry in rows(
            state, "SELECT channel, space, seq, entry_id FROM event"
        )
    }
    for entry, everybody, owner, transcript in told.values():
        assert events["journal", "*", entry] == everybody
        assert events["journal", OWNER, entry] == owner
        assert events["session.transcript", OWNER, entry] == transcript
    for channel, space in (("journal", "*"), ("journal", OWNER), ("session.transcript", OWNER)):
        numbers = [seq for key, seq in events.items() if key[:2] == (channel, space)]
        assert sorted(numbers) == list(range(len(numbers)))
    for table, each in (("output", 1), ("transcript_event", 1)):
        assert rows(state, f"SELECT count(*) FROM {table}") == [(each * last,)]
    assert rows(state, "SELECT count(*) FROM entry WHERE kind = 'statement'") == [(last,)]
    assert (state / LOG_NAME).stat().st_size == 20


@pytest.mark.parametrize("place", PLACES)
def test_acknowledged_survives_a_kill(state: Path, place: str) -> None:
    told = told_by(run_until_killed(state, WRITER, place))
    assert told
    check(state, told)


@pytest.mark.parametrize("again", PLACES[3:])
def test_recovery_that_is_killed_begins_anew(state: Path, again: str) -> None:
    told = told_by(run_until_killed(state, WRITER, "while it is applied"))
    run_until_killed(state, REPLAY, again)
    check(state, told)


FULL = """
import resource, sys
from pathlib import Path
from journal import StoreUnavailable
from tests.journal.support import begin, finish, open_store, settle
store = open_store(Path(sys.argv[1]))
settle(store)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
entry = 0
try:
    for number in range(10_000):
        entry = store.reserve_entries()
        store.apply(begin(entry, src="x" * 3000))
        store.apply(finish(entry))
        print(entry, flush=True)
except StoreUnavailable as error:
    print(error.cause, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
if sys.argv[3] == "goes on":
    entry = store.reserve_entries()
    store.apply(begin(entry))
    store.apply(finish(entry))
    print(entry, flush=True)
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("then", ["goes on", "ends"])
@pytest.mark.parametrize("limit", [120_000, 700_000])
def test_full_disk_loses_nothing_acknowledged(state: Path, limit: int, then: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", FULL, str(state), str(limit), then],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL, process.stderr
    words = process.stdout.split()
    acknowledged = {int(word) for word in words if word.isdigit()}
    assert {word for word in words if not word.isdigit()} <= {"disk_full", "io_error"}
    assert len(words) > len(acknowledged), "the limit was reached"
    with open_store(state) as store:
        store.apply(Recover(1, lambda name: b"{}"))
        found = store.fetch(QueryEntries(EntryFilter(limit=100_000), EVERYTHING))
    finished = {row.id for row in found if row.state == "finished"}
    assert finished == acknowledged
