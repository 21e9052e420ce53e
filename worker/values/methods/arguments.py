"""Readers for the arguments of methods (chapter 21 §1.3).

A `Parameter` is one declared argument: its name, the words documentation uses for its type, a
reader that checks one given value, and what happens when it is not given. Readers only look at the
value: the same reader serves the receiver a method belongs to and one it does not.

Failure: `reader` raises type_error for a value of the wrong kind, `absent` raises arg_error for a
required argument that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from worker.errors import arg_error, type_error
from worker.values.types import MISSING, Duration, Path, Value, type_name

Reader = Callable[[Value], Value]


class _Absent:
    """An optional argument that was not given, where null would be a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One declared argument; `default` MISSING makes it required.

    `missing` replaces the general words for a required argument that is not given.
    """

    name: str
    kind: str
    reader: Reader
    default: Any = MISSING
    missing: str | None = None

    def absent(self, index: int) -> Value:
        if self.default is not MISSING:
            return self.default
        raise arg_error(self.missing or f"missing argument {index + 1}")

    def signature(self) -> str:
        if self.default is MISSING:
            return f"{self.name}: {self.kind}"
        if self.default is ABSENT:
            return f"{self.name}?: {self.kind}"
        shown = {None: "null", "": '""'}.get(self.default, str(self.default))
        return f"{self.name}: {self.kind} = {shown}"


def any_value(value: Value) -> Value:
    return value


def count(value: Value) -> int:
    """A number of things: never negative."""
    if type(value) is int and value >= 0:
        return value
    raise type_error(f"expected non-negative int, found {type_name(value)}")


def text(value: Value) -> str:
    if type(value) is str:
        return value
    raise type_error(f"expected str, found {type_name(value)}")


def file_target(value: Value) -> str:
    """The OS string of a file to write: a str or a path, `~` is an ordinary name."""
    if type(value) is Path:
        return value.raw
    if type(value) is str:
        return value
    raise type_error(f"expected path, found {type_name(value)}")


def gap(value: Value) -> Duration:
    """A length of time that is not negative."""
    if type(value) is Duration and value.ns >= 0:
        return value
    raise arg_error("expected a non-negative duration")


CALLBACK: Final = Parameter("f", "x -> any", any_value)
KEY: Final = Parameter("key", "x -> any", any_value)
OPTIONAL_KEY: Final = Parameter("key", "x -> any", any_value, default=ABSENT)
PREDICATE: Final = Parameter("f", "x -> bool or outcome", any_value)
FOLDER: Final = Parameter("f", "(acc, x) -> any", any_value)
INIT: Final = Parameter("init", "any", any_value)
TAKEN: Final = Parameter("n", "int", count, default=0)
PLACES: Final = Parameter("n", "int", count, default=0)
FORKS: Final = Parameter("n", "int", count, default=2)
VALUE: Final = Parameter("value", "any", any_value)
TARGET: Final = Parameter("target", "str or path", file_target)
