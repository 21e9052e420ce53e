"""Stored callables: the parts of a closure or command that are saved, and how it is made again.

Saved are the AST node, its source, the root scope and the captured variables with their names;
code is compiled again. The captured variables form the scopes around the node: the first captured
one of a name is the innermost, which is the order in which the compiler found them.

Failure: none; what cannot be pickled fails in the pickler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from worker.evaluate.callables import Closure, Command
from worker.evaluate.compiler import Compiler, root_scope
from worker.evaluate.scopes import Cell, Scope
from worker.evaluate.static import Variable
from worker.language import ast
from worker.values.types import MISSING


class Saved(NamedTuple):
    node: Any
    src: str | None
    root: Scope
    captured: tuple[tuple[str, Cell], ...]

    @classmethod
    def of(cls, value: Closure | Command) -> Saved:
        code = value.code
        assert code.scope is not None
        captured = tuple(zip(code.variables, value.captured, strict=True))
        return cls(code.node, code.src, code.scope.root, captured)


def revive(saved: Saved) -> Closure | Command:
    """A closure or command over the saved cells."""
    from worker.evaluate.functions import command_code, function_code, lambda_code
    from worker.evaluate.program import load_all

    load_all()
    scope = root_scope(saved.root)
    cells: dict[Variable, Cell] = {}
    for name, cell in reversed(saved.captured):
        scope = scope.inner()
        variable = scope.declare(name, boxed=True)
        # A bound name stays bound. While cells are being restored all look unbound, and the code
        # made then asks each time.
        variable.definite = cell.v is not MISSING
        cells[variable] = cell
    compiler = Compiler(saved.src)
    node = saved.node
    if isinstance(node, ast.CmdCall):
        code = command_code(compiler, node, scope)
    elif isinstance(node, ast.FnDecl):
        code = function_code(compiler, node, scope)
    else:
        code = lambda_code(compiler, node, scope)
    assert code.scope is not None
    captured = tuple(cells[variable] for variable in code.scope.function.captures)
    return (Command if isinstance(node, ast.CmdCall) else Closure)(code, captured)
