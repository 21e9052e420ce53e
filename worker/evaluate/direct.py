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
from worker.evaluate.templates import define
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.callables import Closure
    from worker.evaluate.evaluator import Evaluator

Maker = Callable[["Evaluator", "Closure", Callable[..., Value]], Callable[..., Value]]

PARAMETERS_MAX: Final = 2

def direct_maker(operand: Operand, parameters: int) -> Maker | None:
    """How to make the direct function of a lambda body; None when it needs a frame."""
    if not operand.direct or not 1 <= parameters <= PARAMETERS_MAX:
        return None
    values: dict[str, Any] = {}
    lines = operand.lines("r", values, DIRECT)
    names = [f"arg{place}" for place in range(parameters)]
    # `over` catches one argument too many; `ordinary` is the call that says what is wrong.
    head = (
        f"def make(ev, token, captured, limit, ordinary{''.join(', ' + v for v in values)}):\n"
        f"    def call({', '.join(name + '=MISSING' for name in names)}, over=MISSING, *more):\n"
        f"        if over is not MISSING or {names[-1]} is MISSING:\n"
        f"            return ordinary(*[a for a in ({', '.join(names)}, over) "
        f"if a is not MISSING], *more)\n"
        f"        if token.cancelled:\n"
        f"            raise Cancelled\n"
        f"        if ev.call_depth >= limit:\n"
        f"            return ordinary({', '.join(names)})\n"
    )
    body = lines.replace("return general()", f"return ordinary({', '.join(names)})")
    text = head + "".join(f"        {line}\n" for line in body.splitlines())
    make = define(text + "        return r\n    return call\n")

    def maker(ev: Evaluator, closure: Closure, ordinary: Callable[..., Value]) -> Any:
        from worker.evaluate.evaluator import NESTED_CALLS_MAX

        return make(
            ev, ev.cancel, closure.captured, NESTED_CALLS_MAX, ordinary, *values.values()
        )

    return maker

