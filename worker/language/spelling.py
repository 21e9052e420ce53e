"""How single values are written in canonical source: strings, numbers, names, words.

Each function is the inverse of one reader: what it returns reads back as the same value.
"""

from __future__ import annotations

import re
from math import isinf

from worker.language.ast import (
    CmdArg,
    Dash,
    DashDash,
    FlagLong,
    FlagShort,
    GlobArg,
    PathArg,
    Time,
    TypeRef,
    WordArg,
)
from worker.language.literals import dedent_raw
from worker.language.tokens import GLOB_CHARS

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII).fullmatch

_ESCAPES = {
    ord('"'): '\\"', ord("\\"): "\\\\", ord("{"): "\\{", ord("}"): "\\}",
    ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r", 0: "\\0",
} | {
    code: f"\\u{{{code:x}}}"
    for code in (*range(1, 0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\n\t\r"
}  # fmt: skip
# Inside a hole of a string in a hole, the search for the end of the outer hole sees this text
# sometimes as quoted and sometimes not. Escapes of this form look balanced either way.
_NESTED_ESCAPES = _ESCAPES | {ord(mark): f"\\u{{{ord(mark):x}}}" for mark in "\"'{}"}
NESTED_FROM = 2


def string_text(text: str, hole_depth: int) -> str:
    """Text between the quotes of a `"…"` string that stands inside `hole_depth` holes."""
    return text.translate(_NESTED_ESCAPES if hole_depth >= NESTED_FROM else _ESCAPES)


def float_text(value: float) -> str:
    """Always with a point or an exponent."""
    return "1e999" if isinf(value) else repr(value)


def time_text(time: Time) -> str:
    seconds = f":{time.sec:02}" if time.sec else ""
    return f"{time.hour:02}:{time.min:02}{seconds}"


def record_key(name: str, hole_depth: int) -> str:
    return name if IDENTIFIER(name) else f'"{string_text(name, hole_depth)}"'


def type_text(ty: TypeRef) -> str:
    args = f"<{', '.join(map(type_text, ty.args))}>" if ty.args else ""
    return f"{ty.name}{args}{'?' if ty.optional else ''}"


def word_text(arg: CmdArg) -> str | None:
    """A command argument that is one word; None for strings, groups and flags with such values."""
    match arg:
        case WordArg(text=text) | PathArg(text=text) | GlobArg(pattern=text):
            return text
        case FlagShort(chars=chars):
            return f"-{chars}"
        case FlagLong(value=None):
            return flag_text(arg)
        case FlagLong(value=WordArg(text=text)) if text and not GLOB_CHARS(text):
            return f"{flag_text(arg)}={text}"
        case DashDash():
            return "--"
        case Dash():
            return "-"
    return None


def flag_text(flag: FlagLong) -> str:
    return f"--{flag.name.replace('_', '-')}"


def raw_payload(payload: str) -> str | None:
    """An interpreter payload in the raw form that reads back the same, or None."""
    if "'''" not in payload and not payload.endswith("'"):
        # The last spelling keeps line ends at the end, which the others lose to the layout rules.
        indented = "\n".join(f"  {line}" if line else " " for line in payload.split("\n"))
        for content in (payload, f"\n{payload}\n", f"\n{indented}\n"):
            if not content.startswith("'") and dedent_raw(content) == payload:
                return f"'''{content}'''"
    if "'" not in payload and "\n" not in payload:
        return f"'{payload}'"
    return None
