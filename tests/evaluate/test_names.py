"""Name resolution (chapter 30 §5)."""

from __future__ import annotations

import pytest

from tests.evaluate.session import Session

VALUES = {
    "a bare command name in an expression runs": ("let x = pwd\nx == pwd", "true"),
    "a bare name as a receiver runs": ("(mkdir a.dir).ok\nls.len()", "1"),
    "a binding hides a command": ("let pwd = 4\npwd + 1", "5"),
    "today is the start of the day": ("today.hour", "0"),
    "now hides while bound": ("let now = 4\nlet x = now\nx", "4"),
    "now() is the clock even when bound": ("let now = 4\nnow().year > 2000", "true"),
    "reserved calls come before bindings": ('fn path(x) { 1 }\npath("a")', "a"),
    "a user function of a reserved name in command form": (
        'fn save(x) { "mine {x}" }\nsave a',
        '"mine a"',
    ),
    "a command name takes paths and strings": ('mkdir("d")\nls.len()', "1"),
    "named arguments become long flags": ('echo("a", n: true).out', '"a"'),
    "the call of a computed callee": ("[x => x + 1][0](4)", "5"),
    "positional arguments are evaluated before named ones": (
        "var seen = []\nfn f(a, b) { 1 }\nfn note(x) { seen += [x]; x }\n"
        "f(b: note(1), note(2))\nseen",
        "[2, 1]",
    ),
    "the first of a repeated named argument counts": ("fn f(a) { a }\nf(a: 1, a: 2)", "1"),
    "?. of null is null": ("null?.name", "null"),
    "?. does not evaluate arguments": ("null?.take(1 / 0)", "null"),
    "?. guards only its own receiver": ("{a: null}.a?.b", "null"),
    "a namespace while unbound": ('json.parse("[1]")', "[1]"),
    "a binding hides a namespace": ('let json = {parse: x => 7}\njson.parse("[1]")', "7"),
    "a field of a shadowed namespace": ("let math = {pi: 3}\nmath.pi", "3"),
    "a namespace inside a function": ("fn f() { math.pi > 3 }\nf()", "true"),
    "a field falls back to a method": ('"a".upper', '"A"'),
    "a callable record field is called": ("{f: x => x * 2}.f(4)", "8"),
}

ERRORS = {
    "an unknown name": (
        "let x = 1\nx + nope",
        "undefined_var",
        "undefined variable `nope`",
        (14, 18),
    ),
    "an unknown bare statement is a command": (
        "nope",
        "not_found",
        "command not found: nope",
        (0, 4),
    ),
    "an unknown function": ("nope(1)", "undefined_var", "undefined function `nope`", (0, 7)),
    "a method of an unknown name": (
        "nope.len()",
        "undefined_var",
        "undefined variable `nope`",
        (0, 4),
    ),
    "a name with arguments that is not callable": (
        "let x = 1\nx(2)",
        "type_error",
        "int is not callable",
        (10, 14),
    ),
    "command names take no other values": (
        "sleep(1s)",
        "type_error",
        "arguments must be strings or paths",
        (0, 9),
    ),
    "exit takes no int": ("exit(2)", "type_error", "arguments must be strings or paths", (0, 7)),
    "now with arguments": ("now(1)", "undefined_var", "undefined function `now`", (0, 6)),
    "a bare namespace": ("let x = json", "undefined_var", "undefined variable `json`", (8, 12)),
    "a namespace function read as a field": (
        "json.parse",
        "field_missing",
        "`json.parse` is a function",
        (0, 10),
    ),
    "a record is strict": ("{a: 1}.len", "field_missing", "missing field `len`", (0, 10)),
    "a missing field of another type": (
        "5.nope",
        "field_missing",
        "int has no field `nope`",
        (0, 6),
    ),
    "an unknown method": ("[1].nope()", "field_missing", "unknown method `.nope` on list", (0, 10)),
    "null has no fields": ("null.x", "field_missing", "null has no field `x`", (0, 6)),
}


@pytest.mark.parametrize(("src", "wanted"), VALUES.values(), ids=VALUES)
def test_what_a_name_means(session: Session, src: str, wanted: str) -> None:
    assert session.text(src) == wanted


@pytest.mark.parametrize(("src", "code", "phrase", "span"), ERRORS.values(), ids=ERRORS)
def test_names_that_mean_nothing(
    session: Session, src: str, code: str, phrase: str, span: tuple[int, int]
) -> None:
    error = session.error(src)
    assert (error.code, error.span) == (code, span)
    assert phrase in error.msg


def test_near_miss_of_a_local_function_is_suggested(session: Session) -> None:
    error = session.error("fn outer() { fn gather(x) { 1 }; gathr 5 }\nouter()")
    assert error.code == "not_found"
    assert error.hint is not None and "did you mean 'gather'?" in error.hint


def test_lookup_sees_the_scope_of_the_running_command(session: Session) -> None:
    assert session.text("let p = 1\nfn f(p) { let q = () => { (p) }; q() }\nf(2)") == "2"
    assert session.text("fn g() { let ls = 5; (ls) }\ng()") == "5"


def test_terminal_names_stand_for_the_results_of_the_connection(session: Session) -> None:
    session.evaluator.repl = {"it": [4, 5], "out": [1, [4, 5]]}
    assert session.run(".sum()", repl=True) == 9
    assert session.run("out[0] + it[1]", repl=True) == 6
