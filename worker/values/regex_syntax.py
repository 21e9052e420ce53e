"""Parser of the regex dialect (chapter 20 §1.1): pattern text to a small tree.

The dialect is that of the linear-time engines: leftmost-first alternation, Unicode classes, no
look-around, no backreferences, no possessive or atomic groups. Flags (`i m s x u U R`) are resolved
here, so that a node says everything about itself and nothing below reads a flag.

Failure: `InvalidRegex` with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from worker.values.regex_classes import PERL_ITEMS
from worker.values.regex_reader import InvalidRegex, PatternReader
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

__all__ = ["InvalidRegex", "parse"]

REPEAT_MAX: Final = 2**32 - 1

_FLAG_NAMES: Final[dict[str, str]] = {
    "i": "ignore_case",
    "m": "multi_line",
    "s": "dot_all",
    "x": "extended",
    "u": "unicode",
    "U": "swap_greed",
    "R": "crlf",
}
_EDGES: Final[dict[str, Assertion]] = {
    "{start}": Assertion.WORD_START,
    "{end}": Assertion.WORD_END,
    "{start-half}": Assertion.WORD_START_HALF,
    "{end-half}": Assertion.WORD_END_HALF,
}


def parse(pattern: str) -> Parsed:
    """Parse a pattern. Raises InvalidRegex."""
    parser = _Parser(pattern)
    root = parser.alternation()
    if not parser.at_end():
        parser.fail("unopened group")
    return Parsed(root, parser.groups, parser.names)


class _Parser(PatternReader):
    # --- structure --------------------------------------------------------------------------------

    def alternation(self) -> Node:
        branches = [self.concatenation()]
        while self.accept("|"):
            branches.append(self.concatenation())
        return branches[0] if len(branches) == 1 else Alternate(tuple(branches))

    def concatenation(self) -> Node:
        parts: list[Node] = []
        while True:
            self.skip_blanks()
            if self.at_end() or self.peek() in ("|", ")"):
                break
            if self.peek() in ("*", "+", "?", "{"):
                if not parts:
                    self.fail("repetition operator missing expression")
                parts.append(self.repetition(parts.pop()))
                continue
            node = self.atom()
            if node is not None:
                parts.append(node)
            else:
                # A bare flag group: nothing to repeat, so `(?i)*` is an error like a leading `*`.
                self.skip_blanks()
                if self.peek() in ("*", "+", "?", "{") and not self.at_end():
                    self.fail("repetition operator missing expression")
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def repetition(self, body: Node) -> Node:
        operator = self.take()
        if operator == "{":
            least, most = self.counts()
        else:
            least = 1 if operator == "+" else 0
            most = 1 if operator == "?" else None
        greedy = not self.accept("?")
        if self.peek() == "+":
            self.fail("possessive quantifiers are not supported")
        return Repeat(body, least, most, greedy != self.flags.swap_greed)

    def counts(self) -> tuple[int, int | None]:
        end = self.pattern.find("}", self.at)
        if end < 0:
            self.fail("unclosed counted repetition")
        low_text, comma, high_text = self.pattern[self.at : end].partition(",")
        self.at = end + 1
        least = self.count(low_text)
        if not comma:
            return least, least
        if not high_text.strip():
            return least, None
        most = self.count(high_text)
        if most < least:
            self.fail("invalid repetition count range, the start must be <= the end")
        return least, most

    def count(self, text: str) -> int:
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit()):
            self.fail("repetition quantifier expects a valid decimal")
        if len(digits) > 10 or int(digits) > REPEAT_MAX:
            self.fail("repetition count too large")
        return int(digits)

    def atom(self) -> Node | None:
        """One element; None for a bare group of flags."""
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return Class(self.bracket())
        if char == ".":
            return self.dot()
        if char == "^":
            return self.line_edge(
                Assertion.TEXT_START, Assertion.LINE_START, Assertion.CRLF_LINE_START
            )
        if char == "$":
            return self.line_edge(Assertion.TEXT_END, Assertion.LINE_END, Assertion.CRLF_LINE_END)
        if char == "\\":
            return self.escape()
        return self.literal(ord(char))

    def literal(self, code: int) -> Node:
        char = chr(code)
        if not self.flags.ignore_case:
            return Char(code, fold=False)
        if self.flags.unicode:
            return Char(code, fold=True)
        if char.isascii() and char.isalpha():
            return Class(f"[{char.lower()}{char.upper()}]")
        return Char(code, fold=False)

    def dot(self) -> Node:
        if not self.flags.unicode:
            self.fail("pattern can match invalid UTF-8")
        if self.flags.dot_all:
            return Class("(?s:.)")
        return Class(r"[^\r\n]" if self.flags.crlf else r"[^\n]")

    def line_edge(self, text: Assertion, line: Assertion, crlf: Assertion) -> Assertion:
        if not self.flags.multi_line:
            return text
        return crlf if self.flags.crlf else line

    # --- groups -----------------------------------------------------------------------------------

    def group(self) -> Node | None:
        outer = self.flags
        number: int | None = None
        if self.accept("?"):
            if self.peek() in ("=", "!") or self.peek(2) in ("<=", "<!"):
                self.fail("look-around, including look-ahead and look-behind, is not supported")
            if self.peek() == ">":
                self.fail("atomic groups are not supported")
            if self.accept("P<") or self.accept("<"):
                number = self.capture(self.group_name())
            elif self.peek(2) == "P=":
                self.fail("backreferences are not supported")
            elif self.change_flags():
                return None
        else:
            number = self.capture(None)
        self.enter()
        body = self.alternation()
        self.depth -= 1
        if not self.accept(")"):
            self.fail("unclosed group")
        self.flags = outer
        return Group(body, number)

    def capture(self, name: str | None) -> int:
        self.groups += 1
        if name is not None:
            if name in self.names:
                self.fail(f"duplicate capture group name `{name}`")
            self.names[name] = self.groups
        return self.groups

    def group_name(self) -> str:
        end = self.pattern.find(">", self.at)
        if end < 0:
            self.fail("unclosed capture group name")
        name = self.pattern[self.at : end]
        self.at = end + 1
        if not name:
            self.fail("empty capture group name")
        first, rest = name[0], name[1:]
        if not (first == "_" or first.isalpha()) or any(
            not (char in "_.[]" or char.isalnum()) for char in rest
        ):
            self.fail(f"invalid capture group name `{name}`")
        return name

    def change_flags(self) -> bool:
        """Read `flags:` or `flags)`; True for the latter, where the group ends at once."""
        seen: dict[str, bool] = {}
        negated = dangling = False
        while True:
            if self.at_end():
                self.fail("unclosed group")
            char = self.take()
            if char in ":)":
                break
            if char == "-":
                if negated:
                    self.fail("repeated flag negation operator")
                negated = dangling = True
                continue
            name = _FLAG_NAMES.get(char)
            if name is None:
                self.fail(f"unrecognized flag `{char}`")
            if name in seen:
                self.fail(f"duplicate flag `{char}`")
            seen[name] = not negated
            dangling = False
        if dangling:
            self.fail("dangling flag negation operator")
        if char == ")" and not seen:
            self.fail("repetition operator missing expression")
        self.flags = replace(self.flags, **seen)
        return char == ")"

    # --- escapes ----------------------------------------------------------------------------------

    def escape(self) -> Node:
        if self.at_end():
            self.fail("incomplete escape sequence at the end of the pattern")
        char = self.peek()
        if char in ("b", "B", "A", "z", "<", ">"):
            self.at += 1
            return self.assertion(char)
        if char.lower() in PERL_ITEMS:
            self.at += 1
            return Class(self.folded(self.perl(char)))
        if char in ("p", "P"):
            self.at += 1
            return Class(self.folded(self.unicode_property(char == "P")))
        code = self.escaped_char()
        if code > 0x7F and not self.flags.unicode:
            self.fail("pattern can match invalid UTF-8")
        return self.literal(code)

    def assertion(self, char: str) -> Assertion:
        if char == "A":
            return Assertion.TEXT_START
        if char == "z":
            return Assertion.TEXT_END
        if char == "<":
            return Assertion.WORD_START
        if char == ">":
            return Assertion.WORD_END
        if char == "b" and self.peek() == "{":
            for text, edge in _EDGES.items():
                if self.accept(text):
                    return edge
            # Not one of the names: a counted repetition of `\b` follows, as in `\b{2}`.
        if self.flags.unicode:
            return Assertion.WORD_EDGE if char == "b" else Assertion.NO_WORD_EDGE
        return Assertion.ASCII_WORD_EDGE if char == "b" else Assertion.NO_ASCII_WORD_EDGE
