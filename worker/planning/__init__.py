"""What a program may touch, before it runs (chapter 50 §4).

    derive(ev, program)              the plan of a program in the session as it is now
    derive(ev, program, strict=True) for the language's own `plan` and `explain`
    is_pure(program, values)         whether it can only compute, decided by its tree alone

Derivation over-approximates and never fails: what cannot be followed is `opaque`, which every
reader must treat as "anything".

Failure: only a strict derivation raises, `arg_error` for a path argument that is not literal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.language import ast
from worker.planning.plans import OPAQUE, PURE, Derived, Plan, nothing

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

__all__ = ["OPAQUE", "PURE", "Derived", "Plan", "derive", "is_pure", "nothing"]


def derive(ev: Evaluator, program: ast.Program, *, strict: bool = False) -> Derived:
    """The plan of a program; its statements' plans in order."""
    # What nodes contribute is registered by these modules. They look at the registries of the
    # builtins, which may be loading just now.
    from worker.planning import expressions, heads, members, statements  # noqa: F401
    from worker.planning.walk import Walk

    return Walk(ev, strict=strict).program(program)


def is_pure(program: ast.Program, values: frozenset[str]) -> bool:
    """Whether a program has no effects whatever it computes; `values` are bound plain names."""
    from worker.planning.purity import is_pure as decide

    return decide(program, values)
