"""Runs cases, each in a process, an evaluator and a directory of its own.

The runner forks one child per case; a child that does not answer in time is killed together with
everything it started, and counts as failed. The runner itself has one thread and waits on pipes.

Failure: a case that crashes its process is a result of its own kind, never an exception here.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import worker.builtins
import worker.builtins.namespaces
import worker.commands.feeding
import worker.commands.lang_block
import worker.commands.run
import worker.commands.scripts
import worker.evaluate.program
import worker.values.methods
from tests.conformance.cases import Case, Result
from worker.errors import Cancelled, Raised
from worker.evaluate.evaluator import bare_evaluator
from worker.evaluate.host import Host, nowhere
from worker.evaluate.threads import run_on_evaluator_stack
from worker.language import ParseError
from worker.values.render import inline

# Imported before the first fork, so that no case pays for it.
PRELOADED = (worker,)

CASE_SECONDS = 20.0
CASES_AT_ONCE = max(2, os.cpu_count() or 2)


def run_case(case: Case) -> Result:
    """Evaluate one program in this process, in a fresh directory with its fixture."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-case-")).resolve()
    try:
        _build(folder, case.fixture)
        return run_on_evaluator_stack(_evaluate, case.src, str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(folder: Path, fixture: tuple[str, ...]) -> None:
    for name in fixture:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def _evaluate(src: str, cwd: str) -> Result:
    host = Host(sink=nowhere, stderr_note=lambda text: None)
    evaluator = bare_evaluator(cwd, host)
    try:
        value = evaluator.evaluate_source(src)
        return Result("value", inline(value))
    except ParseError as error:
        return Result("parse error", error.message, hint=error.hint)
    except Raised as failure:
        found = failure.error
        return Result("error", found.msg, found.code, found.hint)
    except Cancelled:
        return Result("cancelled", "evaluation cancelled")
    finally:
        evaluator.cancel.cancel()
        evaluator.session_cancel.cancel()


@dataclass
class _Child:
    case: Case
    pid: int
    deadline: float
    received: bytes = b""


def run_all(
    cases: list[Case], seconds: float = CASE_SECONDS, run: Callable[[Case], Result] = run_case
) -> Iterator[tuple[Case, Result]]:
    """Run every case that is not skipped; results come as they are ready."""
    waiting = [case for case in reversed(cases) if case.skip is None]
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < CASES_AT_ONCE:
                _start(selector, waiting.pop(), seconds, run)
            yield from _finished(selector)


def _start(
    selector: selectors.BaseSelector,
    case: Case,
    seconds: float,
    run: Callable[[Case], Result],
) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _in_child(case, writer, run)
    os.close(writer)
    selector.register(reader, selectors.EVENT_READ, _Child(case, pid, time.monotonic() + seconds))


def _in_child(case: Case, writer: int, run: Callable[[Case], Result]) -> None:
    """Run the case in a session of its own and leave without any of the runner's cleanup."""
    status = 1
    try:
        os.setsid()
        with open(os.devnull) as empty:
            os.dup2(empty.fileno(), 0)
        try:
            result = run(case)
        except BaseException as error:  # noqa: BLE001 - reported as the result of the case
            result = Result("crash", f"{type(error).__name__}: {error}")
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(vars(result)).encode())
        status = 0
    finally:
        os._exit(status)


def _finished(selector: selectors.BaseSelector) -> Iterator[tuple[Case, Result]]:
    children = [key.data for key in selector.get_map().values()]
    soonest = min(child.deadline for child in children)
    ready = selector.select(max(0.0, soonest - time.monotonic()))
    for key, _ in ready:
        child: _Child = key.data
        data = os.read(key.fd, 65536)
        if data:
            child.received += data
            continue
        _release(selector, key)
        yield child.case, _result(child.received)
    now = time.monotonic()
    for key in list(selector.get_map().values()):
        child = key.data
        if child.deadline <= now:
            _release(selector, key)
            yield child.case, Result("timeout", "the case did not end in time")


def _release(selector: selectors.BaseSelector, key: Any) -> None:
    """Forget a child that has answered or run out of time, and everything it left behind."""
    selector.unregister(key.fd)
    os.close(key.fd)
    for pid in session_members(key.data.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.waitpid(key.data.pid, 0)


def session_members(session: int) -> list[int]:
    """Processes of a session that the runner's child leads."""
    members = [session]
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session and int(entry.parent.name) != session:
                members.append(int(entry.parent.name))
    return members


def _result(received: bytes) -> Result:
    try:
        return Result(**json.loads(received))
    except (ValueError, TypeError):
        return Result("crash", "the process of the case ended without a result")
