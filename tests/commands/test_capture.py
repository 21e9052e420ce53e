"""Captured output: limits, spilling, and children that leave their pipes to others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tests.commands.processes import alive, eventually, open_descriptors, pids_in
from tests.commands.session import Session
from worker.commands.capture import Collector
from worker.evaluate.host import Host, Limits
from worker.values.types import LazyBytes


@dataclass
class MemorySpill:
    """A spill that keeps its content; `fails_at` makes the write that passes it fail."""

    fails_at: int | None = None
    refuses: bool = False
    content: bytearray = field(default_factory=bytearray)
    dropped: bool = False

    def write(self, data: bytes | memoryview) -> None:
        if self.fails_at is not None and len(self.content) + len(data) > self.fails_at:
            raise OSError(28, "No space left on device")
        self.content += data

    def adopt(self, preview: bytes, *, truncated: bool) -> LazyBytes | None:
        if self.refuses:
            return None
        content = bytes(self.content)

        def load(offset: int, length: int | None) -> bytes:
            return content[offset:] if length is None else content[offset : offset + length]

        return LazyBytes(blake3(content).hexdigest(), len(content), preview, truncated, load)

    def drop(self) -> None:
        self.dropped = True


@dataclass
class Store:
    """A session journal that hands out one prepared spill, or none."""

    spill: MemorySpill | None = field(default_factory=MemorySpill)
    opened: int = 0

    def open_spill(self) -> MemorySpill | None:
        self.opened += 1
        return self.spill


def limited(tmp_path: Path, capture: int, spill: int = 1 << 20, store: Any = None) -> Session:
    return Session(str(tmp_path), host=Host(journal=store, limits=Limits(capture, spill)))


def numbers(count: int) -> bytes:
    return "".join(f"{i}\n" for i in range(1, count + 1)).encode()


# -- limits ----------------------------------------------------------------------------------------


def test_output_as_large_as_the_limit_is_complete(tmp_path: Path) -> None:
    store = Store()
    session = limited(tmp_path, 4096, store=store)
    outcome = session.shell("head -c 4096 /dev/zero")
    assert outcome.stdout == b"\0" * 4096
    assert store.opened == 0


def test_without_a_journal_stdout_is_cut_silently_and_the_child_ends_normally(
    tmp_path: Path,
) -> None:
    session = limited(tmp_path, 1000)
    outcome = session.shell("seq 200000; exit 3")
    assert outcome.stdout == numbers(1000)[:1000]
    assert outcome.status == 3


def test_stderr_is_cut_even_with_a_journal(tmp_path: Path) -> None:
    store = Store()
    session = limited(tmp_path, 1000, store=store)
    outcome = session.shell("seq 200000 >&2")
    assert outcome.stderr == numbers(1000)[:1000]
    assert store.opened == 0


def test_spilled_stdout_is_stored_from_its_first_byte(tmp_path: Path) -> None:
    store = Store()
    session = limited(tmp_path, 1000, store=store)
    stdout = session.shell("seq 50000").stdout
    assert isinstance(stdout, LazyBytes)
    content = numbers(50000)
    assert (stdout.length, stdout.truncated) == (len(content), False)
    assert stdout.hash == blake3(content).hexdigest()
    assert stdout.preview == content[:1000]
    assert stdout.load is not None
    assert stdout.load(0, None) == content


def test_spill_beyond_its_limit_is_a_truncated_prefix(tmp_path: Path) -> None:
    store = Store()
    session = limited(tmp_path, 1000, 5000, store=store)
    stdout = session.shell("seq 50000").stdout
    assert isinstance(stdout, LazyBytes)
    assert (stdout.length, stdout.truncated) == (5000, True)
    assert stdout.hash == blake3(numbers(50000)[:5000]).hexdigest()


@pytest.mark.parametrize("fails_at", [0, 999, 1000, 70_000])
def test_spill_that_cannot_be_written_degrades_to_the_prefix(tmp_path: Path, fails_at: int) -> None:
    spill = MemorySpill(fails_at=fails_at)
    session = limited(tmp_path, 1000, store=Store(spill))
    outcome = session.shell("seq 50000")
    assert (outcome.ok, outcome.stdout) == (True, numbers(1000)[:1000])
    assert spill.dropped


@pytest.mark.parametrize("spill", [None, MemorySpill(refuses=True)])
def test_spill_that_is_refused_degrades_to_the_prefix(
    tmp_path: Path, spill: MemorySpill | None
) -> None:
    session = limited(tmp_path, 1000, store=Store(spill))
    assert session.shell("seq 50000").stdout == numbers(1000)[:1000]


@pytest.mark.parametrize("chunks", [[10], [4, 6], [1] * 10, [3, 9, 2], [7, 7]])
@pytest.mark.parametrize("limit", [0, 1, 5, 10, 20])
def test_collector_keeps_prefix_and_whole_for_any_chunking(chunks: list[int], limit: int) -> None:
    whole = bytes(range(sum(chunks)))
    store = Store()
    collector = Collector(limit, store, 1 << 20)
    offset = 0
    for size in chunks:
        collector.add(whole[offset : offset + size])
        offset += size
    result = collector.result()
    if len(whole) <= limit:
        assert result == whole
    else:
        assert isinstance(result, LazyBytes)
        assert result.preview == whole[:limit]
        assert result.load is not None
        assert result.load(0, None) == whole


# -- children that leave others behind -------------------------------------------------------------


def test_background_server_does_not_hold_up_the_answer(session: Session, tmp_path: Path) -> None:
    started = time.monotonic()
    outcome = session.shell("sleep 600 & echo $! > pid; echo started")
    elapsed = time.monotonic() - started
    (pid,) = pids_in(tmp_path / "pid")
    try:
        assert (outcome.ok, outcome.stdout) == (True, b"started\n")
        assert elapsed < 5
        assert alive(pid)
    finally:
        session.shell(f"kill -9 {pid}")


def test_output_just_after_the_child_ended_still_counts(session: Session) -> None:
    outcome = session.run("bash", "-c", "echo direct; echo through > >(cat)")
    assert outcome.stdout == b"direct\nthrough\n"


def test_later_output_of_a_descendant_is_dropped_and_does_not_end_it(
    session: Session, tmp_path: Path
) -> None:
    # The server writes far more than a pipe holds: it would block, or die of SIGPIPE, if nobody
    # read its output.
    script = """
        (
            while [ ! -e go ]; do sleep 0.01; done
            seq 300000; seq 300000 >&2
            echo done > finished
        ) &
        echo started
    """
    outcome = session.shell(script)
    assert outcome.stdout == b"started\n"
    (tmp_path / "go").touch()
    assert eventually(lambda: (tmp_path / "finished").exists())
    assert session.shell("echo next").stdout == b"next\n"


def test_descriptors_of_left_pipes_are_closed_when_their_holder_ends(
    session: Session, tmp_path: Path
) -> None:
    session.shell("sleep 0 & wait")
    before = open_descriptors()
    session.shell("(while [ ! -e go ]; do sleep 0.01; done) & echo started")
    assert open_descriptors() > before
    (tmp_path / "go").touch()
    # The table's own thread keeps a pair of descriptors once it runs.
    assert eventually(lambda: open_descriptors() <= before + 2)


def test_child_that_closes_its_pipes_is_waited_for(session: Session) -> None:
    outcome = session.shell("exec >&- 2>&-; sleep 0.2; exit 7")
    assert outcome.status == 7
    assert outcome.dur_ns >= 200_000_000
