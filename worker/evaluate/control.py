"""Control expressions: blocks, `if`, `match`, `try`, postfix `catch`, `with`, `spawn`.

As expressions they stop `break` and `continue` and take `return`; `if` and bare blocks that are
statements let all three pass, and are compiled by worker.evaluate.statements with the functions
here.

Failure: raises what the parts raise. Cancelled is never caught.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from worker.errors import Raised, raised
from worker.evaluate.code import Thunk, span_of
from worker.evaluate.compiler import (
    CONSTRUCT,
    Compiled,
    Compiler,
    Flow,
    Position,
    bind_slot,
    compiles,
)
from worker.evaluate.functions import block_code
from worker.evaluate.operations import condition
from worker.evaluate.patterns import Matcher, binders, compile_pattern
from worker.evaluate.static import Frame, StaticScope
from worker.language import ast
from worker.memory import out_of_memory
from worker.values.types import ErrorValue, Path, Value, type_name


@compiles(ast.BlockExpr)
def compile_block_expression(
    compiler: Compiler, node: ast.BlockExpr, scope: StaticScope, position: Position
) -> Thunk:
    return compiler.construct(node.block, scope)


# -- if --------------------------------------------------------------------------------------------


@compiles(ast.If)
def compile_if_expression(
    compiler: Compiler, node: ast.If, scope: StaticScope, position: Position
) -> Thunk:
    return compile_if(compiler, node, scope, CONSTRUCT).thunk


def compile_if(compiler: Compiler, node: ast.If, scope: StaticScope, flow: Flow) -> Compiled:
    test = compiler.value(node.cond, scope)
    span = span_of(node.cond)
    then = compiler.block(node.then, scope, flow)
    if node.else_ is None:
        otherwise = Compiled(lambda frame: None, False)
    elif type(node.else_) is ast.If:
        otherwise = compile_if(compiler, node.else_, scope, flow)
    else:
        assert type(node.else_) is ast.BlockExpr
        otherwise = compiler.block(node.else_.block, scope, flow)
    yes, no = then.thunk, otherwise.thunk

    def choose(frame: Frame) -> Value:
        truth = test(frame)
        if truth is True:
            return yes(frame)
        if truth is False:
            return no(frame)
        return yes(frame) if condition(frame, truth, span) else no(frame)

    return Compiled(choose, then.jumps or otherwise.jumps)


# -- match -----------------------------------------------------------------------------------------


@compiles(ast.Match)
def compile_match(
    compiler: Compiler, node: ast.Match, scope: StaticScope, position: Position
) -> Thunk:
    scrutinee = compiler.value(node.scrutinee, scope)
    arms = [_arm(compiler, arm, scope) for arm in node.arms]

    def match(frame: Frame) -> Value:
        value = scrutinee(frame)
        for attempt, body in arms:
            if attempt(frame, value):
                return body(frame)
        return None

    return match


def _arm(compiler: Compiler, arm: ast.MatchArm, scope: StaticScope) -> tuple[Matcher, Thunk]:
    inner = scope.inner()
    names = compiler.mentions.of(arm)
    bound = [binders(pattern) for pattern in arm.patterns]
    # With several alternatives a name may stay unbound in the one that matches.
    definite = len(bound) == 1
    every = list(dict.fromkeys(name for one in bound for name in one))
    for variable in compiler.declare(inner, every, names, definite=definite):
        variable.declared(False)
    patterns = [compile_pattern(pattern, inner) for pattern in arm.patterns]
    guard = None if arm.guard is None else compiler.value(arm.guard, inner)
    guard_span = None if arm.guard is None else span_of(arm.guard)
    if type(arm.body) is ast.BlockExpr:
        body = compiler.construct(arm.body.block, inner)
    else:
        body = compiler.value(arm.body, inner)
    fresh = not definite or names.dynamic
    prepare = compiler.entering(compiler.setup(inner), lambda frame: None)

    def attempt(frame: Frame, value: Value) -> bool:
        for pattern in patterns:
            if fresh:
                prepare(frame)
            if pattern(frame, value):
                break
        else:
            return False
        if guard is None:
            return True
        truth = guard(frame)
        if truth is True or truth is False:
            return truth is True
        assert guard_span is not None
        return condition(frame, truth, guard_span)

    return attempt, body


# -- catching --------------------------------------------------------------------------------------


@compiles(ast.Try)
def compile_try(compiler: Compiler, node: ast.Try, scope: StaticScope, position: Position) -> Thunk:
    guarded = compiler.construct(node.body, scope)
    name = node.pattern.name if type(node.pattern) is ast.BindPat else None
    handler = _handler(compiler, node.handler, name, scope)
    return catching(guarded, handler)


@compiles(ast.Catch)
def compile_catch(
    compiler: Compiler, node: ast.Catch, scope: StaticScope, position: Position
) -> Thunk:
    guarded = compiler.value(node.expr, scope)
    name = None if node.binder == "_" else node.binder
    body = node.handler.block if type(node.handler) is ast.BlockExpr else node.handler
    return catching(guarded, _handler(compiler, body, name, scope))


Handler = Callable[[Frame, ErrorValue], Value]


def _handler(compiler: Compiler, body: Any, name: str | None, scope: StaticScope) -> Handler:
    """The handler in a scope of its own outside the guarded part, with the error bound."""
    inner = scope.inner()
    bind = None
    if name is not None:
        [variable] = compiler.declare(inner, [name], compiler.mentions.of(body), definite=True)
        variable.declared(False)
        bind = bind_slot(variable)
    if isinstance(body, ast.Block):
        thunk = compiler.construct(body, inner)
    else:
        thunk = compiler.value(body, inner)

    def handle(frame: Frame, error: ErrorValue) -> Value:
        if bind is not None:
            bind(frame, error)
        return thunk(frame)

    return handle


def catching(guarded: Thunk, handle: Handler) -> Thunk:
    def catch(frame: Frame) -> Value:
        try:
            return guarded(frame)
        except Raised as failure:
            error = failure.error
        except RecursionError:
            error = _recursion_error()
        except MemoryError as failure:
            error = out_of_memory(failure).error
        return handle(frame, error)

    return catch


def _recursion_error() -> ErrorValue:
    """Python's own limit, which very deep expressions inside deep calls may meet first."""
    from worker.evaluate.calls import recursion_limit

    return recursion_limit().error


# -- with ------------------------------------------------------------------------------------------


@compiles(ast.With)
def compile_with(
    compiler: Compiler, node: ast.With, scope: StaticScope, position: Position
) -> Thunk:
    settings: list[tuple[Callable[[Any, Value], None], Thunk, Any]] = []
    for part, enter in (
        (node.cwd, _enter_directory),
        (node.env, _enter_environment),
        (node.reef, _enter_overrides),
    ):
        if part is not None:
            settings.append((enter, compiler.value(part, scope), span_of(part)))
    body = compiler.construct(node.body, scope)

    def run(frame: Frame) -> Value:
        ev = frame[0]
        cwd, env, overrides = ev.cwd, ev.env, ev.reef_overrides
        try:
            for enter, part, span in settings:
                value = part(frame)
                try:
                    enter(ev, value)
                except Raised as error:
                    error.at(span)
                    raise
            return body(frame)
        finally:
            ev.cwd, ev.env, ev.reef_overrides = cwd, env, overrides

    return run


def _enter_directory(ev: Any, value: Value) -> None:
    if type(value) is not str and type(value) is not Path:
        raise raised("type_error", "with cwd expects path")
    ev.cwd = ev.absolute(value)


def _enter_environment(ev: Any, value: Value) -> None:
    from worker.values.convert import argv_word

    if type(value) is not dict:
        raise raised("type_error", f"with env expects record, found {type_name(value)}")
    env = dict(ev.env)
    for name, content in value.items():
        word = argv_word(content)
        key = os.fsencode(name)
        env.pop(key, None)
        env[key] = word
    ev.env = env


def _enter_overrides(ev: Any, value: Value) -> None:
    if type(value) is not dict or any(type(text) is not str for text in value.values()):
        raise raised("type_error", "with reef expects a record of strings")
    ev.reef_overrides = {**ev.reef_overrides, **value}


# -- spawn -----------------------------------------------------------------------------------------


@compiles(ast.Spawn)
def compile_spawn(
    compiler: Compiler, node: ast.Spawn, scope: StaticScope, position: Position
) -> Thunk:
    code = block_code(compiler, node, node.body, scope)

    def start(frame: Frame) -> Value:
        from worker.evaluate.tasks import spawn_block

        return spawn_block(frame[0], code, code.capture(frame))

    return start
