"""Calls of the running daemon: latency, throughput, sessions, memory.

Failure: a daemon that does not start fails the benchmark.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import echo, jupyter
from benchmarks.report import Row, median
from tests.system.daemon import Daemon, Wire

WARM_UP: Final = 300
ROUNDS: Final = 2000
SESSIONS: Final = 200


def _line(method: str, params: object) -> bytes:
    return (
        msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + b"\n"
    )


EXEC: Final = _line("exec", {"src": "6 * 7", "position": "value"})


def exec_latency() -> list[Row]:
    """`exec` of 6 * 7 against the bare echo and against an IPython kernel."""
    with echo.two_hops() as bare, Daemon("--log-level", "warn") as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "bench"})
        echo.round_trips(bare, EXEC, WARM_UP)
        echo.round_trips(wire.socket, EXEC, WARM_UP)
        # Interleaved, so that both see the same machine.
        bare_samples: list[float] = []
        exec_samples: list[float] = []
        for _ in range(10):
            bare_samples += echo.round_trips(bare, EXEC, ROUNDS // 10)
            exec_samples += echo.round_trips(wire.socket, EXEC, ROUNDS // 10)
    bare_median, exec_median = median(bare_samples), median(exec_samples)
    rows = [
        Row("exec", "bare echo through two hops", bare_median * 1e6, "µs"),
        Row("exec", "exec 6 * 7, journaled", exec_median * 1e6, "µs", "bare echo",
            exec_median / bare_median, "at most", 4),
    ]  # fmt: skip
    kernel = jupyter.measure()
    if kernel is None:
        return rows
    return [
        *rows,
        Row("exec", "the same in an IPython kernel", kernel.exec_s * 1e6, "µs", "exec 6 * 7",
            kernel.exec_s / exec_median, "at least", 8),
    ]  # fmt: skip


def session_start() -> list[Row]:
    """Attach to a new session and get its first result."""
    samples = []
    with Daemon("--log-level", "warn") as daemon:
        with daemon.wire() as first:
            first.result("session.attach", {"session": "warm"})
        for number in range(40):
            started = time.perf_counter()
            with daemon.wire() as wire:
                wire.result("session.attach", {"session": f"new-{number}"})
                wire.result("exec", {"src": "6 * 7"})
                samples.append(time.perf_counter() - started)
    start_s = median(samples)
    rows = [Row("start", "attach to a new session, first result", start_s * 1e3, "ms",
                "ms", start_s * 1e3, "at most", 60)]  # fmt: skip
    kernel = jupyter.measure()
    if kernel is not None:
        rows.append(Row("start", "start of an IPython kernel", kernel.start_s * 1e3, "ms",
                        "attach", kernel.start_s / start_s, "at least", 10))  # fmt: skip
    return rows


def throughput() -> list[Row]:
    """Pipelined calls of one connection."""
    with Daemon("--log-level", "warn") as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "bench"})
        echo.round_trips(wire.socket, EXEC, WARM_UP)
        per_second = _pipelined(wire, EXEC, 10_000)
        reads = _pipelined(wire, _line("events.read", {"channel": "user.none"}), 40_000)
    return [
        Row("throughput", "exec, pipelined, one session", per_second, "/s", "/s", per_second,
            "at least", 2500),
        Row("throughput", "events.read, one connection", reads, "/s", "/s", reads, "at least",
        15_000),
    ]  # fmt: skip


def _pipelined(wire: Wire, line: bytes, count: int) -> float:
    def send() -> None:
        for _ in range(count // 100):
            wire.send(line * 100)

    sender = threading.Thread(target=send)
    started = time.perf_counter()
    sender.start()
    for _ in range(count):
        wire.line()
    elapsed = time.perf_counter() - started
    sender.join()
    return count / elapsed


def idle_sessions() -> list[Row]:
    """Memory of many idle sessions, as proportional set size."""
    with Daemon("--log-level", "warn", "--max-sessions", "256",) as daemon:  # fmt: skip  # noqa: SIM117
        with daemon.wire() as wire:
            for number in range(SESSIONS // 2):
                wire.result("session.attach", {"session": f"idle-{number}"})
                wire.result("exec", {"src": "1"})
            rows = wire.result("session.list")["sessions"]
            pids = [row["pid"] for row in rows if row["pid"]]
            sizes = [_proportional_bytes(pid) for pid in pids]
            router = _proportional_bytes(daemon.pid)
    mean = sum(sizes) / len(sizes) / 1e6
    return [
        Row("memory", f"each of {len(pids)} idle sessions", mean, "MB", "MB", mean, "at most", 10),
        Row("memory", "router beside them", router / 1e6, "MB", "MB", router / 1e6, "at most", 80),
    ]  # fmt: skip


def _proportional_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def abusive_clients() -> list[Row]:
    """A frame dripped byte by byte, and clients that connect and send nothing."""
    with Daemon("--log-level", "warn") as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "calm"})
        before = _resident_bytes(daemon.pid)
        silent = [socket.socket(socket.AF_UNIX) for _ in range(200)]
        for connection in silent:
            connection.connect(str(daemon.socket))
        wire.result("server.info")
        quiet = _resident_bytes(daemon.pid) - before
        for connection in silent:
            connection.close()
        dripping = daemon.wire()
        dripping.send(b'{"jsonrpc":"2.0","id":1,"method":"parse","params":{"src":"')
        for _ in range(15):
            dripping.send(b"x" * (1024 * 1024))
        for _ in range(5000):
            dripping.send(b"x")
        wire.result("server.info")
        held = _resident_bytes(daemon.pid) - before
        dripping.close()
    limit_mb = 16.8 * 2
    return [
        Row("abuse", "200 silent clients", quiet / 1e6, "MB", "MB", quiet / 1e6, "at most", 8),
        Row("abuse", "a frame of 15 MiB, dripped", held / 1e6, "MB", "MB", held / 1e6, "at most",
            limit_mb),
    ]  # fmt: skip


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
