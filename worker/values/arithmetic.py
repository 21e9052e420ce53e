"""The arithmetic matrix: `+ - * / %` and unary `-` (chapter 20 §3.1, §3.2).

One table per operator, keyed by the exact types of both operands; a pair that is not in the table
is a `type_error`. The functions `add` .. `rem` answer the hot pairs before they look at the table.
Integers are checked to 64 bits after every step, floats are plain IEEE, sizes never go negative.

Failure: `type_error` for a missing cell or a negative size, `overflow` outside a range, `div_zero`
for the integer-like divisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from worker.errors import Raised, overflow, raised, type_error
from worker.values import temporal
from worker.values.numbers import round_half_away
from worker.values.types import (
    INT_MAX,
    INT_MIN,
    SIZE_MAX,
    DateTime,
    Duration,
    Size,
    Value,
    type_name,
)

Cell = Callable[[Any, Any], Value]
Cells = dict[tuple[type, type], Cell]

_SYMBOLS: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}


def _no_cell(op: str, a: Value, b: Value) -> Raised:
    return type_error(f"cannot apply `{_SYMBOLS[op]}` to {type_name(a)} and {type_name(b)}")


def _int_overflow(op: str, a: int, b: int) -> Raised:
    return overflow(f"integer overflow in `{a} {_SYMBOLS[op]} {b}`")


def _size(count: int) -> Size:
    if count < 0:
        raise type_error("size cannot go negative")
    if count > SIZE_MAX:
        raise overflow("size overflow")
    return Size(count)


def _duration(ns: int) -> Duration:
    if INT_MIN <= ns <= INT_MAX:
        return Duration(ns)
    raise overflow("duration overflow")


def _truncated(a: int, b: int) -> int:
    """Integer quotient toward zero; `div_zero` for a zero divisor."""
    if b == 0:
        raise raised("div_zero", "division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _ratio(a: int, b: int) -> float:
    if b == 0:
        raise raised("div_zero", "division by zero")
    return float(a) / float(b)


def _int_div(a: int, b: int) -> int:
    quotient = _truncated(a, b)
    if quotient > INT_MAX:
        raise _int_overflow("div", a, b)
    return quotient


def _int_rem(a: int, b: int) -> int:
    if b == 0:
        raise raised("div_zero", "remainder by zero")
    if b == -1 and a == INT_MIN:
        raise _int_overflow("rem", a, b)
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


def _float_div(a: float, b: float) -> float:
    a, b = float(a), float(b)
    if b != 0:
        return a / b
    if a == 0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _float_rem(a: float, b: float) -> float:
    a, b = float(a), float(b)
    if b == 0 or math.isinf(a):
        return math.nan
    return math.fmod(a, b)


def _size_div_int(a: Size, b: int) -> Size:
    if b < 0:
        raise type_error("size cannot go negative")
    return _size(_truncated(a.bytes, b))


def _size_times_int(a: Size, b: int) -> Size:
    if b < 0:
        raise type_error("size cannot go negative")
    return _size(a.bytes * b)


def _size_times_float(a: Size, b: float) -> Size:
    product = float(a.bytes) * b
    if product == -math.inf:
        raise type_error("size cannot go negative")
    if not math.isfinite(product):
        raise overflow("size overflow")
    return _size(round_half_away(product))


def _duration_times_float(a: Duration, b: float) -> Duration:
    product = float(a.ns) * b
    if not math.isfinite(product):
        raise overflow("duration overflow")
    return _duration(round_half_away(product))


def _shifted(moment: DateTime, ns: int) -> DateTime:
    return temporal.datetime_at(moment.ns + ns, moment.zone)


_FLOAT_PAIRS: Final = ((int, float), (float, int), (float, float))

ADD: Final[Cells] = {
    **dict.fromkeys(_FLOAT_PAIRS, lambda a, b: float(a) + float(b)),
    (list, list): lambda a, b: a + b,
    (Size, Size): lambda a, b: _size(a.bytes + b.bytes),
    (Duration, Duration): lambda a, b: _duration(a.ns + b.ns),
    (DateTime, Duration): lambda a, b: _shifted(a, b.ns),
    (Duration, DateTime): lambda a, b: _shifted(b, a.ns),
}
SUB: Final[Cells] = {
    **dict.fromkeys(_FLOAT_PAIRS, lambda a, b: float(a) - float(b)),
    (Size, Size): lambda a, b: _size(a.bytes - b.bytes),
    (Duration, Duration): lambda a, b: _duration(a.ns - b.ns),
    (DateTime, Duration): lambda a, b: _shifted(a, -b.ns),
    (DateTime, DateTime): lambda a, b: _duration(a.ns - b.ns),
}
MUL: Final[Cells] = {
    **dict.fromkeys(_FLOAT_PAIRS, lambda a, b: float(a) * float(b)),
    (Size, int): _size_times_int,
    (int, Size): lambda a, b: _size_times_int(b, a),
    (Size, float): _size_times_float,
    (float, Size): lambda a, b: _size_times_float(b, a),
    (Duration, int): lambda a, b: _duration(a.ns * b),
    (int, Duration): lambda a, b: _duration(b.ns * a),
    (Duration, float): _duration_times_float,
    (float, Duration): lambda a, b: _duration_times_float(b, a),
}
DIV: Final[Cells] = {
    (int, int): _int_div,
    **dict.fromkeys(_FLOAT_PAIRS, _float_div),
    (Size, Size): lambda a, b: _ratio(a.bytes, b.bytes),
    (Size, int): _size_div_int,
    (Duration, Duration): lambda a, b: _ratio(a.ns, b.ns),
    (Duration, int): lambda a, b: _duration(_truncated(a.ns, b)),
}
REM: Final[Cells] = {
    (int, int): _int_rem,
    **dict.fromkeys(_FLOAT_PAIRS, _float_rem),
}


def add(a: Value, b: Value) -> Value:
    kind = type(a)
    if kind is type(b):
        if kind is int:
            total = a + b
            if INT_MIN <= total <= INT_MAX:
                return total
            raise _int_overflow("add", a, b)
        if kind is str or kind is float:
            return a + b
    cell = ADD.get((kind, type(b)))
    if cell is None:
        raise _no_cell("add", a, b)
    return cell(a, b)


def sub(a: Value, b: Value) -> Value:
    kind = type(a)
    if kind is type(b):
        if kind is int:
            difference = a - b
            if INT_MIN <= difference <= INT_MAX:
                return difference
            raise _int_overflow("sub", a, b)
        if kind is float:
            return a - b
    cell = SUB.get((kind, type(b)))
    if cell is None:
        raise _no_cell("sub", a, b)
    return cell(a, b)


def mul(a: Value, b: Value) -> Value:
    kind = type(a)
    if kind is type(b):
        if kind is int:
            product = a * b
            if INT_MIN <= product <= INT_MAX:
                return product
            raise _int_overflow("mul", a, b)
        if kind is float:
            return a * b
    cell = MUL.get((kind, type(b)))
    if cell is None:
        raise _no_cell("mul", a, b)
    return cell(a, b)


def div(a: Value, b: Value) -> Value:
    if type(a) is int and type(b) is int and a >= 0 and b > 0:
        return a // b
    cell = DIV.get((type(a), type(b)))
    if cell is None:
        raise _no_cell("div", a, b)
    return cell(a, b)


def rem(a: Value, b: Value) -> Value:
    if type(a) is int and type(b) is int and a >= 0 and b > 0:
        return a % b
    cell = REM.get((type(a), type(b)))
    if cell is None:
        raise _no_cell("rem", a, b)
    return cell(a, b)


def negate(value: Value) -> Value:
    """Unary minus on int, float and duration."""
    kind = type(value)
    if kind is int:
        if value == INT_MIN:
            raise overflow(f"integer overflow in `-({value})`")
        return -value
    if kind is float:
        return -value
    if kind is Duration:
        return _duration(-value.ns)
    raise type_error(f"cannot apply unary operator to {type_name(value)}")
