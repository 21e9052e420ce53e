"""Reading an AST from a client: what is forgiven and what makes it invalid."""

from __future__ import annotations

import pytest

from worker.language import InvalidAst, decode_ast
from worker.language.ast import ExprStmt, If, Let, Return, Size

SPAN = '"span":{"start":0,"end":1}'
INT = f'{{"kind":"int","value":1,{SPAN}}}'


def statement(expr: str) -> str:
    return f'{{"stmts":[{{"kind":"expr","expr":{expr},{SPAN}}}]}}'


def test_kind_may_be_anywhere_and_unknown_members_are_ignored() -> None:
    expr = f'{{{SPAN},"x":[],"value":1,"kind":"int"}}'
    raw = f'{{"v":2,"stmts":[{{"expr":{expr},{SPAN},"kind":"expr"}}]}}'
    (stmt,) = decode_ast(raw).stmts
    assert isinstance(stmt, ExprStmt)


def test_members_that_may_be_null_may_be_missing() -> None:
    block = f'{{"stmts":[],{SPAN}}}'
    raw = (
        f'{{"stmts":[{{"kind":"return",{SPAN}}},'
        f'{{"kind":"let","pattern":{{"kind":"wildcard",{SPAN}}},"init":'
        f'{{"kind":"if","cond":{INT},"then":{block},{SPAN}}},'
        f'"mutable":false,"exported":false,{SPAN}}}]}}'
    )
    first, second = decode_ast(raw).stmts
    assert isinstance(first, Return) and first.value is None
    assert isinstance(second, Let) and second.ty is None
    assert isinstance(second.init, If) and second.init.else_ is None


def test_else_is_read_under_its_own_name() -> None:
    block = f'{{"stmts":[],{SPAN}}}'
    raw = statement(f'{{"kind":"if","cond":{INT},"then":{block},"else":{INT},{SPAN}}}')
    (stmt,) = decode_ast(raw).stmts
    assert isinstance(stmt, ExprStmt) and isinstance(stmt.expr, If)
    assert stmt.expr.else_ is not None


def test_sizes_use_all_of_unsigned_64_bit() -> None:
    (stmt,) = decode_ast(statement(f'{{"kind":"size","bytes":{2**64 - 1},{SPAN}}}')).stmts
    assert isinstance(stmt, ExprStmt) and isinstance(stmt.expr, Size)
    assert stmt.expr.bytes == 2**64 - 1


INVALID = {
    "not json": "{",
    "not an object": "[]",
    "no statements": "{}",
    "unknown tag": statement(f'{{"kind":"pipe",{SPAN}}}'),
    "no tag": statement(f"{{{SPAN}}}"),
    "a statement's tag for an expression": statement(f'{{"kind":"break",{SPAN}}}'),
    "missing field": statement(f'{{"kind":"int",{SPAN}}}'),
    "missing span": statement('{"kind":"null"}'),
    "negative span": statement('{"kind":"null","span":{"start":-1,"end":1}}'),
    "span beyond 32 bit": statement(f'{{"kind":"null","span":{{"start":0,"end":{2**32}}}}}'),
    "fraction for an int": statement(f'{{"kind":"int","value":1.5,{SPAN}}}'),
    "int beyond 64 bit": statement(f'{{"kind":"int","value":{2**63},{SPAN}}}'),
    "size beyond 64 bit": statement(f'{{"kind":"size","bytes":{2**64},{SPAN}}}'),
    "negative size": statement(f'{{"kind":"size","bytes":-1,{SPAN}}}'),
    "null for a float": statement(f'{{"kind":"float","value":null,{SPAN}}}'),
    "impossible hour": statement(f'{{"kind":"time","hour":24,"min":0,"sec":0,{SPAN}}}'),
    "unknown operator": statement(f'{{"kind":"unary","op":"inc","expr":{INT},{SPAN}}}'),
    "string for a list": statement(f'{{"kind":"list","items":"a",{SPAN}}}'),
    "an arm without patterns": statement(
        f'{{"kind":"match","scrutinee":{INT},"arms":[{{"patterns":[],"body":{INT},{SPAN}}}],{SPAN}}}'
    ),
}


@pytest.mark.parametrize("raw", INVALID.values(), ids=INVALID.keys())
def test_anything_else_is_invalid(raw: str) -> None:
    with pytest.raises(InvalidAst, match=r"^invalid ast: "):
        decode_ast(raw)


def test_bytes_that_are_not_utf8_are_invalid() -> None:
    with pytest.raises(InvalidAst, match=r"^invalid ast: "):
        decode_ast(b'{"stmts":[{"kind":"\xff"}]}')
