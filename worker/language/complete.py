"""What an interactive front end asks about unfinished text: candidates, and whether to go on.

Both are pure and need only the text (chapter 10 §11.5, §14.2).

Failure: none; any text and any cursor have an answer.
"""

from __future__ import annotations

import re
from string import ascii_letters, digits
from typing import Final, Literal

from worker.language.diagnostics import ParseError

KNOWN_NAMES: Final = (
    "let", "var", "fn", "alias", "use", "export", "return", "break", "continue", "if", "else",
    "match", "for", "in", "while", "try", "catch", "true", "false", "null", "spawn", "with", "sh",
    "ls", "cd", "pwd", "cp", "mv", "rm", "mkdir", "cat", "echo", "run", "parallel", "pick",
    "interact", "explain",
)  # fmt: skip
DECLARING: Final = frozenset(("let", "var", "fn", "alias"))

_WORD = re.compile("[A-Za-z0-9_]+")
_NAME_CHARACTERS = frozenset(ascii_letters + digits + "_")
_MARKS = re.compile(r"""["'\\()\[\]{}]""")
_CONTINUING = ("+", "-", "*", "/", "=", ",", ".")

Completeness = Literal["incomplete", "error"]


def complete(src: str, cursor: int | None = None) -> list[str]:
    """Names that may stand at `cursor` (a UTF-8 offset; None is the end), in byte order."""
    before = _before(src, cursor)
    prefix = before[_partial_start(before) :]
    names = set(KNOWN_NAMES)
    declares = False
    for word in _WORD.findall(before):
        if declares:
            names.add(word)
        declares = word in DECLARING
    return sorted(name for name in names if name.startswith(prefix))


def partial(src: str, cursor: int | None = None) -> str:
    """The unfinished name before `cursor`, which a candidate would replace; may be empty."""
    before = _before(src, cursor)
    return before[_partial_start(before) :]


def _before(src: str, cursor: int | None) -> str:
    """The text before a byte offset, which moves down to a character boundary."""
    if cursor is None:
        return src
    if src.isascii():
        return src[:cursor]
    # An incomplete character at the cut is dropped; the text itself was whole.
    head = src.encode("utf-8", "surrogatepass")[:cursor]
    return head.decode("utf-8", "ignore")


def _partial_start(before: str) -> int:
    # Searching forward for a run that touches the end would try every run; walk back instead.
    start = len(before)
    while start and before[start - 1] in _NAME_CHARACTERS:
        start -= 1
    return start


def classify(src: str, error: ParseError) -> Completeness:
    """After a failed parse: should an interactive front end ask for another line?"""
    if "unterminated" in error.message:
        return "incomplete"
    at_end = error.span.end >= len(src.encode("utf-8", "surrogatepass"))
    if at_end and error.message.startswith("expected"):
        return "incomplete"
    if _leaves_open(src) or src.rstrip().endswith(_CONTINUING):
        return "incomplete"
    return "error"


def _leaves_open(src: str) -> bool:
    """Does the text end inside a quote or an open delimiter, as a rough scan sees it?"""
    quote = ""
    depth = 0
    position = 0
    while found := _MARKS.search(src, position):
        mark = found[0]
        position = found.end()
        if mark == "\\":
            # A backslash skips one character, inside double quotes only.
            position += quote == '"'
        elif quote:
            if mark == quote:
                quote = ""
        elif mark in ("'", '"'):
            quote = mark
        elif mark in "([{":
            depth += 1
        elif depth:
            depth -= 1
    return bool(quote or depth)
