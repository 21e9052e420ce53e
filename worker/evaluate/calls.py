"""Calls: functions by name, methods, and callables from Python (chapter 30 §5.2, §5.3, §6).

A call of a closure with exactly its fixed parameters builds the frame in place and runs the body;
that is the common case, and pure Python all the way, so that nesting costs the C stack nothing.
Everything else binds argument by argument.

Failure: `recursion_limit` for the call past the limit, Cancelled before a call, `arg_error` of
binding, `undefined_var` for an unknown function, `type_error` for what is not callable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from worker.errors import Cancelled, Raised, raised
from worker.evaluate.binding import bind
from worker.evaluate.callables import Closure, Command
from worker.evaluate.code import Thunk, span_of
from worker.evaluate.compiler import Compiler, Position, compiles
from worker.evaluate.evaluator import NESTED_CALLS_MAX
from worker.evaluate.names import find_name
from worker.evaluate.operands import NAMESPACE_NAMES, classify
from worker.evaluate.static import Frame, Place, StaticScope
from worker.evaluate.templates import indented, specialise
from worker.language import ast
from worker.values.types import MISSING, Outcome, Span, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# Call forms that come before user bindings (chapter 30 §5.2, steps 1 to 3).
RESERVED_CALLS: Final = frozenset(
    [
        "parallel",
        "retry",
        "on",
        "assert",
        "run",
        "save",
        "open",
        "path",
        "glob",
        "regex",
        "channel",
        "every",
        "watch",
        "tail",
    ]
)
CLOCK_CALLS: Final = frozenset(("now", "today"))


def recursion_limit(span: Span | None = None) -> Raised:
    return raised(
        "recursion_limit",
        f"recursion limit exceeded ({NESTED_CALLS_MAX} nested calls)",
        span=span,
    )


# -- from Python -----------------------------------------------------------------------------------


def call_closure(
    ev: Evaluator, closure: Closure, pos: list[Value], named: dict[str, Value] | None = None
) -> Value:
    """Call a closure with evaluated arguments."""
    depth = ev.call_depth
    if depth >= NESTED_CALLS_MAX:
        raise recursion_limit()
    if ev.cancel.cancelled:
        raise Cancelled
    ev.call_depth = depth + 1
    try:
        return closure.code.body(bind(ev, closure, pos, named))
    finally:
        ev.call_depth = depth


def call_command(
    ev: Evaluator, command: Command, pos: list[Value], named: dict[str, Value] | None = None
) -> Value:
    """Call an alias with evaluated arguments; worker.commands counts the call."""
    from worker.commands.run import run_alias

    return run_alias(ev, command, pos, named or {})


def callback(ev: Evaluator, fn: Value) -> Callable[..., Value]:
    """See `Evaluator.callback`."""
    if type(fn) is not Closure:
        return lambda *args: ev.call(fn, list(args))

    def ordinary(*args: Value) -> Value:
        return call_closure(ev, fn, list(args))

    code = fn.code
    if code.boxed or ev.call_depth >= NESTED_CALLS_MAX:
        return ordinary
    if code.direct is not None:
        return code.direct.bind(ev, fn, ordinary)
    if code.positional == 1:
        return _callback_of_one(ev, fn, ordinary)
    return ordinary


def _callback_of_one(
    ev: Evaluator, closure: Closure, ordinary: Callable[..., Value]
) -> Callable[..., Value]:
    captured, body, padding = closure.captured, closure.code.body, closure.code.padding
    token = ev.cancel

    def call(item: Value, over: Value = MISSING) -> Value:
        if over is not MISSING:
            return ordinary(item, over)
        if token.cancelled:
            raise Cancelled
        depth = ev.call_depth
        if depth >= NESTED_CALLS_MAX:
            raise recursion_limit()
        ev.call_depth = depth + 1
        try:
            return body([ev, captured, item, *padding])
        finally:
            ev.call_depth = depth

    return call


# -- calls by name ---------------------------------------------------------------------------------


class ArgumentThunks:
    """The compiled arguments of a call; evaluated positional first, then named in source order."""

    __slots__ = ("named", "pos")

    def __init__(self, compiler: Compiler, args: ast.Args, scope: StaticScope) -> None:
        self.pos = [compiler.value(arg, scope) for arg in args.pos]
        self.named = [(arg.name, compiler.value(arg.value, scope)) for arg in args.named]

    def run(self, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
        pos = [thunk(frame) for thunk in self.pos]
        named: dict[str, Value] = {}
        for name, thunk in self.named:
            # A repeated name is evaluated and the first one counts.
            named.setdefault(name, thunk(frame))
        return pos, named


_CALL: Final = """\
if type(f) is Closure:
    code = f.code
    if code.positional == {count}:
{arguments}
        ev = frame[0]
        if ev.cancel.cancelled:
            raise Cancelled
        depth = ev.call_depth
        if depth >= limit:
            raise recursion_limit(span)
        inner = [ev, f.captured{names}]
        if code.plain != {count}:
            inner += code.padding
            code.box(inner)
        ev.call_depth = depth + 1
        try:
            return code.body(inner)
        finally:
            ev.call_depth = depth
return slow(frame, f)
"""


@compiles(ast.FnCall)
def compile_call(
    compiler: Compiler, node: ast.FnCall, scope: StaticScope, position: Position
) -> Thunk:
    name, span = node.name, span_of(node)
    no_arguments = not node.args.pos and not node.args.named
    if name in RESERVED_CALLS or (name in CLOCK_CALLS and no_arguments):
        return _reserved_call(compiler, node, scope, position)
    arguments = ArgumentThunks(compiler, node.args, scope)
    find = find_name(name, scope)
    callee = classify(compiler, ast.Var(name, node.span), scope)

    def slow(frame: Frame, fn: Value) -> Value:
        ev = frame[0]
        pos, named = arguments.run(frame)
        outer = ev.here
        ev.here = Place(scope, frame)
        try:
            if fn is MISSING:
                return call_unbound(ev, name, pos, named, span)
            return ev.call(fn, pos, named)
        except Raised as error:
            error.at(span)
            raise
        finally:
            ev.here = outer

    values: dict[str, Any] = {
        "find": find,
        "slow": slow,
        "span": span,
        "limit": NESTED_CALLS_MAX,
        "recursion_limit": recursion_limit,
        "Closure": Closure,
    }
    if node.args.named:
        return specialise("return slow(frame, find(frame))\n", values)
    lines, names = [], ""
    for place, arg in enumerate(node.args.pos):
        lines.append(classify(compiler, arg, scope).lines(f"a{place}", values))
        names += f", a{place}"
    text = indented("".join(lines), 8).rstrip("\n")
    body = _CALL.format(count=len(node.args.pos), arguments=text, names=names)
    # An unbound root name is no error yet here: it may be a command.
    if callee.kind in ("slot", "boxed", "captured"):
        fetch = callee.lines("f", values)
    elif callee.kind == "root":
        values["f_at"] = callee.where
        # Found again below when it is not a closure: unbound it may be a lost value.
        fetch = "f = f_at.v\n"
        body = body.replace("slow(frame, f)", "slow(frame, find(frame))")
    else:
        fetch = "f = find(frame)\n"
    return specialise(fetch + body, values)


def call_unbound(
    ev: Evaluator, name: str, pos: list[Value], named: dict[str, Value], span: Span
) -> Value:
    """A call whose name is bound to nothing: a command name, or an error (chapter 30 §5.2)."""
    from worker.commands.run import call_command_name, is_command_name

    if is_command_name(ev, name):
        return call_command_name(ev, name, pos, named, span)
    raise raised("undefined_var", f"undefined function `{name}`", span=span)


def _reserved_call(
    compiler: Compiler, node: ast.FnCall, scope: StaticScope, position: Position
) -> Thunk:
    name, span = node.name, span_of(node)
    arguments = ArgumentThunks(compiler, node.args, scope)
    # Only a top-level `run(...)` is in statement position (chapter 30 §4).
    raises = name == "run" and position == "top"

    function = reserved_function(name)

    def call(frame: Frame) -> Value:
        ev = frame[0]
        pos, named = arguments.run(frame)
        outer = ev.here
        ev.here = Place(scope, frame)
        try:
            result = function(ev, pos, named, span)
            if raises:
                raise_failed(result)
            return result
        except Raised as error:
            error.at(span)
            raise
        finally:
            ev.here = outer

    return call


def reserved_function(name: str) -> Callable[..., Value]:
    """The function behind a reserved call form: the evaluator's own, or one of the builtins'."""
    from worker.builtins.functions import FUNCTIONS
    from worker.evaluate.concurrency import FUNCTIONS as OWN

    return OWN.get(name) or FUNCTIONS[name]


def raise_failed(value: Value) -> None:
    """Raise `cmd_failed` for the outcome of a failed command, as statement position does."""
    if type(value) is Outcome and not value.ok:
        from worker.commands.outcome import statement_failure

        raise statement_failure(value)


# -- methods ---------------------------------------------------------------------------------------


@compiles(ast.MethodCall)
def compile_method_call(
    compiler: Compiler, node: ast.MethodCall, scope: StaticScope, position: Position
) -> Thunk:
    if node.name == "feed":
        return _feed(compiler, node, scope, position)
    name, span, optional = node.name, span_of(node), node.optional
    receiver = compiler.value(node.recv, scope)
    arguments = ArgumentThunks(compiler, node.args, scope)
    pos_thunks, named_thunks = arguments.pos, arguments.named

    def call(frame: Frame) -> Value:
        from worker.values.methods import call_method

        value = receiver(frame)
        if optional and value is None:
            return None
        if named_thunks:
            pos, named = arguments.run(frame)
        else:
            pos, named = [thunk(frame) for thunk in pos_thunks], {}
        try:
            return call_method(frame[0], value, name, pos, named)
        except Raised as error:
            error.at(span)
            raise

    if type(node.recv) is ast.Var:
        if node.recv.name == "secret" and name == "get":
            return _namespace_call("secret", None, node, arguments, scope)
        if node.recv.name in NAMESPACE_NAMES:
            return _namespace_call(node.recv.name, call, node, arguments, scope)
    return call


def _namespace_call(
    namespace: str,
    bound: Thunk | None,
    node: ast.MethodCall,
    arguments: ArgumentThunks,
    scope: StaticScope,
) -> Thunk:
    """A member of a namespace; `bound` is the method call when the name may be bound."""
    member, span = node.name, span_of(node)
    find = find_name(namespace, scope)

    def call(frame: Frame) -> Value:
        if bound is not None and find(frame) is not MISSING:
            return bound(frame)
        from worker.builtins.namespaces import NAMESPACES

        ev = frame[0]
        pos, named = arguments.run(frame)
        outer = ev.here
        ev.here = Place(scope, frame)
        try:
            return NAMESPACES[namespace].call(ev, member, pos, named)
        except Raised as error:
            error.at(span)
            raise
        finally:
            ev.here = outer

    return call


def _feed(
    compiler: Compiler, node: ast.MethodCall, scope: StaticScope, position: Position
) -> Thunk:
    from worker.evaluate.commands import compile_feed

    return compile_feed(compiler, node, scope, position)
