"""`math`: constants and functions of binary64 (chapter 31 §10.4).

Arguments are ints or floats, results always floats. The C library answers where Python raises:
nothing but a missing argument, another type and a bad `clamp` is an error.

Failure: `arg_error` `math.f expects argument N`, `type_error` `math expects a number, found TYPE`,
`arg_error` for the bounds of `clamp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.builtins.namespaces.model import MemberCall, Namespace
from worker.errors import arg_error, field_missing, type_error
from worker.values.numbers import round_half_away
from worker.values.types import Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

NAN: Final = math.nan
INF: Final = math.inf


class MathNamespace(Namespace):
    def no_field(self, ev: Evaluator, member: str) -> Value:
        raise field_missing(f"`math.{member}` is not a constant; if it is a function, call it")


MATH: Final = MathNamespace("math")
MATH.constants.update(
    {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": INF, "nan": NAN, "sqrt2": math.sqrt(2)}
)

Float1 = Callable[[float], float]
Float2 = Callable[[float, float], float]


def total(function: Float1) -> Float1:
    """A library function where a domain error is nan and an overflow infinite."""

    def safe(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return NAN
        except OverflowError:
            return INF

    return safe


def _logarithm(function: Float1) -> Float1:
    def safe(x: float) -> float:
        if x == 0:
            return -INF
        return NAN if x < 0 else function(x)

    return safe


def _whole(function: Callable[[float], int]) -> Float1:
    """A rounding function: infinities and nan give themselves back, the sign of zero stays."""

    def safe(x: float) -> float:
        return math.copysign(float(function(x)), x) if math.isfinite(x) else x

    return safe


def _cbrt(x: float) -> float:
    """The cube root to the last digit: some C libraries miss it by one, even for 27."""
    root = math.cbrt(x)
    if not math.isfinite(root) or root == 0:
        return root
    near = (root, math.nextafter(root, INF), math.nextafter(root, -INF))
    exact = Fraction(x)
    return min(near, key=lambda candidate: abs(Fraction(candidate) ** 3 - exact))


def _log(x: float, base: float) -> float:
    top, bottom = _ln(x), _ln(base)
    if bottom == 0:
        return NAN if top == 0 or math.isnan(top) else math.copysign(INF, top)
    return top / bottom


def _pow(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return -INF if x < 0 and _is_odd(y) else INF
    except ValueError:
        if x != 0:
            return NAN
        return -INF if math.copysign(1, x) < 0 and _is_odd(y) else INF


def _is_odd(y: float) -> bool:
    return y.is_integer() and math.fmod(y, 2) != 0


def _smaller(x: float, y: float) -> float:
    if math.isnan(x):
        return y
    return x if math.isnan(y) or x <= y else y


def _larger(x: float, y: float) -> float:
    if math.isnan(x):
        return y
    return x if math.isnan(y) or x >= y else y


def _clamp(x: float, low: float, high: float) -> float:
    if not low <= high:
        raise arg_error("math.clamp: lo must be <= hi")
    if x < low:
        return low
    return high if x > high else x


def _sign(x: float) -> float:
    return x if math.isnan(x) else math.copysign(1.0, x)


_ln: Final = _logarithm(math.log)

_FUNCTIONS: Final[dict[str, tuple[str, Callable[..., float], str]]] = {
    "sqrt": ("x", total(math.sqrt), "Square root."),
    "cbrt": ("x", _cbrt, "Cube root."),
    "sin": ("x", total(math.sin), "Sine of an angle in radians."),
    "cos": ("x", total(math.cos), "Cosine of an angle in radians."),
    "tan": ("x", total(math.tan), "Tangent of an angle in radians."),
    "asin": ("x", total(math.asin), "Arc sine in radians."),
    "acos": ("x", total(math.acos), "Arc cosine in radians."),
    "atan": ("x", math.atan, "Arc tangent in radians."),
    "ln": ("x", _ln, "Natural logarithm."),
    "log10": ("x", _logarithm(math.log10), "Logarithm to base 10."),
    "log2": ("x", _logarithm(math.log2), "Logarithm to base 2."),
    "exp": ("x", total(math.exp), "e to the power of x."),
    "floor": ("x", _whole(math.floor), "The largest whole number not above x."),
    "ceil": ("x", _whole(math.ceil), "The smallest whole number not below x."),
    "round": ("x", _whole(round_half_away), "The nearest whole number, halves away from zero."),
    "trunc": ("x", _whole(math.trunc), "The whole part of x."),
    "abs": ("x", abs, "The absolute value."),
    "sign": ("x", _sign, "1 or -1 by the sign of x, also of a zero."),
    "atan2": ("y, x", math.atan2, "The angle of the point (x, y) in radians."),
    "log": ("x, base", _log, "Logarithm to any base."),
    "pow": ("x, y", _pow, "x to the power of y."),
    "min": ("x, y", _smaller, "The smaller one, a number rather than nan."),
    "max": ("x, y", _larger, "The larger one, a number rather than nan."),
    "hypot": ("x, y", math.hypot, "The length of the vector (x, y)."),
    "clamp": ("x, lo, hi", _clamp, "x, held between two bounds."),
}


def _number(call: MemberCall, index: int) -> float:
    if index >= len(call.pos):
        raise arg_error(f"{call.name} expects argument {index + 1}")
    value = call.pos[index]
    if type(value) is float or type(value) is int:
        return float(value)
    raise type_error(f"math expects a number, found {type_name(value)}")


def _register(name: str, parameters: str, function: Callable[..., float], summary: str) -> None:
    count = parameters.count(",") + 1

    def body(call: MemberCall) -> float:
        return function(*[_number(call, index) for index in range(count)])

    body.__doc__ = summary
    MATH.function(name, usage=f"math.{name}({parameters}) -> float")(body)


for _name, (_parameters, _function, _summary) in _FUNCTIONS.items():
    _register(_name, _parameters, _function, _summary)
