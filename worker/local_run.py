"""A program without a kernel: the worker behind `shoal -c`, scripts and piped source.

Forked by the command line (chapter 81, section 7.2). The evaluator thread runs the program and
prints what is to be shown; the main thread listens to the command: a byte cancels, the end of the
channel ends everything at once. How the program ended goes back as one frame.

Failure: none gets out; a program that cannot be run is an end like any other. What was started is
killed before this process ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import traceback
from typing import Any, Final, NoReturn

from ipc.local_run import LocalEnd, LocalRun, encode_end
from worker.errors import Cancelled, Raised
from worker.evaluate.blocks import is_command_statement
from worker.evaluate.evaluator import Evaluator, process_environment
from worker.evaluate.host import EchoMode, Limits
from worker.evaluate.threads import evaluator_thread
from worker.hosting import apply_settings, build_host
from worker.language import ParseError, parse
from worker.values.block import block
from worker.values.render import strip_terminal
from worker.values.types import Outcome, Path, Value

PROCESS_NAME: Final = "shoal:local"

_ECHO: Final[dict[str, EchoMode]] = {"all": "all", "quiet": "quiet", "commands": "commands"}


class _Stopped(Exception):
    """Nobody reads standard output any more."""


def serve(run: LocalRun, channel: socket.socket) -> NoReturn:
    """Run one program and exit; never returns to the command line's code."""
    status = 1
    try:
        _become()
        _LocalWorker(run, channel).serve()
        status = 0
    except OSError:
        # The command is gone; nobody is left to tell.
        status = 0
    except Exception:  # noqa: BLE001 - the end of the process, whatever the reason
        traceback.print_exc()
    finally:
        _end(status)


def _become() -> None:
    os.setsid()
    if sys.platform == "linux":
        import prctl

        prctl.set_pdeathsig(signal.SIGTERM)
        prctl.set_no_new_privs(1)
        prctl.set_child_subreaper(1)
        prctl.set_name(PROCESS_NAME)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _end(0))
    # The evaluator makes few cycles; rarer collections keep the shared pages shared.
    gc.set_threshold(50_000, 20, 100)


def _end(status: int) -> NoReturn:
    from worker.commands.processes import kill_descendants

    try:
        kill_descendants()
    finally:
        os._exit(status)


class _LocalWorker:
    # The evaluator belongs to the evaluator thread once it runs; the main thread only cancels its
    # token. `_sent` says that the end is on its way.

    def __init__(self, run: LocalRun, channel: socket.socket) -> None:
        self._run = run
        self._channel = channel
        host = build_host(
            run.config,
            principal=run.principal,
            limits=Limits(run.capture_bytes, run.spill_bytes),
            sink=self._show,
            echo=_ECHO[run.echo],
            note=_note,
        )
        self._evaluator = Evaluator(run.cwd, process_environment(), host)
        self._sent = threading.Event()

    def serve(self) -> None:
        """Listen until the command closes its end, which it does when it has the result."""
        evaluator_thread(self._evaluate, "evaluator")
        while self._channel.recv(64):
            self._evaluator.cancel.cancel()

    def _evaluate(self) -> None:
        try:
            end = self._result()
        except Exception:  # noqa: BLE001 - whatever it is, the command waits for an end
            traceback.print_exc()
            end = LocalEnd(kind="raised", code="custom", message="internal error")
        try:
            self._channel.sendall(encode_end(end))
            self._channel.shutdown(socket.SHUT_WR)
        except OSError:
            # The command is gone; the main thread sees that too and ends the process.
            return

    def _result(self) -> LocalEnd:
        run, evaluator = self._run, self._evaluator
        try:
            program = parse(run.source)
        except ParseError as error:
            return LocalEnd(
                kind="parse",
                message=error.message,
                start=error.span.start,
                end=error.span.end,
                hint=error.hint,
            )
        for warning in apply_settings(evaluator, run.config):
            _note(f"warning: {warning}")
        evaluator.root.declare("args", [Path(argument) for argument in run.arguments])
        if run.script is not None:
            evaluator.root.declare("script", Path(run.script))
        try:
            value = evaluator.run_program(program, run.source)
            if evaluator.pending_exit is not None:
                return LocalEnd(kind="done", status=evaluator.pending_exit % 256)
            last = program.stmts[-1] if program.stmts else None
            if last is not None and (run.echo != "commands" or is_command_statement(last)):
                evaluator.sink(value)
        except Raised as raised:
            return _raised(raised)
        except Cancelled:
            return LocalEnd(kind="cancelled")
        except _Stopped:
            return LocalEnd(kind="pipe")
        return LocalEnd(kind="done", status=0)

    def _show(self, value: Value) -> None:
        """Print a value as a block; nothing for null, an empty text, and what was shown before."""
        if value is None or (type(value) is Outcome and value.streamed):
            return
        text = block(value, self._run.width)
        if not self._run.color:
            text = strip_terminal(text)
        if text:
            _write(text + "\n")


def _raised(raised: Raised) -> LocalEnd:
    error = raised.error
    span: Any = error.span
    return LocalEnd(
        kind="raised",
        status=error.status,
        code=error.code,
        message=error.msg,
        start=None if span is None else span[0],
        end=None if span is None else span[1],
        hint=error.hint,
        stderr=error.stderr,
    )


def _write(text: str) -> None:
    view = memoryview(text.encode("utf-8", "replace"))
    try:
        while view:
            view = view[os.write(1, view) :]
    except BrokenPipeError:
        raise _Stopped from None


def _note(text: str) -> None:
    os.write(2, f"{text}\n".encode("utf-8", "replace"))
