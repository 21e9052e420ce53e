"""`env`, `echo`, `sleep`: the environment, text and waiting (chapter 31 §4.2 - §4.4).

Failure: `arg_error` for a wrong number of arguments or text that is no duration, `type_error` for
values of another type.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from worker.builtins.authority import check_env_read
from worker.builtins.effects import Operands, Rule
from worker.builtins.registry import Call, builtin
from worker.errors import arg_error, type_error
from worker.values.convert import echo_text
from worker.values.types import Duration, Record, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_NS_PER_S: Final = 1_000_000_000


def environment_record(ev: Evaluator) -> Record:
    """Name to text in environment order, without the entries that are not UTF-8."""
    record: Record = {}
    for name, value in ev.env.items():
        try:
            record[name.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return record


def environment_text(ev: Evaluator, name: str) -> str | None:
    """One variable; None when it is missing or not UTF-8."""
    value = ev.env.get(os.fsencode(name))
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


@builtin(
    "env",
    usage="env -> outcome of record\nenv NAME -> outcome of str|null",
    structured=True,
    effects=(Rule("env_read", Operands.NAME_OR_ALL),),
)
def env(call: Call) -> Value:
    """The session environment as a record, or one variable of it."""
    if len(call.args) > 1:
        raise arg_error("env accepts zero or one name")
    names = call.args.texts("name")
    if not names:
        check_env_read(call.ev, "*")
        return environment_record(call.ev)
    check_env_read(call.ev, names[0])
    return environment_text(call.ev, names[0])


@builtin("echo", usage="echo VALUE... -> outcome of str", structured=True)
def echo(call: Call) -> str:
    """The values as text, joined by one space."""
    return " ".join(echo_text(value) for value in call.args.values())


@builtin("sleep", usage="sleep DURATION -> outcome of null", structured=True)
def sleep(call: Call) -> None:
    """Wait; ends early when cancelled."""
    values = call.args.coerced("duration")
    if len(values) != 1:
        raise arg_error("sleep expects exactly one duration")
    value = values[0]
    if type(value) is Duration:
        ns = value.ns
    elif type(value) is int:
        ns = value * _NS_PER_S
    else:
        ns = -1
    if ns < 0:
        raise type_error("sleep expects a non-negative duration")
    call.ev.cancel.wait(ns / _NS_PER_S)
