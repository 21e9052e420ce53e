"""Telling, quickly, that a program can do nothing but compute.

Most programs of agents and status lines are arithmetic and method chains over values. This walk
finds them without following anything: no command, no call, no name that is not a bound value or a
name of the program itself, no member that may touch something. Its answer depends only on the tree
and on which names are bound to plain values, so it can be kept with the parsed program.

Failure: none; whatever is not certain is not pure.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from worker.language import ast
from worker.planning.vocabulary import ACTIVE_MEMBERS, RECEIVER_NAMES

_COMMANDING: Final = frozenset(
    (ast.Cmd, ast.LangBlock, ast.Use, ast.Alias, ast.Spawn, ast.With, ast.FnCall)
)
# Larger trees are walked with the limits of a derivation.
PARTS_MAX: Final = 100_000
_BINDERS: Final = frozenset((ast.Param, ast.BindPat, ast.FieldPat, ast.RestParam, ast.TypePat))


def is_pure(program: ast.Program, values: frozenset[str]) -> bool:
    """Whether a program has no effects whatever it computes; `values` are bound plain names."""
    stack: list[Any] = [program]
    declared: set[str] = set()
    mentioned: set[str] = set()
    seen = 0
    while stack:
        item = stack.pop()
        seen += 1
        if seen > PARTS_MAX:
            return False
        kind: Any = type(item)
        if kind is list:
            stack.extend(item)
            continue
        if kind is ast.Span or not issubclass(kind, msgspec.Struct):
            continue
        if kind in _COMMANDING:
            return False
        if kind is ast.Var:
            mentioned.add(item.name)
            continue
        if kind is ast.MethodCall or kind is ast.FieldExpr:
            if item.name in ACTIVE_MEMBERS:
                return False
            if type(item.recv) is ast.Var and item.recv.name in RECEIVER_NAMES:
                return False
        elif kind in _BINDERS:
            if item.name is not None:
                declared.add(item.name)
        elif kind is ast.ListPat and item.rest is not None:
            declared.add(item.rest)
        elif kind is ast.Catch and item.binder is not None:
            declared.add(item.binder)
        stack.extend([getattr(item, name) for name in item.__struct_fields__])
    return mentioned <= (declared | values)
