"""What calls, methods and fields contribute (chapter 50 §4.7).

Failure: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from leash.effects import FS_READ, unit
from worker.builtins import BUILTINS
from worker.builtins.functions import FUNCTIONS, Function
from worker.builtins.namespaces import NAMESPACES
from worker.evaluate.calls import RESERVED_CALLS
from worker.language import ast
from worker.planning.bodies import contribute
from worker.planning.heads import call_routine, command_of_name, run_call, run_target
from worker.planning.known import DYNAMIC, Known, Module, combined, is_routine, routines
from worker.planning.operands import call_operands
from worker.planning.rules import apply_rules, watched
from worker.planning.scopes import value_of_name
from worker.planning.vocabulary import CLOCK_FIELDS, CLOCK_NAMES, FEED, METHOD_EFFECTS
from worker.planning.walk import Walk, visits
from worker.values import paths
from worker.values.types import MISSING, Glob, Path, Value

# Call forms that look at a path or at the concrete directory of a glob.
_WATCHING: Final = frozenset(("watch", "tail"))

Arguments = tuple[list[Known], list[tuple[str, Known]]]


def _arguments(walk: Walk, args: ast.Args) -> Arguments:
    positional = walk.visit_all(args.pos)
    return positional, [(arg.name, walk.visit(arg.value)) for arg in args.named]


# --- calls by name -------------------------------------------------------------------------------


@visits(ast.FnCall)
def function_call(walk: Walk, node: ast.FnCall) -> Known:
    positional, named = _arguments(walk, node.args)
    name = node.name
    if name in RESERVED_CALLS:
        return _reserved(walk, name, positional, named)
    bound = value_of_name(walk, name)
    if bound is not MISSING:
        for routine in routines(bound):
            call_routine(walk, routine, call_operands(positional, named))
    elif name in CLOCK_NAMES:
        walk.add(unit("time"))
    else:
        command_of_name(walk, name, positional, named)
    return DYNAMIC


def _reserved(
    walk: Walk, name: str, positional: list[Known], named: list[tuple[str, Known]]
) -> Known:
    operands = call_operands(positional, named)
    first = positional[0] if positional else DYNAMIC
    if name == "run":
        run_target(walk, operands)
    elif name in _WATCHING:
        walk.add_files(FS_READ, watched(walk, first, patterns=name == "watch"))
    elif name == "path":
        return combined((first,), _path)
    elif name == "glob":
        return _glob(walk, first, named)
    else:
        # `parallel`, `retry` and `on` only call what they are given, which is counted with them.
        function = FUNCTIONS.get(name)
        if isinstance(function, Function):
            apply_rules(walk, function.effects, operands)
    return DYNAMIC


def _path(value: Value) -> Value:
    if type(value) is Path:
        return value
    if type(value) is not str:
        raise ValueError
    return Path(value)


def _glob(walk: Walk, known: Known, named: Sequence[tuple[str, Known]]) -> Known:
    cwd, hidden = walk.cwd, dict(named).get("hidden", (False,))
    if cwd is None:
        return DYNAMIC

    def make(pattern: Value, dots: Value) -> Value:
        if type(pattern) is not str or type(dots) is not bool:
            raise ValueError
        return Glob(pattern, cwd, dots)

    return combined((known, hidden), make)


# --- methods and fields --------------------------------------------------------------------------


@visits(ast.MethodCall)
def method_call(walk: Walk, node: ast.MethodCall) -> Known:
    recv = node.recv
    if type(recv) is ast.Var and recv.name in NAMESPACES and walk.names.find(recv.name) is None:
        return _namespace(walk, recv.name, node)
    if node.name == FEED:
        return _feed(walk, node)
    return member(walk, recv, node.name, node.args)


def _namespace(walk: Walk, namespace: str, node: ast.MethodCall) -> Known:
    """A function of a namespace; its own effects come before those of its arguments."""
    with walk.aside() as merge:
        positional, named = _arguments(walk, node.args)
    found = NAMESPACES[namespace].functions.get(node.name)
    if found is not None:
        apply_rules(walk, found.effects, call_operands(positional, named))
    merge()
    return DYNAMIC


def member(walk: Walk, recv: Any, name: str, args: ast.Args | None) -> Known:
    """A method call, or a field when `args` is None: its own effects, then those of its parts."""
    with walk.aside() as merge:
        receiver = walk.visit(recv)
        positional, named = ([], []) if args is None else _arguments(walk, args)
    for effect in METHOD_EFFECTS.get(name, ()):
        if effect.operand == "receiver":
            _receiver_effect(walk, effect.kind, effect.unknown, receiver)
        else:
            walk.add_files(effect.kind, walk.places(_nth(positional, effect.operand)))
    if name in CLOCK_FIELDS:
        walk.add(unit("time"))
    merge()
    _call_member(walk, receiver, name, args, positional, named)
    return _computed(walk, receiver, name, positional)


def _nth(positional: list[Known], operand: str) -> Known:
    index = int(operand.rpartition(" ")[2])
    return positional[index] if index < len(positional) else DYNAMIC


def _receiver_effect(walk: Walk, kind: str, unknown: str, receiver: Known) -> None:
    if receiver is None:
        if unknown != "none":
            walk.opaque()
        return
    # Members of the same name on other types touch nothing.
    known = tuple(value for value in receiver if type(value) is Path)
    if known:
        walk.add_files(kind, walk.places(known))


def _call_member(
    walk: Walk,
    receiver: Known,
    name: str,
    args: ast.Args | None,
    positional: list[Known],
    named: list[tuple[str, Known]],
) -> None:
    """A function kept in a record or a module, called or passed on as a value."""
    for value in receiver or ():
        found: Known = None
        if type(value) is Module:
            found = value.names.bound.get(name)
        elif type(value) is dict and is_routine(value.get(name)):
            found = (value[name],)
        for routine in routines(found):
            if args is None:
                contribute(walk, routine)
            else:
                call_routine(walk, routine, call_operands(positional, named))


def _computed(walk: Walk, receiver: Known, name: str, positional: list[Known]) -> Known:
    """The paths that path arithmetic gives."""
    if name == "join" and len(positional) == 1:
        return combined((receiver, positional[0]), _joined)
    if name == "parent" and not positional:
        return combined((receiver,), _parent)
    if name == "abs" and not positional and walk.cwd is not None:
        cwd = walk.cwd
        return combined((receiver,), lambda value: _absolute(cwd, value))
    return DYNAMIC


def _joined(value: Value, segment: Value) -> Value:
    if type(value) is not Path or type(segment) not in (str, Path):
        raise ValueError
    return Path(paths.join(value.raw, segment.raw if type(segment) is Path else segment))


def _parent(value: Value) -> Value:
    if type(value) is not Path:
        raise ValueError
    raw = paths.parent(value.raw)
    return None if raw is None else Path(raw)


def _absolute(cwd: str, value: Value) -> Value:
    if type(value) is not Path:
        raise ValueError
    return value if value.raw.startswith("/") else Path(f"{cwd}/{value.raw}")


# --- feeding -------------------------------------------------------------------------------------


def _feed(walk: Walk, node: ast.MethodCall) -> Known:
    """A value fed to a command: the value, then the command, which is always a program."""
    argument = node.args.pos[0] if len(node.args.pos) == 1 else None
    if _is_command(argument):
        walk.visit(node.recv)
        _fed(walk, argument)
    elif _is_command(node.recv) or _is_unbound(walk, node.recv):
        walk.visit_all(node.args.pos)
        _fed(walk, node.recv)
    else:
        walk.visit(node.recv)
        _arguments(walk, node.args)
    return DYNAMIC


def _is_command(node: Any) -> bool:
    return type(node) in (ast.Cmd, ast.LangBlock)


def _is_unbound(walk: Walk, node: Any) -> bool:
    return (
        type(node) is ast.Var
        and node.name not in CLOCK_NAMES
        and value_of_name(walk, node.name) is MISSING
    )


def _fed(walk: Walk, node: Any) -> None:
    """The command side of a feed: its arguments and redirects, and a program nobody knows."""
    if type(node) is ast.Cmd:
        with walk.aside() as merge:
            run_call(walk, node.call)
        if node.call.head not in BUILTINS:
            merge()
    walk.opaque()
