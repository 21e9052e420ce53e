"""One value of each of the 24 types, and small stand-ins for the handles that live elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, ClassVar

from worker.values.convert import parse_datetime
from worker.values.regexes import compile_regex
from worker.values.types import (
    TYPE_NAMES,
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Range,
    Secret,
    Size,
    Table,
    TimeOfDay,
    Value,
)

SECOND = 10**9


@dataclass(eq=False)
class StreamStandIn:
    """What values need to know of a stream."""

    TYPE_NAME: ClassVar[str] = "stream"
    label: str = "value"


@dataclass(eq=False)
class TaskStandIn:
    TYPE_NAME: ClassVar[str] = "task"
    id: int = 3
    done: bool = False


@dataclass(eq=False)
class ClosureStandIn:
    TYPE_NAME: ClassVar[str] = "closure"
    text: str = "closure(a, b)"

    def signature(self) -> str:
        return self.text


@dataclass(eq=False)
class CommandStandIn:
    TYPE_NAME: ClassVar[str] = "command"
    head: str = "git"
    words: list[str] = field(default_factory=list)

    def same_call(self, other: CommandStandIn) -> bool:
        return (self.head, self.words) == (other.head, other.words)


def outcome(**changes: Any) -> Outcome:
    """An ok outcome without output, with changes."""
    parts: dict[str, Any] = {"status": 0, "ok": True, "cmd": "make all", "stdout": b""}
    return Outcome(**{**parts, **changes})


def lazy(data: bytes, shown: int = 4, truncated: bool = False) -> LazyBytes:
    """Stored bytes that load from memory."""

    def load(offset: int, length: int | None) -> bytes:
        return data[offset:] if length is None else data[offset : offset + length]

    return LazyBytes("ab" * 32, len(data), data[:shown], truncated, load)


def moment(text: str) -> DateTime:
    return parse_datetime(text)


def hours(count: float) -> Duration:
    return Duration(int(count * 3600 * SECOND))


SAMPLES: dict[str, Value] = {
    "null": None,
    "bool": True,
    "int": 6,
    "float": 2.5,
    "str": "ab",
    "path": Path("a/b"),
    "glob": Glob("*.c", "/src"),
    "regex": compile_regex("a+"),
    "size": Size(4000),
    "duration": Duration(90 * SECOND),
    "datetime": DateTime(1_767_225_600 * SECOND, UTC),
    "time": TimeOfDay(7, 45, 0),
    "bytes": b"xyz",
    "list": [1, "x"],
    "record": {"k": 1},
    "table": Table([{"k": 1}]),
    "range": Range(2, 6, False),
    "stream": StreamStandIn(),
    "error": ErrorValue("div_zero", "division by zero"),
    "outcome": outcome(stdout=b"7\n"),
    "task": TaskStandIn(),
    "closure": ClosureStandIn(),
    "command": CommandStandIn(),
    "secret": Secret("deploy-key", "s3cr3t"),
}

assert list(SAMPLES) == TYPE_NAMES
