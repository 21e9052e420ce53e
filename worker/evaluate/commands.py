"""Commands, interpreter blocks and `.feed` inside programs: the seam to worker.commands.

Compiled here is only where a command stands: its position, the scope its head is looked up in, and
the check after it, since a command may have run for long. What a head means and how programs start
is worker.commands.

Failure: raises what the command raises, with the span of the call; Cancelled when the token was
cancelled while it ran and the command itself succeeded in being interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worker.errors import Raised
from worker.evaluate.code import Thunk, span_of
from worker.evaluate.compiler import Compiler, Position, compiles
from worker.evaluate.functions import block_code
from worker.evaluate.static import Frame, Place, StaticScope
from worker.language import ast
from worker.values.types import Span, Value


@compiles(ast.Cmd)
def compile_command(
    compiler: Compiler, node: ast.Cmd, scope: StaticScope, position: Position
) -> Thunk:
    call = node.call
    if call.background:
        return _background(compiler, node, scope)
    from worker.commands.run import run_site
    from worker.commands.site import CommandSite

    site = CommandSite.build(call, lambda expr: compiler.value(expr, scope), compiler.src)
    # The head may be bound to a function, alias or value: make sure it can be looked up.
    scope.resolve(call.head)
    compiler.capture_if_dynamic(scope, compiler.mentions.of(call))
    return at_place(lambda ev, frame: run_site(ev, frame, site, position), scope, span_of(node))


def at_place(run: Callable[[Any, Frame], Value], scope: StaticScope, span: Span) -> Thunk:
    """Run something that looks names up while it runs, as seen from this scope."""

    def thunk(frame: Frame) -> Value:
        ev = frame[0]
        outer = ev.here
        ev.here = Place(scope, frame)
        try:
            return run(ev, frame)
        except Raised as error:
            error.at(span)
            raise
        finally:
            ev.here = outer

    return thunk


def _background(compiler: Compiler, node: ast.Cmd, scope: StaticScope) -> Thunk:
    """`cmd &`: the same as `spawn { cmd }`."""
    call = node.call
    plain = ast.Cmd(
        ast.CmdCall(
            call.head,
            call.forced,
            call.args,
            call.redirects,
            call.env_prefix,
            background=False,
            span=call.span,
            trailing=call.trailing,
        ),
        node.span,
    )
    code = block_code(compiler, node, plain, scope)

    def start(frame: Frame) -> Value:
        from worker.evaluate.tasks import spawn_block

        return spawn_block(frame[0], code, code.capture(frame))

    return start


@compiles(ast.LangBlock)
def compile_lang_block(
    compiler: Compiler, node: ast.LangBlock, scope: StaticScope, position: Position
) -> Thunk:
    from worker.commands.lang_block import run_lang_block

    tool, text, span = node.tool, node.src, span_of(node)
    return at_place(
        lambda ev, frame: run_lang_block(ev, frame, tool, text, span, position), scope, span
    )


def compile_feed(
    compiler: Compiler, node: ast.MethodCall, scope: StaticScope, position: Position
) -> Thunk:
    """`value.feed(cmd)` and `cmd.feed(value)` (chapter 40 §7).

    The receiver is the command when it is an interpreter block, a command in parentheses, or a bare
    name that is not bound; otherwise it is the value and the argument is the command. Only a
    top-level statement is in statement position.
    """
    from worker.commands.feeding import feed

    span = span_of(node)
    where: Position = "top" if position == "top" else "value"
    receiver = fed_part(compiler, node.recv, scope)
    arguments = [fed_part(compiler, arg, scope) for arg in node.args.pos]
    named = [compiler.value(arg.value, scope) for arg in node.args.named]
    optional = node.optional

    def run(ev: Any, frame: Frame) -> Value:
        return feed(ev, frame, receiver, arguments, len(named), span, where, optional=optional)

    return at_place(run, scope, span)


class FedPart:
    """One side of `.feed`: the thunk of its value, and the command it is when it is one.

    `site` is the compiled call of a command in parentheses, `block` an interpreter block, `name` a
    bare name: a command only while it is unbound. `node` is the syntax, for diagnostics.
    """

    __slots__ = ("block", "name", "node", "site", "span", "thunk")

    def __init__(self, node: Any, thunk: Thunk, site: Any) -> None:
        self.node = node
        self.thunk = thunk
        self.site = site
        self.block = node if type(node) is ast.LangBlock else None
        self.name: str | None = node.name if type(node) is ast.Var else None
        self.span = span_of(node)


def fed_part(compiler: Compiler, node: Any, scope: StaticScope) -> FedPart:
    from worker.commands.site import CommandSite

    site = None
    if type(node) is ast.Cmd:
        site = CommandSite.build(node.call, lambda expr: compiler.value(expr, scope), compiler.src)
    return FedPart(node, compiler.value(node, scope), site)
