# ruff: noqa: E501 - a program of one row stays on one line
"""Scopes, bindings and assignment (chapter 30 §3)."""

from __future__ import annotations

import pytest

from tests.evaluate.session import Session

PROGRAMS = {
    "an inner declaration shadows and leaves the outer one": "let a = 1\n{ let a = 2 }\na => 1",
    "assignment reaches the owning scope": "var a = 1\n{ { a = 5 } }\na => 5",
    "assignment yields the value": "var a = 1\nlet b = { a = 7 }\nb => 7",
    "compound assignment": "var a = 6\na += 2\na -= 1\na *= 3\na /= 2\na => 10",
    "redeclaring replaces the value": "let a = 1\nlet a = 2\na => 2",
    "redeclaring replaces the mutability": "let a = 1\nvar a = 2\na = 3\na => 3",
    "redeclaring in a block replaces the mutability": "{ let a = 1; var a = 2; a = 3; a } => 3",
    "a wildcard binds nothing": 'let _ = 4\nlet x = _ catch e e.code\nx => "undefined_var"',
    "a closure sees later changes": "var a = 1\nlet f = () => a\na = 2\nf() => 2",
    "a closure sees a later declaration in its scope": "let a = 1\nlet f = () => a\nlet a = 2\nf() => 2",
    "a closure in a block sees a declaration after it": "let a = 1\n{ let f = () => a; let a = 2; f() } => 2",
    "a read before the declaration means the outer name": "let a = 1\n{ let b = a; let a = 2; [b, a] } => [1, 2]",
    "a loop round starts unbound again": (
        "let a = 0\nvar seen = []\nfor i in 1..4 { seen += [a]; let a = i }\nseen => [0, 0, 0]"
    ),
    "a write of a closure is seen outside": "var t = 0\nlet add = n => { t += n }\n[4, 6].each(add)\nt => 10",
    "every round has its own variable": "var fs = []\nfor i in 1..4 { fs += [() => i] }\nfs.map(f => f()) => [1, 2, 3]",
    "every round has its own locals": (
        "var fs = []\nvar n = 0\nwhile n < 3 { n += 1; var k = n; fs += [() => { k += 10; k }] }\n"
        "fs.map(f => f()) => [11, 12, 13]"
    ),
    "every call has its own variables": (
        "fn mk() { var n = 0; () => { n += 1; n } }\nlet a = mk()\nlet b = mk()\na()\na()\n"
        "[a(), b()] => [3, 1]"
    ),
    "two closures share a captured variable": (
        "fn mk() { var n = 0; {up: () => { n += 1 }, get: () => n} }\nlet c = mk()\nc.up()\nc.up()\n"
        "c.get() => 2"
    ),
    "captured through two levels": "fn a(x) { () => { () => x } }\na(4)()() => 4",
    "assignment through two levels": "fn a() { var x = 1; let f = () => { let g = () => { x = 9 }; g() }; f(); x }\na() => 9",
    "a closure sees a later shadowing of a parameter": "fn f(x) { let g = () => x; let x = 2; [g(), x] }\nf(1) => [2, 2]",
    "functions of a block call each other": (
        "{ fn even(n) { if n == 0 { true } else { odd(n - 1) } }\n"
        "fn odd(n) { if n == 0 { false } else { even(n - 1) } }\neven(10) } => true"
    ),
    "a local function calls itself": "fn f() { fn g(n) { if n == 0 { 0 } else { 1 + g(n - 1) } }; g(5) }\nf() => 5",
    "a name declared later at top level": "fn f() { later() }\nfn later() { 3 }\nf() => 3",
    "an env write yields the value": "(if true { env.SHOAL_T = 5 }) => 5",
    "an env write converts like argv": 'env.SHOAL_T = 2kb\n(env SHOAL_T).out => "2000"',
    "an env write moves the name to the end": (
        'env.SHOAL_A = "1"\nenv.SHOAL_B = "2"\nenv.SHOAL_A = "3"\n'
        'os.env().keys().last() => "SHOAL_A"'
    ),
}

ERRORS = {
    "let is immutable": ("let a = 1\na = 2", "type_error", "cannot assign `a`", (10, 15)),
    "fn is immutable": ("fn f() { 1 }\nf = 2", "type_error", "cannot assign `f`", (13, 18)),
    "a parameter is immutable": (
        "fn f(a) { a = 2 }\nf(1)",
        "type_error",
        "cannot assign `a`",
        (10, 15),
    ),
    "a captured parameter is immutable": (
        "fn f(a) { let g = () => { a = 2 }; g() }\nf(1)",
        "type_error",
        "cannot assign `a`",
        (26, 31),
    ),
    "a loop variable is immutable": (
        "for i in [1] { i = 2 }",
        "type_error",
        "cannot assign `i`",
        (15, 20),
    ),
    "a pattern name is immutable": (
        "match 1 { n => { n = 2 } }",
        "type_error",
        "cannot assign `n`",
        (17, 22),
    ),
    "a caught error is immutable": (
        "try { 1 / 0 } catch e { e = 2 }",
        "type_error",
        "cannot assign `e`",
        (24, 29),
    ),
    "a block's let is immutable": (
        "{ let a = 1; a += 1 }",
        "type_error",
        "cannot assign `a`",
        (13, 19),
    ),
    "an unbound name": ("nope = 1", "type_error", "cannot assign `nope`", (0, 8)),
    "an unbound name with an operator": ("nope += 1", "undefined_var", "nope", (0, 9)),
    "a compound env write": (
        'env.A += "x"',
        "type_error",
        "compound assignment is not allowed on env.NAME",
        (0, 12),
    ),
    "an env write in a function": (
        'fn f() { env.A = "x" }\nf()',
        "custom",
        "use `with env:` inside a fn body",
        (9, 20),
    ),
    "an env write in a lambda": ('[1].map(x => { env.A = "x" })', "custom", "with env:", (15, 26)),
    "a secretless value in env": (
        "env.A = [1]",
        "type_error",
        "list cannot be passed as argv",
        (0, 11),
    ),
    "the right side runs first": ("var a = 1\na = 1 / 0", "div_zero", "division by zero", (14, 19)),
}


def split(program: str) -> tuple[str, str]:
    src, _, wanted = program.rpartition(" => ")
    return src, wanted


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_bindings(session: Session, program: str) -> None:
    src, wanted = split(program)
    assert session.text(src) == wanted


@pytest.mark.parametrize(("src", "code", "phrase", "span"), ERRORS.values(), ids=ERRORS)
def test_assignments_that_are_refused(
    session: Session, src: str, code: str, phrase: str, span: tuple[int, int]
) -> None:
    error = session.error(src)
    assert (error.code, error.span) == (code, span)
    assert phrase in error.msg


def test_assignment_to_another_target_from_a_foreign_tree(session: Session) -> None:
    from worker.language import ast

    at = ast.Span(0, 1)
    target = ast.Index(ast.Var("a", at), ast.Int(0, at), at)
    program = ast.Program([ast.Assign(target, "set", ast.Int(1, at), at)])
    with pytest.raises(Exception, match="type_error"):
        session.evaluator.run_program(program, "x")


def test_bindings_survive_from_one_program_to_the_next(session: Session) -> None:
    session.run("var n = 1\nfn bump() { n += 1 }")
    session.run("bump()")
    assert session.text("n") == "2"


def test_scope_is_put_back_after_an_error(session: Session) -> None:
    session.run("let a = 1")
    session.error("{ let a = 2; 1 / 0 }")
    assert session.text("a") == "1"


def test_lost_binding_raises_until_it_is_bound_again(session: Session) -> None:
    cell = session.evaluator.root.cell("gone")
    cell.lost = True
    for src in ("gone", "gone + 1", "gone()", "gone += 1", "{ let x = () => gone; x() }"):
        error = session.error(src)
        assert (error.code, error.msg) == (
            "lost_value",
            "value of `gone` was lost when the session was restored",
        )
    assert session.text("let gone = 3\ngone") == "3"


def test_words_that_were_only_mentioned_are_forgotten(session: Session) -> None:
    session.run("let kept = 1\nfn f() { later() }")
    for number in range(3000):
        session.evaluator.evaluate_source(f"let x = (unknown{number}() catch 1)")
    assert len(session.evaluator.root.cells) < 2500
    assert session.text("kept") == "1"
    assert session.text("fn later() { 5 }\nf()") == "5"
