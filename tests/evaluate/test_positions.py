# ruff: noqa: E501 - a program of one row stays on one line
"""Where a failed command raises and where it is a value (chapter 30 §4, §16.4)."""

from __future__ import annotations

import pytest

from tests.evaluate.session import Session

FAILS = "^sh -c 'exit 4'"

RAISES = {
    "a top-level command": FAILS,
    "a top-level interpreter block": "sh { exit 4 }",
    "a command in parentheses is still a statement": f"({FAILS})",
    "a top-level run": 'run("sh", "-c", "exit 4")',
    "a top-level feed": '"x".feed(sh -c "exit 4")',
    "a command that is not the last of a block": f"{{ {FAILS}; 1 }}",
    "an interpreter block that is not the last of a function": "fn f() { sh { exit 4 }; 1 }\nf()",
    "the last statement of a for body": f"for x in [1] {{ {FAILS} }}",
    "the last statement of a while body": f"while true {{ {FAILS} }}",
    "a command that is not the last of a try body": f"try {{ {FAILS}; 1 }} catch e {{ assert(false, e.code) }}",
}

VALUES = {
    "the tail of a function": f"fn f() {{ {FAILS} }}\nf().status",
    "the tail of a lambda": f"let f = () => {{ {FAILS} }}\nf().status",
    "the tail of an if": f"(if true {{ {FAILS} }}).status",
    "the tail of a try": f"(try {{ {FAILS} }} catch {{ 0 }}).status",
    "the tail of a catch handler": f"(try {{ 1 / 0 }} catch {{ {FAILS} }}).status",
    "the tail of a with": f'(with cwd: "." {{ {FAILS} }}).status',
    "the tail of a spawn": f"(spawn {{ {FAILS} }}).await().status",
    "the tail of a bare block": f"let o = {{ {FAILS} }}\no.status",
    "a background command": f"({FAILS} &).await().status",
    "an operand of &&": f"({FAILS} && true).status",
    "an initializer": f"let o = ({FAILS})\no.status",
    "an assigned value": f"var o = 1\no = ({FAILS})\no.status",
    "a return value": f"fn f() {{ return ({FAILS}) }}\nf().status",
    "a receiver": f"({FAILS}).status",
    "a list item": f"[({FAILS})].map(.status).sum()",
    "a record item": f"{{o: ({FAILS})}}.o.status",
    "a run below the top level": '{ run("sh", "-c", "exit 4"); 4 }',
    "a feed below the top level": '{ "x".feed(sh -c "exit 4"); 4 }',
    "an alias": "alias a = sh -c 'exit 4'\nlet o = a()\no.status",
    "an alias in command form never raises": "alias a = sh -c 'exit 4'\na\n4",
    "the left side of a postfix catch": f"let o = ({FAILS}) catch 0\no.status",
}


@pytest.mark.parametrize("src", RAISES.values(), ids=RAISES)
def test_failed_command_raises_in_statement_position(session: Session, src: str) -> None:
    error = session.error(src)
    assert "cmd_failed" in (error.code, error.msg)


@pytest.mark.parametrize("src", VALUES.values(), ids=VALUES)
def test_failed_command_is_a_value_in_value_position(session: Session, src: str) -> None:
    assert session.text(src) == "4"


def test_raised_failure_carries_status_stderr_and_the_command_as_span(session: Session) -> None:
    error = session.error("1\n^sh -c 'echo oops >&2; exit 7'")
    assert (error.code, error.msg) == (
        "cmd_failed",
        "`sh -c echo oops >&2; exit 7` exited with status 7",
    )
    assert (error.status, error.stderr, error.span) == (7, "oops\n", (2, 32))


def test_failure_read_from_a_field_keeps_stderr_as_hint(session: Session) -> None:
    error = session.error("let o = (^sh -c 'echo oops >&2; exit 7')\no.out")
    assert (error.code, error.hint, error.status, error.stderr) == (
        "cmd_failed",
        "oops",
        None,
        None,
    )


def test_exec_in_value_position_captures_only_the_last_expression(session: Session) -> None:
    assert session.run(f"1\n{FAILS}", "value").status == 4
    with pytest.raises(Exception, match="cmd_failed"):
        session.run(f"{FAILS}\n1", "value")


@pytest.mark.parametrize(
    ("src", "shown"),
    [
        ("{ echo a; echo b; 1 }", ["a", "b"]),
        ("{ 1; 2; 3 }", []),
        ("fn f() { echo a; 2 }\nf()", ["a"]),
        ("fn f() { 1; echo a }\nf()", []),
        ("for x in [1, 2] { x }", ["1", "2"]),
        ("for x in [1, 2] { echo (x) }", ["1", "2"]),
        ("for x in [1] { echo a; null }", ["a"]),
        ("var i = 0\nwhile i < 2 { i += 1 }", ["1", "2"]),
        ("if true { echo a; echo b }", ["a"]),
        ("(echo a) && (echo b)", ["a"]),
        ("echo a && echo b && echo c", ["a", "b"]),
        ("echo a || echo b", []),
        ("sh { exit 1 } || echo b", ["status 1"]),
        ("let o = { echo a && echo b }", []),
        ("true && echo b", []),
        ("echo a && (echo b && echo c)", ["a", "b"]),
        ("(echo a || echo b) && echo c", ["a"]),
        ("{ echo a && echo b; 1 }", ["a", "b"]),
    ],
)
def test_discarded_commands_are_shown_once(session: Session, src: str, shown: list[str]) -> None:
    session.run(src)
    assert session.shown == shown


def test_failed_chain_as_a_statement_is_its_value(session: Session) -> None:
    assert session.run(f"{FAILS} && echo never").ok is False
