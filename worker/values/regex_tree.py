"""The tree of a parsed regex: plain nodes that say everything about themselves.

Failure: nothing here raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Assertion(Enum):
    """Places that match without taking a character."""

    TEXT_START = "text start"
    TEXT_END = "text end"
    LINE_START = "line start"
    LINE_END = "line end"
    CRLF_LINE_START = "line start after CR, LF or CRLF"
    CRLF_LINE_END = "line end before CR, LF or CRLF"
    WORD_EDGE = "edge of a word"
    NO_WORD_EDGE = "no edge of a word"
    ASCII_WORD_EDGE = "edge of an ASCII word"
    NO_ASCII_WORD_EDGE = "no edge of an ASCII word"
    WORD_START = "start of a word"
    WORD_END = "end of a word"
    WORD_START_HALF = "nothing of a word before"
    WORD_END_HALF = "nothing of a word behind"


class Char(NamedTuple):
    """One literal character; `fold`: its case does not count."""

    code: int
    fold: bool


class Class(NamedTuple):
    """An expression of the engine that matches exactly one character."""

    text: str


class Group(NamedTuple):
    """A parenthesis; `number` None does not capture."""

    body: Node
    number: int | None


class Repeat(NamedTuple):
    body: Node
    least: int
    most: int | None
    greedy: bool


class Concat(NamedTuple):
    parts: tuple[Node, ...]


class Alternate(NamedTuple):
    branches: tuple[Node, ...]


Node = Char | Class | Assertion | Group | Repeat | Concat | Alternate

EMPTY: Final = Concat(())


@dataclass(slots=True, frozen=True)
class Parsed:
    """A whole pattern: its tree, and the capturing groups by number and name."""

    root: Node
    groups: int
    names: dict[str, int]
