# ruff: noqa: E501 - a program of one row stays on one line
"""Blocks, control flow, patterns and catching (chapter 30 §7, §8, §9)."""

from __future__ import annotations

import pytest

from tests.evaluate.session import Session

VALUES = {
    "an empty block is null": ("let x = { ; }\nx", "null"),
    "braces alone are a record": ("let x = {}\nx", "{}"),
    "a block is its last value": ("let x = { 1; 2 }\nx", "2"),
    "if without else": ("let x = if false { 1 }\nx", "null"),
    "else if": (
        'let f = n => if n > 5 { "big" } else if n > 2 { "mid" } else { "low" }\n[f(9), f(3), f(1)]',
        '["big", "mid", "low"]',
    ),
    "an outcome is a condition": ("if (sh { exit 1 }) { 1 } else { 2 }", "2"),
    "for over a range": ("var s = 0\nfor i in 1..=4 { s += i }\ns", "10"),
    "for over a table gives records": (
        'var s = []\nfor r in csv.parse("a\\n1\\n2") { s += [r.a] }\ns',
        '["1", "2"]',
    ),
    "for over a bounded stream": ("var s = 0\nfor i in [1, 2].stream() { s += i }\ns", "3"),
    "for yields null": ("let f = () => { for i in [1] { i } }\nf()", "null"),
    "for without a name": ("var n = 0\nfor _ in 1..4 { n += 1 }\nn", "3"),
    "while yields null": ("let f = () => { while false { 1 } }\nf()", "null"),
    "the iterated value is evaluated once": (
        "var xs = [1, 2]\nvar n = 0\nfor x in xs { xs = []; n += 1 }\nn",
        "2",
    ),
    "break and continue": (
        "var s = []\nfor i in 1..9 { if i % 2 == 0 { continue }; if i > 5 { break }; s += [i] }\ns",
        "[1, 3, 5]",
    ),
    "break in a while": ("var i = 0\nwhile true { i += 1; { if i == 3 { break } } }\ni", "3"),
    "continue in a while": (
        "var i = 0\nvar s = 0\nwhile i < 5 { i += 1; if i == 2 { continue }; s += i }\ns",
        "13",
    ),
    "break leaves the nearest loop": (
        "var n = 0\nfor i in 1..4 { for j in 1..4 { break }; n += 1 }\nn",
        "3",
    ),
    "return in a match arm ends the arm": ("fn f() { match 1 { _ => { return 5 } }; 6 }\nf()", "6"),
    "return in the match that is the tail": (
        "fn f() { match 1 { _ => { return 5; 7 } } }\nf()",
        "5",
    ),
    "return in a try body ends the try": (
        "fn f() { let x = try { return 5; 7 } catch { 0 }; x + 1 }\nf()",
        "6",
    ),
    "return in a handler ends the handler": (
        "fn f() { let x = try { 1 / 0 } catch { return 5; 7 }; x + 1 }\nf()",
        "6",
    ),
    "return in a with body ends the with": (
        'fn f() { let x = with cwd: "." { return 5; 7 }; x + 1 }\nf()',
        "6",
    ),
    "return in a spawn body is its result": ("(spawn { return 5; 7 }).await()", "5"),
    "return in a block used as a value": ("fn f() { let x = { return 5; 7 }; x + 1 }\nf()", "6"),
    "return in an if used as a value": (
        "fn f() { let x = if true { return 5; 7 }; x + 1 }\nf()",
        "6",
    ),
    "return passes through if and blocks": ("fn f() { if true { { return 5 } }; 6 }\nf()", "5"),
    "return in a trailing block": ("retry(1) { return 5; 6 }", "5"),
    "&& gives the deciding operand": (
        "[true && 5, false && 5, false || 6, true || 6]",
        "[5, false, 6, true]",
    ),
    "&& keeps the outcome": ("let o = (sh { exit 3 }) && 5\no.status", "3"),
    "!": ("[!true, !(sh { exit 1 })]", "[false, true]"),
    "?? replaces null only": ("[null ?? 1, false ?? 1]", "[1, false]"),
    "?? catches nothing": ("(1 / 0 ?? 2) catch 3", "3"),
    # patterns
    "wildcard": ("match 3 { _ => 1 }", "1"),
    "no arm is null": ("match 3 { 4 => 1 }", "null"),
    "a lone type name binds": ("match 3 { int => int + 1 }", "4"),
    "a literal matches by ==": ('match 1.0 { 1 => "one" }', '"one"'),
    "a path equals its text": ('match path("a") { "a" => 1 }', "1"),
    "half-open range": (
        "[1, 2, 3].map(n => match n { 1..3 => true; _ => false })",
        "[true, true, false]",
    ),
    "closed range": (
        "[2, 3, 4].map(n => match n { 1..=3 => true; _ => false })",
        "[true, true, false]",
    ),
    "range of floats": ("match 1.5 { 1..2 => true }", "true"),
    "type": (
        '[1, "a", null].map(v => match v { int i => i + 1; str s => s + "!"; null n => 0 })',
        '[2, "a!", 0]',
    ),
    "record": ("match {a: 1, b: {c: 2}, d: 3} { {a, b: {c}} => a + c }", "3"),
    "a record needs all fields": ("match {a: 1} { {a, b} => 1; _ => 2 }", "2"),
    "list of exact length": ("match [1, 2] { [a] => 1; [a, b] => a + b }", "3"),
    "list with rest": ("match [1, 2, 3] { [a, ...r] => r }", "[2, 3]"),
    "rest may be empty": ("match [1] { [a, ...r] => r }", "[]"),
    "a table is no list": ('match csv.parse("a\\n1") { [...r] => 1; table t => 2 }', "2"),
    "alternatives": (
        '[1, 2, 3].map(n => match n { 1 | 3 => "odd"; _ => "even" })',
        '["odd", "even", "odd"]',
    ),
    "alternatives that bind": ("match [2, 1] { [1, x] | [x, 1] => x }", "2"),
    "a failed alternative binds nothing": ("let x = 9\nmatch [5, 2] { [x, 1] | [_, 2] => x }", "9"),
    "guard": ("match 5 { n if n > 9 => 1; n if n > 3 => 2 }", "2"),
    "a failed guard goes to the next arm": ("match 1 { 1 | n if false => 1; _ => 2 }", "2"),
    "a closure in an arm": ("let f = match 4 { n => () => n }\nf()", "4"),
    # catching
    "try": ("try { 1 / 0 } catch e { e.code }", '"div_zero"'),
    "try without a name": ("try { 1 / 0 } catch { 4 }", "4"),
    "try discarding": ("try { 1 / 0 } catch _ { 4 }", "4"),
    "try without an error": ("try { 3 } catch { 4 }", "3"),
    "postfix catch binds loosest": ("1 + 1 / 0 catch 7", "7"),
    "postfix catch with a name": ("1 / 0 catch e e.msg", '"division by zero"'),
    "postfix catch with a block": ("1 / 0 catch e { e.code }", '"div_zero"'),
    "catch null": ("1 / 0 catch { null }", "null"),
    "a catch on the next line": ("1 / 0\ncatch 5", "5"),
    "an error in the handler goes on": ("(1 / 0 catch (nope())) catch e e.code", '"undefined_var"'),
    "the handler does not see the guarded scope": (
        "let a = 1\ntry { let a = 2; 1 / 0 } catch { a }",
        "1",
    ),
    "a caught error is a value": (
        "let e = 1 / 0 catch e { e }\ne",
        "error(div_zero: division by zero)",
    ),
    "a handler closure": ("let f = 1 / 0 catch e (() => e.code)\nf()", '"div_zero"'),
}

ERRORS = {
    "a condition of another type": (
        "if 1 { }",
        "type_error",
        "expected bool in condition, found int",
        (3, 4),
    ),
    "a while condition": ("while [1] { }", "type_error", "found list", (6, 9)),
    "a negated condition": ("!null", "type_error", "found null", (1, 5)),
    "an && operand": ("1 && true", "type_error", "found int", (0, 1)),
    "a guard": ("match 1 { n if n => 1 }", "type_error", "found int", (15, 16)),
    "a string is not iterable": (
        'for c in "ab" { }',
        "type_error",
        "value is not iterable",
        (9, 13),
    ),
    "a record is not iterable": (
        "for c in {a: 1} { }",
        "type_error",
        "value is not iterable",
        (9, 15),
    ),
    "an outcome is not iterable": (
        "for c in (ls) { }",
        "type_error",
        "value is not iterable",
        None,
    ),
    "an unbounded stream": ("for c in every(1s) { }", "stream_unbounded", "natural end", None),
    "return at top level": ("return 5", "custom", "return outside function", (0, 8)),
    "return in a top-level if": (
        "if true { return 5 }",
        "custom",
        "return outside function",
        (10, 18),
    ),
    "return in a top-level loop": (
        "for i in [1] { return 5 }",
        "custom",
        "return outside function",
        (15, 23),
    ),
    "break at top level": ("break", "custom", "loop control outside loop", (0, 5)),
    "continue in a function": (
        "fn f() { continue }\nf()",
        "custom",
        "loop control outside loop",
        (9, 17),
    ),
    "break does not leave a function": (
        "for i in [1] { (() => { break })() }",
        "custom",
        "loop control outside loop",
        None,
    ),
    "break does not leave a match arm": (
        "for i in [1] { match i { _ => { break } } }",
        "custom",
        "loop control outside loop",
        None,
    ),
    "break does not leave a try": (
        "for i in [1] { try { break } catch { 1 / 0 } }",
        "div_zero",
        "",
        None,
    ),
    "break does not leave a block used as a value": (
        "for i in [1] { let x = { break } }",
        "custom",
        "loop control outside loop",
        None,
    ),
    "a range pattern of another type": (
        'match "a" { 1..3 => 1 }',
        "type_error",
        "cannot compare str with int",
        (12, 16),
    ),
}


@pytest.mark.parametrize(("src", "wanted"), VALUES.values(), ids=VALUES)
def test_control_flow(session: Session, src: str, wanted: str) -> None:
    assert session.text(src) == wanted


@pytest.mark.parametrize(("src", "code", "phrase", "span"), ERRORS.values(), ids=ERRORS)
def test_control_flow_errors(
    session: Session, src: str, code: str, phrase: str, span: tuple[int, int] | None
) -> None:
    error = session.error(src)
    assert error.code == code
    assert phrase in error.msg
    if span is not None:
        assert error.span == span


def test_a_condition_of_another_type_is_explained(session: Session) -> None:
    error = session.error("if 0 { }")
    assert error.hint is not None and "no truthiness" in error.hint


def test_caught_error_has_its_fields_and_no_span(session: Session) -> None:
    session.run("let e = { ^sh -c 'echo no >&2; exit 3'; 1 } catch e { e }")
    assert (
        session.text("[e.code, e.status, e.stderr, e.hint]") == '["cmd_failed", 3, "no\\n", null]'
    )
    assert session.error("e.span").code == "field_missing"


def test_errors_are_equal_when_all_their_fields_are(session: Session) -> None:
    session.run(
        "fn f() { 1 / 0 catch e { e } }\nlet a = f()\nlet b = f()\nlet c = 2 / 0 catch e { e }"
    )
    assert session.text("[a == b, a == c]") == "[true, false]"
