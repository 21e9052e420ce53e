"""Compiling functions: `fn`, lambdas, stored commands, and blocks that run beside their scope.

All of them are closures over the scopes they stand in: code with a frame of its own, and cells for
the variables it shares with them.

Failure: compiling raises nothing.
"""

from __future__ import annotations

from typing import Any

from worker.evaluate.binding import element_type
from worker.evaluate.callables import Closure, Command
from worker.evaluate.code import Code, Param, Rest, Thunk
from worker.evaluate.compiler import CONSTRUCT, Compiler, Position, compiles
from worker.evaluate.direct import direct_of
from worker.evaluate.operands import classify, may_be_direct
from worker.evaluate.static import FIRST_FREE_SLOT, Frame, StaticScope
from worker.language import ast
from worker.values.types import MISSING, Value


@compiles(ast.Lambda)
def compile_lambda(
    compiler: Compiler, node: ast.Lambda, scope: StaticScope, position: Position
) -> Thunk:
    return maker(lambda_code(compiler, node, scope))


def maker(code: Code) -> Thunk:
    """A thunk that makes a closure of the code over the running scope."""
    if not code.captures:
        return lambda frame: Closure(code, ())

    def make(frame: Frame) -> Value:
        return Closure(code, code.capture(frame))

    return make


def lambda_code(compiler: Compiler, node: ast.Lambda, scope: StaticScope) -> Code:
    code = Code(node, compiler.src, None)
    inner = scope.inner_function()
    _parameters(compiler, code, node.params, None, node.body, inner)
    if type(node.body) is ast.BlockExpr:
        code.body = compiler.construct(node.body.block, inner)
    else:
        code.body = compiler.value(node.body, inner)
        if may_be_direct(node.body):
            code.direct = direct_of(classify(compiler, node.body, inner), code.positional)
    return _finished(compiler, code, inner, node.body)


def function_code(compiler: Compiler, decl: ast.FnDecl, scope: StaticScope) -> Code:
    code = Code(decl, compiler.src, decl.name)
    inner = scope.inner_function()
    _parameters(compiler, code, decl.params, decl.rest, decl.body, inner)
    code.body = compiler.construct(decl.body, inner)
    return _finished(compiler, code, inner, decl)


def _parameters(
    compiler: Compiler,
    code: Code,
    params: list[ast.Param],
    rest: ast.RestParam | None,
    body: Any,
    scope: StaticScope,
) -> None:
    """Declare the parameters and compile their defaults, each of which sees the earlier ones."""
    # The function itself is a closure; what counts here are closures inside it.
    names = compiler.mentions.of_all([body, *params])
    variables = [scope.declare(param.name, names.captures(param.name)) for param in params]
    rest_variable = None
    if rest is not None:
        rest_variable = scope.declare(rest.name, names.captures(rest.name))
    compiled = []
    for param, variable in zip(params, variables, strict=True):
        default = None if param.default is None else compiler.value(param.default, scope)
        variable.definite = not names.dynamic
        variable.declared(False)
        compiled.append(
            Param(param.name, param.ty, default, element_type(param.ty), variable.index)
        )
    code.params = tuple(compiled)
    if rest is not None and rest_variable is not None:
        rest_variable.definite = not names.dynamic
        rest_variable.declared(False)
        code.rest = Rest(rest.name, rest.ty, rest_variable.index)
    code.boxed = tuple((v.index, v.name) for v in scope.variables.values() if v.boxed)
    code.parameters = [MISSING] * len(scope.variables)
    plain = rest is None and all(param.element is None for param in compiled)
    if plain and len(scope.variables) == len(params):
        code.positional = len(params)


def _finished(compiler: Compiler, code: Code, scope: StaticScope, body: Any) -> Code:
    compiler.capture_if_dynamic(scope, compiler.mentions.of(body))
    return compiler.finish(code, scope, FIRST_FREE_SLOT + len(code.parameters))


def block_code(compiler: Compiler, node: Any, body: Any, scope: StaticScope) -> Code:
    """Code without parameters for the body of `spawn` (a block) or `&` (a command call)."""
    code = Code(node, compiler.src, None)
    inner = scope.inner_function()
    if isinstance(body, ast.Block):
        code.body = compiler.block_in(inner, body, CONSTRUCT).thunk
    else:
        code.body = compiler.value(body, inner)
    return _finished(compiler, code, inner, body)


def command_code(compiler: Compiler, call: ast.CmdCall, scope: StaticScope) -> Code:
    """The stored call of an alias. Its head and its computed arguments mean what they mean where
    the alias stands."""
    from worker.commands.site import CommandSite

    code = Code(call, compiler.src, None)
    inner = scope.inner_function()
    code.site = CommandSite.build(call, lambda expr: compiler.value(expr, inner), compiler.src)
    inner.resolve(call.head)
    return _finished(compiler, code, inner, call)


def command_maker(code: Code) -> Thunk:
    def make(frame: Frame) -> Value:
        return Command(code, code.capture(frame))

    return make
