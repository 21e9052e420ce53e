"""Every node kind, spans included: the JSON shape compared whole (cases/nodes.jsonl)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from tests.language.trees import context, tree
from worker.language import ast, decode_ast, parse

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "cases" / "nodes.jsonl").read_text("utf-8").splitlines()
]


def reach(node: Any, path: str) -> Any:
    for step in path.split("."):
        node = node[int(step)] if step.isdigit() else node[step]
    return node


@pytest.mark.parametrize("case", CASES, ids=[case["src"] for case in CASES])
def test_source_gives_exactly_this_node(case: dict[str, Any]) -> None:
    stmts = tree(case["src"], *case["values"])["stmts"]
    assert reach(stmts, case["at"]) == case["node"]


@pytest.mark.parametrize("case", CASES, ids=[case["src"] for case in CASES])
def test_ast_json_reads_back_as_the_same_tree(case: dict[str, Any]) -> None:
    program = parse(case["src"], context(*case["values"]))
    assert decode_ast(msgspec.json.encode(program)) == program


def classes_in(program: object) -> set[type]:
    """Classes of all structs in a tree."""
    found: set[type] = set()
    pending = [program]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, msgspec.Struct):
            found.add(type(node))
            pending += [getattr(node, name) for name in node.__struct_fields__]
    return found


def test_the_cases_hold_every_node_class() -> None:
    seen: set[type] = set()
    for case in CASES:
        seen |= classes_in(parse(case["src"], context(*case["values"])))
    unions = (ast.Stmt, ast.Expr, ast.StrPart, ast.Pattern, ast.CmdArg)
    known = {member for union in unions for member in get_args(union)}
    assert known - seen == set()


def test_the_root_is_statements_and_nothing_else() -> None:
    assert tree("") == {"stmts": []}
    assert tree(" \t\r\n;;# only a comment\n\\\n") == {"stmts": []}


def test_an_overflowing_float_is_written_as_null() -> None:
    assert tree("1e999")["stmts"][0]["expr"]["value"] is None
