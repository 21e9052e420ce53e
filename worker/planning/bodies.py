"""Bodies that run elsewhere than where they stand: functions, aliases, scripts, modules.

A body is walked once in a statement for each distinct set of known arguments, and not at all while
it is being walked, so recursion ends by itself (chapter 50 §4.4).

Failure: none; a file that cannot be read or parsed is `opaque`, and so is nesting past the limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from leash.effects import FS_READ
from worker.commands.site import expand_home
from worker.evaluate.callables import Closure, Command
from worker.language import ast
from worker.planning.known import DYNAMIC, Known, Module, Names, Routine, combined, session_value
from worker.planning.walk import Walk, assigned_names
from worker.values.types import MISSING, Path

# Declared types whose word form keeps its text; words for any other type become other values.
_TEXT_TYPES: Final = frozenset(("str", "path", "any"))
NO_NAMED: Final[Mapping[str, Known]] = {}


def contribute(
    walk: Walk,
    callable_: Any,
    positional: Sequence[Known] | None = None,
    named: Mapping[str, Known] = NO_NAMED,
    operands: Sequence[Any] = (),
) -> None:
    """The body of a function, lambda or alias. Without `positional` its arguments are unknown;
    `operands` are those of a command call, which an alias appends to its own."""
    routine = _routine(walk, callable_)
    node = routine.node
    if type(node) is ast.CmdCall:
        _once(walk, node, repr(operands), lambda: _alias(walk, routine, operands))
        return
    arguments = None if positional is None else (tuple(positional), tuple(sorted(named.items())))
    _once(walk, node, repr(arguments), lambda: _function(walk, routine, positional, named))


def _once(walk: Walk, node: Any, arguments: str, run: Callable[[], None]) -> None:
    key = (id(node), arguments, walk.cwd)
    if id(node) in walk.stack or key in walk.walked:
        return
    walk.walked.add(key)
    walk.stack.append(id(node))
    try:
        with walk.deeper() as allowed, walk.branch():
            if allowed:
                run()
            else:
                walk.opaque()
    finally:
        walk.stack.pop()


def _routine(walk: Walk, callable_: Any) -> Routine:
    """A callable of the session as one of the program: its tree and what it captured."""
    if type(callable_) is Routine:
        return callable_
    assert type(callable_) in (Closure, Command)
    node = callable_.code.node
    walk.assigned |= assigned_names(node)
    names = Names()
    for cell in callable_.captured:
        if cell.v is not MISSING:
            names.bound[cell.name] = DYNAMIC if cell.mutable else session_value(cell.v)
    return Routine(node, names)


def _function(
    walk: Walk,
    routine: Routine,
    positional: Sequence[Known] | None,
    named: Mapping[str, Known],
) -> None:
    node: Any = routine.node
    with walk.scope(routine.names) as scope:
        for index, param in enumerate(node.params):
            known: Known = DYNAMIC
            if param.default is not None and (positional is None or index >= len(positional)):
                known = walk.visit(param.default)
            if positional is None:
                known = DYNAMIC
            elif index < len(positional):
                known = _typed(positional[index], param.ty)
            elif param.name in named:
                known = _typed(named[param.name], param.ty)
            scope.bound[param.name] = DYNAMIC if param.name in walk.assigned else known
        rest = getattr(node, "rest", None)
        if rest is not None:
            extra = None if positional is None else positional[len(node.params) :]
            scope.bound[rest.name] = (
                DYNAMIC if extra is None else combined(extra, lambda *items: list(items))
            )
        walk.visit(node.body)


def _typed(known: Known, declared: ast.TypeRef | None) -> Known:
    """What a parameter with a declared type may hold: words convert (chapter 30 §6)."""
    if known is None or declared is None or declared.name in _TEXT_TYPES:
        return known
    return None if any(type(value) is str for value in known) else known


def _alias(walk: Walk, routine: Routine, operands: Sequence[Any]) -> None:
    from worker.planning.heads import run_call

    with walk.scope(routine.names):
        run_call(walk, routine.node, operands)


# --- files of the language -----------------------------------------------------------------------


def walk_source(walk: Walk, path: str) -> None:
    """`source PATH`: the file, then its program in the current scope."""
    program = _read(walk, path)
    if program is not None:
        _file_body(walk, ("source", path), program)


def walk_script(walk: Walk, path: str | None, arguments: Known) -> None:
    """A script: the file, then its program in a scope of its own."""
    program = _read(walk, path)
    if program is None or path is None:
        return
    names = Names(isolated=True)
    names.bound["args"] = arguments
    names.bound["script"] = (Path(path),)
    outer, walk.names = walk.names, names
    try:
        with walk.apart(walk.cwd):
            _file_body(walk, ("script", path), program, repr(arguments))
    finally:
        walk.names = outer


def walk_module(walk: Walk, written: str) -> None:
    """`use PATH`: the file, then its top-level statements in its own directory."""
    place = walk.place(expand_home(walk.ev, written))
    path = None if place is None else walk.looks.module(place)
    name = os.path.splitext(os.path.basename(written if path is None else path))[0]
    program = _read(walk, path)
    if program is None or path is None:
        walk.names.bound[name] = DYNAMIC
        return
    names = walk.modules.get(path)
    if names is None:
        names = walk.modules[path] = Names(isolated=True)
    outer, walk.names = walk.names, names
    try:
        with walk.apart(os.path.dirname(path)):
            _file_body(walk, ("module", path), program)
    finally:
        walk.names = outer
    walk.names.bound[name] = (Module(names),)


def _read(walk: Walk, path: str | None) -> ast.Program | None:
    walk.add_files(FS_READ, None if path is None else [path])
    if path is None:
        return None
    program = walk.looks.script(path)
    if program is None:
        walk.opaque()
    return program


def _file_body(walk: Walk, body: Any, program: ast.Program, arguments: str = "") -> None:
    key = (body, arguments, walk.cwd)
    if body in walk.stack or key in walk.walked:
        return
    walk.walked.add(key)
    walk.assigned |= assigned_names(program)
    walk.keep(program)
    walk_program(walk, body, program)


def walk_program(walk: Walk, body: Any, program: ast.Program) -> None:
    """The statements of another program where the walk stands, one level deeper."""
    if body in walk.stack:
        return
    walk.stack.append(body)
    try:
        with walk.deeper() as allowed:
            if not allowed:
                walk.opaque()
                return
            for statement in program.stmts:
                walk.visit(statement)
    finally:
        walk.stack.pop()


def script_arguments(values: Sequence[Known]) -> Known:
    """`args` of a script, when every argument is known."""
    return combined(values, lambda *items: list(items))
