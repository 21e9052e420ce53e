"""Running one program on a terminal of its own (chapter 40 §6.6).

The child is the leader of a session on a fresh pseudo terminal; what it writes, errors included, is
collected up to the capture limit and never spilled. A worker has no user's terminal to join it to:
the program sees a terminal, gets no input, and its output is the outcome's.

Failure: `arg_error` without a command; a program that ends badly raises in every position; spawn
errors as everywhere.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from worker.commands import launch
from worker.commands.capture import Conversation, collector, pieces
from worker.commands.outcome import ending_fields, raise_if_failed
from worker.commands.processes import TABLE
from worker.commands.spawn import SUCCESS, display_command, start, start_failure
from worker.errors import Raised, raised
from worker.values.convert import argv_word
from worker.values.types import Outcome, Span, Value

if TYPE_CHECKING:
    from worker.commands.arguments import Arguments
    from worker.evaluate.evaluator import Evaluator

COLUMNS: Final = 80
ROWS: Final = 24
# How long the terminal may go on delivering output after the child was reaped.
DRAIN_S: Final = 0.5


def interact(ev: Evaluator, args: Arguments, span: Span | None) -> Outcome:
    """`interact CMD ARG...`: flag words are passed on as typed."""
    words = args.as_typed()
    if not words:
        raise raised("arg_error", "interact expects a command", span=span)
    argv = []
    for value, place in words:
        argv.append(_word(value, place or span))
    outcome = spawn_on_terminal(ev, argv, span=span)
    raise_if_failed(outcome)
    return outcome


def _word(value: Value, span: Span | None) -> bytes:
    try:
        return argv_word(value)
    except Raised as error:
        raise error.at(span) from None


def spawn_on_terminal(
    ev: Evaluator,
    argv: list[bytes],
    *,
    stdin: int | None = None,
    env: Mapping[bytes, bytes] | None = None,
    span: Span | None = None,
    accepted: Collection[int] = SUCCESS,
) -> Outcome:
    """Run a program to its end on a terminal of its own; the outcome, failed or not. `stdin` is a
    descriptor that it reads instead of the terminal."""
    master: int | None = None
    try:
        master, slave = open_terminal(COLUMNS, ROWS)
        try:
            running, started_ns = start(
                ev, argv, on_terminal(os.ttyname(slave), stdin), env=env, span=span
            )
        finally:
            # The child has its own; while this one is open the terminal never ends.
            os.close(slave)
    except BaseException as failure:
        if master is not None:
            os.close(master)
        if isinstance(failure, OSError):
            raise start_failure(argv[0], failure, span) from None
        raise
    collected = collector(ev.tail, "stdout", ev.host.limits.capture_bytes)
    try:
        ending = Conversation(
            TABLE, running, ev.groups, {master: collected}, None, ev.cancel, DRAIN_S
        ).run()
    except OSError as failure:
        raise start_failure(argv[0], failure, span) from None
    status, signal = ending_fields(ending)
    return Outcome(
        status=status,
        ok=status is not None and status in accepted,
        cmd=display_command(argv),
        stdout=b"".join(pieces(collected.result())),
        signal=signal,
        dur_ns=ending.ended_ns - started_ns,
        pid=running.pid,
        span=span,
    )


def open_terminal(columns: int, rows: int) -> tuple[int, int]:
    """A fresh pseudo terminal of that size: master and slave descriptors, close-on-exec."""
    master, slave = os.openpty()
    master, slave = launch.safe_descriptor(master), launch.safe_descriptor(slave)
    set_size(master, columns, rows)
    return master, slave


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Tell a terminal its size; whoever runs on it gets SIGWINCH when that is a change."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def on_terminal(name: str, stdin: int | None = None) -> launch.Launch:
    """A launch on the named terminal, perhaps with another standard input, for
    `worker.commands.spawn.start`."""

    def launch_program(
        program: bytes, argv: list[bytes], env: Mapping[bytes, bytes], cwd: str
    ) -> int:
        return launch.launch_on_terminal(program, argv, env, cwd, name, stdin)

    return launch_program
