"""Small lambdas as plain Python functions, for methods that call them for every item.

A lambda whose body is only operators and fields of its parameters, of captured variables and of
root names needs no frame: its parameters become the parameters of one Python function. The checks
that every call makes stay in it.

Failure: as the ordinary call; the direct function starts an ordinary one whenever it meets a number
of arguments or an unbound name it is not made for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from worker.evaluate.operands import DIRECT, Operand
from worker.evaluate.templates import define, indented
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.callables import Closure
    from worker.evaluate.evaluator import Evaluator

PARAMETERS_MAX: Final = 2


class Direct:
    """The direct function of one lambda body, bound to an evaluator and a closure by `bind`."""

    __slots__ = ("_make", "_values")

    def __init__(self, operand: Operand, parameters: int) -> None:
        values: dict[str, Any] = {}
        lines = operand.lines("r", values, DIRECT)
        names = [f"arg{place}" for place in range(parameters)]
        given = ", ".join(names)
        # Methods pass one value or two. `over` catches one too many, a second parameter that is
        # MISSING one too few; the ordinary call says what is wrong.
        optional = ", ".join([names[0], *(f"{name}=MISSING" for name in names[1:])])
        missing = "".join(f" or {name} is MISSING" for name in names[1:])
        self._values = tuple(values.values())
        self._make = define(
            f"def make(ev, captured, ordinary, token{''.join(', ' + name for name in values)}):\n"
            f"    def call({optional}, over=MISSING):\n"
            f"        if over is not MISSING{missing}:\n"
            f"            return ordinary(*[a for a in ({given}, over) if a is not MISSING])\n"
            f"        if token.cancelled:\n"
            f"            raise Cancelled\n"
            + indented(lines.replace("return general()", f"return ordinary({given})"), 8)
            + "        return r\n    return call\n"
        )

    def bind(
        self, ev: Evaluator, closure: Closure, ordinary: Callable[..., Value]
    ) -> Callable[..., Value]:
        """A function of one or more values. `ordinary` calls the closure with full ceremony: for
        other numbers of arguments, and when a root name turns out to be unbound."""
        function: Callable[..., Value] = self._make(
            ev, closure.captured, ordinary, ev.cancel, *self._values
        )
        return function


def direct_of(operand: Operand, parameters: int) -> Direct | None:
    """The direct function of a lambda body; None when it needs a frame."""
    if not operand.direct or not 1 <= parameters <= PARAMETERS_MAX:
        return None
    return Direct(operand, parameters)
