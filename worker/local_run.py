"""A program without a kernel: the worker behind `shoal -c`, scripts and piped source.

Forked by the command line (chapter 81, section 7.2). The process confines itself as the policy says
before it evaluates anything. The evaluator thread judges the program, runs it and prints what is to
be shown; the main thread listens to the command, which cancels and answers, and the end of the
channel ends everything at once. Secrets stay with the command until the program asks for one.

Failure: none gets out; a program that cannot be run is an end like any other. What was started is
killed before this process ends.
"""

from __future__ import annotations

import gc
import itertools
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ipc.local_run import (
    Cancel,
    LocalEnd,
    LocalRun,
    Messages,
    SecretAnswer,
    SecretAsk,
    ToWorker,
    encode_message,
)
from leash.verdict import ALLOW, DENY, judge
from worker.authority import Hosts, Policies
from worker.errors import Cancelled, Raised, raised
from worker.evaluate.blocks import is_command_statement
from worker.evaluate.evaluator import Evaluator, process_environment
from worker.evaluate.host import EchoMode, Limits
from worker.evaluate.threads import evaluator_thread
from worker.hosting import apply_settings, build_host
from worker.language import ParseError, ast, parse
from worker.planning import derive
from worker.sandbox import SANDBOX
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


class _Secrets:
    """See `worker.builtins.ports.SecretsPort`: the command has the store and judges the use."""

    # Questions that wait for their answer, by number; changed under `_lock`.

    def __init__(self, send: Callable[[SecretAsk], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[SecretAnswer]] = {}

    def read(self, name: str) -> bytes | None:
        answers: queue.SimpleQueue[SecretAnswer] = queue.SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answers
        self._send(SecretAsk(number, name))
        answer = answers.get()
        if answer.error:
            raise raised("leash_denied" if answer.denied else "permission", answer.error)
        return answer.material

    def answered(self, answer: SecretAnswer) -> None:
        with self._lock:
            waiting = self._waiting.pop(answer.id, None)
        if waiting is not None:
            waiting.put(answer)


class _LocalWorker:
    # The evaluator belongs to the evaluator thread once it runs; the main thread only cancels its
    # token. What is sent is sent whole, under `_sending`.

    def __init__(self, run: LocalRun, channel: socket.socket) -> None:
        self._run = run
        self._channel = channel
        self._sending = threading.Lock()
        self._secrets = _Secrets(self._send)

    def serve(self) -> None:
        """Listen until the command closes its end, which it does when it has the result."""
        run = self._run
        policies = Policies()
        policies.update([run.policy])
        environment = process_environment()
        try:
            SANDBOX.enter(policies.standing(run.policy.principal), environment)
        except OSError as failure:
            self._send(LocalEnd(kind="failed", message=f"sandbox enforcement failed: {failure}"))
            return
        host = build_host(
            run.config,
            principal=run.policy.principal,
            limits=Limits(run.capture_bytes, run.spill_bytes),
            sink=self._show,
            echo=_ECHO[run.echo],
            note=_note,
        )
        host.secrets = self._secrets
        self._policies = policies
        self._evaluator = Evaluator(run.cwd, environment, host)
        self._hosts = Hosts(host, policies, run.policy.principal, SANDBOX.domain)
        evaluator_thread(self._evaluate, "evaluator")
        SANDBOX.settle()
        messages: Messages[ToWorker] = Messages(ToWorker)
        while piece := self._channel.recv(65536):
            for message in messages.feed(piece):
                if isinstance(message, Cancel):
                    self._evaluator.cancel.cancel()
                else:
                    self._secrets.answered(message)

    def _send(self, message: LocalEnd | SecretAsk) -> None:
        with self._sending:
            self._channel.sendall(encode_message(message))

    def _evaluate(self) -> None:
        try:
            end = self._result()
        except Exception:  # noqa: BLE001 - whatever it is, the command waits for an end
            traceback.print_exc()
            end = LocalEnd(kind="raised", code="custom", message="internal error")
        try:
            self._send(end)
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
        refusal = self._admit(program)
        if refusal is not None:
            return refusal
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

    def _admit(self, program: ast.Program) -> LocalEnd | None:
        """Judge the program; what it then runs with is held to the plan. Why it must not run."""
        evaluator, principal = self._evaluator, self._run.policy.principal
        evaluator.host = self._hosts.of(principal, ())
        standing = self._policies.standing(principal)
        if standing.unrestricted:
            return None
        plan = derive(evaluator, program).leash
        judgement = judge(standing, list(plan.effects), plan.reversibility)
        if judgement.word == ALLOW:
            evaluator.host = self._hosts.admitted(evaluator.host, tuple(plan.effects))
            return None
        denied = judgement.word == DENY
        return LocalEnd(
            kind="denied" if denied else "approval",
            message="leash denied execution" if denied else "approval required; plan first",
            hint=self._policies.hint(principal) if judgement.no_policy else None,
            effects=judgement.denied if denied else tuple(plan.effects),
        )

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
