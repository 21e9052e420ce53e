"""Pattern matching (chapter 30 §8).

A pattern compiles to a function of frame and value that says whether the value matches and has then
put the names it binds into their slots.

Failure: a range pattern against a value it cannot be compared with raises `type_error`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from worker.errors import Raised
from worker.evaluate.code import span_of
from worker.evaluate.compiler import bind_slot
from worker.evaluate.operands import constant_value
from worker.evaluate.static import Frame, StaticScope
from worker.language import ast
from worker.values.operators import compare, eq
from worker.values.types import Value, type_name

Matcher = Callable[[Frame, Value], bool]


def binders(pattern: Any) -> list[str]:
    """The names a pattern binds, in order."""
    kind = type(pattern)
    if kind is ast.BindPat:
        return [pattern.name]
    if kind is ast.TypePat:
        return [] if pattern.name is None else [pattern.name]
    if kind is ast.RecordPat:
        names: list[str] = []
        for field in pattern.fields:
            names += [field.name] if field.pattern is None else binders(field.pattern)
        return names
    if kind is ast.ListPat:
        names = [name for item in pattern.items for name in binders(item)]
        return names if pattern.rest is None else [*names, pattern.rest]
    return []


def compile_pattern(pattern: Any, scope: StaticScope) -> Matcher:
    """The matcher of a pattern whose binders are declared in `scope`."""
    return _PATTERNS[type(pattern)](pattern, scope)


def _wildcard(pattern: ast.WildcardPat, scope: StaticScope) -> Matcher:
    return lambda frame, value: True


def _binder(name: str, scope: StaticScope) -> Callable[[Frame, Value], None]:
    return bind_slot(scope.variables[name])


def _bind(pattern: ast.BindPat, scope: StaticScope) -> Matcher:
    bind = _binder(pattern.name, scope)

    def match(frame: Frame, value: Value) -> bool:
        bind(frame, value)
        return True

    return match


def _literal(pattern: ast.LitPat, scope: StaticScope) -> Matcher:
    literal = constant_value(pattern.expr)
    span = span_of(pattern)

    def match(frame: Frame, value: Value) -> bool:
        try:
            return eq(value, literal)
        except Raised as error:
            error.at(span)
            raise

    return match


def _range(pattern: ast.RangePat, scope: StaticScope) -> Matcher:
    start, end = constant_value(pattern.start), constant_value(pattern.end)
    inclusive, span = pattern.inclusive, span_of(pattern)

    def match(frame: Frame, value: Value) -> bool:
        if type(value) is int:
            return bool(start <= value <= end if inclusive else start <= value < end)
        try:
            if compare(value, start) < 0:
                return False
            order = compare(value, end)
        except Raised as error:
            error.at(span)
            raise
        return order <= 0 if inclusive else order < 0

    return match


def _type(pattern: ast.TypePat, scope: StaticScope) -> Matcher:
    wanted = pattern.ty.name
    bind = None if pattern.name is None else _binder(pattern.name, scope)

    def match(frame: Frame, value: Value) -> bool:
        if type_name(value) != wanted:
            return False
        if bind is not None:
            bind(frame, value)
        return True

    return match


def _record(pattern: ast.RecordPat, scope: StaticScope) -> Matcher:
    fields: list[tuple[str, Matcher]] = []
    for field in pattern.fields:
        inner = field.pattern
        if inner is None:
            inner = ast.BindPat(field.name, pattern.span)
        fields.append((field.name, compile_pattern(inner, scope)))

    def match(frame: Frame, value: Value) -> bool:
        if type(value) is not dict or any(name not in value for name, _ in fields):
            return False
        return all(inner(frame, value[name]) for name, inner in fields)

    return match


def _list(pattern: ast.ListPat, scope: StaticScope) -> Matcher:
    items = [compile_pattern(item, scope) for item in pattern.items]
    count = len(items)
    rest = None if pattern.rest is None else _binder(pattern.rest, scope)

    def match(frame: Frame, value: Value) -> bool:
        if type(value) is not list:
            return False
        if len(value) != count and (rest is None or len(value) < count):
            return False
        if not all(inner(frame, item) for inner, item in zip(items, value, strict=False)):
            return False
        if rest is not None:
            rest(frame, value[count:])
        return True

    return match


_PATTERNS: Final[dict[type, Callable[[Any, StaticScope], Matcher]]] = {
    ast.WildcardPat: _wildcard,
    ast.BindPat: _bind,
    ast.LitPat: _literal,
    ast.RangePat: _range,
    ast.TypePat: _type,
    ast.RecordPat: _record,
    ast.ListPat: _list,
}
