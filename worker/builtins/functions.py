"""The call forms `name(args)` that the evaluator itself provides (chapter 30 §5.2, chapter 31 §9).

Every entry of `FUNCTIONS` takes the evaluator, positional and named values and the span of the
call, and gives a value. `parallel`, `retry` and `on` are the evaluator's own and are not here. The
constructors make values; `assert`, `run`, `save` and `open` are the heads of the same name with
values instead of words.

Failure: `arg_error` for arity and unknown names, `type_error` for another type, `undefined_var` for
arguments to `now` and `today`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.builtins.assertions import check_assertion
from worker.builtins.effects import NOTHING, OPAQUE, TIME, Operands, Rules, reads, writes
from worker.builtins.programs import open_detached, run_values
from worker.builtins.readers import path_value
from worker.builtins.writing import save_value
from worker.errors import arg_error, raised, type_error
from worker.evaluate.streams.sources import every
from worker.evaluate.streams.tail import tail
from worker.evaluate.streams.watch import watch
from worker.values import temporal
from worker.values.regexes import compile_regex
from worker.values.types import DateTime, Glob, Path, Record, Regex, Span, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

FunctionBody = Callable[["Evaluator", list[Value], dict[str, Value], "Span | None"], Value]


@dataclass(frozen=True, slots=True)
class Function:
    """A call form and what is known about it without calling it."""

    name: str
    body: FunctionBody
    usage: str
    summary: str
    effects: Rules

    def __call__(
        self, ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None
    ) -> Value:
        return self.body(ev, pos, named, span)


# Filled while this module loads, unchanged afterwards.
FUNCTIONS: Final[dict[str, Function]] = {}


def function(
    name: str, *, usage: str, effects: Rules = NOTHING
) -> Callable[[FunctionBody], FunctionBody]:
    """Register a call form; the first line of its docstring is its summary."""

    def register(body: FunctionBody) -> FunctionBody:
        summary = (body.__doc__ or "").strip().partition("\n")[0]
        FUNCTIONS[name] = Function(name, body, usage, summary, effects)
        return body

    return register


def only_argument(name: str, pos: list[Value], named: dict[str, Value]) -> Value:
    """The one positional argument of a function that takes nothing else."""
    if named:
        raise arg_error(f"unknown argument `{next(iter(named))}`")
    if len(pos) != 1:
        raise arg_error(f"{name} expects exactly one argument")
    return pos[0]


def _no_arguments(name: str, pos: list[Value], named: dict[str, Value]) -> None:
    # The name alone is the clock's; with arguments it is a function nobody defined.
    if pos or named:
        raise raised("undefined_var", f"undefined function `{name}`")


@function("now", usage="now() -> datetime", effects=TIME)
def now(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> DateTime:
    """The current instant in the local zone."""
    _no_arguments("now", pos, named)
    return temporal.now(ev.host.clock.now_ns())


@function("today", usage="today() -> datetime", effects=TIME)
def today(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> DateTime:
    """The start of the current local day."""
    _no_arguments("today", pos, named)
    return temporal.today(ev.host.clock.now_ns())


@function("path", usage="path(p) -> path")
def path(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Path:
    """A path with exactly that text."""
    return path_value(only_argument("path", pos, named))


@function("glob", usage="glob(pat, hidden: false) -> glob")
def glob(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Glob:
    """A pattern, matched in the directory that is current now."""
    options = dict(named)
    hidden = options.pop("hidden", False)
    follow = options.pop("follow", False)
    pattern = only_argument("glob", pos, options)
    if type(pattern) is not str:
        raise type_error(f"glob expects a str, found {type_name(pattern)}")
    for name, value in (("hidden", hidden), ("follow", follow)):
        if type(value) is not bool:
            raise type_error(f"glob expects a bool for `{name}`, found {type_name(value)}")
    return Glob(pattern, ev.cwd, hidden)


@function("regex", usage="regex(text) -> regex")
def regex(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Regex:
    """A regular expression of that text."""
    text = only_argument("regex", pos, named)
    if type(text) is not str:
        raise type_error(f"regex expects a str, found {type_name(text)}")
    compiled: Regex = compile_regex(text)
    return compiled


@function("channel", usage="channel(name) -> channel")
def channel(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Record:
    """The handle of the session's channel of that name."""
    name = only_argument("channel", pos, named)
    if type(name) is not str:
        raise type_error(f"channel expects a str, found {type_name(name)}")
    return {"channel": name}


function("every", usage="every(d) -> stream", effects=TIME)(every)
function(
    "watch",
    usage="watch(target, recursive: true) -> stream",
    effects=reads(Operands.FIRST),
)(watch)
function("tail", usage="tail(file, from_start: false) -> stream", effects=reads(Operands.FIRST))(
    tail
)


@function("assert", usage="assert(cond, msg) -> null")
def assert_(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> None:
    """Raise `assert_failed` unless the condition holds."""
    if named:
        raise arg_error(f"assert: unknown argument `{next(iter(named))}`")
    check_assertion(ev, pos)


@function("save", usage="save(path, value) -> value", effects=writes(Operands.FIRST))
def save(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Value:
    """Write a value to a file and give it back."""
    if named:
        raise arg_error(f"save: unknown argument `{next(iter(named))}`")
    return save_value(ev, pos)


@function("run", usage="run(target, args...) -> outcome|value", effects=OPAQUE)
def run(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Value:
    """Run a program or a script by name or path."""
    return run_values(ev, pos, named, span)


@function("open", usage="open(path) -> null", effects=OPAQUE)
def open_(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> None:
    """Open a file with the desktop's program for it."""
    open_detached(ev, only_argument("open", pos, named), span)
