"""Conversions between words, bytes, texts and values (chapter 20 §5.1 to §5.4, §5.6).

One function per destination: typed parameters (`coerce_word`), argument words of programs
(`argv_word`), standard input (`stdin_bytes`), interpolation, `echo`, redirects, and the text
parsers that words, methods and literals share.

Failure: `arg_error` for a text that does not parse, `type_error` for a value that has no form at
the destination, `feed_error` for one that must never reach standard input.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final

from worker.errors import Raised, arg_error, raised, type_error
from worker.values import temporal
from worker.values.access import decoded_out
from worker.values.content import resident
from worker.values.inline import inline, quoted
from worker.values.json_codec import to_json
from worker.values.numbers import parse_float_text, parse_int_text
from worker.values.types import (
    INT_MAX,
    INT_MIN,
    DateTime,
    Duration,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Secret,
    Size,
    Table,
    TimeOfDay,
    Value,
    type_name,
)
from worker.values.units import parse_duration_text, parse_size_text

# --- text to values (5.6) -------------------------------------------------------------------------


def _cannot_parse(text: str, what: str) -> Raised:
    return arg_error(f"cannot parse {quoted(text)} as {what}")


def parse_int(text: str) -> int:
    """A decimal int, as `.parse_int()` reads it."""
    number = parse_int_text(text)
    if number is None:
        raise _cannot_parse(text, "int")
    return number


def parse_float(text: str) -> float:
    """A float, as `.parse_float()` reads it."""
    number = parse_float_text(text)
    if number is None:
        raise _cannot_parse(text, "float")
    return number


def parse_size(text: str) -> Size:
    """One number and a unit."""
    count = parse_size_text(text)
    if count is None:
        raise _cannot_parse(text, "size")
    return Size(count)


def parse_duration(text: str) -> Duration:
    """One or more numbers with units."""
    ns = parse_duration_text(text)
    if ns is None:
        raise _cannot_parse(text, "duration")
    return Duration(ns)


_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?([AaPp][Mm])?\Z", re.ASCII)


def time_of_day(text: str) -> TimeOfDay | None:
    """`H:MM` or `H:MM:SS`, 24-hour or with `am`/`pm`; None for anything else."""
    match = _TIME.match(text)
    if match is None:
        return None
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[4] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[4][0] in "pP" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return TimeOfDay(hour, minute, second)


def parse_time(text: str) -> TimeOfDay:
    """A time of day."""
    time = time_of_day(text)
    if time is None:
        raise _cannot_parse(text, "time")
    return time


def parse_datetime(text: str) -> DateTime:
    """The text of a `t"..."` literal."""
    moment = temporal.parse_datetime_text(text)
    if moment is None:
        raise arg_error(f"invalid datetime `{text}`")
    return moment


# --- words to declared types (5.1) ----------------------------------------------------------------


def _bool_word(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _size_word(text: str) -> Size | None:
    count = parse_size_text(text)
    return None if count is None else Size(count)


def _duration_word(text: str) -> Duration | None:
    ns = parse_duration_text(text)
    if ns is None:
        seconds = parse_int_text(text)
        if seconds is None:
            return None
        ns = min(max(seconds * temporal.NS_PER_S, INT_MIN), INT_MAX)
    return Duration(ns)


_WORD_PARSERS: Final[dict[str, Callable[[str], Value]]] = {
    "int": parse_int_text,
    "float": parse_float_text,
    "bool": _bool_word,
    "size": _size_word,
    "duration": _duration_word,
    "time": time_of_day,
    "datetime": temporal.parse_datetime_text,
    "path": Path,
}
_LIST: Final = re.compile(r"list\s*(?:<(.*)>)?\Z", re.DOTALL)


def list_element_type(declared: str) -> str | None:
    """T of a declared `list<T>` (`str` for a bare `list`); None when it is no list type."""
    match = _LIST.match(declared.strip().removesuffix("?").strip())
    return None if match is None else (match[1] or "str").strip()


def coerce_word(text: str, declared: str, cwd: str) -> Value:
    """A str in the slot of a parameter declared `declared`; `cwd` is the origin of globs.

    A word for `list<T>` becomes a one-element list. An unknown type name leaves the str as it is.
    """
    declared = declared.strip().removesuffix("?").strip()
    if declared == "glob":
        return Glob(text, cwd)
    parser = _WORD_PARSERS.get(declared)
    if parser is not None:
        value = parser(text)
        if value is None:
            raise arg_error(f"expected {declared}, found {quoted(text)}")
        return value
    element = list_element_type(declared)
    return text if element is None else [coerce_word(text, element, cwd)]


def coerce_list(items: list[Value], declared: str, cwd: str) -> list[Value]:
    """A list in the slot of a fixed `list<T>` parameter: its str elements become T.

    Any other declared type leaves the list as it is.
    """
    element = list_element_type(declared)
    if element is None:
        return items
    return [coerce_word(item, element, cwd) if type(item) is str else item for item in items]


# --- values to argument words (5.2) ---------------------------------------------------------------


def _float_word(value: float) -> bytes:
    return b"NaN" if value != value else inline(value).encode()


_ARGV: Final[dict[type, Callable[[Any], bytes]]] = {
    str: str.encode,
    Path: lambda value: os.fsencode(value.raw),
    int: lambda value: str(value).encode(),
    float: _float_word,
    Size: lambda value: str(value.bytes).encode(),
    Duration: lambda value: str(value.ns).encode(),
    bool: lambda value: b"true" if value else b"false",
}


def argv_word(value: Value) -> bytes:
    """The bytes of one argument word of an external command, or of an environment value."""
    form = _ARGV.get(type(value))
    if form is not None:
        return form(value)
    if type(value) is Secret:
        raise type_error("secret cannot be placed in argv")
    raise type_error(f"{type_name(value)} cannot be passed as argv")


# --- values to standard input (5.3) ---------------------------------------------------------------

_FED_INLINE: Final = frozenset({int, float, bool, Size, Duration, DateTime, TimeOfDay})
_FED_AS_JSON: Final = frozenset({list, dict, Table})
_NEVER_FED: Final = frozenset({"task", "closure", "error", "glob", "regex"})


def _stdin_refusal(value: Value) -> Raised:
    name = type_name(value)
    if name == "path":
        return type_error(
            "a path is a name, not the file's contents",
            hint='feed what the file holds: `path("x").read.feed(cmd)`',
        )
    if name == "stream":
        return type_error(
            "cannot feed a stream to a command's stdin",
            hint="collect a bounded stream first (`.collect()`)",
        )
    if name == "secret":
        return raised(
            "feed_error",
            "a secret cannot be fed as stdin data",
            hint="secrets are injected at spawn time, never written to a program's input",
        )
    if name in _NEVER_FED:
        return raised("feed_error", f"a {name} cannot be fed as stdin data")
    return type_error(f"cannot feed a {name} to a command's stdin")


def stdin_bytes(value: Value) -> bytes:
    """The complete standard input made from a value by `feed`."""
    kind = type(value)
    if kind is str:
        return value.encode()  # type: ignore[no-any-return]
    if kind is bytes or kind is LazyBytes:
        return resident(value)
    if kind in _FED_INLINE:
        return inline(value).encode()
    if kind is list and set(map(type, value)) <= {str}:
        return "".join([line + "\n" for line in value]).encode()
    if kind in _FED_AS_JSON:
        return to_json(value).encode()
    if kind is Outcome:
        out = decoded_out(value)
        raw_text = type(out) is str
        return resident(value.stdout) if raw_text else stdin_bytes(out)
    raise _stdin_refusal(value)


# --- values to text (5.4) -------------------------------------------------------------------------


def interpolate(value: Value) -> str:
    """The text of `{value}` inside a string."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is Secret:
        raise type_error("secrets cannot be interpolated")
    return inline(value)


def echo_text(value: Value) -> str:
    """The text `echo` and the default sink write, without a newline."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is Path:
        return value.display  # type: ignore[no-any-return]
    return "" if value is None else inline(value)


def redirect_bytes(value: Value) -> bytes:
    """The bytes a builtin's `> file` writes for its value."""
    kind = type(value)
    if kind is bytes or kind is LazyBytes:
        return resident(value)
    if kind is str:
        text: str = value if value.endswith("\n") else value + "\n"
        return text.encode()
    if value is None:
        return b""
    if kind is Outcome:
        return resident(value.stdout)
    return (echo_text(value) + "\n").encode()
