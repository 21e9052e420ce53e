"""Modules, sourced files and scripts (chapter 30 §10), and `with` (§11)."""

from __future__ import annotations

import os

import pytest

from tests.evaluate.session import Session

MODULE = """\
var hits = 0
fn note() { hits += 1 }
export fn bump() { note(); hits }
export let name = "net"
export var size = 1
let secret = 5
size = 2
env.SHOAL_MODULE = "loaded"
"""


def test_module_is_a_record_of_its_exports_in_source_order(session: Session) -> None:
    session.write("lib/net.shl", MODULE)
    assert session.run("use ./lib/net") is None
    assert session.text("net.keys()") == '["bump", "name", "size"]'
    assert session.text("[net.name, net.size, net.bump(), net.bump()]") == '["net", 2, 1, 2]'


def test_module_is_evaluated_once(session: Session) -> None:
    session.write("lib/net.shl", MODULE)
    session.run("use ./lib/net\nnet.bump()")
    assert session.text("use lib/net.shl\nnet.bump()") == "2"


def test_private_module_name_is_missing(session: Session) -> None:
    session.write("net.shl", MODULE)
    session.run("use ./net")
    assert session.error("net.secret").code == "field_missing"


def test_module_neither_sees_nor_changes_the_callers_bindings(session: Session) -> None:
    session.write("m.shl", "let mine = 1\nexport let seen = theirs catch e e.code")
    session.run("let theirs = 2\nlet mine = 3\nuse ./m")
    assert session.text("[m.seen, mine]") == '["undefined_var", 3]'


def test_module_runs_in_its_own_folder_and_environment_writes_last(session: Session) -> None:
    session.write("lib/m.shl", MODULE + "export let here = pwd.name\ncd /")
    session.run("use ./lib/m")
    assert session.text("m.here") == '"lib"'
    assert session.text("pwd") == str(session.cwd)
    assert session.text("env.SHOAL_MODULE") == '"loaded"'


def test_cwd_is_put_back_after_a_failing_module(session: Session) -> None:
    session.write("lib/bad.shl", "1 / 0")
    assert session.error("use ./lib/bad").code == "div_zero"
    assert session.text("pwd") == str(session.cwd)
    assert session.evaluator.loading == []


def test_module_may_be_used_inside_a_function(session: Session) -> None:
    session.write("m.shl", 'env.SHOAL_M = "x"\ncd /\nexport fn f() { 4 }')
    assert session.text("fn g() { use ./m; let h = () => m.f(); h() }\ng()") == "4"
    assert session.error("m.f()").code in ("undefined_var", "field_missing")


def test_module_statements_are_silent_and_in_value_position(session: Session) -> None:
    session.write("m.shl", "echo noise\n^sh -c 'exit 3'\nexport let a = 1")
    session.run("use ./m")
    assert session.shown == []


def test_module_without_extension_prefers_the_language_suffix(session: Session) -> None:
    session.write("m", "export let which = 1")
    assert session.text("use ./m\nm.which") == "1"
    session.write("n", "export let which = 1")
    session.write("n.shl", "export let which = 2")
    assert session.text("use ./n\nn.which") == "2"


def test_module_is_bound_under_the_real_stem(session: Session) -> None:
    session.write("real.shl", "export let a = 1")
    os.symlink("real.shl", session.cwd / "link.shl")
    assert session.text("use ./link\nreal.a") == "1"


def test_missing_module(session: Session) -> None:
    error = session.error("use ./nope")
    assert (error.code, error.span) == ("not_found", (0, 10))
    assert error.msg.startswith("module not found: `./nope` (looked for `")


def test_circular_use_names_the_circle(session: Session) -> None:
    session.write("a.shl", "use ./b")
    session.write("b.shl", "use ./a")
    error = session.error("use ./a")
    assert error.code == "custom"
    a, b = session.cwd / "a.shl", session.cwd / "b.shl"
    assert f"circular `use`: {a} -> {b} -> {a}" in error.msg


def test_unreadable_and_malformed_modules(session: Session) -> None:
    session.write("bad.shl", "let = 1")
    error = session.error("use ./bad")
    assert (error.code, error.msg) == ("parse_error", "expected identifier")
    (session.cwd / "bytes.shl").write_bytes(b"\xff\xfe")
    error = session.error("use ./bytes")
    assert error.code == "io_error"
    assert error.msg.startswith("cannot read module: ")


def test_source_binds_in_the_current_scope(session: Session) -> None:
    session.write("defs.shl", "var n = 1\nfn inc() { n += 1; n }\nn + 10")
    assert session.text('let v = source("defs.shl")\nv') == "11"
    assert session.text("inc()\ninc()") == "3"


def test_source_inside_a_function_binds_there_only(session: Session) -> None:
    session.write(
        "defs.shl", "let x = outer + 1\nvar y = 5\nfn z() { y += 1; x + y }\nlet outer = 7"
    )
    src = (
        "fn f() { let outer = 1; source defs.shl; let g = () => z(); [x, g(), g(), y, outer] }\nf()"
    )
    assert session.text(src) == "[2, 8, 9, 7, 7]"
    assert session.error("z()").code == "undefined_var"


def test_source_in_a_loop_body_starts_anew_each_round(session: Session) -> None:
    session.write("count.shl", 'let seen = n catch "none"\nvar n = i')
    src = "var all = []\nfor i in 1..3 { source count.shl; all += [[seen, n]] }\nall"
    assert session.text(src) == '[["none", 1], ["none", 2]]'


def test_exit_in_a_sourced_file_stops_the_caller(session: Session) -> None:
    session.write("bye.shl", "exit 3\n1")
    assert session.run("source bye.shl\nlet after = 1") is None
    assert session.evaluator.pending_exit == 3
    session.evaluator.pending_exit = None
    assert session.error("after.x").code == "undefined_var"


def test_error_in_a_sourced_file_points_into_that_file(session: Session) -> None:
    session.write("bad.shl", "1\n2 / 0")
    error = session.error("let somewhere = 1; source bad.shl")
    assert (error.code, error.span) == ("div_zero", (2, 7))


@pytest.mark.parametrize(
    ("src", "code", "phrase"),
    [
        ("source", "arg_error", "source expects script path"),
        ("source (4)", "arg_error", "source expects path"),
        ("source nope.shl", "io_error", "cannot read script: "),
        ("source bad.shl", "parse_error", "expected identifier"),
        ("run ./nope.shl", "io_error", "cannot read script: "),
        ("./nope.shl", "io_error", "cannot read script: "),
        ("./bad.shl", "parse_error", "expected identifier"),
    ],
)
def test_files_that_cannot_be_run(session: Session, src: str, code: str, phrase: str) -> None:
    session.write("bad.shl", "let = 1")
    error = session.error(src)
    assert error.code == code
    assert phrase in error.msg


@pytest.mark.parametrize("call", ["./s.shl a --n=1", "run s.shl a --n=1", "^s.shl a --n=1"])
def test_script_gets_its_arguments_and_gives_its_last_value(session: Session, call: str) -> None:
    session.write("s.shl", 'echo shown\n[args, script.name, mine catch "unseen"]')
    assert session.text(f"let mine = 1\n{call}") == '[["a", "--n=1"], "s.shl", "unseen"]'
    assert session.shown == ["shown"]


def test_script_values_stay_values_in_the_call_form(session: Session) -> None:
    session.write("s.shl", "args")
    assert session.text('run("s.shl", 4, [1])') == "[4, [1]]"


def test_nothing_a_script_does_reaches_the_caller(session: Session) -> None:
    session.write("s.shl", 'let leak = 1\ncd /\nenv.SHOAL_LEAK = "x"\nexit 9\n5')
    assert session.run("./s.shl\nlet after = 4\nafter") == 4
    assert session.evaluator.pending_exit is None
    assert session.text("pwd") == str(session.cwd)
    assert session.text("(env SHOAL_LEAK).out") == "null"
    assert session.error("leak.x").code == "undefined_var"


# -- with ------------------------------------------------------------------------------------------


def test_with_sets_directory_and_environment_for_its_body_and_callees(session: Session) -> None:
    (session.cwd / "d").mkdir()
    src = (
        "fn look() { [pwd.name, (env SHOAL_W).out] }\n"
        'let inside = with cwd: "d", env: {SHOAL_W: 2kb} { look() }\n[inside, (env SHOAL_W).out]'
    )
    assert session.text(src) == '[["d", "2000"], null]'
    assert session.text("pwd") == str(session.cwd)


def test_each_part_of_with_is_evaluated_under_the_previous_one(session: Session) -> None:
    (session.cwd / "d").mkdir()
    assert session.text('with cwd: "d", env: {W: pwd.name} { env.W }') == '"d"'


def test_with_puts_everything_back_after_an_error(session: Session) -> None:
    session.error('with cwd: "/", env: {SHOAL_W: "x"}, reef: {jq: "1"} { cd /tmp; 1 / 0 }')
    assert session.text("pwd") == str(session.cwd)
    assert session.text("(env SHOAL_W).out") == "null"
    assert session.evaluator.reef_overrides == {}


def test_with_may_stand_in_a_function(session: Session) -> None:
    assert session.text('fn f() { with env: {SHOAL_W: "y"} { env.SHOAL_W } }\nf()') == '"y"'


@pytest.mark.parametrize(
    ("src", "phrase"),
    [
        ("with cwd: 4 { }", "with cwd expects path"),
        ("with env: 4 { }", "with env expects record"),
        ("with env: {A: [1]} { }", "list cannot be passed as argv"),
        ("with reef: {a: 1} { }", "with reef expects"),
    ],
)
def test_with_takes_the_right_types(session: Session, src: str, phrase: str) -> None:
    error = session.error(src)
    assert error.code == "type_error"
    assert phrase in error.msg
