"""Literals, strings, collections, ranges, fields and indexing (chapter 20 §4, chapter 30 §5.3).

Failure: the errors of the values' own operations, with the span of the node.
"""

from __future__ import annotations

from typing import Any, Final

from worker.errors import Raised, raised
from worker.evaluate.code import Thunk, span_of
from worker.evaluate.compiler import Compiler, Position, compiles
from worker.evaluate.names import find_name
from worker.evaluate.operands import (
    ENVIRONMENT,
    NAMESPACE_NAMES,
    classify,
    constant_value,
    field_reader,
    is_constant,
    is_plain_field,
)
from worker.evaluate.static import Frame, Place, StaticScope
from worker.evaluate.templates import specialise
from worker.language import ast
from worker.values.access import direct_field, index_value
from worker.values.types import MISSING, Range, Span, Value


@compiles(ast.Null, ast.Bool, ast.Int, ast.Float, ast.Str, ast.Size, ast.Duration, ast.Time)
def compile_literal(compiler: Compiler, node: Any, scope: StaticScope, position: Position) -> Thunk:
    value = constant_value(node)
    return lambda frame: value


@compiles(ast.DateTime)
def compile_datetime(
    compiler: Compiler, node: ast.DateTime, scope: StaticScope, position: Position
) -> Thunk:
    from worker.values.convert import parse_datetime

    return _parsed(lambda: parse_datetime(node.iso), span_of(node))


@compiles(ast.Regex)
def compile_regex_literal(
    compiler: Compiler, node: ast.Regex, scope: StaticScope, position: Position
) -> Thunk:
    from worker.values.regexes import compile_regex

    return _parsed(lambda: compile_regex(node.src), span_of(node))


def _parsed(parse: Any, span: Span) -> Thunk:
    """A literal that is checked when it runs, and made once."""
    made: list[Value] = []

    def literal(frame: Frame) -> Value:
        if not made:
            try:
                made.append(parse())
            except Raised as error:
                error.at(span)
                raise
        return made[0]

    return literal


@compiles(ast.StrInterp)
def compile_interpolation(
    compiler: Compiler, node: ast.StrInterp, scope: StaticScope, position: Position
) -> Thunk:
    from worker.values.convert import interpolate

    span = span_of(node)
    holes = compiler.without_source()
    parts: list[tuple[str | None, Thunk | None]] = [
        (part.text, None)
        if isinstance(part, ast.LitPart)
        else (None, holes.value(part.expr, scope))
        for part in node.parts
    ]

    def interpolation(frame: Frame) -> Value:
        texts: list[str] = []
        for text, hole in parts:
            if hole is None:
                assert text is not None
                texts.append(text)
                continue
            value = hole(frame)
            if type(value) is str:
                texts.append(value)
                continue
            try:
                texts.append(interpolate(value))
            except Raised as error:
                error.at(span)
                raise
        return "".join(texts)

    return interpolation


@compiles(ast.ListExpr)
def compile_list(
    compiler: Compiler, node: ast.ListExpr, scope: StaticScope, position: Position
) -> Thunk:
    if all(is_constant(item) for item in node.items):
        values = [constant_value(item) for item in node.items]
        return lambda frame: values
    items = [compiler.value(item, scope) for item in node.items]
    return lambda frame: [item(frame) for item in items]


@compiles(ast.RecordExpr)
def compile_record(
    compiler: Compiler, node: ast.RecordExpr, scope: StaticScope, position: Position
) -> Thunk:
    fields = [(field.name, compiler.value(field.value, scope)) for field in node.fields]
    return lambda frame: {name: value(frame) for name, value in fields}


@compiles(ast.RangeExpr)
def compile_range(
    compiler: Compiler, node: ast.RangeExpr, scope: StaticScope, position: Position
) -> Thunk:
    start = compiler.value(node.start, scope)
    end = compiler.value(node.end, scope)
    inclusive, span = node.inclusive, span_of(node)

    def make(frame: Frame) -> Value:
        first = start(frame)
        last = end(frame)
        if type(first) is not int or type(last) is not int:
            raise raised("type_error", "range bounds must be int", span=span)
        return Range(first, last, inclusive)

    return make


@compiles(ast.Index)
def compile_index(
    compiler: Compiler, node: ast.Index, scope: StaticScope, position: Position
) -> Thunk:
    values: dict[str, Any] = {"slow": index_value, "span": span_of(node)}
    body = classify(compiler, node.recv, scope).lines("a", values)
    body += classify(compiler, node.index, scope).lines("b", values)
    return specialise(body + _INDEX, values)


_INDEX: Final = """\
if type(a) is list and type(b) is int:
    if -len(a) <= b < len(a):
        return a[b]
try:
    return slow(a, b)
except Raised as error:
    error.at(span)
    raise
"""


@compiles(ast.FieldExpr)
def compile_field(
    compiler: Compiler, node: ast.FieldExpr, scope: StaticScope, position: Position
) -> Thunk:
    values: dict[str, Any] = {}
    if is_plain_field(node):
        operand = classify(compiler, node, scope)
        return specialise(operand.lines("r", values) + "return r\n", values)
    recv = classify(compiler, node.recv, scope)
    body = recv.lines("a", values)
    if node.optional:
        body += "if a is None:\n    return None\n"
    values["read"] = field_reader(node.name, span_of(node))
    bound = specialise(body + "return read(frame[0], a)\n", values)
    if type(node.recv) is ast.Var and node.recv.name in NAMESPACE_NAMES:
        return _namespace_field(node, scope, bound)
    if type(node.recv) is ast.Var and node.recv.name == ENVIRONMENT:
        return _environment_field(node, scope, bound)
    return bound


def _environment_field(node: ast.FieldExpr, scope: StaticScope, bound: Thunk) -> Thunk:
    """`env.NAME` while `env` is unbound: a field of the builtin's outcome, but only this variable
    is read of the environment."""
    name, span = node.name, span_of(node)
    find = find_name(ENVIRONMENT, scope)

    def read(frame: Frame) -> Value:
        if find(frame) is not MISSING:
            return bound(frame)
        from worker.builtins.authority import check_env_read
        from worker.builtins.environment import environment_record
        from worker.builtins.registry import structured_outcome

        ev = frame[0]
        try:
            check_env_read(ev, name)
            return field_value(ev, structured_outcome(ENVIRONMENT, environment_record(ev)), name)
        except Raised as error:
            error.at(span)
            raise

    return read


def field_value(ev: Any, value: Value, name: str) -> Value:
    """A field with the fallback to a method without arguments (chapter 20 §4.1)."""
    try:
        return direct_field(value, name, ev.host.clock.now_ns)
    except Raised as error:
        if error.error.code != "field_missing" or type(value) is dict:
            raise
        from worker.values.methods import field_method

        result = field_method(ev, value, name)
        if result is MISSING:
            raise
        return result


def _namespace_field(node: ast.FieldExpr, scope: StaticScope, bound: Thunk) -> Thunk:
    """A member of a namespace, while its name is unbound."""
    assert type(node.recv) is ast.Var
    namespace, member, span = node.recv.name, node.name, span_of(node)
    find = find_name(namespace, scope)

    def read(frame: Frame) -> Value:
        if find(frame) is not MISSING:
            return bound(frame)
        from worker.builtins.namespaces import NAMESPACES

        ev = frame[0]
        outer = ev.here
        ev.here = Place(scope, frame)
        try:
            return NAMESPACES[namespace].field(ev, member)
        except Raised as error:
            error.at(span)
            raise
        finally:
            ev.here = outer

    return read
