"""What remembering costs: saving session state, querying a long history, delivering events.

Failure: a daemon that does not start fails the benchmark.
"""

from __future__ import annotations

import os
import selectors
import socket
import sqlite3
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import echo
from benchmarks.report import Row, median
from journal import BesideReader, EntryFilter, QueryEntriesJson, Visibility, database
from tests.system.daemon import ROOT, Daemon, Wire

# Run by every interpreter of the daemon it is put before: sessions then save nothing at all.
UNSAVED: Final = """
from worker.evaluate import state

state.StateKeeper.changed = lambda self, **_: []
state.StateKeeper.result = lambda self, name, value: state.SavedCell(name, None)
"""
WARM_UP: Final = 300
ROUNDS: Final = 10
CALLS_PER_ROUND: Final = 200

RESULTS: Final = 10_000
ENTRIES_FEW: Final = 50_000
ENTRIES_MANY: Final = 1_000_000
QUERIES: Final = 200

SUBSCRIBERS: Final = 100
BURST: Final = 200
BURSTS: Final = 10


def _line(method: str, params: object) -> bytes:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return msgspec.json.encode(request) + b"\n"


def saving() -> list[Row]:
    """`exec n = n + 1` with its state saved, against a daemon whose sessions save nothing."""
    with tempfile.TemporaryDirectory() as hook, ExitStack() as daemons:
        (Path(hook) / "sitecustomize.py").write_text(UNSAVED)
        quiet = ("--log-level", "warn")
        saved = daemons.enter_context(Daemon(*quiet))
        unsaved = daemons.enter_context(
            Daemon(*quiet, environ={"PYTHONPATH": os.pathsep.join([hook, str(ROOT)])})
        )
        started = (saved, unsaved)
        wires = [daemons.enter_context(daemon.wire()) for daemon in started]
        call = _line("exec", {"src": "n = n + 1"})
        for wire in wires:
            wire.result("session.attach", {"session": "bench"})
            wire.result("exec", {"src": "var n = 0"})
            echo.round_trips(wire.socket, call, WARM_UP)
        samples: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for wire, collected in zip(wires, samples, strict=True):
                collected += echo.round_trips(wire.socket, call, CALLS_PER_ROUND)
        cells = [_saved_cells(daemon, wire) for daemon, wire in zip(started, wires, strict=True)]
        assert cells[0] > 0 and cells[1] == 0, "one daemon must save, the other must not"
    saved_s, unsaved_s = median(samples[0]), median(samples[1])
    return [
        Row("saving", "exec n = n + 1, nothing saved", unsaved_s * 1e6, "µs"),
        Row("saving", "exec n = n + 1, state saved", saved_s * 1e6, "µs", "nothing saved",
            saved_s / unsaved_s, "at most", 1.25),
    ]  # fmt: skip


def restoring() -> list[Row]:
    """The first attach to a session with many results after a kill, against that to a new one."""
    with Daemon("--log-level", "warn") as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "long"})
            call = _line("exec", {"src": "[1, 2, 3]"})
            for _ in range(RESULTS // CALLS_PER_ROUND):
                wire.send(call * CALLS_PER_ROUND)
                for _ in range(CALLS_PER_ROUND):
                    wire.line()
        daemon.kill()
        daemon.start()
        with daemon.wire() as wire:
            # The zygote and the pages of the database are warm for both.
            wire.result("session.attach", {"session": "warm"})
            started = time.perf_counter()
            wire.result("session.attach", {"session": "new"})
            new_s = time.perf_counter() - started
            started = time.perf_counter()
            assert wire.result("session.attach", {"session": "long"})["restored"]
            restored_s = time.perf_counter() - started
    return [
        Row("restoring", "attach to a new session", new_s * 1e3, "ms"),
        Row("restoring", f"attach to a session with {RESULTS:,} results", restored_s * 1e3, "ms",
            "ms", restored_s * 1e3, "at most", 500),
    ]  # fmt: skip


def _saved_cells(daemon: Daemon, wire: Wire) -> int:
    # A read of the daemon waits for all it has acknowledged to be in the database.
    wire.result("journal.query", {"limit": 1})
    path = f"file:{daemon.state / 'journal.db'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM session_cell").fetchone()
    return int(count)


def query() -> list[Row]:
    """The newest hundred entries that match several filters, in a short and in a long history."""
    rows, medians = [], []
    for entries in (ENTRIES_FEW, ENTRIES_MANY):
        with tempfile.TemporaryDirectory() as directory:
            _history(Path(directory), entries)
            with closing(BesideReader(Path(directory))) as reader:
                wanted = QueryEntriesJson(
                    EntryFilter(principal="agent:7", ok=True, effects=("fs_read",), limit=100),
                    Visibility(everything=True, principal="uid:0", owners=()),
                    16 << 20,
                )
                reader.fetch(wanted)
                samples = []
                for _ in range(QUERIES):
                    started = time.perf_counter()
                    found = reader.fetch(wanted)
                    samples.append(time.perf_counter() - started)
                assert found.count(b'"kind":"submission"') == 100
        medians.append(median(samples))
        rows.append(
            Row("query", f"newest 100 of {entries:,} entries, filtered", medians[-1] * 1e3, "ms",
                "ms", medians[-1] * 1e3, "at most", 20)
        )  # fmt: skip
    rows.append(
        Row("query", f"growth from {ENTRIES_FEW:,} to {ENTRIES_MANY:,}", medians[1] / medians[0],
            "x", "few entries", medians[1] / medians[0], "at most", 1.5)
    )  # fmt: skip
    return rows


def _history(directory: Path, entries: int) -> None:
    """A store with that many submissions of twenty principals, one in three with an effect."""
    connection = database.open_writer(directory, sync="normal", busy_timeout_ms=5000)
    with closing(connection):
        connection.execute("BEGIN")
        connection.executemany(
            """
            INSERT INTO entry (id, kind, session, owner, principal, ts, dur_ns, cwd, src, head, ast,
                               effects, status, ok, opaque, state)
            VALUES (?, 'submission', 's', ?, ?, ?, 1000, x'2f', 'cat file', 'cat', x'7b7d', '[]', 0,
                    ?, 0, 'finished')
            """,
            (
                (number, f"agent:{number % 20}", f"agent:{number % 20}", number, number % 4 != 0)
                for number in range(1, entries + 1)
            ),
        )
        connection.executemany(
            "INSERT INTO entry_effect (entry_id, kind) VALUES (?, 'fs_read')",
            ((number,) for number in range(1, entries + 1) if number % 3 == 0),
        )
        connection.execute("COMMIT")
        connection.execute("ANALYZE")


def events() -> list[Row]:
    """One publisher, a hundred connections that listen."""
    config = "version = 1\n[quotas]\npublish_per_s = 0\nconnections_per_principal = 200\n"
    with Daemon("--log-level", "warn", config=config) as daemon, ExitStack() as opened:
        publisher = opened.enter_context(daemon.wire())
        publisher.result("session.attach", {"session": "bench"})
        listeners = [opened.enter_context(daemon.wire()) for _ in range(SUBSCRIBERS)]
        for wire in listeners:
            wire.result("session.attach", {"session": "bench"})
            wire.result("events.subscribe", {"channel": "user.bench"})
        call = _line("events.publish", {"channel": "user.bench", "payload": {"n": 1}})
        elapsed = 0.0
        for _ in range(BURSTS):
            started = time.perf_counter()
            publisher.send(call * BURST)
            _receive(listeners, BURST)
            elapsed += time.perf_counter() - started
            for _ in range(BURST):
                publisher.line()
    per_second = SUBSCRIBERS * BURST * BURSTS / elapsed
    return [
        Row("events", f"deliveries to {SUBSCRIBERS} subscribers", per_second, "/s", "/s",
            per_second, "at least", 50_000),
    ]  # fmt: skip


def _receive(listeners: list[Wire], lines: int) -> None:
    """Read until every listener has got that many lines."""
    left: dict[socket.socket, int] = {wire.socket: lines for wire in listeners}
    with selectors.DefaultSelector() as ready:
        for connection in left:
            ready.register(connection, selectors.EVENT_READ, connection)
        while left:
            for key, _ in ready.select():
                connection = key.data
                left[connection] -= connection.recv(1 << 18).count(b"\n")
                if left[connection] <= 0:
                    ready.unregister(connection)
                    del left[connection]
