"""Byte counts and durations: units, words, canonical rendering (chapter 20 §5.6, §6.3, §6.4).

Arithmetic with units happens in binary64, rounded half away from zero, and saturates at the ends of
the range, for words and for literals alike (`size_bytes`, `duration_ns`).

Failure: the parsers return None for text that is no size or duration.
"""

from __future__ import annotations

import re
from typing import Final

from worker.values.numbers import round_half_away
from worker.values.types import INT_MAX, INT_MIN, SIZE_MAX

SIZE_UNITS: Final[dict[str, int]] = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
DURATION_UNITS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 604_800 * 10**9,
}

_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([A-Za-z]+)")
_RENDERED_SIZE_UNITS: Final = (("tb", 10**12), ("gb", 10**9), ("mb", 10**6), ("kb", 10**3))
_RENDERED_DURATION_UNITS: Final = tuple(
    (unit, DURATION_UNITS[unit]) for unit in ("w", "d", "h", "m", "s", "ms", "us", "ns")
)


def _scaled(number: float, factor: int, low: int, high: int) -> int:
    product = number * factor
    if product >= high:
        return high
    if product <= low:
        return low
    return min(max(round_half_away(product), low), high)


def size_bytes(number: float, unit: str) -> int:
    """Bytes of `number` units, rounded and saturated to 0 .. 2^64-1. `unit` is lower case."""
    return _scaled(number, SIZE_UNITS[unit], 0, SIZE_MAX)


def duration_ns(number: float, unit: str) -> int:
    """Nanoseconds of `number` units, rounded and saturated to 64 bits. `unit` is lower case."""
    return _scaled(number, DURATION_UNITS[unit], INT_MIN, INT_MAX)


def parse_size_text(text: str) -> int | None:
    """One number and a unit, glued, in any letter case; bytes or None."""
    part = _PART.fullmatch(text)
    if part is None:
        return None
    unit = part[2].lower()
    return size_bytes(float(part[1]), unit) if unit in SIZE_UNITS else None


def parse_duration_text(text: str) -> int | None:
    """`-`? then one or more number-unit pairs (`1h30m`); nanoseconds or None."""
    body = text[1:] if text.startswith("-") else text
    total, at = 0, 0
    while at < len(body):
        part = _PART.match(body, at)
        if part is None or part[2].lower() not in DURATION_UNITS:
            return None
        # A part past every range stands for the end of it; the sign is applied to the sum.
        ns = float(part[1]) * DURATION_UNITS[part[2].lower()]
        total += round_half_away(min(ns, float(2 * INT_MAX)))
        at = part.end()
    if at == 0:
        return None
    if body is not text:
        total = -total
    return min(max(total, INT_MIN), INT_MAX)


def render_size(count: int) -> str:
    """Two decimals at most, in the largest decimal unit not above the value: `12.35mb`."""
    if count < 1000:
        return f"{count}b"
    larger: str | None = None
    for unit, factor in _RENDERED_SIZE_UNITS:
        if count >= factor:
            text = f"{count / float(factor):.2f}"
            if text == "1000.00" and larger is not None:
                # The rounding carried into the next unit: 999995 bytes read better as 1mb.
                return f"1{larger}"
            return text.rstrip("0").rstrip(".") + unit
        larger = unit
    raise AssertionError("a count of 1000 or more has a unit")


def render_duration(ns: int) -> str:
    """The non-zero parts, largest first, without separators: `1h1m1s`, `-12w6d`, `0s`."""
    if ns == 0:
        return "0s"
    parts = ["-"] if ns < 0 else []
    rest = abs(ns)
    for unit, factor in _RENDERED_DURATION_UNITS:
        count, rest = divmod(rest, factor)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
