"""Reading a regex pattern: characters, escapes and bracketed classes under the flags in force.

Failure: `InvalidRegex` with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from worker.values.regex_classes import (
    CODE_POINT_MAX,
    PERL_ITEMS,
    POSIX_ITEMS,
    UnknownClass,
    ascii_folded,
    char_text,
    class_of,
    complement,
    difference,
    intersection,
    members,
    property_items,
    range_items,
    symmetric_difference,
)

NESTING_MAX: Final = 250


class InvalidRegex(Exception):
    """The pattern is not in the dialect; the text says why."""


@dataclass(slots=True, frozen=True)
class Flags:
    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    extended: bool = False
    unicode: bool = True
    swap_greed: bool = False
    crlf: bool = False


_CONTROLS: Final[dict[str, int]] = {
    "a": 7,
    "f": 12,
    "t": 9,
    "n": 10,
    "r": 13,
    "v": 11,
}
_HEX_DIGITS: Final[dict[str, int]] = {"x": 2, "u": 4, "U": 8}
_SET_OPERATIONS: Final = {
    "&&": intersection,
    "--": difference,
    "~~": symmetric_difference,
}
_PATTERN_WHITE_SPACE: Final = frozenset("\t\n\v\f\r \x85\u200e\u200f\u2028\u2029")


class PatternReader:
    """A position in a pattern, and the flags in force there."""

    # `at` only moves forward. `flags` are those in force here; a group restores them at its end.
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.flags = Flags()
        self.groups = 0
        self.names: dict[str, int] = {}
        self.depth = 0

    # --- reading ----------------------------------------------------------------------------------

    def fail(self, reason: str) -> NoReturn:
        raise InvalidRegex(reason)

    def at_end(self) -> bool:
        return self.at >= len(self.pattern)

    def peek(self, count: int = 1) -> str:
        return self.pattern[self.at : self.at + count]

    def take(self) -> str:
        char = self.pattern[self.at]
        self.at += 1
        return char

    def accept(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def skip_blanks(self) -> None:
        """Blanks and comments, where flag `x` makes them meaningless."""
        while self.flags.extended and not self.at_end():
            if self.peek() in _PATTERN_WHITE_SPACE:
                self.at += 1
            elif self.peek() == "#":
                end = self.pattern.find("\n", self.at)
                self.at = len(self.pattern) if end < 0 else end + 1
            else:
                return

    def enter(self) -> None:
        self.depth += 1
        if self.depth > NESTING_MAX:
            self.fail(f"nesting deeper than {NESTING_MAX}")

    # --- characters -------------------------------------------------------------------------------

    def escaped_char(self) -> int:
        """The character an escape names, inside and outside classes."""
        char = self.take()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in _HEX_DIGITS:
            return self.hex_char(char)
        if char.isdigit() and char.isascii():
            self.fail("backreferences are not supported")
        if not char.isascii() or char.isalnum() or char in "<>":
            self.fail(f"unrecognized escape sequence `\\{char}`")
        return ord(char)

    def hex_char(self, kind: str) -> int:
        if self.accept("{"):
            end = self.pattern.find("}", self.at)
            if end < 0:
                self.fail("unclosed hexadecimal literal")
            digits = self.pattern[self.at : end]
            self.at = end + 1
        else:
            digits = self.peek(_HEX_DIGITS[kind])
            self.at += len(digits)
            if len(digits) < _HEX_DIGITS[kind]:
                self.fail("incomplete hexadecimal literal")
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            self.fail("invalid hexadecimal literal")
        code = int(digits, 16)
        if code > CODE_POINT_MAX or 0xD800 <= code <= 0xDFFF:
            self.fail("hexadecimal literal is not a Unicode scalar value")
        return code

    # --- classes ----------------------------------------------------------------------------------

    def folded(self, class_text: str) -> str:
        if not self.flags.ignore_case:
            return class_text
        if self.flags.unicode:
            return f"(?i:{class_text})"
        return class_of(ascii_folded(members(class_text)))

    def perl(self, char: str) -> str:
        items = PERL_ITEMS[char.lower()][0 if self.flags.unicode else 1]
        if char.isupper() and not self.flags.unicode:
            self.fail("pattern can match invalid UTF-8")
        return f"[{'^' if char.isupper() else ''}{items}]"

    def unicode_property(self, negated: bool) -> str:
        if not self.flags.unicode:
            self.fail("Unicode not allowed here")
        if self.at_end():
            self.fail("incomplete escape sequence at the end of the pattern")
        name = self.take()
        if name == "{":
            end = self.pattern.find("}", self.at)
            if end < 0:
                self.fail("unclosed Unicode property")
            name = self.pattern[self.at : end]
            self.at = end + 1
        try:
            items, inverted = property_items(name)
        except UnknownClass as error:
            self.fail(str(error))
        if not items:
            return class_of(complement(()) if negated != inverted else ())
        return f"[{'^' if negated != inverted else ''}{items}]"

    def bracket(self) -> str:
        """A bracketed class whose `[` is read: one-character expression, case already folded."""
        self.enter()
        negated = self.accept("^")
        if negated and not self.flags.unicode:
            self.fail("pattern can match invalid UTF-8")
        items: list[str] = []
        self.skip_blanks()
        while self.accept("-"):
            items.append(char_text(ord("-")))
            self.skip_blanks()
        if not items and self.accept("]"):
            items.append(char_text(ord("]")))
        operation = None
        left = ""
        while True:
            self.skip_blanks()
            if self.at_end():
                self.fail("unclosed character class")
            if self.accept("]"):
                break
            following = self.peek(2)
            if following in _SET_OPERATIONS:
                self.at += 2
                left = self.operated(operation, left, "".join(items))
                operation, items = following, []
                continue
            items.append(self.class_item())
        self.depth -= 1
        if operation is None and any(items):
            # No set operation: the engine folds and negates by itself.
            return self.folded(f"[{'^' if negated else ''}{''.join(items)}]")
        result = self.operated(operation, left, "".join(items))
        if negated:
            return class_of(complement(members(result)))
        return result

    def operated(self, operation: str | None, left: str, items: str) -> str:
        """`left OPERATION [items]`, both case-folded; just `[items]` for the first operand."""
        right = self.folded(f"[{items}]") if items else class_of(())
        if operation is None:
            return right
        return class_of(_SET_OPERATIONS[operation](members(left), members(right)))

    def class_item(self) -> str:
        """One member of a bracketed class as text inside the engine's brackets."""
        if self.peek() == "[":
            posix = self.posix_class()
            if posix is not None:
                return posix
            self.at += 1
            return self.inner_items(self.bracket())
        if self.peek() == "\\" and self.peek(2)[1:].lower() in PERL_ITEMS:
            self.at += 2
            return self.named_item(self.perl(self.pattern[self.at - 1]))
        if self.peek(2) in ("\\p", "\\P"):
            self.at += 2
            return self.named_item(self.unicode_property(self.pattern[self.at - 1] == "P"))
        low = self.class_char()
        self.skip_blanks()
        if self.peek() != "-" or self.peek(2) in ("--", "-]"):
            return char_text(low)
        mark = self.at
        self.at += 1
        self.skip_blanks()
        if self.at_end():
            self.fail("unclosed character class")
        if self.peek() == "]":
            # With blanks between, `a- ]` is still a literal dash.
            self.at = mark
            return char_text(low)
        following = self.peek(2)
        if following[:1] == "[" or (following[:1] == "\\" and following[1:].lower() in "dswp"):
            self.fail("invalid range boundary, must be a literal")
        high = self.class_char()
        if low > high:
            self.fail("invalid character class range, the start must be <= the end")
        return f"{char_text(low)}-{char_text(high)}"

    def named_item(self, class_text: str) -> str:
        self.skip_blanks()
        if self.peek() == "-" and self.peek(2) not in ("--", "-]"):
            self.fail("invalid range boundary, must be a literal")
        return self.inner_items(class_text)

    def inner_items(self, class_text: str) -> str:
        """The inside of a class, to stand next to other members."""
        if class_text.startswith("[^") or not class_text.startswith("["):
            return range_items(members(class_text))
        return class_text[1:-1]

    def class_char(self) -> int:
        char = self.take()
        if char != "\\":
            code = ord(char)
        else:
            if self.at_end():
                self.fail("incomplete escape sequence at the end of the pattern")
            if self.peek() in ("b", "B", "A", "z"):
                self.fail("invalid escape sequence found in character class")
            code = self.escaped_char()
        if code > 0x7F and not self.flags.unicode:
            self.fail("pattern can match invalid UTF-8")
        return code

    def posix_class(self) -> str | None:
        """`[:name:]` or `[:^name:]`; None when the bracket opens an ordinary class."""
        if self.peek(2) != "[:":
            return None
        end = self.pattern.find(":]", self.at + 2)
        name = self.pattern[self.at + 2 : end] if end >= 0 else ""
        items = POSIX_ITEMS.get(name.removeprefix("^"))
        if items is None:
            return None
        self.at = end + 2
        return self.inner_items(f"[^{items}]") if name.startswith("^") else items
