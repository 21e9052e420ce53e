"""Type hints of adapter output: the fields of a table, and what makes a cell of each type.

Failure: a hint that names no fields gives None; a cell that does not convert raises Unfit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from worker.values.convert import time_of_day
from worker.values.types import Duration, Path, Size, Value
from worker.values.units import parse_duration_text, parse_size_text

KIB: Final = 1024
INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1

_FIELDS: Final = re.compile(r"[^<]*<\{(.*)\}>\s*\Z", re.DOTALL)
_INT: Final = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z", re.ASCII)
_BOOLS: Final = {"true": True, "false": False}


class Unfit(Exception):
    """The output is not what the declaration says: there is no structured result."""


class Field(NamedTuple):
    name: str
    type: str


def fields_of(hint: str | None) -> list[Field] | None:
    """The fields between `<{` and the final `}>`; None when the hint only documents."""
    match = _FIELDS.match(hint) if hint is not None else None
    if match is None:
        return None
    found = []
    for part in match[1].split(","):
        name, colon, type_name = part.partition(":")
        if not colon or not name.strip():
            return None
        found.append(Field(name.strip(), type_name.strip().removesuffix("?").strip()))
    return found


def _int(text: str) -> Value:
    number = int(text) if _INT.match(text) else None
    return number if number is not None and INT_MIN <= number <= INT_MAX else None


def _float(text: str) -> Value:
    return float(text) if _FLOAT.match(text) else None


def _size(text: str) -> Value:
    count = parse_size_text(text)
    return None if count is None else Size(count)


def _size_kb(text: str) -> Value:
    number = float(text) if _FLOAT.match(text) else -1.0
    if number < 0 or not math.isfinite(number) or number * KIB > INT_MAX:
        return None
    # Whole numbers stay exact.
    return Size(int(text) * KIB if _INT.match(text) else math.floor(number * KIB + 0.5))


def _duration(text: str) -> Value:
    ns = parse_duration_text(text)
    return None if ns is None else Duration(ns)


_CELLS: Final[dict[str, Callable[[str], Value]]] = {
    "path": Path,
    "int": _int,
    "float": _float,
    "bool": _BOOLS.get,
    "size": _size,
    "size_kb": _size_kb,
    "duration": _duration,
    "time": time_of_day,
}


def cell(text: str, type_name: str) -> Value:
    """One cell as the type its field has; unknown types are text."""
    convert = _CELLS.get(type_name)
    if convert is None:
        return text
    value = convert(text)
    if value is None:
        raise Unfit(f"{text!r} is no {type_name}")
    return value
