"""`use`: modules, evaluated once per session and bound as a record (chapter 30 §10.1).

A module runs in the evaluator that uses it, with a root scope of its own and the module's directory
as cwd while it loads. Its statements are in value position and show nothing.

Failure: `not_found` for a missing file, `custom` for a circle, `io_error` for an unreadable file,
`parse_error` for bad syntax, else what its statements raise. Nothing is kept of a failed load.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from worker.errors import Raised, os_text, raised
from worker.evaluate.code import Frame
from worker.evaluate.compiler import root_scope
from worker.evaluate.program import compile_program, run_steps
from worker.evaluate.scopes import Scope
from worker.evaluate.static import FIRST_FREE_SLOT
from worker.language import ParseError, Program, ast, parse
from worker.values.types import MISSING, Record, Span, display_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

SUFFIX: Final = ".shl"


def use_module(ev: Evaluator, path: str) -> tuple[str, Record]:
    """Load a module, or find it loaded: the name it is bound to and the record of its exports."""
    from worker.commands.site import expand_home

    real = _find(ev, path, ev.absolute(expand_home(ev, path)))
    name = os.path.splitext(os.path.basename(real))[0]
    if real in ev.loading:
        circle = [*ev.loading[ev.loading.index(real) :], real]
        shown = " -> ".join(display_name(part) for part in circle)
        raise raised("custom", f"circular `use`: {shown}")
    exports = ev.modules.get(real)
    if exports is None:
        exports = _load(ev, real)
        ev.modules[real] = exports
    return name, exports


def _find(ev: Evaluator, path: str, absolute: str) -> str:
    """The real path of the file a module path names."""
    has_extension = bool(os.path.splitext(absolute)[1])
    tried = [absolute] if has_extension else [absolute + SUFFIX, absolute]
    for candidate in tried:
        if os.path.isfile(candidate):
            return os.path.realpath(candidate)
    raise raised("not_found", f"module not found: `{path}` (looked for `{display_name(tried[0])}`)")


def _load(ev: Evaluator, real: str) -> Record:
    src, program = _read(ev, real)
    scope = Scope()
    outer = (ev.root, ev.here, ev.cwd, ev.hooks, ev.depth_base, ev.src, ev.last)
    ev.root, ev.here, ev.hooks, ev.src = scope, None, None, src
    ev.cwd = os.path.dirname(real)
    ev.depth_base = ev.call_depth
    ev.loading.append(real)
    try:
        compiled = compile_program(program, src, root_scope(scope), "value", silent=True)
        function = compiled.scope.function
        frame: Frame = [ev, (), *[MISSING] * (function.size - FIRST_FREE_SLOT)]
        run_steps(ev, compiled, frame, src, silent=True)
    finally:
        ev.loading.pop()
        ev.root, ev.here, ev.cwd, ev.hooks, ev.depth_base, ev.src, ev.last = outer
    return {name: scope.lookup(name) for name in exported_names(program)}


def _read(ev: Evaluator, real: str) -> tuple[str, Program]:
    from worker.builtins.authority import check_opened, check_read

    shown = display_name(real)
    try:
        check_read(ev, real)
        with open(real, "rb") as file:
            check_opened(ev, file.fileno())
            src = file.read().decode()
    except OSError as failure:
        raise raised("io_error", f"cannot read module: {shown}: {os_text(failure)}") from None
    except UnicodeDecodeError:
        raise raised(
            "io_error", f"cannot read module: {shown}: the file is not valid UTF-8"
        ) from None
    try:
        return src, parse(src)
    except ParseError as failure:
        raise parse_failure(failure) from None


def parse_failure(failure: ParseError) -> Raised:
    """Bad syntax in a file as a language error; the span is an offset into that file."""
    span = failure.span
    return raised(
        "parse_error", failure.message, hint=failure.hint, span=Span(span.start, span.end)
    )


def exported_names(program: Program) -> list[str]:
    """Names of `export let`, `export var` and `export fn`, in order of the source."""
    names: dict[str, None] = {}
    for stmt in program.stmts:
        name = _exported(stmt)
        if name is not None:
            names[name] = None
    return list(names)


def _exported(stmt: Any) -> str | None:
    if type(stmt) is ast.Fn and stmt.decl.exported:
        name: str = stmt.decl.name
        return name
    if type(stmt) is ast.Let and stmt.exported and type(stmt.pattern) is ast.BindPat:
        return stmt.pattern.name
    return None
