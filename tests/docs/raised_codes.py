"""The codes that the code of the worker can raise, found in its source.

A call of `raised` or `ErrorValue`, or of a function that hands one of its own parameters to them as
the code, raises the strings its code argument can be: a literal, the branches of a condition, the
values of a table of its module.

Failure: `raised_codes` raises AssertionError for a code argument it cannot follow, so that none
goes unseen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2] / "worker"

# Functions that take a code, and the place of it.
_Takers = dict[str, int]
_FIRST: Final[Mapping[str, int]] = {"raised": 0, "ErrorValue": 0}
_BY_NAME_ONLY: Final = 1_000
# These have a code of their own.
_NAMED: Final[Mapping[str, str]] = {
    "type_error": "type_error", "arg_error": "arg_error", "overflow": "overflow",
    "field_missing": "field_missing", "not_found": "not_found",
}  # fmt: skip


def raised_codes(root: Path = ROOT) -> dict[str, list[str]]:
    """Code to the places that can raise it, `module:line`."""
    trees = {
        path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(root.rglob("*.py"))
    }
    takers: _Takers = dict(_FIRST)
    for tree in trees.values():
        for function in _functions(tree):
            place = _place_of_code(function, takers)
            if place is not None:
                takers.setdefault(function.name, place)
    found: dict[str, list[str]] = {}
    for module, tree in trees.items():
        for code, line in _codes(tree, takers, module):
            found.setdefault(code, []).append(f"{module}:{line}")
    return found


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _place_of_code(function: ast.FunctionDef, takers: Mapping[str, int]) -> int | None:
    """Which positional argument of a function is handed on as a code."""
    names = [argument.arg for argument in function.args.args]
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _name(node) in takers:
            code = _code_argument(node, takers)
            if isinstance(code, ast.Name) and code.id in names:
                place = names.index(code.id)
                return place - 1 if names[0] == "self" else place
            if isinstance(code, ast.Name) and code.id in _keywords(function):
                return _BY_NAME_ONLY
    return None


def _keywords(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.kwonlyargs]


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _code_argument(call: ast.Call, takers: Mapping[str, int]) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == "code":
            return keyword.value
    place = takers[_name(call)]
    return call.args[place] if place < len(call.args) else None


def _codes(tree: ast.Module, takers: _Takers, module: str) -> Iterator[tuple[str, int]]:
    tables = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and node.value is not None
    }
    for function, call in _calls(tree):
        name = _name(call)
        if name in _NAMED and isinstance(call.func, ast.Name):
            yield _NAMED[name], call.lineno
        elif name in takers:
            argument = _code_argument(call, takers)
            handed_on = function is not None and function.name in takers
            if isinstance(argument, ast.Name) and handed_on:
                assert function is not None
                yield from ((code, call.lineno) for code in _defaults(function))
                continue
            if argument is None:
                continue
            codes = list(_strings(argument, tables, function))
            assert codes, f"{module}:{call.lineno}: which code is `{ast.unparse(argument)}`?"
            for code in codes:
                yield code, call.lineno


def _defaults(function: ast.FunctionDef) -> Iterator[str]:
    """The code of a call that gives none."""
    for name, default in zip(_keywords(function), function.args.kw_defaults, strict=True):
        if name == "code" and isinstance(default, ast.Constant):
            yield str(default.value)


def _calls(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
    """Every call with the innermost function around it."""

    def visit(
        node: ast.AST, inside: ast.FunctionDef | None
    ) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
        if isinstance(node, ast.FunctionDef):
            inside = node
        if isinstance(node, ast.Call):
            yield inside, node
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(tree, None)


def _strings(
    argument: ast.expr, tables: Mapping[str, ast.expr], function: ast.FunctionDef | None
) -> Iterator[str]:
    """What a code argument can be."""
    match argument:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from _strings(body, tables, function)
            yield from _strings(orelse, tables, function)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="get"), args=[_, *rest]):
            yield from _values(tables[table])
            for default in rest:
                yield from _strings(default, tables, function)
        case ast.Subscript(value=ast.Name(id=table)):
            yield from _values(tables[table])
        case ast.Name(id=name) if function is not None:
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and any(
                    isinstance(target, ast.Name) and target.id == name for target in node.targets
                ):
                    yield from _strings(node.value, tables, function)


def _values(table: ast.expr) -> Iterator[str]:
    assert isinstance(table, ast.Dict)
    for value in table.values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value
