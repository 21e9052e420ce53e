"""`.feed`: a value as the standard input of a program (chapter 40 §7).

`value.feed(cmd)` and `cmd.feed(value)` mean the same. An argument that is a command makes the
receiver the value, whatever it is, so that `(cat notes).feed(sort)` reads from left to right.
Otherwise the receiver is the command if it is an interpreter block, a command in parentheses or an
unbound name. The head of the command is always external: builtins, functions, aliases and adapters
are not asked.

Failure: `arg_error` for another number of arguments, `type_error` when neither side is a command
and for a value that has no form as input, `feed_error` for one that must never be fed; spawn errors
as everywhere. A failed program raises in statement position only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from worker.commands.arguments import argv_words
from worker.commands.lang_block import run_block
from worker.commands.redirect import write_outputs
from worker.commands.run import Position, expanded_arguments, prefixed_environment, settle
from worker.commands.site import CommandSite, expand_home
from worker.commands.spawn import spawn
from worker.errors import Raised, raised
from worker.values.convert import stdin_bytes
from worker.values.types import MISSING, LazyBytes, Outcome, Span, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.commands import FedPart
    from worker.evaluate.evaluator import Evaluator

_NOT_A_COMMAND: Final = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "list": "a list",
    "record": "a record",
}
FEED_HINT: Final = (
    "name the program: `value.feed(sort -r)`, `value.feed(python3 { … })` "
    "or `(sort -r).feed(value)`"
)
# Names that mean a value while they are unbound.
_CLOCK_NAMES: Final = frozenset(("now", "today"))


def feed(
    ev: Evaluator,
    frame: Any,
    receiver: FedPart,
    arguments: Sequence[FedPart],
    named: int,
    span: Span | None,
    position: Position,
    *,
    optional: bool = False,
) -> Value:
    """Evaluate the value, then run the command with it; `named` counts named arguments."""
    if len(arguments) != 1 or named:
        raise raised(
            "arg_error", ".feed expects exactly one command argument", hint=FEED_HINT, span=span
        )
    argument = arguments[0]
    if _is_command(argument):
        value = receiver.thunk(frame)
        if optional and value is None:
            return None
        return _feed_into(ev, frame, argument, value, position)
    if _is_command(receiver) or _is_unbound_name(ev, receiver):
        return _feed_into(ev, frame, receiver, argument.thunk(frame), position)
    if optional and receiver.thunk(frame) is None:
        return None
    raise not_a_command(argument.thunk(frame), argument.span)


def _is_command(part: FedPart) -> bool:
    return part.site is not None or part.block is not None


def _is_unbound_name(ev: Evaluator, part: FedPart) -> bool:
    name = part.name
    return name is not None and name not in _CLOCK_NAMES and ev.lookup(name) is MISSING


def _feed_into(
    ev: Evaluator, frame: Any, command: FedPart, value: Value, position: Position
) -> Value:
    try:
        data = _input(value)
    except Raised as error:
        raise error.at(command.span) from None
    if command.block is not None:
        block = command.block
        return settle(run_block(ev, block.tool, block.src, data, command.span), position)
    site = command.site
    if site is None:
        assert command.name is not None
        site = CommandSite.named(command.name, command.span)
    outcome = _run_fed(ev, frame, site, data)
    settle(outcome, position)
    write_outputs(ev, frame, site, outcome.stdout)
    return outcome


def _run_fed(ev: Evaluator, frame: Any, site: CommandSite, data: bytes | LazyBytes) -> Outcome:
    head = expand_home(ev, site.head)
    argv = [os.fsencode(head), *argv_words(ev, expanded_arguments(ev, frame, site))]
    return spawn(ev, argv, stdin=data, env=prefixed_environment(ev, site), span=site.span)


def _input(value: Value) -> bytes | LazyBytes:
    """The bytes of a value; stored bytes are fed piece by piece instead of being loaded."""
    if type(value) is LazyBytes and value.load is not None:
        return value
    return stdin_bytes(value)


def not_a_command(value: Value, span: Span | None) -> Raised:
    """The error of `.feed(argument)` when neither side is a command."""
    what = _NOT_A_COMMAND.get(type_name(value), "that value")
    return raised(
        "type_error",
        f".feed's argument must be a command, not {what}",
        hint=FEED_HINT,
        span=span,
    )
