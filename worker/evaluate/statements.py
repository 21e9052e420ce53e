"""Statements: declarations, assignments, jumps and loops (chapter 30 §2.2, §3, §7).

Failure: `type_error` for an assignment to something else than a `var` or `env.NAME`, and for a loop
over what cannot be iterated; `custom` for jumps that reach nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from worker.errors import Raised, raised
from worker.evaluate.blocks import block_parts, statement_lines
from worker.evaluate.code import BREAK, CONTINUE, Jump, Thunk, span_of
from worker.evaluate.compiler import (
    Compiled,
    Compiler,
    Flow,
    Position,
    Setup,
    compiles_statement,
    setup_lines,
)
from worker.evaluate.control import compile_if
from worker.evaluate.functions import command_code, command_maker, function_code, maker
from worker.evaluate.names import declarer
from worker.evaluate.operands import ENVIRONMENT, classify
from worker.evaluate.operations import compile_assignment, condition
from worker.evaluate.static import Frame, StaticScope
from worker.evaluate.templates import indented, specialise
from worker.language import ast
from worker.values.types import Glob, Range, Span, Table, Value


def _value(thunk: Thunk) -> Compiled:
    return Compiled(thunk, False)


# -- declarations ----------------------------------------------------------------------------------


@compiles_statement(ast.Let)
def compile_let(
    compiler: Compiler, node: ast.Let, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    init = compiler.value(node.init, scope)
    if type(node.pattern) is not ast.BindPat:

        def discard(frame: Frame) -> None:
            init(frame)

        return _value(discard)
    declare = declarer(scope, node.pattern.name, node.mutable)
    _bound_from_here(compiler, scope, node.pattern.name)

    def let(frame: Frame) -> None:
        declare(frame, init(frame))

    return _value(let)


@compiles_statement(ast.Fn)
def compile_fn(
    compiler: Compiler, node: ast.Fn, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    declare = declarer(scope, node.decl.name, mutable=False)
    make = maker(function_code(compiler, node.decl, scope))
    _bound_from_here(compiler, scope, node.decl.name)

    def fn(frame: Frame) -> None:
        declare(frame, make(frame))

    return _value(fn)


@compiles_statement(ast.Alias)
def compile_alias(
    compiler: Compiler, node: ast.Alias, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    declare = declarer(scope, node.name, mutable=False)
    make = command_maker(command_code(compiler, node.target, scope))
    _bound_from_here(compiler, scope, node.name)

    def alias(frame: Frame) -> None:
        declare(frame, make(frame))

    return _value(alias)


def _bound_from_here(compiler: Compiler, scope: StaticScope, name: str) -> None:
    """Code compiled from now on in this scope runs after the declaration."""
    variable = scope.variables.get(name)
    if variable is not None and scope.owner_of_dynamic_names() is None:
        variable.definite = True


@compiles_statement(ast.Use)
def compile_use(
    compiler: Compiler, node: ast.Use, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    from worker.evaluate.modules import use_module
    from worker.evaluate.names import declare_dynamic

    path, span = node.path, span_of(node)
    scope.resolve(path)

    def use(frame: Frame) -> None:
        try:
            name, exports = use_module(frame[0], path)
        except Raised as error:
            error.at(span)
            raise
        declare_dynamic(scope, frame, name, exports)

    return _value(use)


# -- assignment ------------------------------------------------------------------------------------


@compiles_statement(ast.Assign)
def compile_assign(
    compiler: Compiler, node: ast.Assign, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    target = node.target
    if type(target) is ast.Var:
        return compile_assignment(compiler, node, scope)
    if (
        type(target) is ast.FieldExpr
        and type(target.recv) is ast.Var
        and target.recv.name == ENVIRONMENT
    ):
        return _value(_environment_write(compiler, node, target.name, scope))
    value, span = compiler.value(node.value, scope), span_of(node)

    def refuse(frame: Frame) -> Value:
        value(frame)
        raise raised("type_error", "cannot assign to this: only a variable or env.NAME", span=span)

    return _value(refuse)


def _environment_write(
    compiler: Compiler, node: ast.Assign, name: str, scope: StaticScope
) -> Thunk:
    from worker.builtins.authority import check_env_write
    from worker.values.convert import argv_word

    value, span, compound = compiler.value(node.value, scope), span_of(node), node.op != "set"
    key = os.fsencode(name)

    def write(frame: Frame) -> Value:
        ev = frame[0]
        if compound:
            raise raised("type_error", "compound assignment is not allowed on env.NAME", span=span)
        result = value(frame)
        if ev.body_depth > 0:
            raise raised(
                "custom",
                "env.NAME is only assigned at session top level; use `with env:` inside a fn body",
                span=span,
            )
        try:
            check_env_write(ev, name)
            ev.set_env(key, argv_word(result))
        except Raised as error:
            error.at(span)
            raise
        return result

    return write


# -- jumps -----------------------------------------------------------------------------------------


def _stray(message: str, span: Span) -> Compiled:
    def raise_stray(frame: Frame) -> Value:
        raise raised("custom", message, span=span)

    return _value(raise_stray)


@compiles_statement(ast.Return)
def compile_return(
    compiler: Compiler, node: ast.Return, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    value = (lambda frame: None) if node.value is None else compiler.value(node.value, scope)
    if not flow.function:
        stray = _stray("return outside function", span_of(node)).thunk

        def raise_after_value(frame: Frame) -> Value:
            value(frame)
            return stray(frame)

        return _value(raise_after_value)
    if flow.tail:
        return _value(value)

    def leave(frame: Frame) -> Value:
        return Jump("return", value(frame))

    return Compiled(leave, True)


@compiles_statement(ast.Break)
def compile_break(
    compiler: Compiler, node: ast.Break, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    if not flow.loop:
        return _stray("loop control outside loop", span_of(node))
    return Compiled(lambda frame: BREAK, True)


@compiles_statement(ast.Continue)
def compile_continue(
    compiler: Compiler, node: ast.Continue, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    if not flow.loop:
        return _stray("loop control outside loop", span_of(node))
    return Compiled(lambda frame: CONTINUE, True)


# -- loops -----------------------------------------------------------------------------------------


@compiles_statement(ast.While)
def compile_while(
    compiler: Compiler, node: ast.While, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    test = classify(compiler, node.cond, scope)
    body = loop_body(compiler, node.body, scope.inner(), flow)
    values: dict[str, Any] = {"condition": condition, "span": span_of(node.cond)}
    text = (
        test.lines("k", values)
        + "if k is not True and (k is False or not condition(frame, k, span)):\n    return None\n"
        + body.lines(values)
    )
    loop = specialise(_LOOP_START + "while True:\n" + indented(text), values)
    return Compiled(loop, body.jumps and flow.function)


class LoopBody(NamedTuple):
    """The statements of a loop body, to be written into the template of the loop."""

    parts: list[Compiled]
    shown: list[bool]
    setup: Setup
    jumps: bool

    def lines(self, values: dict[str, Any]) -> str:
        """One round: the check of the token, the statements, what is shown, jumps."""
        text = "if token.cancelled:\n    raise Cancelled\n" + setup_lines(self.setup, values)
        return text + statement_lines(self.parts, self.shown, values, _JUMP_LINES)


_LOOP_START: Final = "token = frame[0].cancel\nshows = frame[0].shows\n"
_JUMP_LINES: Final = (
    "if type({x}) is Jump:\n"
    "    if {x}.kind == 'continue':\n"
    "        continue\n"
    "    return None if {x}.kind == 'break' else {x}\n"
)


def loop_body(compiler: Compiler, block: ast.Block, scope: StaticScope, flow: Flow) -> LoopBody:
    inner = Flow(loop=True, function=flow.function, tail=False)
    parts, shown, setup = block_parts(compiler, scope, block, inner, loop_body=True)
    return LoopBody(parts, shown, setup, any(part.jumps for part in parts))


@compiles_statement(ast.For)
def compile_for(
    compiler: Compiler, node: ast.For, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    iterable = classify(compiler, node.iter, scope)
    rounds = scope.inner()
    values: dict[str, Any] = {"items_of": items_of, "span": span_of(node.iter)}
    bind = ""
    if type(node.pattern) is ast.BindPat:
        name = node.pattern.name
        [variable] = compiler.declare(
            rounds, [name], compiler.mentions.of(node.body), definite=True
        )
        variable.declared(False)
        values |= {"slot": variable.index, "name": name}
        bind = "frame[slot] = Cell(name, item)\n" if variable.boxed else "frame[slot] = item\n"
    body = loop_body(compiler, node.body, rounds.inner(), flow)
    fetch = iterable.lines("xs", values)
    text = bind + body.lines(values)
    loop = specialise(
        _LOOP_START + fetch + "for item in items_of(frame, xs, span):\n" + indented(text), values
    )
    return Compiled(loop, body.jumps and flow.function)


def items_of(frame: Frame, value: Value, span: Span) -> Iterable[Value]:
    """What a `for` loop visits (chapter 20 §4.6)."""
    kind = type(value)
    if kind is list:
        items: Iterable[Value] = value
        return items
    if kind is Range:
        numbers: range = value.python_range()
        return numbers
    if kind is Table:
        rows: Iterable[Value] = value.rows
        return rows
    try:
        return _collected(frame[0], value)
    except Raised as error:
        error.at(span)
        raise


def _collected(ev: Any, value: Value) -> Iterable[Value]:
    if type(value) is Glob:
        from worker.values.methods.globs import expanded

        paths: Iterable[Value] = expanded(ev, value)
        return paths
    from worker.evaluate.streams import Stream

    if type(value) is Stream:
        from worker.values.methods import call_method

        items: Iterable[Value] = call_method(ev, value, "collect", [], {})
        return items
    raise raised("type_error", "value is not iterable")


# -- expressions as statements ---------------------------------------------------------------------


@compiles_statement(ast.ExprStmt)
def compile_expression_statement(
    compiler: Compiler, node: ast.ExprStmt, scope: StaticScope, position: Position, flow: Flow
) -> Compiled:
    expr = node.expr
    if type(expr) is ast.If:
        return compile_if(compiler, expr, scope, flow)
    if type(expr) is ast.BlockExpr:
        if expr.block.stmts and is_call_lowering(expr.block):
            return _value(compiler.value(expr, scope))
        return compiler.block(expr.block, scope, flow)
    return _value(compiler.expression(expr, scope, position))


def is_call_lowering(block: ast.Block) -> bool:
    """Whether the parser made this block from an immediate call `(callee)(args)`."""
    first = block.stmts[0]
    return (
        type(first) is ast.Let
        and type(first.pattern) is ast.BindPat
        and first.pattern.name == ast.IIFE_NAME
    )
