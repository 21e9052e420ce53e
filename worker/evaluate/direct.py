"""Small lambdas as plain Python functions, for methods that call them for every item.

A lambda whose body is only operators and fields of its parameters, of captured variables and of root
names needs no frame: its parameters become the parameters of one Python function. The checks that
every call makes stay in it.

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

Maker = Callable[["Evaluator", "Closure", Callable[..., Value]], Callable[..., Value]]

PARAMETERS_MAX: Final = 2


class Direct:
    """The two direct functions of one lambda body: with the checks every call makes, and bare, for
    loops that make them once for many items. An unbound root name starts an ordinary call."""

    __slots__ = ("_bare", "_checked", "_values", "parameters")

    def __init__(self, operand: Operand, parameters: int) -> None:
        values: dict[str, Any] = {}
        lines = operand.lines("r", values, DIRECT)
        names = [f"arg{place}" for place in range(parameters)]
        given = ", ".join(names)
        body = indented(lines.replace("return general()", f"return ordinary({given})"), 8)
        body += "        return r\n    return call\n"
        extra = "".join(", " + name for name in values)
        self.parameters = parameters
        self._values = tuple(values.values())
        self._bare = define(
            f"def make(ev, captured, ordinary{extra}):\n    def call({given}):\n{body}"
        )
        # `over` catches one argument too many; `ordinary` is the call that says what is wrong.
        optional = ", ".join(f"{name}=MISSING" for name in names)
        self._checked = define(
            f"def make(ev, captured, ordinary, token, limit{extra}):\n"
            f"    def call({optional}, over=MISSING, *more):\n"
            f"        if over is not MISSING or {names[-1]} is MISSING:\n"
            f"            given = [a for a in ({given}, over) if a is not MISSING]\n"
            f"            return ordinary(*given, *more)\n"
            f"        if token.cancelled:\n"
            f"            raise Cancelled\n"
            f"        if ev.call_depth >= limit:\n"
            f"            return ordinary({given})\n{body}"
        )

    def checked(
        self, ev: Evaluator, closure: Closure, ordinary: Callable[..., Value]
    ) -> Callable[..., Value]:
        """The function with all checks, for any number of arguments."""
        from worker.evaluate.evaluator import NESTED_CALLS_MAX

        function: Callable[..., Value] = self._checked(
            ev, closure.captured, ordinary, ev.cancel, NESTED_CALLS_MAX, *self._values
        )
        return function

    def bare(
        self, ev: Evaluator, closure: Closure, ordinary: Callable[..., Value]
    ) -> Callable[..., Value]:
        """The function without checks, for exactly the number of parameters."""
        function: Callable[..., Value] = self._bare(
            ev, closure.captured, ordinary, *self._values
        )
        return function


def direct_of(operand: Operand, parameters: int) -> Direct | None:
    """The direct functions of a lambda body; None when it needs a frame."""
    if not operand.direct or not 1 <= parameters <= PARAMETERS_MAX:
        return None
    return Direct(operand, parameters)


def item_function(ev: Evaluator, fn: Value, arguments: int) -> Callable[..., Value] | None:
    """`fn` as a function of exactly `arguments` values, without the checks of a call; None when it
    needs them. The caller looks at the token every few thousand items itself."""
    from worker.evaluate.callables import Closure
    from worker.evaluate.evaluator import NESTED_CALLS_MAX

    if type(fn) is not Closure or ev.call_depth >= NESTED_CALLS_MAX:
        return None
    direct = fn.code.direct
    if direct is None or direct.parameters != arguments or fn.code.boxed:
        return None
    return direct.bare(ev, fn, lambda *args: ev.call(fn, list(args)))
