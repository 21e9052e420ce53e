"""Running a command call: the resolution order of chapter 40 §1.1.

`run_site` takes the first step that applies: callable binding, value binding, builtin head,
language script, adapter, external program. (A trailing `&` has become a task before.) `^` skips the
value binding and the adapter. Arguments are evaluated by the step that takes the command, since
each takes them in its own way: functions as values for typed parameters, builtins with flags apart,
programs as words.

Failure: raises what the step raises. An external program that ends badly raises `cmd_failed` in
statement position and is the value in value position; a program that cannot start raises in both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from worker.commands.arguments import (
    Argument,
    Arguments,
    Role,
    argv_words,
    expand_glob,
    long_flag,
    value_argument,
)
from worker.commands.binding import bind_words, signature, wants_help
from worker.commands.lookup import find_program
from worker.commands.outcome import raise_if_failed
from worker.commands.redirect import input_descriptor, write_outputs
from worker.commands.site import CommandSite, expand_home
from worker.commands.spawn import spawn
from worker.errors import raised
from worker.evaluate.callables import Closure, Command
from worker.evaluate.code import Code
from worker.evaluate.evaluator import NESTED_CALLS_MAX
from worker.evaluate.static import Place
from worker.values.convert import redirect_bytes
from worker.values.types import MISSING, Glob, Outcome, Path, Span, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# "top" and "stmt" are the same to a command: both are statement position.
Position = Literal["top", "stmt", "value"]

SCRIPT_SUFFIX: Final = ".shl"
# The two heads that depend on position or on a terminal and therefore are not plain builtins.
RUN_HEAD: Final = "run"
# Heads that look at their command as it is written: evaluating an argument would already act.
UNEVALUATED_HEADS: Final = frozenset(("plan",))


def run_site(ev: Evaluator, frame: Any, site: CommandSite, position: Position) -> Value:
    """Run one command call where it stands."""
    head = site.head
    bound = ev.lookup(head)
    if bound is not MISSING:
        if type(bound) is Closure:
            return _call_closure(ev, bound, head, site.evaluate_arguments(ev, frame), site.span)
        if type(bound) is Command:
            return alias_call(ev, bound, site.evaluate_arguments(ev, frame))
        if site.bare and not site.forced:
            return bound
    return _run_unbound(ev, frame, site, position)


def expanded_arguments(
    ev: Evaluator, frame: Any, site: CommandSite, extra: Sequence[Argument] = ()
) -> list[Argument]:
    """The arguments in order, each glob replaced by what it matches when its turn comes.

    `extra` are evaluated arguments that follow those of the site.
    """
    if site.constant_arguments is not None and not extra:
        return site.constant_arguments
    items: list[Argument] = []
    for argument in site.arguments:
        items.extend(_expanded(ev, argument.run(ev, frame)))
    for item in extra:
        items.extend(_expanded(ev, item))
    return items


def _expanded(ev: Evaluator, item: Argument) -> Sequence[Argument]:
    if item.role is not Role.VALUE or type(item.value) is not Glob:
        return (item,)
    return [item._replace(value=path) for path in expand_glob(ev, item.value, item.span)]


def _run_unbound(
    ev: Evaluator,
    frame: Any,
    site: CommandSite,
    position: Position,
    extra: Sequence[Argument] = (),
) -> Value:
    """Steps 3 to 7: what a head means without a binding."""
    from worker.builtins import BUILTINS

    head = site.head
    if head == RUN_HEAD:
        items = expanded_arguments(ev, frame, site, extra)
        return _run_target(ev, frame, site, position, items)
    builtin = BUILTINS.get(head)
    if builtin is not None:
        unevaluated = head in UNEVALUATED_HEADS
        items = [] if unevaluated else expanded_arguments(ev, frame, site, extra)
        arguments = Arguments(ev, head, items, site.span, call=site.call, trailing=site.trailing)
        return _redirected(ev, frame, site, builtin.run(ev, arguments, site.span))
    if head.endswith(SCRIPT_SUFFIX):
        from worker.commands.scripts import run_language_script

        words = Arguments(
            ev, head, expanded_arguments(ev, frame, site, extra), site.span
        ).as_typed()
        script = Path(expand_home(ev, head))
        return _redirected(ev, frame, site, run_language_script(ev, script, words, site.span))
    adapter = None
    if not site.forced and ev.host.adapters is not None:
        adapter = ev.host.adapters.lookup(head)
    if adapter is not None:
        # Globs come unexpanded: an adapter may declare a parameter that takes the pattern.
        items = [*site.evaluate_arguments(ev, frame), *extra]
        return _finish(ev, frame, site, position, adapter.run(ev, frame, site, items))
    items = expanded_arguments(ev, frame, site, extra)
    return _finish(ev, frame, site, position, start_external(ev, frame, site, items))


def _redirected(ev: Evaluator, frame: Any, site: CommandSite, value: Value) -> Value:
    """The value of a builtin or script, or null when it was written to a file instead."""
    if site.redirects and write_outputs(ev, frame, site, redirect_bytes(value)):
        return None
    return value


def start_external(ev: Evaluator, frame: Any, site: CommandSite, items: list[Argument]) -> Outcome:
    """Run the program a site names and give its outcome, without looking at it."""
    head = expand_home(ev, site.head)
    argv = [os.fsencode(head), *argv_words(ev, items)]
    stdin = input_descriptor(ev, frame, site) if site.redirects else None
    try:
        outcome = spawn(ev, argv, stdin=stdin, env=prefixed_environment(ev, site), span=site.span)
    finally:
        if stdin is not None:
            os.close(stdin)
    if head != site.head:
        # The command is shown as it was written.
        outcome.cmd = site.head + outcome.cmd[len(head) :]
    return outcome


def prefixed_environment(ev: Evaluator, site: CommandSite) -> dict[bytes, bytes]:
    """The session environment with the `NAME=value` prefixes of one command laid over it."""
    if not site.env_prefix:
        return ev.env
    env = dict(ev.env)
    for name, value in site.env_prefix:
        env.pop(name, None)
        env[name] = value
    return env


def _finish(
    ev: Evaluator, frame: Any, site: CommandSite, position: Position, outcome: Outcome
) -> Value:
    """Apply position and output redirects to the outcome of a program."""
    settle(outcome, position)
    if site.redirects:
        write_outputs(ev, frame, site, outcome.stdout)
    return outcome


def settle(value: Value, position: Position) -> Value:
    """In statement position a failed outcome raises; otherwise the value is passed on."""
    if position != "value":
        raise_if_failed(value)
    return value


def _run_target(
    ev: Evaluator, frame: Any, site: CommandSite, position: Position, items: list[Argument]
) -> Value:
    from worker.commands.scripts import run_target

    words = Arguments(ev, RUN_HEAD, items, site.span).as_typed()
    stdin = input_descriptor(ev, frame, site) if site.redirects else None
    try:
        value = run_target(ev, [value for value, _ in words], site.span, stdin=stdin)
    finally:
        if stdin is not None:
            os.close(stdin)
    settle(value, position)
    if type(value) is Outcome and value.pid:
        write_outputs(ev, frame, site, value.stdout)
        return value
    return _redirected(ev, frame, site, value)


# -- functions and aliases -----------------------------------------------------------------------


def _call_closure(
    ev: Evaluator, closure: Closure, head: str, items: list[Argument], span: Span | None
) -> Value:
    if wants_help(items):
        ev.sink(signature(head, closure))
        return None
    positional, named = bind_words(ev, closure, items)
    return ev.call(closure, positional, named)


def run_alias(
    ev: Evaluator, command: Command, pos: list[Value], named: dict[str, Value] | None
) -> Value:
    """Call an alias with values: positionals first, then named ones as long flags."""
    return alias_call(ev, command, call_items(pos, named or {}, "alias"))


def call_items(
    pos: Sequence[Value], named: dict[str, Value], what: str, span: Span | None = None
) -> list[Argument]:
    """Values of a call as command arguments; a named `true` is a bare flag.

    Raises type_error `WHAT arguments must be strings or paths`.
    """
    for value in pos:
        if type(value) is not str and type(value) is not Path:
            raise raised("type_error", f"{what} arguments must be strings or paths", span=span)
    items = [value_argument(value, span) for value in pos]
    for name, value in named.items():
        items.append(long_flag(name, MISSING if value is True else value, span))
    return items


def alias_call(ev: Evaluator, command: Command, extra: Sequence[Argument]) -> Value:
    """Run a stored command with more arguments, in value position.

    Words typed after an alias keep their order and spelling.
    """
    for item in extra:
        if item.role is Role.VALUE and type(item.value) not in (str, Path, Glob):
            raise raised("type_error", "alias arguments must be strings or paths", span=item.span)
    depth = ev.call_depth
    if depth >= NESTED_CALLS_MAX:
        raise raised(
            "recursion_limit", f"recursion limit exceeded ({NESTED_CALLS_MAX} nested calls)"
        )
    ev.cancel.check()
    outer, base = ev.here, ev.depth_base
    ev.call_depth = depth + 1
    # An alias counts as a nested call but is no closure body.
    ev.depth_base = base + 1
    scope = command.code.scope
    frame = command.frame(ev)
    if scope is not None:
        ev.here = Place(scope, frame)
    try:
        if command.site.background:
            return _run_in_background(ev, command, extra)
        return _run_stored(ev, frame, command.site, extra)
    finally:
        ev.here, ev.call_depth, ev.depth_base = outer, depth, base


def _run_stored(ev: Evaluator, frame: Any, site: CommandSite, extra: Sequence[Argument]) -> Value:
    bound = ev.lookup(site.head)
    if type(bound) is Closure:
        words = [*site.evaluate_arguments(ev, frame), *extra]
        return _call_closure(ev, bound, site.head, words, site.span)
    if type(bound) is Command:
        return alias_call(ev, bound, [*site.evaluate_arguments(ev, frame), *extra])
    if bound is not MISSING and site.bare and not site.forced and not extra:
        return bound
    return _run_unbound(ev, frame, site, "value", extra)


def _run_in_background(ev: Evaluator, command: Command, extra: Sequence[Argument]) -> Value:
    """A stored `cmd &`: the whole command runs as a task."""
    from worker.evaluate.tasks import spawn_block

    code = Code(command.call, command.src, None)
    code.scope = command.code.scope

    def body(frame: Any) -> Value:
        nested: Evaluator = frame[0]
        own = command.frame(nested)
        if code.scope is not None:
            nested.here = Place(code.scope, own)
        return _run_stored(nested, own, command.site, extra)

    code.body = body
    return spawn_block(ev, code, ())


# -- names in expressions ------------------------------------------------------------------------


def is_command_name(ev: Evaluator, name: str) -> bool:
    """A builtin head, an adapter head, or an executable on PATH; never with `/` or `.` in it."""
    from worker.builtins import BUILTINS

    if "/" in name or "." in name:
        return False
    if name in BUILTINS:
        return True
    if ev.host.adapters is not None and ev.host.adapters.lookup(name) is not None:
        return True
    return find_program(name, ev.env, ev.cwd) is not None


def call_command_name(
    ev: Evaluator, name: str, pos: list[Value], named: dict[str, Value], span: Span | None
) -> Value:
    """A command name used in an expression: `name` or `name(args)`, in value position."""
    from worker.builtins import BUILTINS

    items = call_items(pos, named, "alias", span)
    builtin = BUILTINS.get(name)
    if builtin is not None and name != RUN_HEAD:
        return builtin.run(ev, Arguments(ev, name, items, span), span)
    site = CommandSite.named(name, span)
    return _run_unbound(ev, None, site, "value", items)
