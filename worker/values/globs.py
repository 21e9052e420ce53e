"""Expansion of globs: from a pattern and its origin to sorted paths (chapter 20 §1.1).

`*` and `?` stay within one component, `[...]` and `[!...]` are classes, `**` is a whole component
and stands for any number of directories. Names that start with a dot are matched by wildcards only
for a glob with `hidden`, or when the last component of the pattern starts with a dot itself. What
cannot be read is skipped. `**` does not go through links to directories, so it always ends. The
origin is taken literally, whatever characters it has.

Failure: `arg_error` for a malformed pattern. Nothing matched is an empty list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from leash.patterns import character_class
from worker.errors import arg_error
from worker.values.inline import inline
from worker.values.paths import ROOT, components
from worker.values.types import Glob, Path

_WILDCARDS: Final = re.compile(r"[*?\[]")


class Component(NamedTuple):
    """One component of a pattern: a literal name (`pattern` None), a wildcard, or `**`."""

    text: str
    pattern: re.Pattern[str] | None
    recursive: bool


# --- patterns -------------------------------------------------------------------------------------


def _expression(text: str, whole: str) -> str:
    """A regular expression for one component.

    Every star but the last takes the nearest place where what follows it matches and never comes
    back, which is enough for a match and keeps the time linear in the stars.
    """
    chunks: list[str] = []
    chunk: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            chunks.append("".join(chunk))
            chunk = []
        elif char == "?":
            chunk.append(".")
        elif char == "[":
            found = character_class(text, at - 1)
            if found is None:
                raise arg_error(f"invalid glob `{whole}`: unclosed `[`")
            expression, at = found
            chunk.append(expression)
        else:
            chunk.append(re.escape(char))
    chunks.append("".join(chunk))
    if len(chunks) == 1:
        return chunks[0]
    middle = "".join(f"(?>.*?{part})" for part in chunks[1:-1])
    return f"{chunks[0]}{middle}.*{chunks[-1]}"


@lru_cache(maxsize=256)
def parse_pattern(pattern: str) -> tuple[Component, ...]:
    """The components of a pattern. Raises arg_error when it is malformed."""
    parsed: list[Component] = []
    for text in components(pattern):
        if text == "**":
            # Two in a row mean no more than one.
            if not (parsed and parsed[-1].recursive):
                parsed.append(Component(text, None, True))
        elif "**" in text:
            raise arg_error(f"invalid glob `{pattern}`: `**` must be a whole component")
        elif _WILDCARDS.search(text):
            compiled = re.compile(_expression(text, pattern) + r"\Z", re.DOTALL)
            parsed.append(Component(text, compiled, False))
        else:
            parsed.append(Component(text, None, False))
    return tuple(parsed)


def _dots_allowed(glob: Glob, parsed: tuple[Component, ...]) -> bool:
    return glob.hidden or (bool(parsed) and parsed[-1].text.startswith("."))


def _fits(component: Component, name: str, dots: bool) -> bool:
    if component.pattern is None:
        return component.text == name
    if name.startswith(".") and not dots and not component.text.startswith("."):
        return False
    return component.pattern.match(name) is not None


# --- walking --------------------------------------------------------------------------------------


# Called before each directory is read; what it raises ends the expansion.
Look = Callable[[], None]


def _freely() -> None:
    return None


def _entries(directory: str, look: Look) -> list[os.DirEntry[str]]:
    look()
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _is_dir(entry: os.DirEntry[str], follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def _join(directory: str, name: str) -> str:
    return f"{directory}{name}" if directory.endswith("/") else f"{directory}/{name}"


def _below(directory: str, dots: bool, look: Look) -> Iterator[str]:
    """Every directory below `directory` that the dot rule shows."""
    pending = [directory]
    while pending:
        current = pending.pop()
        for entry in _entries(current, look):
            if (dots or not entry.name.startswith(".")) and _is_dir(entry, follow=False):
                path = _join(current, entry.name)
                yield path
                pending.append(path)


def _step(
    directories: Iterator[str], component: Component, last: bool, dots: bool, look: Look
) -> Iterator[str]:
    """What one component makes of the directories found so far."""
    for directory in directories:
        if component.recursive:
            # As the last component `**` names the directories below, not where it starts.
            if not last:
                yield directory
            yield from _below(directory, dots, look)
        elif component.pattern is None:
            path = _join(directory, component.text)
            if os.path.lexists(path):
                yield path
        else:
            for entry in _entries(directory, look):
                if _fits(component, entry.name, dots) and (last or _is_dir(entry, follow=True)):
                    yield _join(directory, entry.name)


def expand(glob: Glob, look: Look = _freely) -> list[Path]:
    """All matches, absolute, sorted by their inline rendering."""
    parsed = parse_pattern(glob.pattern)
    dots = _dots_allowed(glob, parsed)
    absolute = bool(parsed) and parsed[0].text == ROOT
    found: Iterator[str] = iter((ROOT if absolute else glob.origin,))
    steps = [step for step in parsed[absolute:] if step.text != "."]
    if not steps:
        return []
    for position, component in enumerate(steps):
        found = _step(found, component, position == len(steps) - 1, dots, look)
    # Two `**` can lead to the same place in several ways.
    paths = [Path(raw) for raw in dict.fromkeys(found)]
    if glob.pattern.endswith("/"):
        paths = [path for path in paths if os.path.isdir(path.raw)]
    return sorted(paths, key=inline)


def matches(glob: Glob, raw: str) -> bool:
    """Whether the absolute path `raw` is named by the glob, without looking at the file system."""
    parsed = parse_pattern(glob.pattern)
    dots = _dots_allowed(glob, parsed)
    pattern = [step for step in parsed if step.text != "."]
    if not pattern or pattern[0].text != ROOT:
        origin = [Component(text, None, False) for text in components(glob.origin)]
        pattern = origin + pattern
    # The components of the pattern that may come next, advanced name by name.
    states = _past_recursive(pattern, {0})
    for name in components(raw):
        following = set()
        for state in states:
            if state == len(pattern):
                continue
            component = pattern[state]
            if not component.recursive:
                if _fits(component, name, dots):
                    following.add(state + 1)
            elif dots or not name.startswith("."):
                following.add(state)
        states = _past_recursive(pattern, following)
    return len(pattern) in states


def _past_recursive(pattern: list[Component], states: set[int]) -> set[int]:
    """The states with every `**` also skipped."""
    result = set()
    for start in states:
        state = start
        result.add(state)
        while state < len(pattern) and pattern[state].recursive:
            state += 1
            result.add(state)
    return result
