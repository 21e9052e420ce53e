"""Numbers as text and back: ints and floats of the language (chapter 20 §5.5, §5.6, §6.1).

Three spellings of a float exist. `positional` is the inline form (shortest digits, never an
exponent, no `.0`), `json_float` is the form of JSON texts (always visibly a float, exponent with an
explicit sign), `wire_float` is the form of tagged values (the same without the plus sign). All
three show the shortest digits that read back as the same binary64.

Failure: the parsers return None for text outside their grammar; nothing here raises for a float.
"""

from __future__ import annotations

import math
import re
from typing import Final

from worker.values.types import INT_MAX, INT_MIN

_INT: Final = re.compile(r"[+-]?[0-9]+\Z")
_FLOAT: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)\Z",
    re.ASCII | re.IGNORECASE,
)
# Every 64-bit int has at most 19 digits; longer runs can only be leading zeros or out of range.
_INT_DIGITS_MAX: Final = 19


def parse_int_text(text: str) -> int | None:
    """`[+-]?[0-9]+` within 64 bits, else None. No blanks, underscores or radix prefixes."""
    if _INT.match(text) is None:
        return None
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    digits = digits.lstrip("0") or "0"
    if len(digits) > _INT_DIGITS_MAX:
        return None
    number = int(sign + digits)
    return number if INT_MIN <= number <= INT_MAX else None


def parse_float_text(text: str) -> float | None:
    """The float grammar of chapter 20 §5.6, else None. Too large a number is an infinity."""
    if _FLOAT.match(text) is None:
        return None
    return float(text)


def round_half_away(value: float) -> int:
    """The nearest int, halves away from zero. `value` must be finite.

    Adding 0.5 and truncating would be wrong for 0.49999999999999994; the difference to the
    truncated value is exact for every binary64.
    """
    whole = math.trunc(value)
    if abs(value - whole) >= 0.5:
        return whole + 1 if value > 0 else whole - 1
    return whole


def _digits_and_exponent(text: str) -> tuple[str, int]:
    """Split an unsigned `repr` of a finite float: its digits, and the power of ten of the first."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = whole + fraction
    stripped = digits.lstrip("0")
    power = len(whole) - 1 - (len(digits) - len(stripped)) + int(exponent or 0)
    return stripped.rstrip("0") or "0", power


def positional(value: float) -> str:
    """The inline form: `0.000000001`, `602000000000000000000000`, `12`, `-0`, `inf`, `nan`."""
    text = repr(value)
    if "e" not in text:
        return text[:-2] if text.endswith(".0") else text
    sign = "-" if text[0] == "-" else ""
    digits, power = _digits_and_exponent(text.lstrip("-"))
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if len(digits) <= power + 1:
        return sign + digits + "0" * (power + 1 - len(digits))
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"


def _floatish(value: float, exponent_sign: str) -> str:
    text = repr(value)
    if "e" not in text:
        return text
    sign = "-" if text[0] == "-" else ""
    digits, power = _digits_and_exponent(text.lstrip("-"))
    # `repr` leaves fixed notation one power of ten earlier than these forms do.
    if power == -5:
        return f"{sign}0.0000{digits}"
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{exponent_sign if power > 0 else '-'}{abs(power)}"


def json_float(value: float) -> str:
    """The form of JSON texts: `4.0`, `0.00001`, `1e+16`, `2.5e-7`; `null` for inf and nan."""
    if not math.isfinite(value):
        return "null"
    return _floatish(value, "+")


def wire_float(value: float) -> str:
    """The form inside tagged values: as `json_float` without the plus (`1e16`)."""
    if not math.isfinite(value):
        return "null"
    return _floatish(value, "")
