"""Outcomes of external programs: how an ending becomes fields, and what a failure says.

Failure: `statement_failure` builds the error of a failed command in statement position; this module
else raises only through `raise_if_failed`.
"""

from __future__ import annotations

import signal
from typing import Final

from worker.commands.capture import Ending
from worker.errors import Raised, raised
from worker.values.types import Outcome, Value

# Only these have names (chapter 40 §5.3); every other signal is `SIG` and its number.
_NAMED: Final = {
    int(number): number.name
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGKILL,
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGPIPE,
        signal.SIGHUP,
        signal.SIGQUIT,
    )
}


def signal_name(number: int) -> str:
    return _NAMED.get(number) or f"SIG{number}"


def ending_fields(ending: Ending) -> tuple[int | None, str | None]:
    """Status and signal name of an ending; exactly one is set."""
    if ending.signal is not None:
        return None, signal_name(ending.signal)
    return ending.status, None


def failure_message(outcome: Outcome) -> str:
    if outcome.status is not None:
        return f"`{outcome.cmd}` exited with status {outcome.status}"
    if outcome.signal is not None:
        return f"`{outcome.cmd}` died from {outcome.signal}"
    return f"`{outcome.cmd}` failed"


def raise_if_failed(value: Value) -> None:
    """What statement position does with a value: the outcome of a failed command raises."""
    if type(value) is Outcome and not value.ok:
        raise statement_failure(value)


def statement_failure(outcome: Outcome) -> Raised:
    """The error of a failed command in statement position (chapter 40 §4)."""
    return raised(
        "cmd_failed",
        failure_message(outcome),
        stderr=outcome.stderr.decode("utf-8", "replace"),
        status=outcome.status,
        span=outcome.span,
    )
