"""The loop over top-level statements: values, rows, echo, exit (chapter 30 §1, §2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evaluate.session import Session
from worker.errors import Cancelled
from worker.evaluate.host import EchoMode
from worker.language import ParseError
from worker.values.types import MISSING

STATEMENTS = {
    "let": "let a = 1",
    "var": "var a = 1",
    "fn": "fn f() { 1 }",
    "alias": "alias a = echo",
    "for": "for i in [1] { i }",
    "while": "while false { 1 }",
    "an empty program": "",
    "only comments": "# nothing\n;;",
}


@pytest.mark.parametrize("src", STATEMENTS.values(), ids=STATEMENTS)
def test_statements_without_a_value_are_null(session: Session, src: str) -> None:
    assert session.run(src) is None


def test_assignment_is_its_value(session: Session) -> None:
    assert session.run("var a = 1\na = 5") == 5


@pytest.mark.parametrize(
    ("echo", "shown"),
    [("all", ["1", "a", "b", "2"]), ("quiet", ["a", "b"]), ("commands", ["a", "b"])],
)
def test_echo_mode_decides_what_the_sink_gets(
    tmp_path: Path, echo: EchoMode, shown: list[str]
) -> None:
    session = Session(tmp_path, echo=echo)
    assert session.run("1\necho a\nnull\necho a && echo b\n2\n3") == 3
    # The first `echo a` and both of the chain: its first operand, then its result.
    assert session.shown == [*shown[: shown.index("a")], "a", *shown[shown.index("a") :]]


def test_null_and_streamed_outcomes_are_not_shown(session: Session) -> None:
    outcome = session.run("echo a")
    outcome.streamed = True
    session.evaluator.sink(outcome)
    session.evaluator.sink(None)
    assert session.shown == []


def test_an_error_stops_and_earlier_effects_stay(session: Session) -> None:
    session.error("let a = 1\n1 / 0\nlet b = 2")
    assert session.text("a") == "1"
    assert session.error("b.x").code == "undefined_var"


def test_last_value_is_that_of_the_last_successful_statement(session: Session) -> None:
    session.run("4\n5")
    assert session.evaluator.last == 5
    session.error("6\n1 / 0")
    assert session.evaluator.last == 6


def test_exit_stops_after_its_statement(session: Session) -> None:
    assert session.run("let a = 1\n{ exit 7; let c = 3 }\nlet b = 2") is None
    assert session.evaluator.pending_exit == 7
    session.evaluator.pending_exit = None
    assert session.text("a") == "1"
    assert session.error("b.x").code == "undefined_var"


@pytest.mark.parametrize(
    ("word", "status"),
    [("", 0), ("3", 3), ("(2 - 3)", -1), ("(-99999999999)", -(2**31)), ("99999999999", 2**31 - 1)],
)
def test_exit_status_is_clamped(session: Session, word: str, status: int) -> None:
    session.run(f"exit {word}")
    assert session.evaluator.pending_exit == status


def test_exit_with_a_word_that_is_no_int_requests_nothing(session: Session) -> None:
    assert session.error("exit soon").code == "arg_error"
    assert session.evaluator.pending_exit is None


def test_syntax_errors_are_the_callers_and_run_nothing(session: Session) -> None:
    with pytest.raises(ParseError, match="no pipe operator"):
        session.run("let a = 1\nls | wc")
    assert session.error("a.x").code == "undefined_var"


def test_programs_are_parsed_with_the_bindings_of_the_session(session: Session) -> None:
    session.run("let count = 4\nfn f(x) { x + 1 }")
    assert session.text("count -1") == "3"
    assert session.text("f (5)") == "6"
    assert session.evaluator.bound_names() == ({"count"}, {"f"})


# -- rows ------------------------------------------------------------------------------------------


class Rows:
    """Statement hooks that write down what they are told."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[tuple[Any, ...]] = []

    def started(self, program: Any, ordinal: int, source: str) -> int:
        self.events.append(("start", ordinal, source, self.session.evaluator.entry))
        return len(self.events)

    def finished(self, entry: Any, value: Any, error: BaseException | None, dur_ns: int) -> None:
        assert dur_ns >= 0
        shown = "missing" if value is MISSING else value
        self.events.append(("end", entry, shown, getattr(error, "error", error)))


def test_every_statement_opens_and_finishes_a_row(session: Session) -> None:
    rows = Rows(session)
    session.evaluator.hooks = rows
    session.run('let e = "é"; 2\n  fn f() { 3 }  \n4')
    assert rows.events == [
        ("start", 0, 'let e = "é"', None),
        ("end", 1, None, None),
        ("start", 1, "2", None),
        ("end", 3, 2, None),
        ("start", 2, "fn f() { 3 }", None),
        ("end", 5, None, None),
        ("start", 3, "4", None),
        ("end", 7, 4, None),
    ]


def test_failing_statement_finishes_its_row_with_the_error(session: Session) -> None:
    rows = Rows(session)
    session.evaluator.hooks = rows
    session.error("1 / 0\n2")
    [start, (kind, entry, value, error)] = rows.events
    assert start[:3] == ("start", 0, "1 / 0")
    assert (kind, entry, value, error.code) == ("end", 1, "missing", "div_zero")
    assert session.evaluator.entry is None


def test_sourced_statements_have_rows_inside_the_row_of_source(session: Session) -> None:
    session.write("two.shl", "8\n9")
    rows = Rows(session)
    session.evaluator.hooks = rows
    session.run("source two.shl\n1")
    starts = [event[1:] for event in rows.events if event[0] == "start"]
    assert starts == [
        (0, "source two.shl", None),
        (0, "8", 1),
        (1, "9", 1),
        (1, "1", None),
    ]


def test_modules_scripts_and_tasks_write_no_rows(session: Session) -> None:
    session.write("m.shl", "export let a = 1")
    session.write("s.shl", "5")
    rows = Rows(session)
    session.evaluator.hooks = rows
    session.run("use ./m\n./s.shl\n(spawn { 6 }).await()")
    assert [event[2] for event in rows.events if event[0] == "start"] == [
        "use ./m",
        "./s.shl",
        "(spawn { 6 }).await()",
    ]


def test_cancelled_statement_finishes_its_row(session: Session) -> None:
    rows = Rows(session)
    session.evaluator.hooks = rows
    token = session.fresh_token()
    session.evaluator.host.sink = lambda value: token.cancel()
    with pytest.raises(Cancelled):
        session.run("{ echo a; 1 }")
    assert isinstance(rows.events[-1][3], Cancelled)
