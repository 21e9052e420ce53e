"""A Pike machine for the patterns the engine cannot run itself (chapter 20 §1.1).

The engine knows words of ASCII letters only, and no line ends of CRLF kind. Patterns with such
assertions are run here: all alternatives advance together over the text, in the order of their
preference, so the time is linear in the text for a given pattern.

Failure: `ProgramTooLarge` when counted repetitions blow the program up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from worker.values.regex_classes import PERL_ITEMS, Ranges, char_text, members
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

INSTRUCTIONS_MAX: Final = 50_000

Slots = tuple[int, ...]


class ProgramTooLarge(Exception):
    """The pattern needs more instructions than INSTRUCTIONS_MAX."""


class CharSet:
    """Membership of single characters, remembered character by character."""

    __slots__ = ("_known", "_lows", "_ranges")

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._lows = [low for low, _ in ranges]
        self._known: dict[str, bool] = {}

    def __contains__(self, char: str) -> bool:
        known = self._known.get(char)
        if known is None:
            at = bisect_right(self._lows, ord(char)) - 1
            known = at >= 0 and ord(char) <= self._ranges[at][1]
            self._known[char] = known
        return known


class _Take(NamedTuple):
    """Consume one character of the set, go to `then`."""

    chars: CharSet
    then: int


class _Split(NamedTuple):
    """Try `first`, then `second`."""

    first: int
    second: int


class _Jump(NamedTuple):
    then: int


class _Save(NamedTuple):
    slot: int
    then: int


class _Assert(NamedTuple):
    holds: Callable[[str, int], bool]
    then: int


class _Match(NamedTuple):
    pass


_Instruction = _Take | _Split | _Jump | _Save | _Assert | _Match

# --- assertions -----------------------------------------------------------------------------------

_words: dict[bool, CharSet] = {}


def _word_chars(ascii_only: bool) -> CharSet:
    chars = _words.get(ascii_only)
    if chars is None:
        chars = _words[ascii_only] = CharSet(members(f"[{PERL_ITEMS['w'][ascii_only]}]"))
    return chars


def _before(text: str, at: int, ascii_only: bool) -> bool:
    return at > 0 and text[at - 1] in _word_chars(ascii_only)


def _behind(text: str, at: int, ascii_only: bool) -> bool:
    return at < len(text) and text[at] in _word_chars(ascii_only)


def _edge(text: str, at: int, ascii_only: bool) -> bool:
    return _before(text, at, ascii_only) != _behind(text, at, ascii_only)


def _crlf_start(text: str, at: int) -> bool:
    if at == 0 or text[at - 1] == "\n":
        return True
    return text[at - 1] == "\r" and not (at < len(text) and text[at] == "\n")


def _crlf_end(text: str, at: int) -> bool:
    if at == len(text) or text[at] == "\r":
        return True
    return text[at] == "\n" and not (at > 0 and text[at - 1] == "\r")


_HOLDS: Final[dict[Assertion, Callable[[str, int], bool]]] = {
    Assertion.TEXT_START: lambda text, at: at == 0,
    Assertion.TEXT_END: lambda text, at: at == len(text),
    Assertion.LINE_START: lambda text, at: at == 0 or text[at - 1] == "\n",
    Assertion.LINE_END: lambda text, at: at == len(text) or text[at] == "\n",
    Assertion.CRLF_LINE_START: _crlf_start,
    Assertion.CRLF_LINE_END: _crlf_end,
    Assertion.WORD_EDGE: lambda text, at: _edge(text, at, False),
    Assertion.NO_WORD_EDGE: lambda text, at: not _edge(text, at, False),
    Assertion.ASCII_WORD_EDGE: lambda text, at: _edge(text, at, True),
    Assertion.NO_ASCII_WORD_EDGE: lambda text, at: not _edge(text, at, True),
    Assertion.WORD_START: lambda text, at: (
        not _before(text, at, False) and _behind(text, at, False)
    ),
    Assertion.WORD_END: lambda text, at: _before(text, at, False) and not _behind(text, at, False),
    Assertion.WORD_START_HALF: lambda text, at: not _before(text, at, False),
    Assertion.WORD_END_HALF: lambda text, at: not _behind(text, at, False),
}

# --- compiling ------------------------------------------------------------------------------------


class _Compiler:
    # Code is emitted backwards: every node is compiled in front of the instruction that follows it.
    def __init__(self) -> None:
        self.code: list[_Instruction] = []

    def emit(self, instruction: _Instruction) -> int:
        if len(self.code) >= INSTRUCTIONS_MAX:
            raise ProgramTooLarge
        self.code.append(instruction)
        return len(self.code) - 1

    def node(self, node: Node, then: int) -> int:
        """Compile `node` so that it continues at `then`; the index where it starts."""
        if isinstance(node, Char):
            text = char_text(node.code)
            return self.emit(_Take(_char_set(f"(?i:{text})" if node.fold else f"[{text}]"), then))
        if isinstance(node, Class):
            return self.emit(_Take(_char_set(node.text), then))
        if isinstance(node, Assertion):
            return self.emit(_Assert(_HOLDS[node], then))
        if isinstance(node, Group):
            return self.group(node, then)
        if isinstance(node, Repeat):
            return self.repeat(node, then)
        if isinstance(node, Concat):
            for part in reversed(node.parts):
                then = self.node(part, then)
            return then
        return self.alternate(node, then)

    def group(self, node: Group, then: int) -> int:
        if node.number is None:
            return self.node(node.body, then)
        end = self.emit(_Save(2 * node.number + 1, then))
        return self.emit(_Save(2 * node.number, self.node(node.body, end)))

    def alternate(self, node: Alternate, then: int) -> int:
        start = self.node(node.branches[-1], then)
        for branch in reversed(node.branches[:-1]):
            start = self.emit(_Split(self.node(branch, then), start))
        return start

    def split(self, enter: int, leave: int, greedy: bool) -> int:
        return self.emit(_Split(enter, leave) if greedy else _Split(leave, enter))

    def repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self.emit(_Jump(then))
            body = self.node(node.body, loop)
            order = (body, then) if node.greedy else (then, body)
            self.code[loop] = _Split(*order)
            start = loop
        else:
            start = then
            for _ in range(node.most - node.least):
                start = self.split(self.node(node.body, start), then, node.greedy)
        for _ in range(node.least):
            start = self.node(node.body, start)
        return start


_char_sets: dict[str, CharSet] = {}


def _char_set(class_text: str) -> CharSet:
    chars = _char_sets.get(class_text)
    if chars is None:
        if len(_char_sets) >= 1024:
            _char_sets.clear()
        chars = _char_sets[class_text] = CharSet(members(class_text))
    return chars


class Program:
    """One compiled pattern."""

    def __init__(self, parsed: Parsed) -> None:
        compiler = _Compiler()
        end = compiler.emit(_Match())
        self._start = compiler.node(parsed.root, end)
        self._code = compiler.code
        self._slots = 2 * (parsed.groups + 1)

    def search(self, text: str, start: int) -> Slots | None:
        """The leftmost match at or after `start`: character offsets of all groups, -1 for unset."""
        return self._run(text, start, anchored=False)[0]

    def match_at(self, text: str, start: int) -> tuple[Slots | None, int]:
        """The match that starts exactly at `start`, and the offset at which that was decided."""
        return self._run(text, start, anchored=True)

    def _run(self, text: str, start: int, anchored: bool) -> tuple[Slots | None, int]:
        empty = (-1,) * self._slots
        threads: list[tuple[int, Slots]] = []
        found: Slots | None = None
        at = start
        while True:
            if found is None and (at == start or not anchored):
                seen = {pc for pc, _ in threads}
                self._follow(threads, seen, self._start, (at, *empty[1:]), text, at)
            if not threads and (anchored or found is not None):
                return found, at
            char = text[at] if at < len(text) else ""
            following: list[tuple[int, Slots]] = []
            reached: set[int] = set()
            for pc, slots in threads:
                instruction = self._code[pc]
                if isinstance(instruction, _Match):
                    # Everything after this thread is less preferred.
                    found = (slots[0], at, *slots[2:])
                    break
                if isinstance(instruction, _Take) and char and char in instruction.chars:
                    self._follow(following, reached, instruction.then, slots, text, at + 1)
            threads = following
            if not char:
                return found, at
            at += 1

    def _follow(
        self,
        threads: list[tuple[int, Slots]],
        seen: set[int],
        start: int,
        slots: Slots,
        text: str,
        at: int,
    ) -> None:
        """Add the threads reached from `start` without taking a character, in preference order."""
        pending = [(start, slots)]
        while pending:
            pc, slots = pending.pop()
            if pc in seen:
                continue
            seen.add(pc)
            instruction = self._code[pc]
            if isinstance(instruction, _Split):
                pending.append((instruction.second, slots))
                pending.append((instruction.first, slots))
            elif isinstance(instruction, _Jump):
                pending.append((instruction.then, slots))
            elif isinstance(instruction, _Save):
                slot = instruction.slot
                pending.append((instruction.then, (*slots[:slot], at, *slots[slot + 1 :])))
            elif isinstance(instruction, _Assert):
                if instruction.holds(text, at):
                    pending.append((instruction.then, slots))
            else:
                threads.append((pc, slots))
