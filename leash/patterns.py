"""Patterns of policy files: paths, hosts and principals (chapter 50 §6).

`?` is one character, `*` any run of characters, both also across `/`. `[abc]`, `[a-z]` and `[!a]`
are classes. `**` must be a whole component: at the end it is everything below, followed by `/` any
number of directories, also none. Braces are literal. Matching is over the whole text and
case-sensitive.

Failure: `compiled` raises BadPattern for `a**`, `***` and an unclosed `[`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_WILDCARDS: Final = frozenset("*?[")
# Where the concrete leading part of a pattern ends, as far as roots are concerned.
_NOT_CONCRETE: Final = re.compile(r"[*?\[\]{}]")


class BadPattern(ValueError):
    """A pattern that never matches anything."""


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern; use `fullmatch`. Raises BadPattern."""
    return re.compile("".join(_tokens(pattern)), re.DOTALL)


def _tokens(pattern: str) -> list[str]:
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            end = at
            while end < len(pattern) and pattern[end] == "*":
                end += 1
            part, at = _stars(pattern, at, end)
            parts.append(part)
        elif char == "?":
            parts.append(".")
            at += 1
        elif char == "[":
            found = character_class(pattern, at)
            if found is None:
                raise BadPattern(f"unclosed `[` in `{pattern}`")
            part, at = found
            parts.append(part)
        else:
            parts.append(re.escape(char))
            at += 1
    return parts


def _stars(pattern: str, start: int, end: int) -> tuple[str, int]:
    count = end - start
    if count == 1:
        return ".*", end
    whole = (start == 0 or pattern[start - 1] == "/") and (
        end == len(pattern) or pattern[end] == "/"
    )
    if count > 2 or not whole:
        raise BadPattern(f"`**` must be a whole component in `{pattern}`")
    if end == len(pattern):
        return ".*", end
    return "(?:.*/)?", end + 1


def character_class(pattern: str, start: int) -> tuple[str, int] | None:
    """The expression of the class that opens at `start`, and the index after its `]`; None when it
    is never closed. The same for patterns of policy files and for the globs of the language."""
    at = start + 1
    negated = pattern[at : at + 1] == "!"
    at += negated
    # A `]` directly after the opening is a member.
    end = pattern.find("]", at + 1)
    if end < 0:
        return None
    specs: list[str] = []
    members = pattern[at:end]
    index = 0
    while index < len(members):
        low = high = members[index]
        index += 1
        if index + 1 < len(members) and members[index] == "-":
            high = members[index + 1]
            index += 2
        if low <= high:
            specs.append(f"{re.escape(low)}-{re.escape(high)}")
    if not specs:
        return ("." if negated else "(?!)"), end + 1
    return f"[{'^' if negated else ''}{''.join(specs)}]", end + 1


def starts_with_wildcard(pattern: str) -> bool:
    return pattern[:1] in _WILDCARDS


def concrete_root(pattern: str) -> str | None:
    """The longest concrete leading path of an absolute pattern (chapter 50 §9.2), None when it has
    none."""
    if not pattern.startswith("/"):
        return None
    components: list[str] = []
    for component in pattern.split("/"):
        if _NOT_CONCRETE.search(component):
            break
        if component in ("", "."):
            continue
        if component == "..":
            del components[-1:]
        else:
            components.append(component)
    return "/" + "/".join(components)
