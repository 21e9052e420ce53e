"""Numbers, escapes and dedent: from literal text to values (chapter 10 §5).

Pure functions over the source text. Positions are character offsets; `span` makes the spans.

Failure: raises ParseError for malformed literals, and nothing else, however long the digits are.
"""

from __future__ import annotations

import re
from math import floor, isinf

from worker.language.ast import (
    INT_MAX,
    SIZE_BYTES_MAX,
    Duration,
    Expr,
    Float,
    Int,
    Size,
    Time,
)
from worker.language.diagnostics import UNITS_HINT, ParseError
from worker.language.source import SpanFactory

SIZE_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
DURATION_UNITS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
    "d": 86400 * 10**9, "w": 604800 * 10**9,
}  # fmt: skip
DURATION_NS_MAX = 2**63 - 1
# More significant digits than any value in range has.
INT_DIGITS_MAX = 19
RADIX_DIGITS_MAX = 63

_TIME = re.compile(
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?([aApP][mM])?(?![0-9A-Za-z_])", re.ASCII
)
_RADIX = re.compile(
    r"0(?:[xX](?=[0-9A-Fa-f])|[oO](?=[0-7])|[bB](?=[01]))([0-9A-Za-z_]++)", re.ASCII
)
_DECIMAL = re.compile(
    r"([0-9][0-9_]*+)(\.[0-9][0-9_]*+)?([eE][+-]?[0-9]++)?([A-Za-z]++)?", re.ASCII
)
_RADIX_OF = {"x": 16, "o": 8, "b": 2}
_RADIX_DIGITS = {16: re.compile("[0-9A-Fa-f]+"), 8: re.compile("[0-7]+"), 2: re.compile("[01]+")}

_SIMPLE_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "{": "{", "}": "}",
}  # fmt: skip
_CODE_POINT_MAX = 0x10FFFF
_BLANKS = " \t\r"


def read_number(text: str, start: int, limit: int, span: SpanFactory) -> tuple[Expr, int]:
    """Read the number or time at `start`; return its node and end."""
    found = _TIME.match(text, start, limit)
    if found:
        time = _read_time(found, span)
        if time is not None:
            return time, found.end()
    found = _RADIX.match(text, start, limit)
    if found:
        return _read_radix(found, text[start + 1].lower(), span), found.end()
    found = _DECIMAL.match(text, start, limit)
    assert found is not None, "a number starts with a digit"
    return _read_decimal(found, span), found.end()


def _read_time(found: re.Match[str], span: SpanFactory) -> Time | None:
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if found[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found[4] in ("pm", "PM", "pM", "Pm") else 0)
    where = span(found.start(), found.end())
    if hour > 23 or minute > 59 or second > 59:
        raise ParseError("invalid time literal", where, "hours go to 23, minutes and seconds to 59")
    return Time(hour, minute, second, where)


def _read_radix(found: re.Match[str], letter: str, span: SpanFactory) -> Int:
    radix = _RADIX_OF[letter]
    digits = found[1].replace("_", "").lstrip("0") or "0"
    where = span(found.start(), found.end())
    if len(digits) > RADIX_DIGITS_MAX or not _RADIX_DIGITS[radix].fullmatch(digits):
        raise ParseError("invalid numeric literal", where)
    value = int(digits, radix)
    if value > INT_MAX:
        raise ParseError("invalid numeric literal", where)
    return Int(value, where)


def _read_decimal(found: re.Match[str], span: SpanFactory) -> Expr:
    whole, fraction, exponent, unit = found.groups()
    where = span(found.start(), found.end())
    if unit is None:
        if fraction is None and exponent is None:
            return Int(int_value(whole, found.start(), found.end(), span), where)
        return Float(float(found[0].replace("_", "")), where)
    if unit in SIZE_UNITS:
        if exponent is not None:
            raise ParseError("invalid size literal", where)
        scaled = _scale(whole, fraction, SIZE_UNITS[unit], SIZE_BYTES_MAX)
        return Size(scaled, where)
    if unit in DURATION_UNITS:
        if exponent is not None:
            raise ParseError("invalid duration literal", where)
        return Duration(_scale(whole, fraction, DURATION_UNITS[unit], DURATION_NS_MAX), where)
    if unit != unit.lower():
        raise ParseError(f"unit `{unit}` must be lowercase", where, UNITS_HINT)
    raise ParseError(f"unknown unit `{unit}` on numeric literal", where, UNITS_HINT)


def int_value(digits: str, start: int, end: int, span: SpanFactory) -> int:
    """Value of a decimal integer literal; digits may hold `_` and leading zeros."""
    significant = digits.replace("_", "").lstrip("0")
    # int() refuses very long texts in its own way, so the length decides first.
    if len(significant) <= INT_DIGITS_MAX:
        value = int(significant or "0")
        if value <= INT_MAX:
            return value
    raise ParseError("integer literal out of range", span(start, end))


def _scale(whole: str, fraction: str | None, factor: int, ceiling: int) -> int:
    """Multiply in 64-bit float, round half away from zero, saturate."""
    product = float((whole + (fraction or "")).replace("_", "")) * factor
    if isinf(product):
        return ceiling
    below = floor(product)
    return min(below + (product - below >= 0.5), ceiling)


def simple_escape(letter: str) -> str | None:
    """Value of backslash + `letter`, or None when there is no such escape."""
    return _SIMPLE_ESCAPES.get(letter)


def code_point(digits: str, start: int, end: int, span: SpanFactory) -> str:
    r"""Value of `\u{digits}`."""
    if not re.fullmatch("[0-9A-Fa-f]+", digits):
        raise ParseError(
            "invalid \\u{…} escape", span(start, end), "write hex digits: `\\u{1F41A}`"
        )
    significant = digits.lstrip("0") or "0"
    value = int(significant, 16) if len(significant) <= 6 else _CODE_POINT_MAX + 1
    if value > _CODE_POINT_MAX or 0xD800 <= value <= 0xDFFF:
        raise ParseError("invalid unicode codepoint", span(start, end))
    return chr(value)


def dedent_raw(content: str) -> str:
    """Content of a `'''` string without its layout."""
    text = content.removeprefix("\n")
    cut = text.rfind("\n")
    if cut >= 0 and not text[cut + 1 :].strip(" \t"):
        text = text[:cut]
    lines = text.split("\n")
    lines = [line.removesuffix("\r") for line in lines[:-1]] + lines[-1:]
    if not lines[-1]:
        lines.pop()
    indent = _indent(lines)
    return "\n".join(line[indent:] if len(line) >= indent else line.lstrip() for line in lines)


def dedent_parts(parts: list[str | Expr]) -> list[str | Expr]:
    """Parts of a `\"\"\"` string (decoded text and holes) without their layout."""
    parts = list(parts)
    if parts and isinstance(parts[0], str):
        parts[0] = parts[0].removeprefix("\n")
    shape = "".join(part if isinstance(part, str) else "x" for part in parts)
    indent = _indent(shape.split("\n"))
    dedented: list[str | Expr] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            lines = part.split("\n")
            # Only text at a line start is layout; text after a hole is not.
            first = 0 if index == 0 else 1
            lines[first:] = [_unindent(line, indent) for line in lines[first:]]
            if len(lines) > 1 and not lines[-1].strip(" \t"):
                lines.pop()
            part = "\n".join(lines)
        dedented.append(part)
    return dedented


def _indent(lines: list[str]) -> int:
    widths = [len(line) - len(line.lstrip(_BLANKS)) for line in lines if line.strip(_BLANKS)]
    return min(widths, default=0)


def _unindent(line: str, indent: int) -> str:
    removable = min(len(line) - len(line.lstrip(" \t")), indent)
    return line[removable:]
