"""Programs in, inline renderings and errors out: the methods as the language shows them."""

from __future__ import annotations

from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.evaluate.host import Host
from worker.values.render import inline
from worker.values.types import ErrorValue, Value


def evaluator(cwd: str = "/", host: Host | None = None) -> Evaluator:
    return bare_evaluator(cwd, host)


def value_of(source: str, cwd: str = "/", ev: Evaluator | None = None) -> Value:
    return (ev or evaluator(cwd)).evaluate_source(source)


def run(source: str, cwd: str = "/", ev: Evaluator | None = None) -> str:
    """The inline rendering of a program's value."""
    return inline(value_of(source, cwd, ev))


def failure(source: str, cwd: str = "/", ev: Evaluator | None = None) -> ErrorValue:
    """The error a program raises."""
    try:
        found = value_of(source, cwd, ev)
    except Raised as error:
        return error.error
    raise AssertionError(f"{source} gave {inline(found)} instead of an error")


def check_failure(source: str, code: str, phrase: str = "", hint: str = "", cwd: str = "/") -> None:
    error = failure(source, cwd)
    assert error.code == code, (source, error.code, error.msg)
    assert phrase in error.msg, (source, error.msg)
    assert hint in (error.hint or ""), (source, error.hint)
