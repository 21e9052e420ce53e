"""Blocks: statements in a row, with the checks and the showing between them (chapter 30 §4, §7).

Between two statements the token is checked. A command whose value is discarded is shown by the
sink, any other discarded value is dropped; the tail of a loop body is discarded too, and shown
whatever it is.

Failure: raises what the statements raise, and Cancelled.
"""

from __future__ import annotations

from typing import Any, Final

from worker.evaluate.code import Thunk
from worker.evaluate.compiler import (
    Compiled,
    Compiler,
    Flow,
    Position,
    Setup,
    setup_lines,
    unwrap,
)
from worker.evaluate.static import DYNAMIC_NAMES, StaticScope
from worker.evaluate.templates import specialise
from worker.language import ast

# Statements written into one template; longer blocks are templates of templates.
STATEMENTS_PER_TEMPLATE: Final = 8


def is_bare_command(node: Any) -> bool:
    """A command call, an interpreter block, or an `&&`/`||` chain of such (chapter 30 §2.1)."""
    kind = type(node)
    if kind is ast.Cmd or kind is ast.LangBlock:
        return True
    return (
        kind is ast.Binary
        and node.op in ("and", "or")
        and is_bare_command(node.lhs)
        and is_bare_command(node.rhs)
    )


def is_command_statement(stmt: ast.Stmt) -> bool:
    return type(stmt) is ast.ExprStmt and is_bare_command(stmt.expr)


def declared_names(stmts: list[Any]) -> dict[str, bool]:
    """Names the statements bind in the scope they stand in, in order, without those of `use`; and
    whether a name is declared both mutable and immutable."""
    kinds: dict[str, set[bool]] = {}
    for stmt in stmts:
        kind = type(stmt)
        if kind is ast.Let and type(stmt.pattern) is ast.BindPat:
            kinds.setdefault(stmt.pattern.name, set()).add(stmt.mutable)
        elif kind is ast.Fn:
            kinds.setdefault(stmt.decl.name, set()).add(False)
        elif kind is ast.Alias:
            kinds.setdefault(stmt.name, set()).add(False)
    return {name: len(mutable) == 2 for name, mutable in kinds.items()}


def compile_block(compiler: Compiler, scope: StaticScope, block: ast.Block, flow: Flow) -> Compiled:
    """See `Compiler.block_in`. Where `return` is taken (`flow.tail`), jumps end here."""
    parts, shown, setup = block_parts(compiler, scope, block, flow, loop_body=False)
    compiled = Compiled(sequence(parts, shown, setup), any(part.jumps for part in parts))
    if flow.tail and flow.function:
        return Compiled(unwrap(compiled), False)
    return compiled


def block_parts(
    compiler: Compiler, scope: StaticScope, block: ast.Block, flow: Flow, *, loop_body: bool
) -> tuple[list[Compiled], list[bool], Setup]:
    """The statements of a block, which of their values are shown, and what entering it does."""
    stmts = block.stmts
    binders = len(scope.variables)
    names = compiler.mentions.of_all(stmts)
    for name, mixed in declared_names(stmts).items():
        scope.declare(name, mixed or names.captures(name))
    if names.dynamic:
        scope.declare(DYNAMIC_NAMES, boxed=True)
    parts: list[Compiled] = []
    shown: list[bool] = []
    for place, stmt in enumerate(stmts):
        last = place == len(stmts) - 1
        discarded = loop_body or not last
        position: Position = "stmt" if discarded else "value"
        inner = flow._replace(tail=flow.tail and not discarded)
        parts.append(compiler.statement(stmt, scope, position, inner))
        shown.append(discarded and ((loop_body and last) or is_command_statement(stmt)))
    return parts, shown, compiler.setup(scope, binders)


_SHOW: Final = "if {x} is not None and {shows}:\n    frame[0].sink({x})\n"
_JUMP: Final = "if type({x}) is Jump:\n    return {x}\n"


def statement_lines(
    parts: list[Compiled], shown: list[bool], values: dict[str, Any], jump: str
) -> str:
    """Template lines of the statements of a loop body, written out in place where they can be."""
    lines = []
    for place, (part, show) in enumerate(zip(parts, shown, strict=True)):
        x = f"s{place}"
        if place:
            lines.append("if token.cancelled:\n    raise Cancelled\n")
        if part.lines is not None and len(parts) <= STATEMENTS_PER_TEMPLATE:
            lines.append(part.lines(x, values))
        else:
            values[f"t{place}"] = part.thunk
            lines.append(f"{x} = t{place}(frame)\n")
        if part.jumps:
            lines.append(jump.format(x=x))
        if show:
            lines.append(_SHOW.format(x=x, shows="shows"))
    return "".join(lines)


def sequence(parts: list[Compiled], shown: list[bool], setup: Setup) -> Thunk:
    """One thunk for statements in a row; its value is that of the last one, or its jump."""
    if not parts:
        return _nothing
    if len(parts) == 1 and setup.empty and not shown[0]:
        return parts[0].thunk
    if len(parts) > STATEMENTS_PER_TEMPLATE:
        cut = STATEMENTS_PER_TEMPLATE - 1
        rest = sequence(parts[cut:], shown[cut:], Setup((), ()))
        jumps = any(part.jumps for part in parts[cut:])
        parts = [*parts[:cut], Compiled(rest, jumps)]
        shown = [*shown[:cut], False]
    values: dict[str, Any] = {}
    lines = [setup_lines(setup, values)]
    for place, (part, show) in enumerate(zip(parts, shown, strict=True)):
        last = place == len(parts) - 1
        values[f"t{place}"] = part.thunk
        if place:
            lines.append("if frame[0].cancel.cancelled:\n    raise Cancelled\n")
        if last:
            lines.append(f"return t{place}(frame)\n")
            continue
        if show or part.jumps:
            lines.append(f"r = t{place}(frame)\n")
        else:
            lines.append(f"t{place}(frame)\n")
        if part.jumps:
            lines.append(_JUMP.format(x="r"))
        if show:
            lines.append(_SHOW.format(x="r", shows="frame[0].shows"))
    return specialise("".join(lines), values)


def _nothing(frame: list[Any]) -> None:
    return None
