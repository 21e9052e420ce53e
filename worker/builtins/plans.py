"""`plan`, `apply`, `explain`: the effects of a program before it runs (chapter 31 §7).

Plans made here are the session's own: kept under ids counted from 1, not those of `plan.*` on the
kernel endpoint, and no authority to do anything. Deriving effects is the work of the planner.

Failure: `arg_error` for something that is no block, command, plan or text, `not_found` for an id
nothing is kept under, `parse_error` for bad source, and what the applied program raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leash.effects import Effect, line
from worker.builtins.effects import STORED_PLAN, Operands, Rule
from worker.builtins.readers import is_decimal
from worker.builtins.registry import Call, builtin
from worker.errors import Raised, arg_error, not_found
from worker.language import ast
from worker.language.diagnostics import ParseError
from worker.values.types import Record, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A program to apply later; `src` is the text its spans refer to."""

    program: ast.Program
    src: str


def effects_of(ev: Evaluator, program: ast.Program) -> Sequence[Effect]:
    """The effects of a program in the session as it is now, in order of discovery."""
    from worker.planning import derive

    return derive(ev, program, strict=True).plan.effects


def _summary(effects: Sequence[Effect]) -> Record:
    kinds = {effect["kind"] for effect in effects}
    return {
        "effects": list(dict.fromkeys(line(effect) for effect in effects)),
        "reversible": kinds.isdisjoint(("opaque", "fs_delete")),
        "spawns": not kinds.isdisjoint(("opaque", "proc_spawn")),
    }


# --- plan -----------------------------------------------------------------------------------------


def _planned_program(call: ast.CmdCall | None) -> ast.Program:
    """The block or the command that stands behind `plan`."""
    if call is not None and not call.args and call.trailing is not None:
        return ast.Program(call.trailing.stmts)
    first = call.args[0] if call is not None and call.args else None
    if isinstance(first, ast.ExprArg) and isinstance(first.expr, ast.Cmd | ast.LangBlock):
        return ast.Program([ast.ExprStmt(first.expr, first.span)])
    if call is None or not isinstance(first, ast.WordArg | ast.PathArg):
        raise arg_error("plan expects a block or a command")
    span = ast.Span(first.span.start, call.span.end)
    command = ast.CmdCall(
        head=first.text,
        forced=False,
        args=call.args[1:],
        redirects=[],
        env_prefix=[],
        background=False,
        trailing=call.trailing,
        span=span,
    )
    return ast.Program([ast.ExprStmt(ast.Cmd(command, span), span)])


@builtin(
    "plan",
    usage="plan CMD... -> record {id, effects, reversible, spawns}\nplan { ... } -> record",
)
def plan(call: Call) -> Record:
    """Derive the effects of a command or block without running it, and keep it for `apply`."""
    program = _planned_program(call.args.call)
    effects = effects_of(call.ev, program)
    plan_id = max(call.ev.plans, default=0) + 1
    call.ev.plans[plan_id] = KeptPlan(program, call.ev.src)
    return {"id": plan_id, **_summary(effects)}


@builtin("apply", usage="apply PLAN -> value", effects=(Rule(STORED_PLAN, Operands.FIRST),))
def apply(call: Call) -> Value:
    """Run a kept plan as top-level statements."""
    plan_id = _plan_id(call.args.values())
    kept = call.ev.plans.get(plan_id)
    if kept is None:
        raise not_found(f"no plan #{plan_id} to apply")
    from worker.evaluate.program import run_in_place

    return run_in_place(call.ev, kept.program, kept.src)


def _plan_id(values: list[Value]) -> int:
    value = values[0] if len(values) == 1 else None
    if type(value) is dict:
        value = value.get("id")
    if type(value) is str and is_decimal(value) and len(value) < 20:
        return int(value)
    if type(value) is int:
        return value
    raise arg_error("apply expects a plan reference (an id or the record of `plan`)")


@builtin("explain", usage="explain TEXT -> record {source, effects, reversible, spawns}")
def explain(call: Call) -> Record:
    """The effects of a source text; nothing is kept."""
    from worker.commands.scripts import parse_failure
    from worker.language.parser import parse

    values = call.args.values()
    if len(values) != 1 or type(values[0]) is not str:
        raise arg_error("explain expects a source string")
    try:
        program = parse(values[0])
    except ParseError as error:
        failure: Raised = parse_failure(error)
        raise failure from None
    return {**_summary(effects_of(call.ev, program)), "source": values[0]}
