"""What commands cost: starting programs, and floods on a terminal.

Starting is compared with `subprocess.run` in a loop of the same run, both capturing both streams.
A terminal is compared with a loop that reads the same flood and throws it away, since the system's
own terminal is the slower part for short lines, and with the five megabytes a second it must take.

Failure: a program that cannot start fails the benchmark.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import threading
import time
from typing import Final

from benchmarks.report import Row
from tests.system.daemon import Daemon
from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.evaluate.host import Host, nowhere
from worker.evaluate.threads import run_on_evaluator_stack
from worker.ptys import PtyTable

STARTS: Final = 1000
ROUNDS: Final = 3
FLOOD_BYTES: Final = 50_000_000
# The system's own terminal is slow for the shortest lines.
SHORT_LINES_BYTES: Final = 10_000_000
LIMIT_MB_PER_S: Final = 5.0
SLICE_BYTES: Final = 1 << 16

# What is flooded: name, the line, and whether the five megabytes a second are asked of it. Of the
# shortest lines the system's own terminal may not deliver as much.
FLOODS: Final = (
    ("yes", "y", False),
    ("text lines", "x" * 72, True),
    ("coloured lines", "\033[1;32mok\033[0m " + "x" * 60, True),
)


def starting() -> list[Row]:
    """`true` a thousand times: in a bare evaluator and in a session."""
    ours, theirs = [], []
    evaluator = bare_evaluator("/", Host(sink=nowhere))
    program = f"for i in 1..={STARTS} {{ ^true }}"
    for _ in range(ROUNDS):
        theirs.append(_timed(_subprocess_loop))
        ours.append(_timed(lambda: run_on_evaluator_stack(evaluator.evaluate_source, program)))
    with Daemon("--log-level", "warn") as daemon, daemon.wire() as wire:
        wire.socket.settimeout(120)
        wire.result("session.attach", {"session": "bench"})
        session_s = min(
            _timed(lambda: wire.result("exec", {"src": program})) for _ in range(ROUNDS)
        )
    reference = min(theirs)
    return [
        Row("commands", f"start {name}", seconds / STARTS * 1e6, "µs", "subprocess.run",
            seconds / reference, "at most", 2.0)
        for name, seconds in (("true, bare", min(ours)), ("true, session", session_s))
    ]  # fmt: skip


def _subprocess_loop() -> None:
    for _ in range(STARTS):
        subprocess.run(["true"], capture_output=True, stdin=subprocess.DEVNULL, check=True)


def _best(work: object) -> float:
    return min(_timed(work) for _ in range(ROUNDS))


def _timed(work: object) -> float:
    assert callable(work)
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def terminals() -> list[Row]:
    """Floods of fifty megabytes through a terminal with its emulator."""
    rows = []
    evaluator = bare_evaluator("/", Host(sink=nowhere))
    for name, line, bounded in FLOODS:
        size = FLOOD_BYTES if bounded else SHORT_LINES_BYTES
        command = f"yes {shlex.quote(line)} | head -c {size}"
        bare = size / 1e6 / _best(lambda command=command: _discard(command))
        shown = size / 1e6 / _best(lambda command=command: _show(evaluator, command))
        rows.append(
            Row("terminals", f"{name}, bare reader", shown, "MB/s", "bare reader",
                shown / bare, "at least", None if bounded else 0.5)
        )  # fmt: skip
        if bounded:
            rows.append(
                Row("terminals", name, shown, "MB/s", "5 MB/s", shown / LIMIT_MB_PER_S,
                    "at least", 1.0)
            )  # fmt: skip
    return rows


def _show(evaluator: Evaluator, command: str) -> None:
    table = PtyTable()
    ended = threading.Event()

    def announce(_changed: bool, alive: bool) -> None:
        if not alive:
            ended.set()

    table.open(evaluator, 1, "sh", ["-c", command], cols=80, rows=24, env={}, announce=announce)
    ended.wait()
    table.close_all()


def _discard(command: str) -> None:
    master, slave = os.openpty()
    process = subprocess.Popen(["sh", "-c", command], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    with contextlib.suppress(OSError):
        while os.read(master, SLICE_BYTES):
            pass
    os.close(master)
    process.wait()
