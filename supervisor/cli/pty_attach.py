"""`shoal pty attach`: one's own terminal as a window on a terminal of the kernel (chapter 81 §7.8).

The own terminal is in raw mode; every key goes to the program as bytes, its screen is read and the
rows that changed are drawn. Reading is frequent while things change and rests otherwise. The prefix
Ctrl-] begins a command: `d` detaches, `q` closes, `r` redraws, Ctrl-] sends itself.

Failure: exit 2 without a terminal; errors of the kernel end the window. The own terminal is
restored on every way out.
"""

from __future__ import annotations

import base64
import os
import select
import signal
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from wcwidth import wcwidth

from ipc.client import Client
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure

BUSY_S: Final = 0.033
IDLE_S: Final = 0.2
PREFIX: Final = 0x1D
COLUMNS: Final = 80
LINES: Final = 24
_READ_BYTES: Final = 65536
_SIGNAL_BASE: Final = 128

_ENTER: Final = "\x1b[?1049h\x1b[2J"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HIDE: Final = "\x1b[?25l"
_SHOW: Final = "\x1b[?25h"


def attach_to(call: Call, client: Client, ref: str) -> int:
    """Show a terminal until it ends or the user leaves; the exit code."""
    if not (os.isatty(0) and os.isatty(1)):
        raise Failure("needs a terminal", Exit.USAGE)
    with _raw_terminal(), _size_changes() as resized:
        ending = _Window(client, ref, resized).run()
    if ending is None:
        call.out.line(f"[{ref} detached]")
        return Exit.SUCCESS
    text, code = _ending(ref, ending)
    call.out.line(text)
    return code


def _ending(ref: str, ending: dict[str, Any]) -> tuple[str, int]:
    if ending["signal"] is None:
        return f"[{ref} exited status {ending['status']}]", int(ending["status"])
    name = str(ending["signal"])
    return f"[{ref} killed by {name}]", _SIGNAL_BASE + _signal_number(name)


def _signal_number(name: str) -> int:
    """The number of `SIGTERM`, or of a nameless `SIG34`."""
    try:
        return int(signal.Signals[name])
    except KeyError:
        digits = name.removeprefix("SIG")
        return int(digits) if digits.isdigit() else 0


@contextmanager
def _raw_terminal() -> Iterator[None]:
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        _write(_ENTER)
        yield
    finally:
        _write(_LEAVE)
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _size_changes() -> Iterator[int]:
    """A descriptor that is readable after the own terminal changed its size."""
    changed, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: _poke(wake))
    try:
        yield changed
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(changed)
        os.close(wake)


def _poke(fd: int) -> None:
    try:
        os.write(fd, b"\0")
    except BlockingIOError:
        return


def _write(text: str) -> None:
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(1, data) :]


def _own_size() -> tuple[int, int]:
    """Columns and lines of the own terminal; some lines do not know theirs and say 0."""
    size = os.get_terminal_size(1)
    return size.columns or COLUMNS, size.lines or LINES


class Keys:
    """What is typed, cut into bytes for the program and commands of the window.

    `take` gives the bytes before the first command, the command's letter or an empty one, and the
    rest.
    """

    def __init__(self) -> None:
        self._prefixed = False

    def take(self, data: bytes) -> tuple[bytes, str, bytes]:
        """Unknown letters behind the prefix are dropped with it."""
        sent = bytearray()
        for place, byte in enumerate(data):
            if not self._prefixed:
                if byte == PREFIX:
                    self._prefixed = True
                else:
                    sent.append(byte)
                continue
            self._prefixed = False
            if byte == PREFIX:
                sent.append(byte)
            elif chr(byte) in "dqr":
                return bytes(sent), chr(byte), data[place + 1 :]
        return bytes(sent), "", b""


class Painter:
    """The rows as they stand on the own terminal; gives what must be written to change them."""

    def __init__(self) -> None:
        self._rows: list[str] = []
        self._size = (0, 0)
        self._cursor: dict[str, Any] = {}

    def forget(self) -> None:
        self._rows = []
        self._cursor = {}

    def paint(self, view: dict[str, Any], columns: int, lines: int) -> str:
        rows = [fitting(row, columns) for row in view["screen"][:lines]]
        cursor = view["cursor"]
        if rows == self._rows and cursor == self._cursor and (columns, lines) == self._size:
            return ""
        self._cursor = cursor
        parts = [_HIDE]
        if (columns, lines) != self._size or len(rows) != len(self._rows):
            parts.append("\x1b[2J")
            self._rows = [""] * len(rows)
            self._size = (columns, lines)
        for number, (row, before) in enumerate(zip(rows, self._rows, strict=True), 1):
            if row != before:
                parts.append(f"\x1b[{number};1H{row}\x1b[K")
        self._rows = rows
        row, column = min(cursor["row"], lines - 1), min(cursor["col"], columns - 1)
        parts.append(f"\x1b[{row + 1};{column + 1}H")
        if not cursor["hidden"]:
            parts.append(_SHOW)
        return "".join(parts)


def fitting(row: str, columns: int) -> str:
    """The beginning of a row that fits into so many columns."""
    used = 0
    for place, char in enumerate(row):
        used += max(wcwidth(char), 0)
        if used > columns:
            return row[:place]
    return row


class _Window:
    def __init__(self, client: Client, ref: str, resized: int) -> None:
        self._client = client
        self._ref = {"pty_id": ref}
        self._resized = resized
        self._keys = Keys()
        self._painter = Painter()
        self._wait_s = BUSY_S

    def run(self) -> dict[str, Any] | None:
        """How the program ended; None when the user left it running."""
        self._fit()
        due = 0.0
        while True:
            left = max(due - time.monotonic(), 0.0)
            ready, _, _ = select.select([0, self._resized], [], [], left)
            if self._resized in ready:
                os.read(self._resized, _READ_BYTES)
                self._fit()
            if 0 in ready:
                typed = os.read(0, _READ_BYTES)
                if not typed:
                    return None
                command = self._type(typed)
                if command == "d":
                    return None
                if command == "q":
                    ending = self._client.call("pty.close", self._ref)["exit"]
                    return ending or {"status": 0, "signal": None}
                self._wait_s = BUSY_S
                due = min(due, time.monotonic() + BUSY_S)
            if time.monotonic() >= due:
                ending = self._look()
                if ending is not None:
                    return ending
                due = time.monotonic() + self._wait_s

    def _fit(self) -> None:
        """Give the program's terminal the size of the own one."""
        columns, lines = _own_size()
        self._client.call("pty.resize", {**self._ref, "cols": columns, "rows": lines})
        self._painter.forget()
        self._wait_s = BUSY_S

    def _type(self, data: bytes) -> str:
        """Send what was typed; the command that ends the window, or nothing."""
        while data:
            sent, command, data = self._keys.take(data)
            if sent:
                item = {"bytes": base64.b64encode(sent).decode()}
                self._client.call("pty.send", {**self._ref, "input": item})
            if command == "r":
                self._painter.forget()
            elif command:
                return command
        return ""

    def _look(self) -> dict[str, Any] | None:
        view = self._client.call("pty.read", self._ref)
        self._wait_s = BUSY_S if view["changed"] else min(self._wait_s * 1.5, IDLE_S)
        _write(self._painter.paint(view, *_own_size()))
        ending: dict[str, Any] | None = view["exit"]
        return ending
