"""What commands contribute: the head resolved as at run time, then redirects (chapter 50 §4.5-4.9).

Failure: `arg_error` from a strict walk; nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from leash.effects import FS_READ, FS_WRITE
from worker.builtins import BUILTINS
from worker.builtins.effects import SCRIPT, STORED_PLAN
from worker.builtins.readers import is_decimal
from worker.commands.site import expand_home, home_directory
from worker.language import ast
from worker.planning.adapters import adapted
from worker.planning.bodies import (
    contribute,
    script_arguments,
    walk_program,
    walk_script,
    walk_source,
)
from worker.planning.known import DYNAMIC, Known, routines
from worker.planning.operands import LONG, Operand, argument, call_operands, values_of
from worker.planning.rules import apply_rules
from worker.planning.scopes import value_of_name
from worker.planning.walk import Walk, visits
from worker.values.types import MISSING, Path, Value

SCRIPT_SUFFIX: Final = ".shl"


@visits(ast.Cmd)
def command(walk: Walk, node: ast.Cmd) -> Known:
    call = node.call
    if call.background:
        with walk.apart(walk.cwd):
            run_call(walk, call)
        return DYNAMIC
    return run_call(walk, call)


def run_call(walk: Walk, call: ast.CmdCall, extra: Sequence[Operand] = ()) -> Known:
    """A command call; `extra` arguments follow its own (those of an alias's caller)."""
    operands = [argument(walk, arg) for arg in call.args] + list(extra)
    bare = not (call.args or call.redirects or call.env_prefix or extra)
    known = _run_head(walk, call, operands, bare)
    for redirect in call.redirects:
        kind = FS_READ if redirect.kind == "in" else FS_WRITE
        walk.add_files(kind, walk.places(argument(walk, redirect.target).known))
    return known


def _run_head(walk: Walk, call: ast.CmdCall, operands: list[Operand], bare: bool) -> Known:
    bound = value_of_name(walk, call.head)
    if bound is not MISSING:
        called = routines(bound)
        for routine in called:
            call_routine(walk, routine, operands)
        if called and bound is not None and len(called) == len(bound):
            return DYNAMIC
        if bare and not call.forced:
            return cast(Known, bound)
    run_unbound(walk, call.head, operands, forced=call.forced)
    return DYNAMIC


def call_routine(walk: Walk, routine: Any, operands: Sequence[Operand]) -> None:
    """A function or alias called with these arguments."""
    positional = [operand.known for operand in values_of(operands)]
    named = {
        operand.name: operand.known if operand.given else (True,)
        for operand in operands
        if operand.flag == LONG and operand.name
    }
    contribute(walk, routine, positional, named, operands)


def run_unbound(walk: Walk, head: str, operands: list[Operand], *, forced: bool = False) -> None:
    """What a head means that nothing is bound to."""
    adapters = None if forced else walk.ev.host.adapters
    if head in BUILTINS:
        run_builtin(walk, head, operands)
    elif head.endswith(SCRIPT_SUFFIX):
        path = walk.place(Path(expand_home(walk.ev, head)))
        arguments = script_arguments([operand.known for operand in values_of(operands)])
        walk_script(walk, path, arguments)
    elif adapters is not None and (adapter := adapters.lookup(head)) is not None:
        adapted(walk, adapter, operands)
    else:
        walk.opaque()


def command_of_name(
    walk: Walk, name: str, positional: Sequence[Known], named: Sequence[tuple[str, Known]]
) -> None:
    """A command name used in an expression: the command with those arguments, or nothing when no
    command has that name."""
    adapters = walk.ev.host.adapters
    if name in BUILTINS or (adapters is not None and adapters.lookup(name) is not None):
        run_unbound(walk, name, call_operands(positional, named))
    elif walk.looks.on_path(name):
        walk.opaque()


# --- builtins ------------------------------------------------------------------------------------


def run_builtin(walk: Walk, head: str, operands: list[Operand]) -> None:
    """The effects of a builtin head with these arguments."""
    special = _SPECIAL.get(head)
    if special is not None:
        special(walk, operands)
        return
    declared = BUILTINS[head].effects
    apply_rules(
        walk, tuple(rule for rule in declared if rule.kind not in (SCRIPT, STORED_PLAN)), operands
    )
    change = _DIRECTORY_CHANGES.get(head)
    if change is not None:
        walk.change_directory(change(walk, values_of(operands)))


def _entered(walk: Walk, values: list[Operand]) -> str | None:
    """Where `cd X` and `pushd X` go; None when that is not known."""
    if not values or values[0].dash or values[0].known is None or len(values[0].known) != 1:
        return None
    return None if values[0].known[0] == "-" else walk.place(values[0].known[0])


def _entered_or_home(walk: Walk, values: list[Operand]) -> str | None:
    return _entered(walk, values) if values else walk.place(home_directory(walk.ev))


def _anywhere(walk: Walk, values: list[Operand]) -> str | None:
    return None


_DIRECTORY_CHANGES: Final[dict[str, Callable[[Walk, list[Operand]], str | None]]] = {
    "cd": _entered_or_home,
    "pushd": _entered,
    "popd": _anywhere,
    "j": _anywhere,
    "jump": _anywhere,
}


def _first(operands: list[Operand]) -> Known:
    values = values_of(operands)
    return values[0].known if values else DYNAMIC


def run_target(walk: Walk, operands: list[Operand]) -> None:
    """`run`: a script of the language is walked, anything else is unknown."""
    targets = _first(operands)
    if targets is None:
        walk.opaque()
        return
    arguments = script_arguments([operand.known for operand in values_of(operands)[1:]])
    for target in targets:
        text = _target_text(target)
        if text is not None and text.lower().endswith(SCRIPT_SUFFIX):
            walk_script(walk, walk.place(Path(expand_home(walk.ev, text))), arguments)
        else:
            walk.opaque()


def _target_text(target: Value) -> str | None:
    if type(target) is Path:
        return target.raw
    return target if isinstance(target, str) else None


def _source(walk: Walk, operands: list[Operand]) -> None:
    paths = walk.places(_first(operands))
    if paths is None:
        walk.dynamic_path()
        walk.opaque()
        return
    for path in paths:
        walk_source(walk, path)


def _apply(walk: Walk, operands: list[Operand]) -> None:
    for kept in _stored(walk, _first(operands)):
        if kept is None:
            walk.opaque()
        else:
            walk_program(walk, ("plan", id(kept)), kept)


def _stored(walk: Walk, known: Known) -> list[ast.Program | None]:
    if known is None:
        return [None]
    found: list[ast.Program | None] = []
    for value in known:
        if type(value) is str and is_decimal(value) and len(value) < 20:
            value = int(value)
        kept = walk.ev.plans.get(value) if type(value) is int else None
        found.append(None if kept is None else kept.program)
    return found


_SPECIAL: Final[dict[str, Callable[[Walk, list[Operand]], None]]] = {
    "run": run_target,
    "source": _source,
    "apply": _apply,
}
