"""Evaluated code stays within a small factor of the same Python (design §6).

The factors are twice what a quiet machine shows, so that a busy one passes and a lost fast path
does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.evaluate.session import Session
from worker.evaluate.evaluator import bare_evaluator
from worker.evaluate.host import Host, nowhere
from worker.evaluate.threads import run_on_evaluator_stack

ROUNDS = 100_000
NUMBERS = list(range(ROUNDS))


def counting() -> None:
    i = 0
    while i < ROUNDS:
        i += 1


def add(a: int, b: int, c: int) -> int:
    return a + b + c


def calling() -> None:
    r = 0
    for i in range(ROUNDS):
        r = add(i, 2, 3)
    assert r


COUNT = f"var i = 0\nwhile i < {ROUNDS} {{ i += 1 }}"

PAIRS: dict[str, tuple[str, Callable[[], object], int]] = {
    "a loop at top level": (COUNT, counting, 20),
    "a loop in a function": (f"fn go() {{ {COUNT} }}\ngo()", counting, 20),
    "a call of three arguments": (
        "fn f(a, b, c) { a + b + c }\nvar r = 0\n"
        f"for i in 0..{ROUNDS} {{ r = f(i, 2, 3) }}",
        calling,
        24,
    ),
    "map": ("numbers.map(n => n * 2)", lambda: [n * 2 for n in NUMBERS], 16),
    "where": ("numbers.where(n => n > 5)", lambda: [n for n in NUMBERS if n > 5], 16),
    "map with an outer name": (
        "let k = 2\nnumbers.map(n => n * k)", lambda: [n * 2 for n in NUMBERS], 16,
    ),
}  # fmt: skip


def best(run: Callable[[], object]) -> float:
    """The shortest of several times, which disturbances touch least."""
    times = []
    for _ in range(7):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


@pytest.mark.parametrize(("src", "python", "factor"), PAIRS.values(), ids=PAIRS)
def test_evaluated_code_is_within_a_factor_of_python(
    session: Session, src: str, python: Callable[[], object], factor: int
) -> None:
    evaluator = bare_evaluator(str(session.cwd), Host(sink=nowhere))
    evaluator.root.declare("numbers", NUMBERS)
    ours = run_on_evaluator_stack(lambda: best(lambda: evaluator.evaluate_source(src)))
    assert ours < factor * best(python)
