"""`assert` (chapter 31 §7.4).

Failure: `assert_failed` with the message when the condition does not hold, `arg_error` for a wrong
number of arguments, `type_error` for a condition or message of another type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.builtins.registry import Call, builtin
from worker.errors import arg_error, raised, type_error
from worker.values.types import Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


def check_assertion(ev: Evaluator, values: list[Value]) -> None:
    if not 1 <= len(values) <= 2:
        raise arg_error("assert expects a condition and at most one message")
    if ev.condition(values[0]):
        return
    if len(values) == 1:
        raise raised("assert_failed", "assertion failed")
    if type(values[1]) is not str:
        raise type_error(f"assert expects a str message, found {type_name(values[1])}")
    raise raised("assert_failed", values[1])


@builtin("assert", usage="assert COND [MSG] -> null")
def assert_(call: Call) -> None:
    """Raise `assert_failed` unless the condition holds."""
    check_assertion(call.ev, call.args.values())
