"""`run interact open source exit quit jobs`: programs, scripts, the session (chapter 31 §5).

Starting programs is the work of `worker.commands`; here are the heads and what belongs to them.

Failure: `arg_error` and `type_error` for the arguments; what the program, the script or the opener
raises; `custom` `open: ...` when the opener cannot be started.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from worker.builtins.effects import NOTHING, OPAQUE, SCRIPT, Operands, Rule
from worker.builtins.readers import path_value
from worker.builtins.registry import Call, builtin
from worker.errors import Raised, arg_error, raised
from worker.values.numbers import parse_int_text
from worker.values.types import Path, Span, Table, Value

if TYPE_CHECKING:
    from worker.commands.processes import Running
    from worker.evaluate.evaluator import Evaluator

OPENER: Final = "xdg-open"
EXIT_MIN: Final = -(2**31)
EXIT_MAX: Final = 2**31 - 1

_SCRIPT_RULES: Final = (
    Rule("fs_read", Operands.FIRST),
    Rule(SCRIPT, Operands.FIRST, fresh_scope=True),
)


# --- running --------------------------------------------------------------------------------------


def run_values(
    ev: Evaluator, pos: list[Value], named: Mapping[str, Value], span: Span | None
) -> Value:
    """The call form of `run`; named arguments reach the target as long flags."""
    from worker.commands.arguments import flag_word, long_flag, os_text
    from worker.commands.scripts import run_target
    from worker.values.types import MISSING

    flags = [
        os_text(flag_word(long_flag(name, MISSING if value is True else value, span)))
        for name, value in named.items()
    ]
    return run_target(ev, [*pos, *flags], span)


@builtin("run", usage="run TARGET ARG... -> outcome|value", effects=(*_SCRIPT_RULES, *OPAQUE))
def run(call: Call) -> Value:
    """Run a program or a script by name or path, with its arguments as typed."""
    from worker.commands.scripts import run_target

    return run_target(call.ev, [value for value, _ in call.args.as_typed()], call.span)


@builtin("interact", usage="interact CMD ARG... -> outcome", effects=OPAQUE)
def interact(call: Call) -> Value:
    """Run an external program on a terminal, with inherited input."""
    from worker.commands.interactive import interact as run_on_terminal

    return run_on_terminal(call.ev, call.args, call.span)


@builtin(
    "source",
    usage="source FILE -> value",
    effects=(Rule("fs_read", Operands.FIRST), Rule(SCRIPT, Operands.FIRST)),
)
def source(call: Call) -> Value:
    """Evaluate a file as statements in the current scope."""
    from worker.commands.scripts import source_file

    values = call.args.values()
    if not values:
        raise arg_error("source expects script path")
    if type(values[0]) is not str and type(values[0]) is not Path:
        raise arg_error("source expects path")
    return source_file(call.ev, path_value(values[0]), call.span)


# --- opening --------------------------------------------------------------------------------------


def open_detached(ev: Evaluator, target: Value, span: Span | None) -> None:
    """Start the opener with empty standard streams and do not wait for it."""
    path = path_value(target).raw
    if ev.host.opener is not None:
        try:
            ev.host.opener(path)
        except OSError as error:
            raise raised("custom", f"open: {error}") from None
        return
    from worker.commands import launch
    from worker.commands.spawn import start

    def launch_detached(
        program: bytes, words: list[bytes], environment: Mapping[bytes, bytes], directory: str
    ) -> int:
        null = launch.safe_descriptor(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        try:
            return launch.launch(program, words, environment, directory, (null, null, null))
        finally:
            os.close(null)

    argv = [os.fsencode(OPENER), os.fsencode(path)]
    try:
        running, _ = start(ev, argv, launch_detached, span=span)
    except Raised as error:
        if error.error.code in ("not_found", "custom"):
            raise raised("custom", f"open: {error.error.msg}", span=span) from None
        raise
    threading.Thread(target=_reap, args=(running,), name="shoal-open", daemon=True).start()


def _reap(running: Running) -> None:
    from worker.commands.processes import TABLE

    try:
        os.waitpid(running.pid, 0)
    except ChildProcessError:
        pass
    finally:
        TABLE.reaped(running)


@builtin("open", usage="open PATH -> null", effects=OPAQUE)
def open_(call: Call) -> None:
    """Open a file with the desktop's program for it."""
    values = call.args.values()
    if len(values) != 1:
        raise arg_error("open expects exactly one path")
    open_detached(call.ev, values[0], call.span)


# --- the session ----------------------------------------------------------------------------------


def _request_exit(call: Call) -> None:
    status: int | None = 0
    for value in call.args.values()[:1]:
        status = _exit_status(value)
    if status is None:
        raise arg_error(f"{call.args.head} expects an int status")
    call.ev.pending_exit = max(EXIT_MIN, min(EXIT_MAX, status))


def _exit_status(value: Value) -> int | None:
    if type(value) is str:
        return parse_int_text(value)
    return value if type(value) is int else None


@builtin("exit", usage="exit [N = 0] -> null")
def exit_(call: Call) -> None:
    """Ask the host to stop after this statement."""
    _request_exit(call)


@builtin("quit", usage="quit [N = 0] -> null")
def quit_(call: Call) -> None:
    """Ask the host to stop after this statement; another name of `exit`."""
    _request_exit(call)


@builtin("jobs", usage="jobs -> table {id, desc, state, done, suspended}", effects=NOTHING)
def jobs(call: Call) -> Table:
    """The tasks of the session in the order of their start."""
    return Table(
        [
            {
                "id": task.id,
                "desc": task.description,
                "state": task.state,
                "done": task.done,
                "suspended": task.suspended,
            }
            for task in call.ev.tasks
        ]
    )
