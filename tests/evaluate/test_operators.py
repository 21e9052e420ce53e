"""Operators give the same in every shape of code: they are written into templates for speed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.evaluate.session import Session
from worker.errors import Raised
from worker.values.inline import inline
from worker.values.operators import FUNCTIONS
from worker.values.types import INT_MAX, INT_MIN, Duration, Size, Value

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "in": "in",
}  # fmt: skip

VALUES: list[Value] = [
    0, 1, -1, 7, -7, 2**30 - 1, 2**30, -(2**30), 2**31, 2**62, INT_MAX, INT_MIN,
    0.0, -0.0, 1.0, 2.5, -2.5, float("inf"), float("nan"), 1e300,
    "", "a", "ab", "é", True, False, None, [], [1], {"a": 1}, Size(5), Duration(-3),
]  # fmt: skip

# Programs that apply an operator to the root names a and b in different kinds of variables.
SHAPES = {
    "root names": "a {op} b",
    "parameters": "((x, y) => x {op} y)(a, b)",
    "a function's locals": "(() => {{ let x = a; let y = b; x {op} y }})()",
    "captured names": "((x, y) => () => x {op} y)(a, b)()",
    "a callback": "[a].map(x => x {op} b)[0]",
    "computed operands": "[a][0] {op} [b][0]",
}


def expected(op: str, a: Value, b: Value) -> str:
    try:
        return inline(FUNCTIONS[op](a, b))
    except Raised as failure:
        return f"{failure.error.code}: {failure.error.msg}"


def outcome(session: Session, src: str) -> str:
    """What a program gives, as text."""
    return outcome_of(lambda: session.evaluator.evaluate_source(src))


def outcome_of(run: Callable[[], Value]) -> str:
    try:
        return inline(run())
    except Raised as failure:
        assert failure.error.span is not None
        return f"{failure.error.code}: {failure.error.msg}"


@pytest.mark.parametrize("op", SIGNS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_operator_is_the_same_in_every_shape(session: Session, shape: str, op: str) -> None:
    root = session.evaluator.root
    root.declare("a", 0)
    root.declare("b", 0)
    session.run(f"fn apply_operator() {{ {shape.format(op=SIGNS[op])} }}")
    function = root.lookup("apply_operator")
    for a, b in product(VALUES, VALUES):
        root.declare("a", a)
        root.declare("b", b)
        found = outcome_of(lambda: session.evaluator.call(function, []))
        assert found == expected(op, a, b), (a, SIGNS[op], b)


@pytest.mark.parametrize("op", SIGNS)
def test_operator_on_literals_is_the_same(session: Session, op: str) -> None:
    literals = {"5": 5, "0": 0, "2.5": 2.5, '"a"': "a", "true": True, "null": None, "3b": Size(3)}
    literals["9223372036854775807"] = INT_MAX
    for (left, a), (right, b) in product(literals.items(), literals.items()):
        src = f"{left} {SIGNS[op]} {right}"
        assert outcome(session, src) == expected(op, a, b), src


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_compound_assignment_computes_the_same(session: Session, op: str) -> None:
    root = session.evaluator.root
    for name in ("x", "b"):
        root.declare(name, 0, mutable=True)
    session.run(
        f"fn of_root() {{ x {SIGNS[op]}= b }}\n"
        f"fn of_local() {{ var y = x; y {SIGNS[op]}= b; y }}\n"
        f"fn of_captured() {{ var y = x; let f = () => {{ y {SIGNS[op]}= b }}; f(); y }}"
    )
    for a, b in product(VALUES, VALUES):
        for name in ("of_root", "of_local", "of_captured"):
            root.declare("x", a, mutable=True)
            root.declare("b", b)
            function = root.lookup(name)
            found = outcome_of(lambda: session.evaluator.call(function, []))  # noqa: B023
            assert found == expected(op, a, b), (a, name, b)


def test_deeply_nested_operators(session: Session) -> None:
    src = "1" + " + (2 * (3 - (4 + (5 * (6 - 1)))))" * 20
    assert session.text(src) == str(1 + (2 * (3 - (4 + (5 * 5)))) * 20)
    assert session.text("1" + " + 1" * 150) == "151"
