"""Asking a program for its version (chapter 41 §B3).

`FILE --version` with an empty input, for at most PROBE_S; then its whole group is killed. The
answer is the first version-like word of both outputs, and is remembered for the file.

Failure: anything that goes wrong, a refusal by the policy included, is an unknown version.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from worker.commands import launch
from worker.commands.processes import TABLE
from worker.commands.reef.hashes import Identity, identity
from worker.errors import Raised

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

PROBE_S: Final = 0.3
OUTPUT_BYTES_MAX: Final = 64 << 10
_REMEMBERED_MAX: Final = 1024

_ALL_DIGITS: Final = re.compile(r"[0-9]+\Z")


class VersionProbe:
    # Answers by file identity, None for unknown; grows only in `version`.
    def __init__(self) -> None:
        self._known: dict[Identity, str | None] = {}

    def version(self, ev: Evaluator, path: str) -> str | None:
        try:
            key = identity(path)
        except OSError:
            return None
        if key not in self._known:
            if len(self._known) >= _REMEMBERED_MAX:
                self._known.pop(next(iter(self._known)), None)
            self._known[key] = version_in(_ask(ev, path))
        return self._known[key]


def version_in(text: str) -> str | None:
    """The first word that starts with a digit and has a dot, else the first all-digit word."""
    words = [word.removeprefix("v") for word in text.split()]
    for word in words:
        if word[:1].isascii() and word[:1].isdigit() and "." in word:
            return word.rstrip(",;:)")
    return next((word for word in words if _ALL_DIGITS.match(word)), None)


def _ask(ev: Evaluator, path: str) -> str:
    """What the program printed; stdout and stderr go to one pipe."""
    from worker.commands.spawn import start

    null = launch.safe_descriptor(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    read_end, write_end = (launch.safe_descriptor(fd) for fd in os.pipe())

    def launch_probe(
        program: bytes, words: list[bytes], environment: Mapping[bytes, bytes], directory: str
    ) -> int:
        return launch.launch(program, words, environment, directory, (null, write_end, write_end))

    try:
        argv = [os.fsencode(path), b"--version"]
        running, _ = start(ev, argv, launch_probe, resolve_tool=False)
    except Raised:
        os.close(read_end)
        return ""
    finally:
        os.close(null)
        os.close(write_end)
    try:
        output = _read_until(read_end, time.monotonic() + PROBE_S)
    finally:
        os.close(read_end)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(running.group, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(running.pid, 0)
        TABLE.reaped(running)
    return output.decode("utf-8", "replace")


def _read_until(fd: int, deadline: float) -> bytes:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    output = bytearray()
    while len(output) < OUTPUT_BYTES_MAX:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0 or not poller.poll(left_ms):
            break
        chunk = os.read(fd, OUTPUT_BYTES_MAX)
        if not chunk:
            break
        output += chunk
    return bytes(output)
