"""The terminals of a session: programs on pseudo terminals that clients type into and look at.

A `Pty` is one program with its terminal, its emulated screen and one thread. The thread reads all
output as it comes, so an unread terminal never blocks its program; it writes input when the program
takes it, reaps the program, and says when something visible changed. `PtyTable` holds the terminals
of one session by the number the router gave them.

Failure: `open` raises the language error of a program that cannot start (`spawn_denied`,
`leash_denied`, or the system's text), and leaves nothing behind. Sending to a terminal that has
ended, or that has too much unread input, raises PtyClosed or PtyFull. Whatever drops a terminal
kills its process group and everything below it, and reaps.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.commands.capture import Ending, EndOfProcess, reap
from worker.commands.interactive import on_terminal, open_terminal, set_size
from worker.commands.outcome import ending_fields
from worker.commands.processes import TABLE, Running
from worker.commands.proctree import signal_group, signal_process
from worker.commands.spawn import start, start_failure
from worker.terminals.screen import Screen
from worker.terminals.sequences import Decoder

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

READ_BYTES: Final = 1 << 16
BATCH_BYTES: Final = 1 << 18
FLOOD_BYTES: Final = 1 << 13
FLOOD_WAIT_S: Final = 0.01
SIZE_MIN: Final = 1
SIZE_MAX: Final = 1000
# Input the program has not taken yet; a client cannot make it grow further.
UNREAD_INPUT_BYTES_MAX: Final = 1 << 20
# Changes are announced at most this often, and always once after the last one.
ANNOUNCE_INTERVAL_S: Final = 1 / 30
DEFAULT_TERM: Final = b"xterm-256color"

Announce = Callable[[bool, bool], None]


class PtyClosed(Exception):
    """The terminal has ended: nothing can be written to it. The text is the system's."""


class PtyFull(PtyClosed):
    """The program does not read its input."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How the program ended; exactly one is set."""

    status: int | None
    signal: str | None


@dataclass(frozen=True, slots=True)
class View:
    """What a read shows: the rows as text, the cursor, and the state of the program."""

    screen: list[str]
    row: int
    column: int
    hidden: bool
    cols: int
    rows: int
    changed: bool
    alive: bool
    exit: Exit | None


class Pty:
    # Screen, decoder, sizes, `_seen` and the unread input change under `_lock`; the descriptor and
    # everything about the process belong to the thread. `_seen` is the text of the last read, None
    # before the first and after a resize. `alive` goes to False once and never back.

    def __init__(
        self, number: int, command: str, running: Running, master: int, cols: int, rows: int,
        announce: Announce | None,
    ) -> None:  # fmt: skip
        self.number = number
        self.command = command
        self.pid = running.pid
        self.alive = True
        self.exit: Exit | None = None
        self._running = running
        self._master = master
        self._lock = threading.Lock()
        self._screen = Screen(cols, rows)
        self._decoder = Decoder(self._screen)
        self._seen: list[str] | None = None
        self._unread = bytearray()
        self._announce = announce
        self._closing = False
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(master, False)
        self._thread = threading.Thread(target=self._serve, name=f"pty-{number}", daemon=True)
        self._thread.start()

    # -- what clients do -----------------------------------------------------------------------

    @property
    def cols(self) -> int:
        return self._screen.columns

    @property
    def rows(self) -> int:
        return self._screen.lines

    def read(self) -> View:
        """The screen as it is now; says whether its text differs from that of the last read."""
        with self._lock:
            screen = self._screen
            lines = screen.display
            changed = lines != self._seen
            self._seen = lines
            cursor = screen.cursor
            return View(
                lines, cursor.y, cursor.x, cursor.hidden, screen.columns, screen.lines,
                changed, self.alive, self.exit,
            )  # fmt: skip

    def send(self, data: bytes) -> int:
        """Queue input; the number of bytes. Never waits for the program."""
        with self._lock:
            if not self.alive:
                raise PtyClosed("Input/output error (os error 5)")
            if len(self._unread) + len(data) > UNREAD_INPUT_BYTES_MAX:
                raise PtyFull("the program does not read its input")
            self._unread += data
            self._wake()
        return len(data)

    def resize(self, cols: int, rows: int) -> None:
        """Change to the clamped size; the program gets SIGWINCH when it is a change."""
        cols, rows = clamped(cols), clamped(rows)
        with self._lock:
            self._screen.resize(rows, cols)
            self._seen = None
            if self.alive:
                with contextlib.suppress(OSError):
                    set_size(self._master, cols, rows)

    def close(self) -> Exit | None:
        """Kill what still runs and wait until it is gone; how the program ended."""
        with self._lock:
            self._closing = True
            self._wake()
        self._thread.join()
        return self.exit

    # -- the thread ----------------------------------------------------------------------------

    def _wake(self) -> None:
        """Make the thread look; call with the lock held."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"\0")

    def _serve(self) -> None:
        try:
            _Service(self).run()
        finally:
            with self._lock:
                self.alive = False
                for fd in (self._master, self._wake_read, self._wake_write):
                    os.close(fd)
                self._master = self._wake_read = self._wake_write = -1
            if self._announce is not None and not self._closing:
                self._announce(True, False)


class _Service:
    """The loop of one terminal's thread, from its start until program and stream have ended."""

    def __init__(self, pty: Pty) -> None:
        self._pty = pty
        self._open = True
        self._ending: Ending | None = None
        self._exit: Exit | None = None
        self._writing = False
        self._announced: list[str] = []
        self._announce_due: float | None = None
        self._announced_at = 0.0
        self._poller = select.poll()
        # Waits for more output alone.
        self._more = select.poll()

    def run(self) -> None:
        pty = self._pty
        end = EndOfProcess(pty.pid)
        try:
            self._poller.register(pty._master, select.POLLIN)
            self._more.register(pty._master, select.POLLIN)
            self._poller.register(pty._wake_read, select.POLLIN)
            self._poller.register(end.fd, select.POLLIN)
            while (self._open or self._ending is None) and not pty._closing:
                self._want_to_write()
                for fd, events in self._poller.poll(self._timeout_ms()):
                    if fd == end.fd:
                        self._poller.unregister(fd)
                        self._reap()
                    elif fd == pty._wake_read:
                        with contextlib.suppress(BlockingIOError):
                            os.read(fd, READ_BYTES)
                    else:
                        self._transfer(events)
                self._announce_changes()
        finally:
            end.close()
            self._kill()

    def _want_to_write(self) -> None:
        pty = self._pty
        with pty._lock:
            wanted = bool(pty._unread) and self._open
        if wanted != self._writing and self._open:
            self._writing = wanted
            events = select.POLLIN | (select.POLLOUT if wanted else 0)
            self._poller.modify(pty._master, events)

    def _transfer(self, events: int) -> None:
        pty = self._pty
        if events & select.POLLOUT:
            with pty._lock, contextlib.suppress(OSError):
                del pty._unread[: os.write(pty._master, pty._unread)]
        if events & ~select.POLLOUT:
            data = self._output()
            if data:
                with pty._lock:
                    pty._decoder.feed(data)
                if self._announce_due is None:
                    self._announce_due = self._announced_at + ANNOUNCE_INTERVAL_S
            if not self._open:
                self._poller.unregister(pty._master)

    def _output(self) -> bytes:
        """What the terminal has to give now, up to a limit: it comes in small pieces, and the more
        is known at once the less of what scrolls away is drawn. A flood is worth a short wait."""
        pieces = []
        size = 0
        until = time.monotonic() + FLOOD_WAIT_S
        while size < BATCH_BYTES:
            try:
                piece = os.read(self._pty._master, READ_BYTES)
            except BlockingIOError:
                left = until - time.monotonic()
                if size < FLOOD_BYTES or left <= 0 or not self._more.poll(left * 1000):
                    break
                continue
            except OSError:
                # EIO: the last holder of the terminal is gone.
                piece = b""
            if not piece:
                self._open = False
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _reap(self) -> None:
        pty = self._pty
        self._ending = reap(pty.pid)
        TABLE.reaped(pty._running)
        # Set together with `alive`: an exit is shown once the stream has ended too.
        self._exit = Exit(*ending_fields(self._ending))

    def _timeout_ms(self) -> float | None:
        if self._announce_due is None:
            return None
        return max(0.0, (self._announce_due - time.monotonic()) * 1000.0) + 0.5

    def _announce_changes(self) -> None:
        pty = self._pty
        now = time.monotonic()
        if self._announce_due is None or now < self._announce_due:
            return
        self._announce_due = None
        self._announced_at = now
        if pty._announce is None:
            return
        with pty._lock:
            lines = pty._screen.display
        if lines != self._announced:
            self._announced = lines
            pty._announce(True, True)

    def _kill(self) -> None:
        """End everything on the terminal, and the record of the program's end with it."""
        pty = self._pty
        if self._ending is None:
            strays = TABLE.strays_of(pty._running)
            signal_group(pty.pid, signal.SIGCONT)
            signal_group(pty.pid, signal.SIGKILL)
            for stray in strays:
                signal_process(stray, signal.SIGKILL)
            self._reap()
        elif self._open:
            # The program is gone, but something it started still holds the terminal.
            for member in TABLE.members_of(pty._running):
                signal_process(member, signal.SIGKILL)
        with pty._lock:
            pty.exit = self._exit
            pty.alive = False


class PtyTable:
    """The terminals of one session by number."""

    # `_ptys` changes under `_lock`; a terminal is in it from its start to its close.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ptys: dict[int, Pty] = {}

    def open(
        self,
        ev: Evaluator,
        number: int,
        cmd: str,
        args: list[str],
        *,
        cols: int,
        rows: int,
        env: Mapping[str, str],
        announce: Announce | None = None,
    ) -> Pty:
        """Start a program on a fresh terminal of the clamped size, in the session's directory."""
        cols, rows = clamped(cols), clamped(rows)
        argv = [word.encode("utf-8", "surrogateescape") for word in (cmd, *args)]
        master: int | None = None
        try:
            master, slave = open_terminal(cols, rows)
            try:
                running, _ = start(
                    ev,
                    argv,
                    on_terminal(os.ttyname(slave)),
                    env=terminal_environment(ev.env, env),
                    resolve_tool=False,
                )
            finally:
                os.close(slave)
            try:
                pty = Pty(number, " ".join((cmd, *args)), running, master, cols, rows, announce)
            except BaseException:
                signal_group(running.group, signal.SIGKILL)
                reap(running.pid)
                TABLE.reaped(running)
                raise
        except BaseException as failure:
            if master is not None:
                os.close(master)
            if isinstance(failure, OSError):
                raise start_failure(argv[0], failure, None) from None
            raise
        with self._lock:
            self._ptys[number] = pty
        return pty

    def get(self, number: int) -> Pty | None:
        with self._lock:
            return self._ptys.get(number)

    def list(self) -> list[Pty]:
        """All terminals, ascending by number."""
        with self._lock:
            return [self._ptys[number] for number in sorted(self._ptys)]

    def close(self, number: int) -> tuple[Pty, Exit | None] | None:
        """Close and forget a terminal; None when there is none of that number."""
        with self._lock:
            pty = self._ptys.pop(number, None)
        return None if pty is None else (pty, pty.close())

    def close_all(self) -> int:
        """Close every terminal; how many there were."""
        numbers = [pty.number for pty in self.list()]
        return sum(self.close(number) is not None for number in numbers)


def clamped(size: int) -> int:
    return max(SIZE_MIN, min(SIZE_MAX, size))


def terminal_environment(
    session: Mapping[bytes, bytes], extra: Mapping[str, str]
) -> dict[bytes, bytes]:
    """The session environment with `extra` laid over it; TERM and SHELL are filled in if absent."""
    env = dict(session)
    for name, value in extra.items():
        env[name.encode("utf-8", "surrogateescape")] = value.encode("utf-8", "surrogateescape")
    env.setdefault(b"TERM", DEFAULT_TERM)
    if b"SHELL" not in env:
        with contextlib.suppress(KeyError):
            env[b"SHELL"] = os.fsencode(pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh")
    return env
