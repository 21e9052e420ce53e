"""`shoal pty attach` on a real terminal, and its parts."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.pty_attach import Keys, Painter, fitting
from tests.cli.program import WAIT_S, Program
from tests.system.daemon import Daemon

PREFIX = b"\x1d"


class Screen:
    """A terminal with the command on it; keeps everything that was written."""

    def __init__(self, program: Program, socket: Path, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*program.command(), "pty", *words[:1], "--socket", str(socket), *words[1:]],
            stdin=slave, stdout=slave, stderr=slave, env={**program.environ, "TERM": "xterm"},
            cwd=program.root,
        )  # fmt: skip
        os.close(slave)
        self.written = b""
        # What is typed before the terminal is raw would be echoed by it, and then dropped.
        assert self.until(b"\x1b[?1049h"), self.written

    def until(self, text: bytes, seconds: float = WAIT_S) -> bool:
        """Whether the text has been written, now or soon."""
        deadline = time.monotonic() + seconds
        while text not in self.written and time.monotonic() < deadline:
            self._more(0.1)
        return text in self.written

    def _more(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:
            return False
        self.written += piece
        return bool(piece)

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def ended(self) -> int:
        while self._more(0.5) and self.process.poll() is None:
            pass
        return self.process.wait(WAIT_S)


@pytest.fixture
def kernel() -> Iterator[Daemon]:
    with Daemon() as daemon:
        yield daemon


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_keys_reach_the_program_and_its_end_is_the_exit(kernel: Daemon, program: Program) -> None:
    script = 'echo ready; read word; echo "got $word"; sleep 0.3; exit 5'
    screen = Screen(program, kernel.socket, "open", "--attach", "sh", "-c", script)
    assert screen.until(b"ready"), screen.written
    screen.type(b"typed\r")
    assert screen.until(b"got typed")
    assert screen.ended() == 5
    assert b"[pty:1 exited status 5]" in screen.written
    # The own terminal is itself again.
    assert screen.written.rindex(b"\x1b[?1049l") > screen.written.rindex(b"got typed")


def test_detaching_leaves_the_program_and_attaching_finds_it(
    kernel: Daemon, program: Program
) -> None:
    screen = Screen(program, kernel.socket, "open", "--attach", "cat")
    screen.type(b"kept here")
    assert screen.until(b"kept here")
    screen.type(PREFIX + b"d")
    assert screen.ended() == 0
    assert b"[pty:1 detached]" in screen.written
    again = Screen(program, kernel.socket, "attach", "1")
    assert again.until(b"kept here")
    again.type(PREFIX + b"q")
    assert again.ended() == 128 + 9
    assert b"[pty:1 killed by SIGKILL]" in again.written


def test_without_a_terminal_it_says_so(kernel: Daemon, program: Program) -> None:
    ran = program.run("pty", "attach", "--socket", str(kernel.socket), "1")
    assert (ran.code, "needs a terminal" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"plain", (b"plain", "", b"")),
        (b"a" + PREFIX + b"dz", (b"a", "d", b"z")),
        (b"a" + PREFIX + PREFIX + b"b", (b"a" + PREFIX + b"b", "", b"")),
        (PREFIX + b"x" + b"y", (b"y", "", b"")),
    ],
)
def test_prefix_and_commands(data: bytes, expected: tuple[bytes, str, bytes]) -> None:
    assert Keys().take(data) == expected


def test_a_prefix_at_the_end_waits_for_its_letter() -> None:
    keys = Keys()
    assert keys.take(b"a" + PREFIX) == (b"a", "", b"")
    assert keys.take(b"q") == (b"", "q", b"")


def test_only_changed_rows_are_drawn() -> None:
    painter = Painter()
    cursor = {"row": 0, "col": 0, "hidden": False}
    painter.paint({"screen": ["one", "two"], "cursor": cursor}, 80, 24)
    written = painter.paint({"screen": ["one", "new"], "cursor": cursor}, 80, 24)
    assert "new" in written
    assert "one" not in written
    painter.forget()
    assert "one" in painter.paint({"screen": ["one", "new"], "cursor": cursor}, 80, 24)


@pytest.mark.parametrize(
    "row, columns, seen", [("abc", 2, "ab"), ("日本", 3, "日"), ("ab", 9, "ab")]
)
def test_rows_are_cut_at_the_own_width(row: str, columns: int, seen: str) -> None:
    assert fitting(row, columns) == seen
