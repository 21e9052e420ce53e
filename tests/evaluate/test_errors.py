"""Spans, values and messages of errors (chapter 30 §16)."""

from __future__ import annotations

import pytest

from tests.evaluate.session import Session

# Programs with the text the span of their error must cover.
SPANS = {
    "the operator that failed": ("let x = 1 + (2 / 0) * 3", "2 / 0"),
    "the innermost of nested operators": ('(1 + 2) * ("a" - 1)', '"a" - 1'),
    "an operand in a list": ("[1, nope, 2]", "nope"),
    "an argument": ("fn f(x) { x }\nf(1 / 0)", "1 / 0"),
    "inside the callee": ("fn f(x) { x / 0 }\nf(1)", "x / 0"),
    "the call that does not bind": ("fn f(x) { x }\n[f()]", "f()"),
    "the method call": ('[3, "a"].sort()', '[3, "a"].sort()'),
    "inside a callback": ("[1].map(x => x / 0)", "x / 0"),
    "the shorthand": ("[1].map(.nope)", ".nope"),
    "a field": ("let r = {a: 1}\nr.b.c", "r.b"),
    "an index": ("[1][5] + 1", "[1][5]"),
    "a negation": ('1 + -"a"', '-"a"'),
    "a range": ('let r = 1.."a"', '1.."a"'),
    "a condition": ("if 1 + 1 { }", "1 + 1"),
    "a command": ("1\n./nope -x y", "./nope -x y"),
    "a command inside a block": ("if true { ^nope-such a b }", "^nope-such a b"),
    "a compound assignment": ('var s = "a"\ns -= 1', "s -= 1"),
    "an assert": ('1\nassert(1 > 2, "no")', 'assert(1 > 2, "no")'),
    "non-ASCII before it": ('let e = "ü"\n1 / 0', "1 / 0"),
    "a bad regex": ('1\nre"("', 're"("'),
    "a bad datetime": ('let d = t"nonsense"', 't"nonsense"'),
    "a constant expression that raises": (
        "fn f() { 9223372036854775807 + 1 }\nf()",
        "9223372036854775807 + 1",
    ),
}


@pytest.mark.parametrize(("src", "covered"), SPANS.values(), ids=SPANS)
def test_span_is_that_of_the_innermost_node(session: Session, src: str, covered: str) -> None:
    span = session.error(src).span
    assert span is not None
    text = src.encode()[span.start : span.end].decode()
    assert text == covered


def test_span_inside_a_string_hole_counts_from_the_hole(session: Session) -> None:
    assert session.error('let a = "xx {1 / 0}"').span == (0, 5)


def test_constant_operators_raise_when_they_run_and_not_before(session: Session) -> None:
    assert session.text("fn f() { 1 / 0 }\n4") == "4"
    assert session.text('if false { -"a" } else { 5 }') == "5"


def test_the_same_error_is_a_new_one_each_time(session: Session) -> None:
    src = 'let r = re"("'
    assert session.error(src).span == session.error(src).span


def test_secrets_are_not_interpolated(session: Session) -> None:
    from worker.values.types import Secret

    session.evaluator.root.declare("s", Secret("k", "hidden"))
    error = session.error('"{s}"')
    assert (error.code, error.msg) == ("type_error", "secrets cannot be interpolated")


@pytest.mark.parametrize("verb", ["cd /", "pushd /", "popd", "j x", "jump x"])
def test_navigation_in_a_closure_body_points_to_with(session: Session, verb: str) -> None:
    error = session.error(f"fn f() {{ {verb} }}\nf()")
    assert error.code == "custom"
    assert "top level" in error.msg and "with cwd:" in error.msg


@pytest.mark.parametrize(
    "src", ["if true { cd / }", "for i in [1] { cd / }", 'with cwd: "." { cd / }', "{ cd / }"]
)
def test_navigation_works_in_blocks_outside_closures(session: Session, src: str) -> None:
    session.run(src)


def test_an_alias_is_no_closure_body(session: Session) -> None:
    assert session.text("alias root = cd /\nroot\npwd") == "/"
