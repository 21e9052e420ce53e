"""What statements contribute, and the parts of control (chapter 50 §4.4).

Failure: none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leash.effects import ENV_WRITE, names
from worker.language import ast
from worker.planning.bodies import walk_module
from worker.planning.known import DYNAMIC, Known, Routine, elements, union
from worker.planning.vocabulary import ENVIRONMENT
from worker.planning.walk import Walk, visits


@visits(ast.ExprStmt)
def expression_statement(walk: Walk, node: ast.ExprStmt) -> Known:
    return walk.visit(node.expr)


@visits(ast.Let)
def let(walk: Walk, node: ast.Let) -> Known:
    bind(walk, node.pattern, walk.visit(node.init), mutable=node.mutable)
    return DYNAMIC


def bind(walk: Walk, pattern: Any, known: Known, *, mutable: bool = False) -> None:
    """Bind what a pattern names: a plain name to what is known, everything else dynamically."""
    if type(pattern) is ast.BindPat:
        name = pattern.name
        walk.names.bound[name] = DYNAMIC if mutable and name in walk.assigned else known
        return
    for name in pattern_names(pattern):
        walk.names.bound[name] = DYNAMIC


def pattern_names(pattern: Any) -> Iterable[str]:
    """Every name a pattern binds."""
    stack: list[Any] = [pattern]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is ast.BindPat or (kind is ast.TypePat and item.name is not None):
            yield item.name
        elif kind is ast.RecordPat:
            for entry in item.fields:
                if entry.pattern is None:
                    yield entry.name
                else:
                    stack.append(entry.pattern)
        elif kind is ast.ListPat:
            stack.extend(item.items)
            if item.rest is not None:
                yield item.rest


@visits(ast.Assign)
def assign(walk: Walk, node: ast.Assign) -> Known:
    walk.visit(node.value)
    target = node.target
    if (
        type(target) is ast.FieldExpr
        and type(target.recv) is ast.Var
        and target.recv.name == ENVIRONMENT
    ):
        walk.add(names(ENV_WRITE, [target.name]))
    elif type(target) is not ast.Var:
        walk.visit(target)
    return DYNAMIC


@visits(ast.Return)
def return_(walk: Walk, node: ast.Return) -> Known:
    if node.value is not None:
        walk.visit(node.value)
    return DYNAMIC


@visits(ast.Break, ast.Continue)
def jump(walk: Walk, node: Any) -> Known:
    return DYNAMIC


@visits(ast.Fn)
def fn(walk: Walk, node: ast.Fn) -> Known:
    walk.names.bound[node.decl.name] = (Routine(node.decl, walk.names),)
    return DYNAMIC


@visits(ast.Alias)
def alias(walk: Walk, node: ast.Alias) -> Known:
    walk.names.bound[node.name] = (Routine(node.target, walk.names),)
    return DYNAMIC


@visits(ast.Use)
def use(walk: Walk, node: ast.Use) -> Known:
    walk_module(walk, node.path)
    return DYNAMIC


@visits(ast.For)
def for_(walk: Walk, node: ast.For) -> Known:
    known = elements(walk.visit(node.iter), walk.looks.expand)
    with walk.branch(), walk.scope():
        bind(walk, node.pattern, known)
        statements(walk, node.body.stmts)
    return DYNAMIC


@visits(ast.While)
def while_(walk: Walk, node: ast.While) -> Known:
    with walk.branch():
        walk.visit(node.cond)
        block(walk, node.body)
    return DYNAMIC


def statements(walk: Walk, stmts: Iterable[Any]) -> Known:
    """Statements in the current scope; what is known of the last one's value."""
    known: Known = (None,)
    for stmt in stmts:
        known = walk.visit(stmt)
    return known


@visits(ast.Block)
def block(walk: Walk, node: ast.Block) -> Known:
    with walk.scope():
        return statements(walk, node.stmts)


@visits(ast.BlockExpr)
def block_expression(walk: Walk, node: ast.BlockExpr) -> Known:
    return block(walk, node.block)


@visits(ast.Spawn)
def spawn(walk: Walk, node: ast.Spawn) -> Known:
    with walk.apart(walk.cwd):
        block(walk, node.body)
    return DYNAMIC


@visits(ast.If)
def if_(walk: Walk, node: ast.If) -> Known:
    walk.visit(node.cond)
    with walk.branch():
        then = block(walk, node.then)
        other: Known = (None,) if node.else_ is None else walk.visit(node.else_)
    return union((then, other))


@visits(ast.Match)
def match(walk: Walk, node: ast.Match) -> Known:
    walk.visit(node.scrutinee)
    found: list[Known] = []
    with walk.branch():
        for arm in node.arms:
            with walk.scope():
                for pattern in arm.patterns:
                    bind(walk, pattern, DYNAMIC)
                if arm.guard is not None:
                    walk.visit(arm.guard)
                found.append(walk.visit(arm.body))
    return union(found)


@visits(ast.Try)
def try_(walk: Walk, node: ast.Try) -> Known:
    with walk.branch():
        block(walk, node.body)
        with walk.scope():
            if node.pattern is not None:
                bind(walk, node.pattern, DYNAMIC)
            statements(walk, node.handler.stmts)
    return DYNAMIC


@visits(ast.Catch)
def catch(walk: Walk, node: ast.Catch) -> Known:
    with walk.branch():
        walk.visit(node.expr)
        with walk.scope() as scope:
            if node.binder is not None:
                scope.bound[node.binder] = DYNAMIC
            walk.visit(node.handler)
    return DYNAMIC


@visits(ast.With)
def with_(walk: Walk, node: ast.With) -> Known:
    cwd = walk.cwd
    if node.cwd is not None:
        known = walk.visit(node.cwd)
        cwd = walk.place(known[0]) if known is not None and len(known) == 1 else None
    for part in (node.env, node.reef):
        if part is not None:
            walk.visit(part)
    with walk.apart(cwd):
        block(walk, node.body)
    return DYNAMIC
