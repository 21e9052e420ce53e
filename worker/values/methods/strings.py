"""Methods of str (chapter 21 §5). Indices and counts are Unicode scalar values.

Blanks are those of the Unicode property White_Space, which Python's own `strip` and `split` exceed.

Failure: type_error and arg_error in the words of the chapter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from worker.errors import type_error
from worker.evaluate.streams.sources import lines_of, stream_of_lines
from worker.values.convert import parse_float, parse_int
from worker.values.methods.arguments import TAKEN, Parameter, any_value, text
from worker.values.methods.registry import TAKES_NOTHING, method
from worker.values.types import Regex, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

STR: Final = ("str",)

_BLANKS: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
_WORD: Final = re.compile(f"[^{_BLANKS}]+")


def needle(value: Value) -> str:
    if type(value) is str:
        return value
    raise type_error("string contains expects str")


def regex_for(name: str) -> Callable[[Value], Regex]:
    def read(value: Value) -> Regex:
        if type(value) is Regex:
            return value
        raise type_error(f"{name} expects str receiver and regex")

    return read


@method("len", "count", on=STR, result="int", doc="Number of characters.", refuses=TAKES_NOTHING)
def length(ev: Evaluator, recv: str) -> Value:
    return len(recv)


@method(
    "is_empty", on=STR, result="bool", doc="Whether there are no characters.", refuses=TAKES_NOTHING
)
def is_empty(ev: Evaluator, recv: str) -> Value:
    return not recv


def text_lines(source: str) -> list[str]:
    """Lines without their ends: `\\n` and `\\r\\n` separate, no carriage return stays at an end."""
    return [line.rstrip("\r") for line in lines_of(source)]


@method("lines", on=STR, result="list of str", doc="The lines, without their ends.")
def lines(ev: Evaluator, recv: str) -> Value:
    return text_lines(recv)


@method("words", on=STR, result="list of str", doc="The words between runs of blanks.")
def words(ev: Evaluator, recv: str) -> Value:
    return _WORD.findall(recv)


@method("chars", on=STR, result="list of str", doc="The characters, one str each.")
def chars(ev: Evaluator, recv: str) -> Value:
    return list(recv)


@method("trim", on=STR, result="str", doc="Without blanks at both ends.")
def trim(ev: Evaluator, recv: str) -> Value:
    return recv.strip(_BLANKS)


@method("upper", on=STR, result="str", doc="In upper case.")
def upper(ev: Evaluator, recv: str) -> Value:
    return recv.upper()


@method("lower", on=STR, result="str", doc="In lower case.")
def lower(ev: Evaluator, recv: str) -> Value:
    return recv.lower()


_SPLIT_AT: Final = Parameter("sep", "str", text, missing=".split requires a separator argument")


@method(
    "split",
    on=STR,
    params=(_SPLIT_AT,),
    result="list of str",
    doc="The pieces between separators; an empty one splits around every character.",
)
def split(ev: Evaluator, recv: str, separator: str) -> Value:
    return recv.split(separator) if separator else ["", *recv, ""]


_PREFIX: Final = Parameter("affix", "str", text, missing=".starts_with requires a prefix argument")
_SUFFIX: Final = Parameter("affix", "str", text, missing=".ends_with requires a suffix argument")


@method("starts_with", on=STR, params=(_PREFIX,), result="bool", doc="Whether the text starts so.")
def starts_with(ev: Evaluator, recv: str, affix: str) -> Value:
    return recv.startswith(affix)


@method("ends_with", on=STR, params=(_SUFFIX,), result="bool", doc="Whether the text ends so.")
def ends_with(ev: Evaluator, recv: str, affix: str) -> Value:
    return recv.endswith(affix)


_NEEDLE: Final = Parameter("needle", "str", needle)


@method("contains", on=STR, params=(_NEEDLE,), result="bool", doc="Whether the text occurs.")
def contains(ev: Evaluator, recv: str, wanted: str) -> Value:
    return wanted in recv


_PATTERN: Final = Parameter("pattern", "str or regex", any_value)
_REPLACEMENT: Final = Parameter(
    "replacement", "str", text, missing=".replace requires a replacement argument"
)


@method(
    "replace",
    on=STR,
    params=(_PATTERN, _REPLACEMENT),
    result="str",
    doc="Every occurrence replaced; `$1` and `$name` insert groups of a regex.",
)
def replace(ev: Evaluator, recv: str, pattern: Value, replacement: str) -> Value:
    if type(pattern) is str:
        return recv.replace(pattern, replacement)
    if type(pattern) is Regex:
        return _replace_matches(recv, pattern, replacement)
    raise type_error(f"replace pattern must be str or regex, found {type_name(pattern)}")


def _matches(source: str, pattern: Regex) -> Iterator[Any]:
    """Matches from left to right; an empty one directly after another match does not count."""
    previous_end = -1
    for found in pattern.engine.finditer(source):
        if found.end() == found.start() == previous_end:
            continue
        previous_end = found.end()
        yield found


# `$$`, `$name`, `${anything}`; any other dollar sign is itself.
_REFERENCE: Final = re.compile(r"\$(?:(\$)|([0-9A-Za-z_]+)|\{([^}]*)\})")


def _replace_matches(source: str, pattern: Regex, replacement: str) -> str:
    literal = "$" not in replacement
    pieces: list[str] = []
    done = 0
    for found in _matches(source, pattern):
        pieces.append(source[done : found.start()])
        pieces.append(replacement if literal else _expand(found, replacement))
        done = found.end()
    pieces.append(source[done:])
    return "".join(pieces)


def _expand(found: Any, replacement: str) -> str:
    def insert(reference: re.Match[str]) -> str:
        if reference.group(1):
            return "$"
        name = reference.group(2)
        if name is None:
            name = reference.group(3)
        return _group(found, name)

    return _REFERENCE.sub(insert, replacement)


def _group(found: Any, name: str) -> str:
    """The text of a group by number or name; nothing when there is no such group."""
    key: int | str = int(name) if name.isascii() and name.isdigit() else name
    try:
        return found.group(key) or ""
    except (IndexError, KeyError, OverflowError):
        return ""


_MATCHES_REGEX: Final = Parameter("re", "regex", regex_for("matches"))
_MATCH_REGEX: Final = Parameter("re", "regex", regex_for("match"))


@method(
    "matches",
    on=STR,
    params=(_MATCHES_REGEX,),
    result="list of str",
    doc="All matches that do not overlap, whole.",
)
def matches(ev: Evaluator, recv: str, pattern: Regex) -> Value:
    return [found.group(0) for found in _matches(recv, pattern)]


@method(
    "match", on=STR, params=(_MATCH_REGEX,), result="str or null", doc="The first match, whole."
)
def match(ev: Evaluator, recv: str, pattern: Regex) -> Value:
    found = pattern.engine.search(recv)
    return None if found is None else found.group(0)


@method("parse_int", on=STR, result="int", doc="The text as an int.")
def parse_int_(ev: Evaluator, recv: str) -> Value:
    return parse_int(recv)


@method("parse_float", on=STR, result="float", doc="The text as a float.")
def parse_float_(ev: Evaluator, recv: str) -> Value:
    return parse_float(recv)


@method("take", on=STR, params=(TAKEN,), result="str", doc="The first n characters.")
def take(ev: Evaluator, recv: str, n: int) -> Value:
    return recv[:n]


@method("skip", on=STR, params=(TAKEN,), result="str", doc="Without the first n characters.")
def skip(ev: Evaluator, recv: str, n: int) -> Value:
    return recv[n:]


@method("reverse", on=STR, result="str", doc="The characters in reverse order.")
def reverse(ev: Evaluator, recv: str) -> Value:
    return recv[::-1]


@method(
    "stream", on=STR, result="stream", doc="A bounded stream of the lines.", refuses=TAKES_NOTHING
)
def stream(ev: Evaluator, recv: str) -> Value:
    return stream_of_lines(recv)


@method("str", "display", on=STR, result="str", doc="The text itself.")
def itself(ev: Evaluator, recv: str) -> Value:
    return recv
