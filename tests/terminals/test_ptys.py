"""Terminals with real programs on them (chapter 40 §14)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.processes import alive, eventually, open_descriptors, pids_in, state
from tests.commands.session import PLAIN_ENVIRONMENT, Session, program
from worker.commands.processes import TABLE
from worker.errors import Raised
from worker.ptys import UNREAD_INPUT_BYTES_MAX, Exit, Pty, PtyClosed, PtyFull, PtyTable


class Terminals:
    """A session's terminals, opened the short way."""

    def __init__(self, folder: Path) -> None:
        self.session = Session(str(folder))
        self.table = PtyTable()
        self.opened = 0

    def open(self, *words: str, cols: int = 40, rows: int = 6, **options: Any) -> Pty:
        self.opened += 1
        return self.table.open(
            self.session,  # type: ignore[arg-type]
            self.opened,
            words[0],
            list(words[1:]),
            cols=cols,
            rows=rows,
            env=options.pop("env", {}),
            **options,
        )

    def shell(self, script: str, **options: Any) -> Pty:
        return self.open("sh", "-c", script, **options)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.table.close_all()
    assert TABLE.running() == []


def shows(pty: Pty, text: str) -> bool:
    """Whether the text stands on the screen, now or soon."""
    return eventually(lambda: any(text in line for line in pty.read().screen))


def ended(pty: Pty) -> bool:
    return eventually(lambda: not pty.read().alive)


def test_program_sees_a_terminal_of_the_size_asked_for(terminals: Terminals) -> None:
    pty = terminals.shell("test -t 0 -a -t 1 -a -t 2 && stty size && tty", cols=50, rows=7)
    assert shows(pty, "/dev/pts/")
    assert pty.read().screen[0] == "7 50"


@pytest.mark.parametrize("asked, got", [(0, 1), (1, 1), (1000, 1000), (65535, 1000)])
def test_sizes_are_clamped(terminals: Terminals, asked: int, got: int) -> None:
    pty = terminals.open("sleep", "600", cols=asked, rows=asked)
    assert (pty.cols, pty.rows) == (got, got)


def test_child_leads_its_session_with_the_terminal_as_its_controlling_one(
    terminals: Terminals,
) -> None:
    pty = terminals.shell("echo through > /dev/tty; sleep 600")
    assert shows(pty, "through")
    assert os.getsid(pty.pid) == pty.pid
    assert os.getpgid(pty.pid) == pty.pid


def test_typed_text_is_echoed_and_read(terminals: Terminals) -> None:
    pty = terminals.shell("read line; echo got:$line; sleep 600")
    assert pty.send(b"hello\r") == 6
    assert shows(pty, "got:hello")
    assert pty.read().screen[:2] == ["hello", "got:hello"]


def test_interrupt_key_sends_sigint(terminals: Terminals) -> None:
    pty = terminals.shell(
        "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    )
    assert shows(pty, "ready")
    pty.send(b"\x03")
    assert ended(pty)
    assert pty.read().exit == Exit(3, None)


def test_read_reports_changes_of_the_text_once(terminals: Terminals) -> None:
    pty = terminals.shell('stty -echo; echo ready; while read -r x; do printf "$x"; done')
    assert shows(pty, "ready")
    assert not pty.read().changed
    pty.send(b"new\r")
    assert eventually(lambda: "new" in pty._screen.display[1])
    assert pty.read().changed
    assert not pty.read().changed
    # A cursor move or a colour is no change.
    pty.send(rb"\033[1;1H\033[31m" + b"\r")
    assert eventually(lambda: pty._screen.cursor.y == 0)
    assert not pty.read().changed
    pty.resize(pty.cols, pty.rows)
    assert pty.read().changed


def test_first_read_is_always_a_change(terminals: Terminals) -> None:
    assert terminals.open("sleep", "600").read().changed


def test_screen_has_exactly_the_rows_asked_for(terminals: Terminals) -> None:
    pty = terminals.shell("seq 100; sleep 600", rows=5)
    assert shows(pty, "100")
    assert pty.read().screen == ["97", "98", "99", "100", ""]


def test_cursor_is_reported_from_zero(terminals: Terminals) -> None:
    pty = terminals.shell(r"printf 'ab\033[?25l\033[3;5H'; sleep 600")
    assert eventually(lambda: (pty.read().row, pty.read().column) == (2, 4))
    assert pty.read().hidden


def test_resize_reaches_screen_and_program(terminals: Terminals) -> None:
    pty = terminals.shell("trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done")
    assert shows(pty, "ready")
    pty.resize(33, 9)
    assert shows(pty, "9 33")
    view = pty.read()
    assert (view.cols, view.rows, len(view.screen)) == (33, 9, 9)


def test_environment_is_the_sessions_with_extras_laid_over(terminals: Terminals) -> None:
    terminals.session.env[b"KEEP"] = b"kept"
    terminals.session.env[b"OVER"] = b"old"
    pty = terminals.shell(
        'echo "$KEEP $OVER $TERM ${SHELL:+shell}"; sleep 600', env={"OVER": "new"}
    )
    assert shows(pty, "kept new xterm-256color shell")


@pytest.mark.parametrize("where", ["session", "extra"])
def test_term_is_kept_when_given(terminals: Terminals, where: str) -> None:
    if where == "session":
        terminals.session.env[b"TERM"] = b"vt52"
        pty = terminals.shell("echo $TERM; sleep 600")
    else:
        pty = terminals.shell("echo $TERM; sleep 600", env={"TERM": "vt52"})
    assert shows(pty, "vt52")


def test_working_folder_is_the_sessions(terminals: Terminals, tmp_path: Path) -> None:
    pty = terminals.shell("pwd; sleep 600", cols=300)
    assert shows(pty, str(tmp_path.resolve()))


def test_command_is_looked_up_on_the_path_of_its_environment(
    terminals: Terminals, tmp_path: Path
) -> None:
    program(tmp_path, "special", "#!/bin/sh\necho special here\n/bin/sleep 600\n")
    pty = terminals.open("special", env={"PATH": str(tmp_path)})
    assert shows(pty, "special here")


@pytest.mark.parametrize(
    "words, code, text",
    [
        (("nosuchprogram",), "not_found", "nosuchprogram"),
        (("./nope",), "not_found", "(os error 2)"),
        (("/tmp",), "custom", "(os error 13)"),
        (("sh", "x" * 200_000), "custom", "(os error 7)"),
    ],
)
def test_programs_that_cannot_start_leave_nothing_behind(
    terminals: Terminals, words: tuple[str, ...], code: str, text: str
) -> None:
    before = open_descriptors()
    with pytest.raises(Raised) as caught:
        terminals.open(*words)
    assert caught.value.error.code == code
    assert text in caught.value.error.msg
    assert open_descriptors() == before
    assert terminals.table.list() == []


def test_program_that_ended_stays_listed_with_its_last_screen(terminals: Terminals) -> None:
    pty = terminals.shell("echo last words; exit 7")
    assert ended(pty)
    view = pty.read()
    assert (view.screen[0], view.exit, view.alive) == ("last words", Exit(7, None), False)
    assert terminals.table.list() == [pty]
    assert state(pty.pid) == ""
    assert terminals.table.close(pty.number) == (pty, Exit(7, None))
    assert terminals.table.close(pty.number) is None


def test_signal_death_is_named(terminals: Terminals) -> None:
    pty = terminals.shell("kill -TERM $$")
    assert ended(pty)
    assert pty.read().exit == Exit(None, "SIGTERM")


def test_close_kills_and_reaps(terminals: Terminals) -> None:
    pty = terminals.shell("trap '' HUP INT TERM; echo ready; while :; do sleep 0.05; done")
    assert shows(pty, "ready")
    before = open_descriptors()
    closed = terminals.table.close(pty.number)
    assert closed is not None
    assert closed[1] == Exit(None, "SIGKILL")
    assert state(pty.pid) == ""
    assert open_descriptors() < before


def test_close_ends_a_stopped_program(terminals: Terminals) -> None:
    pty = terminals.open("sleep", "600")
    os.kill(pty.pid, signal.SIGSTOP)
    assert eventually(lambda: state(pty.pid) == "T")
    closed = terminals.table.close(pty.number)
    assert closed is not None
    assert closed[1] == Exit(None, "SIGKILL")


def test_close_ends_what_the_program_started(terminals: Terminals, tmp_path: Path) -> None:
    script = "trap '' HUP; sleep 600 & echo $! > one; setsid sleep 600 & echo $! > two; wait"
    pty = terminals.shell(script)
    found = [pids_in(tmp_path / name)[0] for name in ("one", "two")]
    terminals.table.close(pty.number)
    assert eventually(lambda: not any(map(alive, found)))


def test_sending_to_an_ended_terminal_fails(terminals: Terminals) -> None:
    pty = terminals.shell("exit 0")
    assert ended(pty)
    with pytest.raises(PtyClosed):
        pty.send(b"x")


def test_unread_terminal_never_blocks_its_program(terminals: Terminals, tmp_path: Path) -> None:
    pty = terminals.shell("seq 200000; echo done > finished")
    assert ended(pty)
    assert (tmp_path / "finished").exists()


def test_program_that_does_not_read_blocks_nobody_and_cannot_be_flooded(
    terminals: Terminals,
) -> None:
    pty = terminals.shell("stty raw -echo; echo ready; sleep 600")
    assert shows(pty, "ready")
    piece = b"x" * (UNREAD_INPUT_BYTES_MAX // 4)
    with pytest.raises(PtyFull):
        for _ in range(10):
            pty.send(piece)
    assert pty.read().alive


def test_large_input_reaches_a_program_that_reads_late(terminals: Terminals) -> None:
    script = (
        "import os, sys, tty\n"
        "tty.setraw(0)\n"
        "print('ready', end='\\r\\n', flush=True)\n"
        "left = 300_000\n"
        "while left: left -= len(os.read(0, min(left, 65536)))\n"
        "print('all read', end='\\r\\n', flush=True)\n"
    )
    pty = terminals.open(sys.executable, "-c", script)
    assert shows(pty, "ready")
    pty.send(b"x" * 300_000)
    assert shows(pty, "all read")


def test_changes_are_announced_and_the_end_is(terminals: Terminals) -> None:
    heard: list[tuple[bool, bool]] = []
    over = threading.Event()

    def announce(changed: bool, still_alive: bool) -> None:
        heard.append((changed, still_alive))
        if not still_alive:
            over.set()

    terminals.shell("echo one; sleep 0.2; echo two; sleep 0.2", announce=announce)
    assert over.wait(10)
    assert heard[-1] == (True, False)
    assert heard.count((True, True)) == 2


def test_busy_terminal_is_announced_at_most_thirty_times_a_second(terminals: Terminals) -> None:
    heard: list[bool] = []
    over = threading.Event()

    def announce(_changed: bool, still_alive: bool) -> None:
        heard.append(still_alive)
        if not still_alive:
            over.set()

    terminals.shell("i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i + 1)); done", announce=announce)
    assert over.wait(20)
    assert 1 <= len(heard) <= 60


def test_full_screen_program_draws_its_screen(terminals: Terminals) -> None:
    script = (
        "import curses\n"
        "def main(s):\n"
        "    curses.curs_set(0)\n"
        "    s.border()\n"
        "    s.addstr(2, 3, 'inside')\n"
        "    s.refresh()\n"
        "    s.getkey()\n"
        "curses.wrapper(main)\n"
        "print('back')\n"
    )
    pty = terminals.open(sys.executable, "-c", script, cols=20, rows=5)
    assert shows(pty, "inside")
    view = pty.read()
    assert view.screen == [
        "┌" + "─" * 18 + "┐",
        "│" + " " * 18 + "│",
        "│  inside" + " " * 10 + "│",
        "│" + " " * 18 + "│",
        "└" + "─" * 18 + "┘",
    ]
    assert view.hidden
    pty.send(b"q")
    assert shows(pty, "back")
    assert ended(pty)
    assert "inside" not in "".join(pty.read().screen)


def test_terminals_are_listed_by_number(terminals: Terminals) -> None:
    numbers = [terminals.open("sleep", "600").number for _ in range(3)]
    assert [pty.number for pty in terminals.table.list()] == numbers
    assert terminals.table.get(numbers[1]) is terminals.table.list()[1]
    assert terminals.table.get(99) is None
    assert terminals.table.close_all() == 3
    assert terminals.table.list() == []


def test_plain_environment_of_these_tests_has_no_terminal_variables() -> None:
    assert not {b"TERM", b"SHELL"} & set(PLAIN_ENVIRONMENT)
