"""What the embedding of an evaluator gives it: the services and settings of chapter 30 §1.

The bare evaluator of tests and scripts runs with the defaults of `Host()`: no adapters, no journal,
no secrets, everything allowed, values of the sink written to standard output. A session worker
fills in the rest. A host is shared by an evaluator and everything nested in it, and is not changed
while one of them runs.

Failure: the services raise language errors; the defaults never fail.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from worker.values.types import Value

EchoMode = Literal["all", "quiet", "commands"]

CAPTURE_BYTES: Final = 64 << 20
SPILL_BYTES: Final = 1 << 30


class Clock:
    """The time of the language. Tests replace it."""

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class Authority:
    """The seam to Leash: `check` raises `leash_denied` or `spawn_denied`. This one allows all.
    `restricted` says whether it could refuse anything."""

    restricted: bool = False

    def check(self, effect: Any) -> None:
        return None

    def admit_spawn(self, request: Any) -> Any:
        """The spawn gate, see worker.commands.gate; None admits the program as it was found."""
        return None


@dataclass(slots=True)
class Limits:
    """Output limits of one captured stream (chapter 40 §8)."""

    capture_bytes: int = CAPTURE_BYTES
    spill_bytes: int = SPILL_BYTES


class StatementHooks(Protocol):
    """Who is told of every top-level statement, so that it can be journaled (chapter 30 §2.1).

    `started` gets the program, the statement's place in it and its slice of the source, and gives
    the entry that is current while the statement runs; statements of a sourced file or an applied
    plan start while their outer one is still running. `finished` gets that entry, the value
    (MISSING when it raised), the failure (None, a Raised or a Cancelled) and the elapsed
    nanoseconds.
    """

    def started(self, program: Any, ordinal: int, source: str) -> Any: ...

    def finished(
        self, entry: Any, value: Value, error: BaseException | None, dur_ns: int
    ) -> None: ...


def nowhere(value: Value) -> None:
    """The sink of a host that shows nothing between results; code does not even call it."""


def write_to_standard_output(value: Value) -> None:
    """The sink of a host that has none: the `echo` text of the value on a line."""
    from worker.values.convert import echo_text

    sys.stdout.write(echo_text(value) + "\n")
    sys.stdout.flush()


def write_to_standard_error(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@dataclass(slots=True)
class Host:
    """`sink` gets shown values (never null). `adapters`, `reef`, `secrets`, `navigation`, `journal`
    and `opener` are the objects of their own packages, None when the embedding has none.
    `stderr_note` writes one diagnostic line. `authority.check(effect)` judges an effect when it
    happens. `domain` gives the place programs are started from, None for where the process is.
    """

    sink: Callable[[Value], None] = write_to_standard_output
    echo: EchoMode = "all"
    interactive: bool = False
    adapters: Any = None
    reef: Any = None
    config: dict[str, Value] = field(default_factory=dict)
    secrets: Any = None
    clock: Any = field(default_factory=Clock)
    opener: Any = None
    principal: str = ""
    authority: Any = field(default_factory=Authority)
    domain: Callable[[], Any] | None = None
    journal: Any = None
    navigation: Any = None
    limits: Limits = field(default_factory=Limits)
    stderr_note: Callable[[str], None] = write_to_standard_error
    hooks: StatementHooks | None = None
