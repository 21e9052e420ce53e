"""Programs of the language against the same Python, in one run.

Both sides are measured in processor time of their thread, so that other programs on the machine
change little, and each is the best of several tries, which disturbances touch least. Memory is the
peak of a fresh process per size.

Failure: a program that raises fails the benchmark.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Row
from worker.evaluate.evaluator import bare_evaluator
from worker.evaluate.host import Host, nowhere
from worker.evaluate.threads import run_on_evaluator_stack
from worker.language import parse

TRIES: Final = 5
ROUNDS: Final = 1_000_000
CALLS: Final = 100_000
RECORDS: Final = 200_000
FILES: Final = 20_000
SOURCE_BYTES: Final = 400_000
STREAMED_BYTES: Final = (4 << 20, 64 << 20)
_LOG_LINE: Final = b"2031-05-04 09:30:00 host service[42]: an ordinary line of a log\n"

GROUP: Final = "language"

# What people write, in the proportions in which they write it; the benchmark repeats it with other
# names until it is large.
_ORDINARY_SOURCE: Final = """\
# Reports of the night, one line a host.
fn report_@(host: str, limit: size = 20mb, quiet: bool = false) {
    let rows_@ = (ls -a /var/log).where(.size > limit).sort_by(.modified)
    if rows_@.is_empty() { return "{host}: nothing above {limit}" }
    var total_@ = 0b
    for row in rows_@ {
        total_@ += row.size
        if !quiet && row.size > 2 * limit { echo "big: {row.name} with {row.size}" }
    }
    let names_@ = rows_@.map(r => r.name.lower()).where(n => n.ends_with(".log")).join(", ")
    { host: host, total: total_@, names: names_@, newest: rows_@.last()?.modified ?? null }
}

let known_@ = ["alpha", "beta", "gamma"].map(h => report_@(h, quiet: true))
match known_@.first() {
    {total, names} if total > 1gb => { echo "{names} need room" }
    str text => null
    _ => known_@.each(k => channel("user.reports").emit(k))
}
with cwd: "/srv/app", env: {MODE: "night"} {
    git status --short > status-@.txt
    rsync -a --delete ./out/ backup:/srv/out/ && echo done || echo "failed: {env.MODE}"
}
let port_@ = config.get("port").parse_int() catch e { if e.code == "arg_error" { 7070 } else { 0 } }
while port_@ < 10 { retry(3, () => http.get("http://localhost:{port_@}/health"), delay: 300ms) }
"""


def counting() -> None:
    i = 0
    while i < ROUNDS:
        i += 1


def add(a: int, b: int, c: int) -> int:
    return a + b + c


def calling() -> int:
    r = 0
    for i in range(CALLS):
        r = add(i, 2, 3)
    return r


def spent(run: Callable[[], object]) -> float:
    """Processor seconds of this thread, the least of several tries."""
    times = []
    for _ in range(TRIES):
        before = time.thread_time()
        run()
        times.append(time.thread_time() - before)
    return min(times)


class Programs:
    """One evaluator with values bound to names, and the programs that use them."""

    def __init__(self, cwd: str, **values: Any) -> None:
        self._evaluator = bare_evaluator(cwd, Host(sink=nowhere))
        for name, value in values.items():
            self._evaluator.root.declare(name, value)

    def spent(self, src: str) -> float:
        return spent(lambda: self._evaluator.evaluate_source(src))

    def run(self, src: str) -> None:
        self._evaluator.evaluate_source(src)


def speed() -> list[Row]:
    """Loops, collections, calls, sorting, parsing and listing."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        return run_on_evaluator_stack(
            lambda: [*_loops(scratch), *_collections(scratch), *_calls(scratch),
                     *_sorting(scratch), _parsing(), _listing(Path(scratch))]
        )  # fmt: skip


def _loops(scratch: str) -> list[Row]:
    python = spent(counting)
    loop = f"var i = 0\nwhile i < {ROUNDS} {{ i += 1 }}"
    function = f"fn go() {{ {loop} }}\ngo()"
    programs = Programs(scratch)
    return [
        _against("a while loop of a million rounds", programs.spent(loop), python, 10),
        _against("the same in a function", programs.spent(function), python, 10),
    ]


def _collections(scratch: str) -> list[Row]:
    numbers = list(range(ROUNDS))
    programs = Programs(scratch, numbers=numbers)
    pairs: dict[str, tuple[str, Callable[[], object]]] = {
        "map over a million": ("numbers.map(n => n * 2)", lambda: [n * 2 for n in numbers]),
        "where over a million": (
            "numbers.where(n => n % 3 == 0)", lambda: [n for n in numbers if n % 3 == 0],
        ),
        "sum of a million": ("numbers.sum()", lambda: sum([n for n in numbers])),  # noqa: C416
        "map, where and sum in a chain": (
            "numbers.map(n => n * 2).where(n => n % 3 == 0).sum()",
            lambda: sum([m for m in [n * 2 for n in numbers] if m % 3 == 0]),
        ),
    }  # fmt: skip
    return [
        _against(name, programs.spent(src), spent(python), 8)
        for name, (src, python) in pairs.items()
    ]


def _calls(scratch: str) -> list[Row]:
    src = f"fn f(a, b, c) {{ a + b + c }}\nvar r = 0\nfor i in 0..{CALLS} {{ r = f(i, 2, 3) }}"
    python = spent(calling)
    ours = Programs(scratch).spent(src)
    return [_against("100,000 calls of three arguments", ours, python, 12)]


def _sorting(scratch: str) -> list[Row]:
    # A fixed disorder: the same on every machine and in every run.
    rows: list[dict[str, Any]] = [
        {"id": i, "n": i * 7919 % RECORDS, "name": f"row {i}"} for i in range(RECORDS)
    ]
    programs = Programs(scratch, rows=rows)
    return [
        _against(
            f"sorting 200,000 records by a {kind}",
            programs.spent(f"rows.sort_by(.{field})"),
            spent(partial(_sorted, rows, field)),
            3,
        )
        for kind, field in (("number", "n"), ("text", "name"))
    ]


def _sorted(rows: list[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row[field])


def _parsing() -> Row:
    parts: list[str] = []
    size = 0
    while size < SOURCE_BYTES:
        parts.append(_ORDINARY_SOURCE.replace("@", str(len(parts))))
        size += len(parts[-1])
    text = "".join(parts)
    rate = len(text) / 1e6 / spent(lambda: parse(text))
    return Row(GROUP, "parsing", rate, "MB/s", "0.5 MB/s", rate / 0.5, "at least", 1)


def _listing(scratch: Path) -> Row:
    crowd = scratch / "crowd"
    crowd.mkdir()
    for number in range(FILES):
        (crowd / f"file-{number:05}.txt").touch()

    def scan() -> list[tuple[str, os.stat_result]]:
        with os.scandir(crowd) as entries:
            return [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]

    python = spent(scan)
    return _against("ls of 20,000 files", Programs(str(crowd)).spent("ls"), python, 3)


def _against(name: str, ours: float, python: float, bound: float) -> Row:
    return Row(GROUP, name, ours * 1e3, "ms", "Python", ours / python, "at most", bound)


def stream_memory() -> list[Row]:
    """The peak of a process that streams a file, for a small one and one sixteen times as large."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        peaks = [_peak_of_streaming(Path(scratch), size) for size in STREAMED_BYTES]
    small, large = peaks
    return [
        Row(GROUP, "peak of a stream over 4 MiB", small / 1e6, "MB"),
        Row(GROUP, "peak of a stream over 64 MiB", large / 1e6, "MB", "the stream over 4 MiB",
            large / small, "at most", 1.1),
    ]  # fmt: skip


def _peak_of_streaming(scratch: Path, size: int) -> int:
    file = scratch / "log.txt"
    lines = size // len(_LOG_LINE)
    with file.open("wb") as out:
        for _ in range(lines // 1024):
            out.write(_LOG_LINE * 1024)
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.language", str(file), str(lines // 1024 * 1024)],
        stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[1],
    )  # fmt: skip
    # A tail that could not keep up says so before the next line: give it lines until it has.
    while True:
        try:
            printed, _ = child.communicate(timeout=0.05)
        except subprocess.TimeoutExpired:
            with file.open("ab") as out:
                out.write(_LOG_LINE)
        else:
            if child.returncode:
                raise subprocess.CalledProcessError(child.returncode, child.args)
            return int(printed)


def _stream_and_report(file: str, lines: str) -> None:
    """Stream a file until all its lines were seen, or counted, and print this process's peak."""
    src = f"""
        fn weight(item) {{ match item {{ str line => 1; record gap => gap.dropped }} }}
        tail("{file}", from_start: true)
            .map(item => weight(item))
            .scan(0, (seen, n) => seen + n)
            .where(seen => seen >= {lines})
            .take(1).collect()
    """
    run_on_evaluator_stack(lambda: Programs("/").run(src))
    sys.stdout.write(str(_peak()))


def _peak() -> int:
    """The most memory this program has held, in bytes.

    On Linux getrusage would include what the parent held before it started this program.
    """
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say how much memory this process held")


if __name__ == "__main__":
    _stream_and_report(*sys.argv[1:])
