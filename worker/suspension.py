"""Holding one submission still, and letting it go on (chapter 60 §5.12).

A suspension stops the process groups of everything the submission runs, makes its evaluation wait
at its next cancellation point, and says once when both stand still. Evaluation stands when it has
come to that point, when it waits for something anyway, or when the program it waits for is stopped;
a program that is started in that very moment is stopped right away.

Failure: a submission that ends before it came to stand, or that is cancelled or continued first,
was not suspended: `answered(False)`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from worker.commands.proctree import read_entry
from worker.evaluate.cancel import CancelToken
from worker.evaluate.tasks import ProcessGroups

# A stop signal takes effect when its process is scheduled next; longer than this nobody waits.
STOPPED_WITHIN_S: Final = 0.2
_LOOK_AGAIN_S: Final = 0.001
_STOPPED_OR_GONE: Final = "TtZX"


class Suspension:
    # `_answered` is called once, by whichever thread sees first how the suspension went.

    def __init__(
        self, token: CancelToken, groups: ProcessGroups, answered: Callable[[bool], None]
    ) -> None:
        self._token = token
        self._groups = groups
        self._answered: Callable[[bool], None] | None = answered
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._token.hold(self._stands)
        stopped = self._groups.stop(self._stands)
        _await_stopped(stopped)
        if stopped or self._token.waiting:
            self._stands()

    def end(self) -> None:
        """Continue programs and evaluation."""
        self._answer(False)
        self._token.release()
        self._groups.go_on()

    def _stands(self) -> None:
        self._answer(True)

    def _answer(self, done: bool) -> None:
        with self._lock:
            answered, self._answered = self._answered, None
        if answered is not None:
            answered(done)


def _await_stopped(groups: list[int]) -> None:
    """Wait until the leaders of the groups have taken the stop signal."""
    deadline = time.monotonic() + STOPPED_WITHIN_S
    for leader in groups:
        while time.monotonic() < deadline:
            entry = read_entry(leader)
            if entry is None or entry.state in _STOPPED_OR_GONE:
                break
            time.sleep(_LOOK_AGAIN_S)
