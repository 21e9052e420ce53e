"""What expressions contribute, and what is known of their values (chapter 50 §4.2, §4.4).

Failure: none.
"""

from __future__ import annotations

from typing import Any, cast

from leash.effects import ENV_READ, names, unit
from worker.builtins.namespaces import NAMESPACES
from worker.errors import Raised
from worker.language import ast
from worker.planning.bodies import contribute
from worker.planning.heads import command_of_name
from worker.planning.known import DYNAMIC, Known, Routine, combined, routines
from worker.planning.members import member
from worker.planning.scopes import value_of_name
from worker.planning.vocabulary import CLOCK_NAMES, ENVIRONMENT, SECRETS
from worker.planning.walk import Walk, visits
from worker.values.convert import interpolate
from worker.values.types import MISSING, Range, Value

# --- literals and operators ----------------------------------------------------------------------


@visits(ast.Null)
def null(walk: Walk, node: ast.Null) -> Known:
    return (None,)


@visits(ast.Bool, ast.Int, ast.Float, ast.Str)
def literal(walk: Walk, node: Any) -> Known:
    return (node.value,)


@visits(ast.Size, ast.Duration, ast.Time, ast.DateTime, ast.Regex)
def other_literal(walk: Walk, node: Any) -> Known:
    return DYNAMIC


@visits(ast.StrInterp)
def interpolated(walk: Walk, node: ast.StrInterp) -> Known:
    parts: list[Known] = [
        (part.text,) if isinstance(part, ast.LitPart) else walk.visit(part.expr)
        for part in node.parts
    ]
    return combined(parts, _text)


def _text(*values: Value) -> Value:
    try:
        return "".join(interpolate(value) for value in values)
    except (Raised, TypeError, AttributeError, KeyError):
        raise ValueError from None


@visits(ast.ListExpr)
def list_(walk: Walk, node: ast.ListExpr) -> Known:
    return combined(walk.visit_all(node.items), lambda *items: list(items))


@visits(ast.RecordExpr)
def record(walk: Walk, node: ast.RecordExpr) -> Known:
    for entry in node.fields:
        walk.visit(entry.value)
    return DYNAMIC


@visits(ast.RangeExpr)
def range_(walk: Walk, node: ast.RangeExpr) -> Known:
    def make(start: Value, end: Value) -> Value:
        if type(start) is not int or type(end) is not int:
            raise ValueError
        return Range(start, end, node.inclusive)

    return combined((walk.visit(node.start), walk.visit(node.end)), make)


@visits(ast.Unary)
def unary(walk: Walk, node: ast.Unary) -> Known:
    known = walk.visit(node.expr)
    if node.op == "neg" and known is not None and all(type(value) is int for value in known):
        return tuple(-value for value in known)
    return DYNAMIC


@visits(ast.Binary)
def binary(walk: Walk, node: ast.Binary) -> Known:
    sides = (walk.visit(node.lhs), walk.visit(node.rhs))

    def concatenated(left: Value, right: Value) -> Value:
        if type(left) is not str or type(right) is not str:
            raise ValueError
        return left + right

    return combined(sides, concatenated) if node.op == "add" else DYNAMIC


# --- names and access ----------------------------------------------------------------------------


@visits(ast.Lambda)
def lambda_(walk: Walk, node: ast.Lambda) -> Known:
    routine = Routine(node, walk.names)
    contribute(walk, routine)
    return (routine,)


@visits(ast.Var)
def variable(walk: Walk, node: ast.Var) -> Known:
    known = value_of_name(walk, node.name)
    if known is MISSING:
        if node.name in CLOCK_NAMES:
            walk.add(unit("time"))
        else:
            command_of_name(walk, node.name, [], [])
        return DYNAMIC
    for routine in routines(known):
        # Used as a value, it may be called by whoever gets it.
        contribute(walk, routine)
    return cast(Known, known)


@visits(ast.Index)
def index(walk: Walk, node: ast.Index) -> Known:
    walk.visit(node.recv)
    walk.visit(node.index)
    return DYNAMIC


@visits(ast.FieldExpr)
def field(walk: Walk, node: ast.FieldExpr) -> Known:
    recv = node.recv
    if type(recv) is ast.Var and walk.names.find(recv.name) is None:
        if recv.name == ENVIRONMENT:
            walk.add(names(ENV_READ, [node.name]))
            return DYNAMIC
        if recv.name in NAMESPACES and recv.name != SECRETS:
            return DYNAMIC
    return member(walk, recv, node.name, None)


@visits(ast.LangBlock)
def lang_block(walk: Walk, node: ast.LangBlock) -> Known:
    walk.opaque()
    return DYNAMIC
