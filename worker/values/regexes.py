"""Regular expressions: compiling a pattern of the dialect, and matching (chapter 20 §1.1).

A pattern is parsed by `regex_syntax`, written again in the syntax of the linear-time engine RE2,
and matched by it. The engine's `\\b` knows ASCII words only, so a pattern with `\\b` meets a text
that is not ASCII in the machine of `regex_vm` instead, which is exact and slower; so do the
assertions the engine lacks. Offsets are in characters, as everywhere in the language.

Failure: `compile_regex` raises `arg_error` "invalid regex: ..." for everything outside the dialect;
`search` and `finditer` raise the same for a pattern too large for the machine that must run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import re2

from worker.errors import arg_error
from worker.values.regex_classes import char_text, engine_options
from worker.values.regex_syntax import InvalidRegex, parse
from worker.values.regex_tree import (
    Alternate,
    Assertion,
    Char,
    Class,
    Concat,
    Group,
    Node,
    Parsed,
    Repeat,
)
from worker.values.regex_vm import Program, ProgramTooLarge
from worker.values.types import Regex

# The engine refuses counts whose product over nested repetitions is larger.
_ENGINE_REPEAT_MAX: Final = 1000
_TRANSLATION_CHARS_MAX: Final = 4 * 2**20
# Characters of failed attempts, per character of text, after which candidates no longer pay.
_FAILED_PER_CHAR_MAX: Final = 8

# Assertions in the engine's syntax; those of the second table are exact for ASCII text only, and
# the ones in neither table have no equivalent.
_EXACT: Final[dict[Assertion, str]] = {
    Assertion.TEXT_START: r"\A",
    Assertion.TEXT_END: r"\z",
    Assertion.LINE_START: "(?m:^)",
    Assertion.LINE_END: "(?m:$)",
    Assertion.ASCII_WORD_EDGE: r"\b",
}
_EXACT_IN_ASCII: Final[dict[Assertion, str]] = {
    Assertion.WORD_EDGE: r"\b",
    Assertion.NO_WORD_EDGE: r"\B",
    Assertion.NO_ASCII_WORD_EDGE: r"\B",
}


class _NotInEngine(Exception):
    """The pattern holds something the engine has no syntax for."""


class _Writer:
    """Writes a tree in the engine's syntax; `ascii_only`: exact for ASCII text only.

    `relaxed` leaves out every assertion that is not exact: the result matches at least wherever the
    pattern does.
    """

    def __init__(self, relaxed: bool = False) -> None:
        self.ascii_only = False
        self._relaxed = relaxed

    def write(self, node: Node, capturing: bool) -> str:
        if isinstance(node, Char):
            text = char_text(node.code)
            return f"(?i:{text})" if node.fold else text
        if isinstance(node, Class):
            return node.text
        if isinstance(node, Assertion):
            return self.assertion(node)
        if isinstance(node, Group):
            opening = "(" if capturing and node.number is not None else "(?:"
            return f"{opening}{self.write(node.body, capturing)})"
        if isinstance(node, Repeat):
            return self.repeat(node, capturing)
        if isinstance(node, Concat):
            return "".join([self.write(part, capturing) for part in node.parts])
        branches = [self.write(branch, capturing) for branch in node.branches]
        return f"(?:{'|'.join(branches)})"

    def assertion(self, node: Assertion) -> str:
        text = _EXACT.get(node)
        if text is not None:
            return text
        if self._relaxed:
            return "(?:)"
        self.ascii_only = True
        text = _EXACT_IN_ASCII.get(node)
        if text is None:
            raise _NotInEngine
        return text

    def repeat(self, node: Repeat, capturing: bool) -> str:
        largest = node.least if node.most is None else node.most
        body = f"(?:{self.write(node.body, capturing)})"
        lazy = "" if node.greedy else "?"
        if largest <= 1 or largest * _nested_count(node.body) <= _ENGINE_REPEAT_MAX:
            most = "" if node.most is None else node.most
            return f"{body}{{{node.least},{most}}}{lazy}"
        return self.spelled_out(node, body, lazy)

    def spelled_out(self, node: Repeat, body: str, lazy: str) -> str:
        """A repetition past the engine's limit as copies, of which the last may capture."""
        copy = f"(?:{self.write(node.body, False)})"
        copies = node.least if node.most is None else node.most
        if copies * len(copy) > _TRANSLATION_CHARS_MAX:
            raise InvalidRegex("compiled regex exceeds size limit")
        if node.most is None:
            return f"{copy * (node.least - 1)}{body}{{1,}}{lazy}"
        optional = node.most - node.least
        if not optional:
            return copy * (node.least - 1) + body
        if copy != body:
            raise InvalidRegex("compiled regex exceeds size limit")
        return copy * node.least + f"(?:{copy}" * optional + f"){{0,1}}{lazy}" * optional


def _nested_count(node: Node) -> int:
    """The largest product of counts along nested repetitions below `node`."""
    if isinstance(node, Repeat):
        own = max(node.least if node.most is None else node.most, 1)
        inner = _nested_count(node.body)
        # A repetition that will be spelled out leaves only its body to count.
        return inner if own * inner > _ENGINE_REPEAT_MAX else own * inner
    if isinstance(node, Group):
        return _nested_count(node.body)
    if isinstance(node, Concat):
        return max(map(_nested_count, node.parts), default=1)
    if isinstance(node, Alternate):
        return max(map(_nested_count, node.branches))
    return 1


class Match:
    """One match: `start()`, `end()` in characters, `group(number or name)` as text or None."""

    __slots__ = ("_names", "_slots", "_text")

    def __init__(self, text: str, slots: tuple[int, ...], names: dict[str, int]) -> None:
        self._text = text
        self._slots = slots
        self._names = names

    def start(self) -> int:
        return self._slots[0]

    def end(self) -> int:
        return self._slots[1]

    def group(self, key: int | str = 0) -> str | None:
        """The text of a group; None when it took no part. Raises IndexError for no such group."""
        if isinstance(key, str):
            if key not in self._names:
                raise IndexError(f"no group `{key}`")
            key = self._names[key]
        if not 0 <= 2 * key < len(self._slots):
            raise IndexError(f"no group {key}")
        start, end = self._slots[2 * key], self._slots[2 * key + 1]
        return None if start < 0 else self._text[start:end]


class Engine:
    """The compiled form of one pattern."""

    # `_machine` is made on first use, by whichever thread comes first; making it twice is harmless.
    def __init__(self, src: str) -> None:
        try:
            self._parsed: Parsed = parse(src)
            writer = _Writer()
            try:
                self._re2 = re2.compile(writer.write(self._parsed.root, True), engine_options())
            except _NotInEngine:
                self._re2 = None
        except InvalidRegex as error:
            raise arg_error(f"invalid regex: {error}") from None
        except RecursionError:
            raise arg_error("invalid regex: nesting too deep") from None
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise arg_error(f"invalid regex: {text}") from None
        self._ascii_only = writer.ascii_only
        self._groups = self._parsed.groups
        self._machine: tuple[Program, re2._Regexp] | None = None

    def search(self, text: str) -> Match | None:
        """The leftmost match."""
        return next(self.finditer(text), None)

    def finditer(self, text: str) -> Iterator[Match]:
        """All matches that do not overlap, from left to right.

        An empty match directly after the previous match does not count.
        """
        ascii_text = text.isascii()
        if self._re2 is None or (self._ascii_only and not ascii_text):
            return self._by_machine(text)
        return self._by_engine(text, ascii_text)

    def _by_machine(self, text: str) -> Iterator[Match]:
        if self._machine is None:
            try:
                program = Program(self._parsed)
            except ProgramTooLarge:
                raise arg_error("invalid regex: compiled regex exceeds size limit") from None
            relaxed = _Writer(relaxed=True).write(self._parsed.root, False)
            self._machine = (program, re2.compile(relaxed, engine_options()))
        names = self._parsed.names
        search = _MachineSearch(*self._machine, text)
        at, previous_end = 0, -1
        while at <= len(text):
            slots = search.leftmost(at)
            if slots is None:
                return
            start, end = slots[0], slots[1]
            if start == end == previous_end:
                at = end + 1
                continue
            previous_end = at = end
            yield Match(text, slots, names)

    def _by_engine(self, text: str, ascii_text: bool) -> Iterator[Match]:
        data = text.encode()
        names = self._parsed.names
        offsets = _Offsets(data, ascii_text, self._groups)
        at, previous_end = 0, -1
        while at <= len(data):
            found = self._re2.search(data, at)
            if found is None:
                return
            start, end = found.span()
            if start == end == previous_end:
                at = end + _char_bytes(data, end)
                continue
            previous_end = at = end
            yield Match(text, offsets.of_match(found), names)


class _MachineSearch:
    """Searches of one text by the machine, started only where a match is possible.

    The engine finds those places quickly with the relaxed pattern. When too many of them fail, the
    machine searches by itself, so that the time stays linear in the text.
    """

    # `_byte` in `_data` and `_char` in `_text` are the same place; both only move forward.
    def __init__(self, program: Program, candidates: re2._Regexp, text: str) -> None:
        self._program = program
        self._candidates = candidates
        self._text = text
        self._data = text.encode()
        self._byte = 0
        self._char = 0
        self._failures_left = _FAILED_PER_CHAR_MAX * (len(text) + 1)

    def leftmost(self, at: int) -> tuple[int, ...] | None:
        """The leftmost match at or after the character offset `at`, which never decreases."""
        while self._failures_left > 0:
            candidate = self._candidate(at)
            if candidate is None:
                return None
            slots, decided = self._program.match_at(self._text, candidate)
            if slots is not None:
                return slots
            self._failures_left -= decided - candidate + 1
            at = candidate + 1
            if at > len(self._text):
                return None
        return self._program.search(self._text, at)

    def _candidate(self, at: int) -> int | None:
        self._byte += len(self._text[self._char : at].encode())
        self._char = at
        found = self._candidates.search(self._data, self._byte)
        if found is None:
            return None
        start, end = found.span()
        self._failures_left -= end - start
        self._char += len(self._data[self._byte : start].decode())
        self._byte = start
        return self._char


class _Offsets:
    """Character offsets of byte offsets that never go back past the last match's start."""

    def __init__(self, data: bytes, ascii_text: bool, groups: int) -> None:
        self._data = data
        self._groups = range(groups + 1)
        self._ascii = ascii_text
        self._bytes = 0
        self._chars = 0

    def of_match(self, found: re2._Match) -> tuple[int, ...]:
        if self._ascii and len(self._groups) == 1:
            start, end = found.span()
            return (start, end)
        spans = [found.span(group) for group in self._groups]
        flat = [offset for span in spans for offset in span]
        if self._ascii:
            return tuple(flat)
        known = {-1: -1}
        for offset in sorted(set(flat) - {-1}):
            self._chars += len(self._data[self._bytes : offset].decode())
            self._bytes = offset
            known[offset] = self._chars
        # A later match starts at or after the end of this one, or of an empty one before it.
        return tuple(known[offset] for offset in flat)


def _char_bytes(data: bytes, at: int) -> int:
    """Bytes of the character at `at`; 1 at the end, which steps past it."""
    if at >= len(data) or data[at] < 0x80:
        return 1
    return 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4


@lru_cache(maxsize=256)
def _engine(src: str) -> Engine:
    return Engine(src)


def compile_regex(src: str) -> Regex:
    """The regex value of a pattern. Raises arg_error when it is not in the dialect."""
    return Regex(src, _engine(src))
