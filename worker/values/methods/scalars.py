"""Methods of int, float and bool (chapter 21 §6).

Rounding works on `x * 10^n` in binary64 and is half away from zero; a float stays a float.

Failure: `overflow` for the absolute value of the least int; type_error for a bad number of places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from worker.errors import overflow
from worker.values.methods.arguments import PLACES
from worker.values.methods.registry import method
from worker.values.render import inline
from worker.values.types import INT_MIN, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

NUMBER: Final = ("int", "float")

# 10^308 is the last power of ten that binary64 holds.
_PLACES_MAX: Final = 308


@method("abs", on=NUMBER, result="the same type", doc="The absolute value.")
def absolute(ev: Evaluator, recv: Value) -> Value:
    if type(recv) is int and recv == INT_MIN:
        raise overflow("integer overflow in abs")
    return abs(recv)


def _half_away(value: float) -> float:
    whole = math.floor(abs(value))
    if abs(value) - whole >= 0.5:
        whole += 1
    return float(whole)


def _scaled(recv: Value, places: int, operation: Callable[[float], float]) -> Value:
    if type(recv) is int or not math.isfinite(recv) or places > _PLACES_MAX:
        return recv
    factor = float(10**places)
    scaled = recv * factor
    if not math.isfinite(scaled):
        return recv
    # The sign also survives where the result is zero.
    return math.copysign(operation(scaled) / factor, recv)


@method(
    "round",
    on=NUMBER,
    params=(PLACES,),
    result="the same type",
    doc="Rounded half away from zero to n decimal places.",
)
def round_(ev: Evaluator, recv: Value, places: int) -> Value:
    return _scaled(recv, places, _half_away)


@method(
    "floor",
    on=NUMBER,
    params=(PLACES,),
    result="the same type",
    doc="Rounded down to n decimal places.",
)
def floor(ev: Evaluator, recv: Value, places: int) -> Value:
    return _scaled(recv, places, math.floor)


@method(
    "ceil",
    on=NUMBER,
    params=(PLACES,),
    result="the same type",
    doc="Rounded up to n decimal places.",
)
def ceil(ev: Evaluator, recv: Value, places: int) -> Value:
    return _scaled(recv, places, math.ceil)


@method("str", "display", on=("int", "float", "bool"), result="str", doc="The inline text.")
def to_text(ev: Evaluator, recv: Value) -> Value:
    return inline(recv)
