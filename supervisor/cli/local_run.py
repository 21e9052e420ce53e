"""Runs without a kernel: `-c`, a script file, piped source (chapter 81, section 7.2).

The program runs in a fork of this process that becomes a worker, confined as the policy says; this
side reads configuration, policy and source, keeps the secrets, passes Ctrl-C on, and says how it
ended.

Failure: `error: <text>` on stderr and exit 1 for a configuration, policy or script that cannot be
read; a diagnostic and exit 2 for source that does not parse; 77 for a program that the policy
denies, 75 for one that needs an approval.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from ipc.local_run import (
    WORKER_MODULE,
    Cancel,
    FromWorker,
    LocalEnd,
    LocalRun,
    LocalRunBroken,
    Messages,
    SecretAnswer,
    SecretAsk,
    ToWorker,
    encode_message,
)
from leash import private
from leash.verdict import ALLOW
from supervisor.cli.call import Call, want_color
from supervisor.cli.diagnostic import INTERACTIVE_NAME, STDIN_NAME, diagnostic
from supervisor.cli.execute import decode_source, read_source
from supervisor.cli.failure import Exit, Failure, Terminated, raised_exit_code
from supervisor.cli.output import Output
from supervisor.cli.policy_check import policies_in_effect
from supervisor.cli.results import PARSE_KIND, PLAN_FIRST, effect_text
from supervisor.config import ConfigError, Loaded, load, shell_snapshot
from supervisor.paths import resolve
from supervisor.policies import Policies
from supervisor.secret_store import SecretStore, SecretStoreError

DEFAULT_WIDTH: Final = 80


def run_file(call: Call) -> int:
    """`shoal run FILE [ARG...]`."""
    return run("file", call.operands, call.environ)


def run(what: str, words: list[str], environ: Mapping[str, str]) -> int:
    """Run `source`, `file` or `stdin`; `words` are the source or file, then the arguments."""
    try:
        return _run(what, words, environ)
    except Failure as failure:
        sys.stderr.write(f"error: {failure}\n")
        return failure.code


def _run(what: str, words: list[str], environ: Mapping[str, str]) -> int:
    try:
        loaded = load(environ, project_from=Path.cwd())
    except ConfigError as error:
        raise Failure(str(error)) from error
    paths = resolve(environ, loaded.config)
    policies, ignored = policies_in_effect(paths)
    for warning in loaded.warnings:
        sys.stderr.write(f"warning: config error: {warning}\n")
    for warning in ignored:
        sys.stderr.write(f"warning: {warning}\n")
    for skipped in loaded.skipped:
        sys.stderr.write(f"warning: {skipped}\n")
    sys.stderr.flush()
    name, script, source = _program(what, words)
    request = _request(loaded, environ, source, script, tuple(words[1:]), policies)
    try:
        end = _in_worker(request, _Secrets(policies, SecretStore(paths.secret_dir)))
    except LocalRunBroken as error:
        raise Failure(str(error)) from error
    return _report(Output(color=request.color), name, source, end)


def _program(what: str, words: list[str]) -> tuple[str, str | None, str]:
    """Name for diagnostics, value of `script`, and the text."""
    if what == "source":
        source = decode_source(INTERACTIVE_NAME, os.fsencode(words[0]))
        return INTERACTIVE_NAME, None, source
    if what == "stdin":
        return STDIN_NAME, STDIN_NAME, decode_source(STDIN_NAME, sys.stdin.buffer.read())
    return words[0], words[0], read_source(words[0])


def _request(
    loaded: Loaded,
    environ: Mapping[str, str],
    source: str,
    script: str | None,
    arguments: tuple[str, ...],
    policies: Policies,
) -> LocalRun:
    config = loaded.config
    return LocalRun(
        source=source,
        script=script,
        arguments=arguments,
        cwd=os.getcwd(),
        policy=policies.entry(policies.local_human),
        echo=config.render.echo or "quiet",
        width=config.render.width or _terminal_width(environ),
        color=want_color(config, environ, None),
        config=shell_snapshot(config),
        capture_bytes=config.limits.capture_bytes,
        spill_bytes=config.limits.spill_bytes,
    )


def _terminal_width(environ: Mapping[str, str]) -> int:
    columns = environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) > 0:
        return int(columns)
    if not os.isatty(1):
        return DEFAULT_WIDTH
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


class _Secrets:
    """The store as the program may use it: material leaves it for a principal that is granted."""

    def __init__(self, policies: Policies, store: SecretStore) -> None:
        self._standing = policies.standing(policies.local_human)
        self._store = store
        self.restricted = not self._standing.unrestricted

    def answer(self, ask: SecretAsk) -> SecretAnswer:
        if self._standing.word({"kind": "secret_use", "names": [ask.name]}) != ALLOW:
            text = f"leash: secret_use of {ask.name} denied for principal "
            return SecretAnswer(ask.id, None, text + self._standing.principal, denied=True)
        try:
            return SecretAnswer(ask.id, self._store.read(ask.name))
        except SecretStoreError as error:
            return SecretAnswer(ask.id, None, str(error))
        except OSError as error:
            return SecretAnswer(ask.id, None, f"secret store: {error.strerror}")


def _in_worker(request: LocalRun, secrets: _Secrets) -> LocalEnd:
    """Fork the worker, answer what it asks, and wait for how it ended. Interrupts become a
    cancellation."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        ours.close()
        _become_worker(request, theirs)
    theirs.close()
    messages: Messages[FromWorker] = Messages(FromWorker)
    end: LocalEnd | None = None
    interrupted: type[BaseException] | None = None
    try:
        with ours:
            while True:
                try:
                    piece = ours.recv(65536)
                except (KeyboardInterrupt, Terminated) as interrupt:
                    interrupted = interrupted or type(interrupt)
                    _tell(ours, Cancel())
                    continue
                except ConnectionError:
                    break
                if not piece:
                    break
                for message in messages.feed(piece):
                    if isinstance(message, LocalEnd):
                        end = message
                    else:
                        _tell(ours, secrets.answer(message))
    finally:
        os.waitpid(child, 0)
        if secrets.restricted:
            private.remove(child)
    if interrupted is not None:
        raise interrupted
    if end is None:
        raise LocalRunBroken("the worker ended without a result")
    return end


def _tell(channel: socket.socket, message: ToWorker) -> None:
    try:
        channel.sendall(encode_message(message))
    except OSError:
        # It has just ended by itself; the loop reads how.
        return


def _become_worker(request: LocalRun, channel: socket.socket) -> NoReturn:
    try:
        # Ctrl-C reaches the whole foreground; what it means is decided by the command.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        importlib.import_module(WORKER_MODULE).serve(request, channel)
    finally:
        os._exit(1)


def _report(out: Output, name: str, source: str, end: LocalEnd) -> int:
    if end.kind == "done":
        return end.status or Exit.SUCCESS
    if end.kind == "pipe":
        return Exit.BROKEN_PIPE
    if end.kind == "cancelled":
        return Exit.INTERRUPTED
    if end.kind == "failed":
        raise Failure(end.message)
    if end.kind in ("denied", "approval"):
        return _refused(out, end)
    raised = end.kind == "raised"
    text = diagnostic(
        out,
        name,
        source,
        end.code if raised else PARSE_KIND,
        end.message,
        span=None if end.start is None else {"start": end.start, "end": end.end},
        hint=end.hint,
        stderr=end.stderr,
    )
    out.note(text.removesuffix("\n"))
    if not raised:
        return Exit.USAGE
    return raised_exit_code({"code": end.code, "status": end.status})


def _refused(out: Output, end: LocalEnd) -> int:
    """The policy does not let the program run: why, and what it would have done."""
    lines = [f"error: {end.message}"]
    if end.hint:
        lines.append(f"hint: {end.hint}")
    lines += [f"  {effect_text(effect)}" for effect in end.effects]
    if end.kind == "approval":
        lines.append(PLAN_FIRST)
    for line in lines:
        out.note(line)
    return Exit.APPROVAL if end.kind == "approval" else Exit.DENIED
