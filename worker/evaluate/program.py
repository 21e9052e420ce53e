"""Programs: the loop over top-level statements (chapter 30 §2.1).

A program is compiled as a whole and then run statement by statement. It runs at the top level of an
evaluator, or (sourced files, applied plans) in the scope the running command stands in.

Failure: the first error of a statement ends the program and is raised; what earlier statements did
stays. A syntax error is worker.language's ParseError: it belongs to whoever sent the text.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.errors import Cancelled, Raised, raised
from worker.evaluate.blocks import declared_names, is_command_statement
from worker.evaluate.calls import recursion_limit
from worker.evaluate.code import Frame, Thunk
from worker.evaluate.compiler import (
    AT_TOP,
    Compiler,
    Position,
    load_all,
    root_scope,
    setup_lines,
)
from worker.evaluate.evaluator import NESTED_PROGRAMS_MAX
from worker.evaluate.scopes import Cell
from worker.evaluate.static import FIRST_FREE_SLOT, Function, Place, StaticScope, slot_cell
from worker.evaluate.templates import specialise
from worker.language import ParseContext, ast, parse
from worker.memory import out_of_memory
from worker.values.types import MISSING, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

load_all()

ECHO_PURE: Final = "all"


class Step(NamedTuple):
    """One top-level statement: its thunk, its node and whether it is a bare command."""

    thunk: Thunk
    node: Any
    command: bool


class CompiledProgram(NamedTuple):
    program: ast.Program
    steps: list[Step]
    scope: StaticScope
    prepare: Thunk | None


def compile_program(
    program: ast.Program,
    src: str | None,
    scope: StaticScope,
    position: str = "stmt",
    *,
    silent: bool = False,
) -> CompiledProgram:
    """Compile all statements for a scope: a root scope, or the late scope of `late_scope`."""
    compiler = Compiler(src, silent=silent)
    prepare = None
    if not scope.is_root and scope.declares_in is None:
        # Nothing around keeps names nobody foresaw: the program gets a scope for them itself.
        names = compiler.mentions.of_all(program.stmts)
        for name, mixed in declared_names(program.stmts).items():
            scope.declare(name, mixed or names.captures(name))
    steps = []
    for place, stmt in enumerate(program.stmts):
        last = place == len(program.stmts) - 1
        where: Position = "value" if silent or (last and position == "value") else "top"
        thunk = compiler.statement(stmt, scope, where, AT_TOP).thunk
        steps.append(Step(thunk, stmt, is_command_statement(stmt)))
    setup = compiler.setup(scope)
    if not setup.empty:
        values: dict[str, Any] = {}
        prepare = specialise(setup_lines(setup, values) + "return None\n", values)
    return CompiledProgram(program, steps, scope, prepare)


def run_program(ev: Evaluator, program: ast.Program, src: str, position: str = "stmt") -> Value:
    """Run a program at the top level of an evaluator; the value of its last statement."""
    compiled = compile_program(program, src, root_scope(ev.root), position)
    function = compiled.scope.function
    frame: Frame = [ev, (), *[MISSING] * (function.size - FIRST_FREE_SLOT)]
    outer_src, outer_here = ev.src, ev.here
    ev.src, ev.here = src, None
    try:
        return run_steps(ev, compiled, frame, src)
    finally:
        ev.src, ev.here = outer_src, outer_here
        if ev.root.crowded and ev.nesting == 0 and all(task.done for task in ev.tasks):
            ev.root.forget_mentions()


def run_in_place(ev: Evaluator, program: ast.Program, src: str) -> Value:
    """Run a program as top-level statements in the scope of the running command: what `source` and
    `apply` do."""
    place = ev.here
    if place is None or (place.scope.is_root and place.scope.root is ev.root):
        return run_program(ev, program, src)
    scope = late_scope(place)
    compiled = compile_program(program, src, scope)
    function = scope.function
    captured = tuple(_captured_cell(place, variable) for variable in function.captures)
    frame: Frame = [ev, captured, *[MISSING] * (function.size - FIRST_FREE_SLOT)]
    outer_src = ev.src
    ev.src = src
    try:
        return run_steps(ev, compiled, frame, src)
    finally:
        ev.src, ev.here = outer_src, place


def late_scope(place: Place) -> StaticScope:
    """A scope to compile a program for that runs inside a place; it declares its names there when
    that scope keeps names nobody foresaw."""
    scope = StaticScope(place.scope, Function(place.scope.function, late=True), place.scope.root)
    if place.scope.is_root or place.scope.owner_of_dynamic_names() is not None:
        scope.declares_in = place.scope
    return scope


def _captured_cell(place: Place, variable: Any) -> Cell:
    return slot_cell(variable, place.scope.function, place.frame)


def run_steps(
    ev: Evaluator, compiled: CompiledProgram, frame: Frame, src: str, *, silent: bool = False
) -> Value:
    """The program loop: rows, errors, echo, exit. `silent`: nothing is shown."""
    if ev.nesting >= NESTED_PROGRAMS_MAX:
        raise raised(
            "recursion_limit",
            f"recursion limit exceeded ({NESTED_PROGRAMS_MAX} programs inside each other)",
        )
    ev.nesting += 1
    try:
        return _run_all(ev, compiled, frame, src, silent)
    finally:
        ev.nesting -= 1


def _run_all(
    ev: Evaluator, compiled: CompiledProgram, frame: Frame, src: str, silent: bool
) -> Value:
    if compiled.prepare is not None:
        compiled.prepare(frame)
    hooks = ev.hooks
    text = src.encode("utf-8", "surrogatepass") if hooks is not None else b""
    value: Value = None
    for ordinal, step in enumerate(compiled.steps):
        if ordinal and not silent:
            _show(ev, compiled.steps[ordinal - 1], value)
        if hooks is None:
            value = _run_step(ev, step, frame)
        else:
            source = _slice(text, step.node)
            value = _run_recorded(ev, hooks, compiled.program, ordinal, source, step, frame)
        ev.last = value
        if ev.pending_exit is not None:
            return None
    return value


def _run_step(ev: Evaluator, step: Step, frame: Frame) -> Value:
    if ev.cancel.cancelled:
        raise Cancelled
    try:
        return step.thunk(frame)
    except RecursionError:
        raise recursion_limit() from None
    except MemoryError as failure:
        raise out_of_memory(failure) from None


def _run_recorded(
    ev: Evaluator,
    hooks: Any,
    program: ast.Program,
    ordinal: int,
    source: str,
    step: Step,
    frame: Frame,
) -> Value:
    """One statement with its row: opened before it, current while it runs, finished after."""
    outer = ev.entry
    entry = hooks.started(program, ordinal, source)
    ev.entry = entry
    started = time.perf_counter_ns()
    try:
        value = _run_step(ev, step, frame)
    except (Raised, Cancelled) as failure:
        hooks.finished(entry, MISSING, failure, time.perf_counter_ns() - started)
        raise
    finally:
        ev.entry = outer
    hooks.finished(entry, value, None, time.perf_counter_ns() - started)
    return value


def _show(ev: Evaluator, step: Step, value: Value) -> None:
    """Give a value that is not the final one to the sink, as the echo mode wants."""
    if step.command or ev.host.echo == ECHO_PURE:
        ev.sink(value)


def _slice(text: bytes, node: Any) -> str:
    span = node.decl.span if isinstance(node, ast.Fn) else node.span
    return text[span.start : span.end].decode("utf-8", "replace")


def parse_context(ev: Evaluator, *, repl: bool = False) -> ParseContext:
    """The names bound at top level, as the parser needs them (chapter 10 §1)."""
    values, commands = ev.bound_names()
    return ParseContext(repl=repl, values=frozenset(values), commands=frozenset(commands))


def evaluate_source(
    ev: Evaluator, src: str, position: str = "stmt", *, repl: bool = False
) -> Value:
    """See `Evaluator.evaluate_source`."""
    context = ParseContext() if ev.script else parse_context(ev, repl=repl)
    return run_program(ev, parse(src, context), src, position)
