"""Interpreter blocks and `.feed` (chapter 40 §7, §10).

A block is an external program whose text travels in its arguments: adapters, functions and builtins
are never asked. `.feed` gives a value as standard input to a program or a block; its head is always
external too.

Failure: `type_error` for an argument of `.feed` that is no command, and for a value that has no
form as input; `feed_error` for one that must never be fed; spawn errors as everywhere. A failed
program raises in statement position only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from worker.commands.arguments import argv_words
from worker.commands.redirect import write_outputs
from worker.commands.run import (
    Position,
    expanded_arguments,
    prefixed_environment,
    settle,
)
from worker.commands.site import CommandSite, as_span, expand_home
from worker.commands.spawn import spawn
from worker.errors import Raised, raised
from worker.language import ast
from worker.values.convert import stdin_bytes
from worker.values.types import (
    LazyBytes,
    Outcome,
    Span,
    Value,
    type_name,
)

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# How each interpreter takes its program in argv; the program is the word after these.
_IN_ARGV: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("sh", "bash", "zsh", "fish", "python", "python3"), ("-c",)),
    **dict.fromkeys(("node", "ruby", "perl", "lua", "Rscript", "osascript"), ("-e",)),
    "php": ("-r",),
    "deno": ("eval",),
    "jq": (),
}


def run_lang_block(
    ev: Evaluator, frame: Any, tool: str, src: str, span: Span | None, position: Position
) -> Value:
    """Run an interpreter block with an empty input."""
    return settle(_run_block(ev, tool, src, None, span), position)


def _run_block(
    ev: Evaluator, tool: str, src: str, data: bytes | LazyBytes | None, span: Span | None
) -> Outcome:
    options = _IN_ARGV.get(tool)
    program = src.encode("utf-8", "surrogatepass")
    if options is not None:
        argv = [tool.encode(), *(option.encode() for option in options), program]
        return spawn(ev, argv, stdin=data, span=span)
    if data is not None:
        raise raised(
            "type_error",
            f"{tool} reads its program from stdin, so the block cannot be fed data",
            span=span,
        )
    return spawn(ev, [tool.encode()], stdin=program, span=span)


def feed(
    ev: Evaluator,
    frame: Any,
    command: CommandSite | ast.LangBlock,
    value: Value,
    position: Position,
    span: Span | None = None,
) -> Value:
    """`value.feed(command)`: the value, already evaluated, as the whole input of a program.

    `command` is the compiled call or the block node; both spellings of `.feed` come here.
    """
    try:
        data = _input(value)
    except Raised as error:
        raise error.at(span) from None
    if isinstance(command, ast.LangBlock):
        outcome = _run_block(ev, command.tool, command.src, data, as_span(command.span))
        return settle(outcome, position)
    head = expand_home(ev, command.head)
    argv = [os.fsencode(head), *argv_words(ev, expanded_arguments(ev, frame, command))]
    outcome = spawn(ev, argv, stdin=data, env=prefixed_environment(ev, command), span=command.span)
    settle(outcome, position)
    write_outputs(ev, frame, command, outcome.stdout)
    return outcome


def _input(value: Value) -> bytes | LazyBytes:
    """Stored bytes are fed piece by piece instead of being loaded."""
    if type(value) is LazyBytes and value.load is not None:
        return value
    return stdin_bytes(value)


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


def feed_arity() -> Raised:
    return raised("arg_error", ".feed expects exactly one command argument", hint=FEED_HINT)


def not_a_command(value: Value) -> Raised:
    """The error of `.feed(argument)` when the argument is a value."""
    what = _NOT_A_COMMAND.get(type_name(value), "that value")
    return raised("type_error", f".feed's argument must be a command, not {what}", hint=FEED_HINT)
