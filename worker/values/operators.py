"""The operators of the language by name, ready to be bound by the compiler (chapter 20 §2, §3).

Every binary operator is a plain function of two values (`add`, `lt`, `eq`, `member`, ...), and
`FUNCTIONS` maps the spelling of the syntax tree to it; `binary` is the same by name. Short-circuit
operators (`and`, `or`, `coalesce`) belong to the evaluator. Conditions are bools or outcomes, never
anything else: `truth`.

Failure: the language errors of the parts (`equality`, `ordering`, `arithmetic`); `truth` raises
`type_error` with a hint; `binary` raises KeyError for an unknown operator name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from worker.errors import type_error
from worker.values.arithmetic import ADD, DIV, MUL, REM, SUB, Cells, add, div, mul, negate, rem, sub
from worker.values.equality import contains, equal
from worker.values.ordering import compare, ge, gt, le, lt
from worker.values.types import Outcome, Value, type_name

__all__ = [
    "CELLS",
    "FUNCTIONS",
    "add",
    "binary",
    "compare",
    "contains",
    "div",
    "eq",
    "equal",
    "ge",
    "gt",
    "le",
    "lt",
    "member",
    "mul",
    "ne",
    "negate",
    "negated_truth",
    "rem",
    "sub",
    "truth",
]

member = contains

_PLAIN: Final = frozenset({int, str, float, bool, type(None)})


def _is_stream(value: Value) -> bool:
    return getattr(type(value), "TYPE_NAME", None) == "stream"


def eq(a: Value, b: Value) -> bool:
    """The `==` operator: `equal`, except that a stream cannot meet another value."""
    kind = type(a)
    if kind is type(b):
        if kind in _PLAIN:
            return bool(a == b)
        return equal(a, b)
    if kind in _PLAIN and type(b) in _PLAIN:
        return equal(a, b)
    if _is_stream(a) != _is_stream(b):
        raise type_error(
            "cannot compare a stream with a value", hint="collect first (`.collect()`)"
        )
    return equal(a, b)


def ne(a: Value, b: Value) -> bool:
    return not eq(a, b)


def truth(value: Value) -> bool:
    """The condition rule: a bool is itself, an outcome its `ok`, anything else an error."""
    if value is True:
        return True
    if value is False:
        return False
    if type(value) is Outcome:
        return value.ok
    raise type_error(
        f"expected bool in condition, found {type_name(value)}",
        hint="there is no truthiness: ask for a bool, for example `.is_empty()` or `!= null`",
    )


def negated_truth(value: Value) -> bool:
    """The `!` operator."""
    return not truth(value)


FUNCTIONS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "rem": rem,
    "eq": eq,
    "ne": ne,
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
    "in": contains,
}

# The cells of the arithmetic matrix by operator and (left type, right type), with the pairs that
# `add`, `sub` and `mul` answer without a lookup (int with int, str with str).
CELLS: Final[dict[str, Cells]] = {
    "add": {**ADD, (int, int): add, (str, str): add},
    "sub": {**SUB, (int, int): sub},
    "mul": {**MUL, (int, int): mul},
    "div": DIV,
    "rem": REM,
}


def binary(op: str, a: Value, b: Value) -> Value:
    """Apply a binary operator by its spelling in the syntax tree."""
    return FUNCTIONS[op](a, b)
