"""Functions: binding, conversion, command form, aliases, depth (chapter 30 §6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evaluate.session import Session
from worker.evaluate import functions

VALUES = {
    "named arguments do not shift positionals": ("fn f(a, b) { [a, b] }\nf(b: 1, 2)", "[2, 1]"),
    "defaults run at call time": ("var n = 0\nfn f(a = { n += 1 }) { a }\nf()\nf()", "2"),
    "defaults see earlier parameters": ("fn f(a, b = a + 1) { [a, b] }\nf(1)", "[1, 2]"),
    "a default closure captures a parameter": ("fn f(a, b = () => a) { b() }\nf(3)", "3"),
    "rest takes the extra positionals": ("fn f(a, ...r) { [a, r] }\nf(1, 2, 3)", "[1, [2, 3]]"),
    "rest may be empty": ("fn f(a, ...r) { r }\nf(1)", "[]"),
    "rest in a closure": ("fn f(...r) { () => r.len() }\nf(1, 2)()", "2"),
    "the last statement is the value": ("fn f() { 1; 2 }\nf()", "2"),
    "an empty body is null": ("fn f() { }\nf()", "null"),
    "list elements convert": ('fn f(xs: list<int>) { xs.sum() }\nf(["4", 5])', "9"),
    "list elements convert by name": ('fn f(xs: list<int>) { xs.sum() }\nf(xs: ["4", 5])', "9"),
    "scalars do not convert in a call": ('fn f(n: int) { n }\nf("4")', '"4"'),
    "return annotations are not enforced": ('fn f() -> int { "x" }\nf()', '"x"'),
    "let annotations are not enforced": ('let n: int = "x"\nn', '"x"'),
    "words convert in command form": ("fn f(n: int) { n + 1 }\nf 4", "5"),
    "values pass unchanged in command form": ("fn f(n: int) { n }\nf (1.5)", "1.5"),
    "flags bind by name": (
        "fn f(a: str, times: int = 1) { [a, times] }\nf x --times 3",
        '["x", 3]',
    ),
    "flags with = bind by name": ("fn f(n: int = 0) { n }\nf --n=-5", "-5"),
    "a bool flag is presence": ("fn f(v: bool = false) { v }\nf --v", "true"),
    "dashes in flags are underscores": ("fn f(dry_run = false) { dry_run }\nf --dry-run", "true"),
    "short flags are words": ("fn f(a) { a }\nf -x", '"-x"'),
    "a glob parameter gets the pattern": ("fn f(g: glob) { g.pattern }\nf *.q", '"*.q"'),
    "an alias appends words": ('alias say = echo a\nsay("b").out', '"a b"'),
    "an alias keeps computed arguments": (
        "fn mk(x) { alias a = echo (x); return a }\nlet c = mk(4)\nc().out",
        '"4"',
    ),
    "an alias of a local function": (
        'fn mk() { fn inner(x) { x + "!" }; alias a = inner; return a }\nlet c = mk()\nc("hey")',
        '"hey!"',
    ),
    "an alias as a callback": ('alias say = echo a\n["x"].map(say).map(.out)', '["a x"]'),
    "a true flag of an alias is bare": ("alias r = ls\nr(all: true).ok", "true"),
    "closures compare by identity": ("let f = x => x\n[f == f, f == (x => x)]", "[true, false]"),
    "functions show their parameters": (
        "fn f(a, ...b) { }\n[f, (x, y) => 1]",
        "[fn f(a, ...b), closure(x, y)]",
    ),
    "an immediate call": ("((a, b) => a * b)(3, 4)", "12"),
    "return ends the function": ("fn f() { return 4; 5 }\nf()", "4"),
    "return without a value": ("fn f() { return; 5 }\nf()", "null"),
    "return passes through loops": (
        "fn f() { for i in 1..9 { while true { return i } } }\nf()",
        "1",
    ),
}

ERRORS = {
    "too many": ("fn f(x) { x }\nf(1, 2, 3)", "arg_error", "expected 1 argument, got 3", (14, 24)),
    "too many of two": (
        "fn f(x, y) { x }\nf(1, 2, 3)",
        "arg_error",
        "expected 2 arguments, got 3",
        (17, 27),
    ),
    "unknown name": ("fn f(x) { x }\nf(1, y: 2)", "arg_error", "unknown argument `y`", (14, 24)),
    "too many is said before unknown": (
        "fn f(x) { x }\nf(1, 2, y: 2)",
        "arg_error",
        "expected 1 argument, got 2",
        None,
    ),
    "missing": ("fn f(x, y) { x }\nf(1)", "arg_error", "missing argument `y`", (17, 21)),
    "a positional under a named one is unused": (
        "fn f(a, b) { a }\nf(a: 1, 2)",
        "arg_error",
        "missing argument `b`",
        None,
    ),
    "named arguments never reach rest": (
        "fn f(...r) { r }\nf(r: 1)",
        "arg_error",
        "unknown argument `r`",
        None,
    ),
    "lambda arity is exact": ("[1].map(() => 0)", "arg_error", "expected 0 arguments, got 1", None),
    "a trailing block where an element is passed": (
        "[1].map { 0 }",
        "arg_error",
        "expected 0 arguments, got 1",
        None,
    ),
    "an element that does not parse": (
        'fn f(xs: list<int>) { xs }\nf(["q"])',
        "arg_error",
        'expected int, found "q"',
        None,
    ),
    "a word that does not convert": (
        "fn f(n: int) { n }\nf x",
        "arg_error",
        'expected int, found "x"',
        None,
    ),
    "a flag without its value": (
        "fn f(n: int) { n }\nf --n",
        "arg_error",
        "--n requires a value",
        None,
    ),
    "an alias takes words only": (
        "alias a = echo\na(1)",
        "type_error",
        "arguments must be strings or paths",
        None,
    ),
}


@pytest.mark.parametrize(("src", "wanted"), VALUES.values(), ids=VALUES)
def test_calls(session: Session, src: str, wanted: str) -> None:
    assert session.text(src) == wanted


@pytest.mark.parametrize(("src", "code", "phrase", "span"), ERRORS.values(), ids=ERRORS)
def test_calls_that_do_not_bind(
    session: Session, src: str, code: str, phrase: str, span: tuple[int, int] | None
) -> None:
    error = session.error(src)
    assert error.code == code
    assert phrase in error.msg
    if span is not None:
        assert error.span == span


def test_help_shows_the_signature_and_runs_nothing(session: Session) -> None:
    src = "fn f(a: list<int>, b, ...c: str) -> int { 1 / 0 }\nf x --help"
    assert session.run(src) is None
    assert [text.strip('"') for text in session.shown] == ["f(a: list, b, ...c: str) -> int"]


def test_glob_words_of_a_function_expand(session: Session) -> None:
    session.write("b.t", "")
    session.write("a.t", "")
    names = "fn f(...r) { r.map(.name) }\nf *.t"
    assert session.text(names) == '["a.t", "b.t"]'
    assert session.text("fn g(xs: list<path>, y) { [xs.len(), y] }\ng *.t z") == '[2, "z"]'
    assert session.text("fn h(...r) { r.len() }\nh *.none") == "0"
    assert session.notes == ["no matches for *.none"]


RECURSIONS = {
    "functions": "fn f(n) { f(n + 1) }\nf(1)",
    "command form": "fn f(n) { (f n) }\nf 1",
    "aliases": "alias a = b\nalias b = a\na",
    "map callbacks": "fn f(n) { [n].map(x => f(x)) }\nf(1)",
    "sort callbacks": "fn f(n) { [n, 1].sort_by(x => f(x)) }\nf(1)",
    "record fields": "fn f(n) { r.g(n) }\nlet r = {g: f}\nf(1)",
    "self application": "let y = f => f(f)\ny(y)",
    "interpolation": 'fn f(n) { "{f(n)}" }\nf(1)',
    "loops and blocks": "fn f(n) { for x in [1] { if true { { f(n) } } } }\nf(1)",
    "catch handlers": "fn f(n) { try { 1 / 0 } catch { f(n) } }\nf(1)",
    "match arms": "fn f(n) { match n { k => f(k) } }\nf(1)",
    "defaults": "fn f(n = f()) { n }\nf()",
    "streams": "fn f(n) { [n].stream().map(x => f(x)).collect() }\nf(1)",
    "with": 'fn f(n) { with cwd: "." { f(n) } }\nf(1)',
}


@pytest.mark.parametrize("src", RECURSIONS.values(), ids=RECURSIONS)
def test_call_past_the_limit_raises(session: Session, src: str) -> None:
    error = session.error(src)
    assert (error.code, error.msg) == (
        "recursion_limit",
        "recursion limit exceeded (10000 nested calls)",
    )
    assert error.span is not None
    # The evaluator is as good as before.
    assert session.evaluator.call_depth == 0
    assert session.text("1 + 1") == "2"


@pytest.mark.parametrize("operand", ["1 + ", ""])
def test_ten_thousand_nested_calls_work_and_one_more_does_not(
    session: Session, operand: str
) -> None:
    session.run(f"fn f(n) {{ if n == 1 {{ 1 }} else {{ {operand}f(n - 1) }} }}")
    assert session.text("f(10000)") == ("10000" if operand else "1")
    assert session.error("f(10001)").code == "recursion_limit"


def test_recursion_limit_can_be_caught(session: Session) -> None:
    assert session.text("fn f() { f() }\nf() catch e e.code") == '"recursion_limit"'


def test_scripts_that_run_each_other_end(session: Session) -> None:
    session.write("loop.shl", "run ./loop.shl\n")
    assert session.error("./loop.shl").code == "recursion_limit"


def test_every_lambda_is_compiled_once_however_deep_it_stands(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[object] = []
    once = functions.lambda_code

    def counting(compiler: Any, node: Any, scope: Any) -> Any:
        compiled.append(node)
        return once(compiler, node, scope)

    monkeypatch.setattr(functions, "lambda_code", counting)
    depth = 9
    session.run("let f = " + "x => " * depth + "1")
    assert len(compiled) == depth
    compiled.clear()
    assert (
        session.text("[1].map(x => " * depth + "x" + ")" * depth) == "[" * depth + "1" + "]" * depth
    )
    assert len(compiled) == depth


def test_two_hundred_nested_lambdas_are_evaluated(session: Session) -> None:
    depth = 200
    calls = "[1].map(x => " * depth + "x" + ")" * depth
    assert session.text(calls) == "[" * depth + "1" + "]" * depth
