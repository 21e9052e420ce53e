"""Commands as programs of the language meet them: source text in, values and errors out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands.session import program
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.language.diagnostics import ParseError
from worker.values.render import inline
from worker.values.types import ErrorValue, Span


class Shell:
    """A bare evaluator in a folder; remembers what was shown and noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown: list[Any] = []
        self.notes: list[str] = []
        self.ev: Evaluator = bare_evaluator(str(folder))
        self.ev.host.sink = self.shown.append
        self.ev.host.stderr_note = self.notes.append
        self.ev.env = {b"PATH": os.environb[b"PATH"], b"HOME": os.fsencode(folder / "home")}

    def __call__(self, source: str) -> str:
        """The inline rendering of the program's value."""
        return inline(self.ev.evaluate_source(source))

    def error(self, source: str) -> ErrorValue:
        with pytest.raises(Raised) as caught:
            self.ev.evaluate_source(source)
        return caught.value.error

    def add_program(self, name: str, text: str) -> None:
        """An executable script in the first folder of PATH."""
        (self.folder / "bin").mkdir(exist_ok=True)
        program(self.folder / "bin", name, text)
        path = os.fsencode(self.folder / "bin")
        if not self.ev.env[b"PATH"].startswith(path):
            self.ev.env[b"PATH"] = path + b":" + self.ev.env[b"PATH"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "home").mkdir()
    shell = Shell(tmp_path)
    # One word per line, so that words stay visible whatever is in them.
    shell.add_program("words", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    return shell


# -- resolution of a head (40 §1.1) ----------------------------------------------------------------


@pytest.mark.parametrize(
    "source, value",
    [
        pytest.param("fn words(a) { 'fn ' + a }\nwords x", '"fn x"', id="function before program"),
        pytest.param("fn words(a) { 'fn ' + a }\n^words x", '"fn x"', id="^ reaches functions"),
        pytest.param("fn ls() { 1 }\nls", "1", id="function before builtin"),
        pytest.param("let f = a => a + '!'\n^f x", '"x!"', id="closure value as command"),
        pytest.param("alias w = words a\n(w b).out", '"a\\nb"', id="alias"),
        pytest.param("alias w = words a\n(^w b).out", '"a\\nb"', id="^ reaches aliases"),
        pytest.param("let words = 7\nwords", "7", id="value binding of a bare word"),
        pytest.param("let words = 7\n(^words a).out", '"a"', id="^ skips a value binding"),
        pytest.param("(^echo a).pid", "0", id="^ reaches builtins"),
        pytest.param("(echo hi).cmd", '"echo"', id="builtin"),
        pytest.param(
            '(run("echo", "a")).pid > 0', "true", id="run reaches programs behind builtins"
        ),
        pytest.param("(/bin/echo a).pid > 0", "true", id="path head is external"),
        pytest.param("(words a).out", '"a"', id="external program"),
    ],
)
def test_first_step_that_applies_takes_the_head(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


def test_matching_is_case_sensitive(shell: Shell) -> None:
    assert shell.error("ECHO hi").code == "not_found"


def test_home_prefix_of_a_head_is_expanded_and_shown_as_written(shell: Shell) -> None:
    program(shell.folder / "home", "tool", '#!/bin/sh\necho "$0"\n')
    assert shell("(~/tool).out") == inline(f"{shell.folder}/home/tool")
    assert shell("(~/tool a).cmd") == '"~/tool a"'


def test_trailing_block_has_no_effect_on_a_program(shell: Shell) -> None:
    assert shell("let r = (words a { 1 })\nr.out") == '"a"'


def test_help_of_a_function_is_shown_and_nothing_runs(shell: Shell) -> None:
    source = """
        fn brew(leaf: str, minutes: int = 3, sizes: list<int>, ...more) -> str { env.NOPE }
        brew --help
    """
    assert shell(source) == "null"
    assert shell.shown == ["brew(leaf: str, minutes: int, sizes: list, ...more) -> str"]


# -- not found and suggestions (40 §1.6) -----------------------------------------------------------


@pytest.mark.parametrize(
    "head, hint",
    [
        ("ech", "did you mean 'echo'?"),
        ("echoo", "did you mean 'echo'?"),
        ("slep", "did you mean 'sleep'?"),
        ("histroy", "did you mean 'history'?"),
        ("zz", "did you mean 'zzz'?"),
        ("xq7wvb", None),
        ("ecxx", None),
        ("q", None),
    ],
)
def test_near_miss_of_an_unknown_head(shell: Shell, head: str, hint: str | None) -> None:
    shell("fn zzz() { 1 }")
    error = shell.error(f"{head} a b")
    assert (error.code, error.msg, error.hint) == ("not_found", f"command not found: {head}", hint)
    assert error.span == Span(0, len(head) + 4)


def test_names_in_scope_are_suggested_wherever_they_are_bound(shell: Shell) -> None:
    shell.error("fn outer() { fn compile_all() { 1 }\n compil_all; 2 }\nouter()")
    error = shell.error("fn outer() { fn compile_all() { 1 }\n compil_all x; 2 }\nouter()")
    assert error.hint == "did you mean 'compile_all'?"


# -- words (40 §2) ---------------------------------------------------------------------------------


def lines(*words: str) -> str:
    return inline("\n".join(words))


@pytest.mark.parametrize(
    "source, words",
    [
        ("a b", ["a", "b"]),
        ("./x ../x /x", ["./x", "../x", "/x"]),
        ("12 1mb true a=b", ["12", "1mb", "true", "a=b"]),
        ("\"a b\" 'c d'", ["a b", "c d"]),
        ('a"b"', ["a", "b"]),
        ('key="v"', ["key=", "v"]),
        ('"key=v"', ["key=v"]),
        ('"n is {1 + 1}"', ["n is 2"]),
        ("(1 + 1) (3kb) (2.0) (2.5) (true) (1s)", ["2", "3000", "2", "2.5", "true", "1000000000"]),
        ('(path("a b"))', ["a b"]),
        ("--dry-run --a-b-c", ["--dry-run", "--a-b-c"]),
        ("--dry_run", ["--dry_run"]),
        ("-xvf -9", ["-xvf", "-9"]),
        ("--color=never --x=./y", ["--color=never", "--x=./y"]),
        ("--limit=(2 + 3)", ["--limit=5"]),
        ('--note="a b"', ["--note=a b"]),
        ("--a-b='c d'", ["--a-b=c d"]),
        ("-- -x --y", ["--", "-x", "--y"]),
        ("-", ["-"]),
        ("nan-is:(0.0 / 0.0)", ["nan-is:", "NaN"]),
        ("é ø=ü --grün", ["é", "ø=ü", "--grün"]),
    ],
)
def test_words_reach_a_program_as_written(shell: Shell, source: str, words: list[str]) -> None:
    assert shell(f"(words {source}).out") == lines(*words)


def test_flag_spelling_survives_text_that_is_not_ascii_before_it(shell: Shell) -> None:
    assert shell('let a = "äöü€"\n(words --dry-run --a_b).out') == lines("--dry-run", "--a_b")


def test_flag_spelling_survives_inside_a_string_hole(shell: Shell) -> None:
    assert shell('"{(words --dry-run).out}"') == '"--dry-run"'


def test_home_is_expanded_in_path_words_only(shell: Shell) -> None:
    home = f"{shell.folder}/home"
    assert shell("(words ~ ~/x a~ ~user --p=~/x).out") == lines(
        home, home + "/x", "a~", "~user", "--p=~/x"
    )


@pytest.mark.parametrize(
    "expression, what",
    [
        ("[1]", "list"),
        ("{a: 1}", "record"),
        ("null", "null"),
        ("1..2", "range"),
        ("x => x", "closure"),
        ("^true", "outcome"),
        ("now()", "datetime"),
        ('regex("a")', "regex"),
    ],
)
def test_values_without_a_word_form_are_refused(shell: Shell, expression: str, what: str) -> None:
    error = shell.error(f"words a ({expression})")
    assert (error.code, error.msg) == ("type_error", f"{what} cannot be passed as argv")


def test_path_words_that_are_not_utf8_pass_unchanged(shell: Shell) -> None:
    (shell.folder / "home" / os.fsdecode(b"odd\xff")).touch()
    assert shell("(words home/*).stdout.len()") == str(len(f"{shell.folder}/home/odd.\n"))


# -- globs (40 §2.4) -------------------------------------------------------------------------------


@pytest.fixture
def files(shell: Shell) -> Shell:
    for name in ("b.txt", "a.txt", "c.md", ".hidden.txt"):
        (shell.folder / name).touch()
    return shell


def test_glob_expands_to_sorted_absolute_paths_at_its_place(files: Shell) -> None:
    at = str(files.folder)
    assert files("(words x *.txt y).out") == lines("x", f"{at}/a.txt", f"{at}/b.txt", "y")
    assert files('(words (glob("*.md"))).out') == lines(f"{at}/c.md")


def test_glob_without_a_match_gives_no_word_and_a_note(files: Shell) -> None:
    assert files("(words a *.none b).out") == lines("a", "b")
    assert files.notes == ["no matches for *.none"]


def test_glob_is_matched_when_its_argument_is_evaluated(files: Shell) -> None:
    at = str(files.folder)
    assert files("(words *.md ((touch d.md).ok)).out") == lines(f"{at}/c.md", "true")
    assert files("(words ((rm d.md).ok) *.md).out") == lines("true", f"{at}/c.md")


def test_home_is_not_expanded_inside_a_glob_word(files: Shell) -> None:
    (files.folder / "home" / "x.txt").touch()
    assert files("(words ~/*.txt).out") == '""'
    assert files.notes == ["no matches for ~/*.txt"]


def test_malformed_glob_is_an_argument_error(files: Shell) -> None:
    assert files.error('words (glob("a["))').code == "arg_error"
    assert files.error("words a[").code == "arg_error"


# -- environment prefix (40 §2.5) ------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, value",
    [
        ('(A=1 ^sh -c \'printf "%s" "$A"\').out', '"1"'),
        ('(A=1 B=2 ^sh -c \'printf "%s" "$A$B"\').out', '"12"'),
        ('(A=1 A=2 ^sh -c \'printf "%s" "$A"\').out', '"2"'),
        ('(A=~/x ^sh -c \'printf "%s" "$A"\').out', '"~/x"'),
        ('(A= ^sh -c \'printf "%s" "${A-unset}"\').out', '""'),
        ("A=1 ^true\n(env A).out", "null"),
        ("(words A=1).out", '"A=1"'),
    ],
)
def test_environment_prefix_is_for_one_spawn(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


def test_prefix_on_path_is_used_for_the_lookup_of_the_head(shell: Shell) -> None:
    (shell.folder / "other").mkdir()
    program(shell.folder / "other", "words", "#!/bin/sh\necho other\n")
    assert shell(f"(PATH={shell.folder}/other words a).out") == '"other"'


def test_with_env_reaches_children_and_ends_with_its_block(shell: Shell) -> None:
    source = "(with env: {LANGUAGE: 'x', N: 3kb} { sh { printf %s \"$LANGUAGE$N\" } }).out"
    assert shell(source) == '"x3000"'
    assert shell('sh { printf %s "${N-unset}" }.out') == '"unset"'


# -- redirects (40 §3) -----------------------------------------------------------------------------


def test_output_of_a_program_is_written_exactly_and_stays_its_value(shell: Shell) -> None:
    assert shell("let r = (words a b > out)\nr.out") == '"a\\nb"'
    assert (shell.folder / "out").read_bytes() == b"a\nb\n"


def test_append_adds_and_write_truncates(shell: Shell) -> None:
    shell("words a > out; words b >> out; words c > two; words d > two")
    assert (shell.folder / "out").read_bytes() == b"a\nb\n"
    assert (shell.folder / "two").read_bytes() == b"d\n"


def test_each_of_several_targets_gets_the_full_output(shell: Shell) -> None:
    shell('words a > one >> two > "three 3" > (path("four"))')
    for name in ("one", "two", "three 3", "four"):
        assert (shell.folder / name).read_bytes() == b"a\n"


def test_input_comes_from_the_file(shell: Shell) -> None:
    (shell.folder / "in").write_bytes(b"b\na\n")
    assert shell("(^sort < in).out") == lines("a", "b")
    assert shell("(^sort -r < in > out).ok") == "true"
    assert (shell.folder / "out").read_bytes() == b"b\na\n"


def test_input_from_a_fifo_waits_for_its_writer(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    assert shell(
        "let t = (^sort < pipe &)\nsh { printf 'b\\na\\n' > pipe }\nt.await().out"
    ) == lines("a", "b")


@pytest.mark.parametrize(
    "command, content",
    [
        ("echo a b", b"a b\n"),
        (r'echo "a\n"', b"a\n"),
        ("cat in", b"\x00raw"),
        ("env NOPE", b""),
        ("touch f", b'["@/f"]\n'),
        ("pwd", b"@\n"),
    ],
)
def test_value_of_a_builtin_is_serialised_and_becomes_null(
    shell: Shell, command: str, content: bytes
) -> None:
    (shell.folder / "in").write_bytes(b"\x00raw")
    assert shell(f"{command} > out") == "null"
    written = (shell.folder / "out").read_bytes()
    expected = content.replace(b"@", os.fsencode(shell.folder))
    assert written.replace(b'"', b"") == expected.replace(b'"', b"")


def test_failing_program_writes_in_value_position_only(shell: Shell) -> None:
    assert shell.error("^sh -c 'echo a; exit 3' > out").code == "cmd_failed"
    assert not (shell.folder / "out").exists()
    assert shell("let r = (^sh -c 'echo a; exit 3' > out)\nr.status") == "3"
    assert (shell.folder / "out").read_bytes() == b"a\n"


@pytest.mark.parametrize(
    "source, code, text",
    [
        ("words a > (1)", "arg_error", "redirect target must be a path"),
        ("words a < ([])", "arg_error", "redirect target must be a path"),
        ("echo a > (null)", "arg_error", "redirect target must be a path"),
        ("words a > nowhere/out", "custom", "No such file or directory (os error 2)"),
        ("echo a > .", "custom", "(os error 21)"),
        ("words a < nowhere", "not_found", "No such file or directory (os error 2)"),
        ("words a < home < nowhere", "not_found", "nowhere"),
    ],
)
def test_redirects_that_cannot_be(shell: Shell, source: str, code: str, text: str) -> None:
    error = shell.error(source)
    assert error.code == code
    assert text in error.msg


def test_missing_input_starts_nothing(shell: Shell) -> None:
    shell.error("^sh -c 'touch made' < nowhere")
    assert not (shell.folder / "made").exists()


def test_redirect_of_a_function_is_not_applied(shell: Shell) -> None:
    assert shell("fn f() { 5 }\nf > out") == "5"
    assert not (shell.folder / "out").exists()


def test_input_redirect_of_a_builtin_is_ignored(shell: Shell) -> None:
    assert shell("(echo a < nowhere).out") == '"a"'


# -- positions and outcomes (40 §4, §5) ------------------------------------------------------------


@pytest.mark.parametrize(
    "source, msg, status",
    [
        ("^sh -c 'exit 3'", "`sh -c exit 3` exited with status 3", 3),
        ("^sh -c 'kill -9 $$'", "`sh -c kill -9 $$` died from SIGKILL", None),
        ("^sh -c 'exit 3'; 1", "`sh -c exit 3` exited with status 3", 3),
        ("sh { exit 4 }", "`sh -c exit 4` exited with status 4", 4),
        ("1.feed(sh { exit 4 })", "`sh -c exit 4` exited with status 4", 4),
        ("1.feed(^false)", "`false` exited with status 1", 1),
        ('run("false")', "`false` exited with status 1", 1),
        ("run false", "`false` exited with status 1", 1),
        ("(^false)", "`false` exited with status 1", 1),
        ("for i in 0..1 { ^false }", "`false` exited with status 1", 1),
        ("if true { ^false; 1 }", "`false` exited with status 1", 1),
    ],
)
def test_failure_in_statement_position_raises(
    shell: Shell, source: str, msg: str, status: int | None
) -> None:
    error = shell.error(source)
    assert (error.code, error.msg, error.status) == ("cmd_failed", msg, status)


def test_failure_carries_lossy_stderr_and_the_span_of_the_command(shell: Shell) -> None:
    error = shell.error("1\n^sh -c 'printf \"a\\377\" >&2; exit 1'")
    assert error.stderr == "a\N{REPLACEMENT CHARACTER}"
    assert error.span is not None
    assert error.span.start == 2


@pytest.mark.parametrize(
    "source, value",
    [
        ("let r = (^false)\nr.ok", "false"),
        ("(^false).status", "1"),
        ("[(^false)][0].ok", "false"),
        ("^false || true", "true"),
        ("(^false && true).ok", "false"),
        ("if (^false) { 1 } else { 2 }", "2"),
        ("!(^false)", "true"),
        ("fn f() { ^false }\nf().ok", "false"),
        ("alias f = false\n(f).ok", "false"),
        ("alias f = false\nf\n1", "1"),
        ("try { ^false } catch { 9 }", "outcome(status: 1, ok: false)"),
        ("try { ^false; 1 } catch e { e.status }", "1"),
        ("(^sh -c 'kill -TERM $$').signal", '"SIGTERM"'),
        ("(^sh -c 'kill -TERM $$').status", "null"),
        ("(^true).signal", "null"),
        ("(^true).dur > 0s", "true"),
        ("(^sh -c 'echo a >&2').err.str()", '"a\\n"'),
        ("(^printf 'a\\r\\n').out", '"a\\r"'),
        ("(^printf 'a\\n\\n').out", '"a\\n"'),
        ("(^printf 42).out", '"42"'),
        ("(^printf ' [1, 2.5, null]').out", "[1, 2.5, null]"),
        ('(^printf \'{"b": 1, "a": 2}\').out', "{a: 2, b: 1}"),
        ('(^printf \'{"a": 1}\\n{"a": 2}\').out', '"{\\"a\\": 1}\\n{\\"a\\": 2}"'),
        ("(^printf '[oops').out", '"[oops"'),
        ("(^printf '{\"n\": 4}').n", "4"),
    ],
)
def test_value_position_gives_the_outcome(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


def test_spawn_failures_raise_in_value_position_too(shell: Shell) -> None:
    error = shell.error("let r = (./nope)")
    assert (error.code, error.span) == ("not_found", Span(9, 15))


# -- names in expressions (40 §1.2) ----------------------------------------------------------------


@pytest.mark.parametrize(
    "source, value",
    [
        ("words('a', 'b').out", '"a\\nb"'),
        ("words(path('a b')).out", '"a b"'),
        ("words('a', long: true, name: 'v', n_x: 'w').out", '"a\\n--long\\n--name=v\\n--n-x=w"'),
        ("let x = words\nx.ok", "true"),
        ("mkdir('made').ok", "true"),
        ("words.ok", "true"),
    ],
)
def test_command_names_work_in_expressions(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


@pytest.mark.parametrize(
    "source, code, text",
    [
        ("words(1)", "type_error", "arguments must be strings or paths"),
        ("sleep(1s)", "type_error", "arguments must be strings or paths"),
        ("let x = nosuch", "undefined_var", "undefined variable `nosuch`"),
        ("nosuch(1)", "undefined_var", "undefined function `nosuch`"),
        ("nosuch", "not_found", "command not found: nosuch"),
        ("alias w = words\nw(1)", "type_error", "arguments must be strings or paths"),
        ("alias w = words\nw (1)", "type_error", "arguments must be strings or paths"),
    ],
)
def test_names_that_cannot_be_called(shell: Shell, source: str, code: str, text: str) -> None:
    error = shell.error(source)
    assert error.code == code
    assert text in error.msg


# -- functions and aliases in command form (30 §6.3, §6.4) -----------------------------------------


@pytest.mark.parametrize(
    "params, call, value",
    [
        ("a: int", "f 5", "5"),
        ("a: int", "f --a 5", "5"),
        ("a: int", "f --a=5", "5"),
        ("a: int", "f --a=(2 + 3)", "5"),
        ("a: int", "f -5", "-5"),
        ("a: int = 1", "f", "1"),
        ("a: duration", "f 90", "1m30s"),
        ("a: size", "f 3KB", "3kb"),
        ("a: path", "f x", "x"),
        ("a: bool", "f true", "true"),
        ("a: bool = false", "f --a", "true"),
        ("a: bool = true", "f --a=false", "false"),
        ("a", "f --a", "true"),
        ("a", "f 5", '"5"'),
        ("a", "f (5)", "5"),
        ("a: int", "f (2.5)", "2.5"),
        ("a: glob", "f *.txt", "*.txt"),
        ("a: list<int>", "f 5", "[5]"),
        ("a: list<int>", "f (['1', 2])", "[1, 2]"),
        ("a: list<int>", "f --a 5", "[5]"),
        ("...a: int", "f 1 2 3", "[1, 2, 3]"),
        ("...a: list<int>", "f 1 2", "[1, 2]"),
        ("...a", "f -x -- - --", '["-x", "--", "-", "--"]'),
        ("dry_run: bool = false, a = 1", "f --dry-run", "1"),
        ("first: int, a: int", "f --first 1 2 3", "3"),
    ],
)
def test_words_bind_to_parameters(shell: Shell, params: str, call: str, value: str) -> None:
    assert shell(f"fn f({params}) {{ a }}\n{call}") == value


def test_globs_bind_as_the_parameter_wants_them(files: Shell) -> None:
    at = str(files.folder)
    assert files("fn f(a, b) { [a, b] }\nf *.txt") == f"[{at}/a.txt, {at}/b.txt]"
    assert files("fn f(a: list<path>) { a.len() }\nf *.txt") == "2"
    assert files("fn f(a: list<path>) { a.len() }\nf c.*") == "1"
    assert files("fn f(a: list<str>, b: str) { [a.len(), b] }\nf *.txt z") == '[2, "z"]'
    assert files("fn f(...a: list<path>) { a.len() }\nf x *.txt") == "3"
    assert files("fn f(a: glob) { a.pattern }\nf *.txt") == '"*.txt"'
    assert files("fn f(a = 1) { a }\nf *.none") == "1"
    assert files.notes == ["no matches for *.none"]


@pytest.mark.parametrize(
    "params, call, msg",
    [
        ("a: int", "f x", 'expected int, found "x"'),
        ("a: int", "f --a x", 'expected int, found "x"'),
        ("a: int", "f --a", "--a requires a value"),
        ("n_x: int", "f --n-x", "--n-x requires a value"),
        ("a: int", "f --a --b", "--a requires a value"),
        ("a: int", "f 1 2 3", "expected 1 argument, got 3"),
        ("a: int", "f 1 --bogus", "unknown argument `bogus`"),
        ("a: int", "f", "missing argument `a`"),
        ("...a: int", "f 1 x", 'expected int, found "x"'),
        ("a: bool", "f yes", 'expected bool, found "yes"'),
    ],
)
def test_words_that_do_not_bind(shell: Shell, params: str, call: str, msg: str) -> None:
    error = shell.error(f"fn f({params}) {{ 1 }}\n{call}")
    assert (error.code, error.msg) == ("arg_error", msg)


@pytest.mark.parametrize(
    "source, value",
    [
        ("alias w = words a --b-c=1\n(w d).out", '"a\\n--b-c=1\\nd"'),
        ("alias w = words\n(w --dry-run x -- --y).out", '"--dry-run\\nx\\n--\\n--y"'),
        ("alias w = words\nw('x', long: true, n: 'v').out", '"x\\n--long\\n--n=v"'),
        ("alias w = words\nalias v = w a\n(v b).out", '"a\\nb"'),
        ("fn f(a: int, b: int) { a + b }\nalias g = f 1\n(g '2')", "3"),
        ("alias l = echo a\n(l b).out", '"a b"'),
        ("let n = 5\nalias w = words (n + 1)\n(w).out", '"6"'),
        ("alias w = A=1 ^sh -c 'printf %s \"$A\"'\n(w).out", '"1"'),
        ("alias w = words\n['a'].map(w)[0].out", '"a"'),
        ("alias w = words x > out\nw\n(cat out).out.str()", '"x\\n"'),
        ("alias w = words x &\nlet t = (w)\nt.await().out", '"x"'),
    ],
)
def test_aliases_append_words_to_the_stored_command(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


def test_alias_that_names_itself_reaches_the_limit(shell: Shell) -> None:
    assert shell.error("alias ls = ls -a\nls").code == "recursion_limit"


# -- run and scripts (40 §1.4, §1.5) ---------------------------------------------------------------


@pytest.mark.parametrize(
    "source, value",
    [
        ('run("words", "--short", "a b").out', '"--short\\na b"'),
        ("(run words --dry-run -x a).out", '"--dry-run\\n-x\\na"'),
        ("fn words() { 1 }\nrun('words', 'x').out", '"x"'),
        ("run('words', 3kb).out", '"3000"'),
        ("(run ./s.sh a --b).out", '"sh a --b"'),
        ("(run s.sh a).out", '"sh a"'),
        ("run('s.py', 'a').out", '"py a"'),
        ("(run ./bare a).out", '"bare a"'),
        ("(run ./odd.xyz a).out", '"odd a"'),
        ("(./direct a).out", '"direct a"'),
        ("run(path('./s.sh')).out", '"sh "'),
        ("run('./missing.sh').status > 0", "true"),
        ("(run ~/h.sh).out", '"home"'),
    ],
)
def test_run_takes_programs_and_scripts(shell: Shell, source: str, value: str) -> None:
    at = shell.folder
    (at / "s.sh").write_text('echo "sh $*"\n')
    (at / "s.py").write_text('import sys\nprint("py", *sys.argv[1:])\n')
    (at / "bare").write_text('#!/bin/sh\necho "bare $*"\n')
    (at / "odd.xyz").write_text('#!/usr/bin/env sh\necho "odd $*"\n')
    (at / "home" / "h.sh").write_text("echo home\n")
    program(at, "direct", '#!/bin/sh\necho "direct $*"\n')
    assert shell(source) == value


@pytest.mark.parametrize(
    "source, code, msg",
    [
        ("run()", "arg_error", "run expects a path or command name"),
        ("run", "arg_error", "run expects a path or command name"),
        ("run(5)", "type_error", "run expects a str or path, found int"),
        ("run (5)", "type_error", "run expects a str or path, found int"),
        ("run('words', glob('*'))", "type_error", "glob cannot be passed as argv"),
        ("run('words', [1])", "type_error", "list cannot be passed as argv"),
        ("run ./x.unknown", "runner_not_found", "no runner for {at}/./x.unknown"),
        ("run nosuchprogram", "not_found", "command not found: nosuchprogram"),
        ("run ./nope.shl", "io_error", "cannot read script: "),
        ("./nope.shl", "io_error", "cannot read script: "),
        ("source", "arg_error", "source expects script path"),
        ("source (1)", "arg_error", "source expects path"),
        ("source nope", "io_error", "cannot read script: "),
    ],
)
def test_run_refuses(shell: Shell, source: str, code: str, msg: str) -> None:
    error = shell.error(source)
    assert error.code == code
    assert msg.format(at=shell.folder) in error.msg


def test_runner_not_found_lists_the_known_extensions(shell: Shell) -> None:
    hint = shell.error("run ./x.unknown").hint
    assert hint is not None
    assert "py js ts sh shl rb lua" in hint


def test_bare_name_of_a_known_kind_is_a_program_when_no_such_file_exists(shell: Shell) -> None:
    shell.add_program("s.sh", "#!/bin/sh\necho program\n")
    assert shell("(run s.sh).out") == '"program"'


def test_rust_script_that_does_not_compile_is_a_failed_command(shell: Shell) -> None:
    (shell.folder / "x.rs").write_text("nonsense")
    shell.add_program("rustc", "#!/bin/sh\necho ' bad source ' >&2\nexit 1\n")
    shell.ev.env[b"PATH"] = os.fsencode(shell.folder / "bin") + b":/bin"
    error = shell.error("run x.rs")
    assert (error.code, error.msg) == (
        "cmd_failed",
        f"rustc failed to compile {shell.folder}/x.rs: bad source",
    )


def test_rust_script_is_compiled_and_run(shell: Shell) -> None:
    (shell.folder / "x.rs").write_text("#!/bin/sh\necho compiled $*\n")
    shell.add_program("rustc", '#!/bin/sh\ncp "$1" "$3"\nchmod +x "$3"\n')
    shell.ev.env[b"PATH"] = os.fsencode(shell.folder / "bin") + b":/bin:/usr/bin"
    assert shell("(run x.rs a).out") == '"compiled a"'


@pytest.mark.parametrize(
    "call", ["run ./s.shl a --b-c (3)", "./s.shl a --b-c (3)", "s.shl a --b-c (3)"]
)
def test_language_script_gets_its_arguments_and_gives_its_last_value(
    shell: Shell, call: str
) -> None:
    (shell.folder / "s.shl").write_text("let n = args.len()\n[n, args, script.name]\n")
    if call.startswith("s.shl"):
        call = "^" + call
    assert shell(call) == '[3, ["a", "--b-c", 3], "s.shl"]'


def test_language_script_leaves_nothing_behind_and_sees_nothing(shell: Shell) -> None:
    (shell.folder / "s.shl").write_text("cd home\nenv.LEFT = 'x'\nlet mine = 1\n'done'\n")
    (shell.folder / "peek.shl").write_text("outer\n")
    before = shell("pwd")
    assert shell("let outer = 5\nrun ./s.shl") == '"done"'
    assert shell("pwd") == before
    assert shell("(env LEFT).out") == "null"
    assert shell.error("mine").code == "not_found"
    assert shell.error("run ./peek.shl").code == "not_found"


def test_exit_ends_a_script_only(shell: Shell) -> None:
    (shell.folder / "s.shl").write_text("exit 3\n9\n")
    assert shell("run ./s.shl\n5") == "5"


def test_source_text_of_a_script_that_does_not_parse_is_an_error_value(shell: Shell) -> None:
    (shell.folder / "bad.shl").write_text("1\nlet = 2\n")
    error = shell.error("run ./bad.shl")
    assert error.code == "parse_error"
    assert error.span is not None
    assert error.span.start >= 2
    assert shell("run('./bad.shl') catch e { e.code }") == '"parse_error"'


def test_sourced_file_runs_in_the_current_scope(shell: Shell) -> None:
    (shell.folder / "lib").write_text("let shared = 41\nfn plus(n) { n + 1 }\n'sourced'\n")
    assert shell("source lib") == '"sourced"'
    assert shell("plus(shared)") == "42"
    assert shell("if true { source lib; shared + 1 }") == "42"


# -- interpreter blocks (40 §10) -------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, value",
    [
        ("sh { echo a }.out", '"a"'),
        ("bash { echo ${0##*/} }.out", '"bash"'),
        ("python3 { print(2 + 2) }.out", '"4"'),
        ("perl { print 2 + 3 }.out", '"5"'),
        ("sh''' echo b '''.out", '"b"'),
        ("sh'''\n  echo 1\n  if true; then\n    echo 2\n  fi\n'''.out", '"1\\n2"'),
        ("(sh { exit 3 }).status", "3"),
        ("sh { cat }.out", '""'),
        ("sh { echo a }.cmd", '"sh -c echo a"'),
        ("let x = sh { echo \"}\" '}' }\nx.out", '"} }"'),
        ("fn sh() { 1 }\nsh { echo a }.out", '"a"'),
        ("sh { printf '{\"n\": 4}' }.out.n", "4"),
    ],
)
def test_interpreter_block_runs_its_text(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


def test_unclosed_block_is_a_parse_error(shell: Shell) -> None:
    with pytest.raises(ParseError) as caught:
        shell("sh { echo a")
    assert "unbalanced braces in interpreter block" in caught.value.message


def test_missing_interpreter_is_not_found(shell: Shell) -> None:
    shell.ev.env[b"PATH"] = b"/nowhere"
    assert shell.error("python3 { 1 }").msg == "command not found: python3"


# -- feed (40 §7) ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, value",
    [
        (r'"b\na".feed(sort).out', '"a\\nb"'),
        ("['b', 'a'].feed(sort -r).out", '"b\\na"'),
        ("sort.feed(['b', 'a']).out", '"a\\nb"'),
        ("(sort -r).feed(['a', 'b']).out", '"b\\na"'),
        ("[3, 1].feed(sh { cat }).out", "[3, 1]"),
        ("sh { cat }.feed({a: 1}).out", "{a: 1}"),
        ("[].feed(cat).stdout.len()", "0"),
        ("{n: 2}.feed(cat).stdout.str()", '"{\\"n\\":2}"'),
        ("2500b.feed(cat).out", '"2.5kb"'),
        ("1.5.feed(cat).out", '"1.5"'),
        ("(echo hi).feed(cat).stdout.str()", '"hi\\n"'),
        ("(^printf '[1,2]').feed(cat).stdout.str()", '"[1,2]"'),
        ("(ls home).feed(cat).stdout.str()", '"[]"'),
        ("'x'.feed(cat).pid > 0", "true"),
        ("fn cat() { 1 }\n'x'.feed(cat).out", '"x"'),
        ("let r = 'x'.feed(^false)\nr.ok", "false"),
        ("'x'.feed(A=7 ^sh -c 'cat; printf %s \"$A\"').out", '"x7"'),
        ("'x'.feed(cat > out)\n(cat out).out.str()", '"x"'),
        ("null?.feed(cat)", "null"),
        ("'x'?.feed(cat).out", '"x"'),
    ],
)
def test_feed_gives_a_value_as_the_whole_input(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


@pytest.mark.parametrize(
    "source, code, text",
    [
        ("'x'.feed()", "arg_error", ".feed expects exactly one command argument"),
        ("'x'.feed('cat', 1)", "arg_error", ".feed expects exactly one command argument"),
        ("'x'.feed('sort')", "type_error", "must be a command, not a string"),
        ("'x'.feed(1)", "type_error", "must be a command, not a number"),
        ("'x'.feed(1.5)", "type_error", "must be a command, not a number"),
        ("'x'.feed([1])", "type_error", "must be a command, not a list"),
        ("'x'.feed({a: 1})", "type_error", "must be a command, not a record"),
        ("'x'.feed(true)", "type_error", "must be a command, not that value"),
        ("path('x').feed(cat)", "type_error", "a name, not the file's contents"),
        ("null.feed(cat)", "type_error", "cannot feed a null to a command's stdin"),
        ("(1..3).feed(cat)", "type_error", "cannot feed a range to a command's stdin"),
        ("(x => x).feed(cat)", "feed_error", "a closure cannot be fed as stdin data"),
        ("glob('*').feed(cat)", "feed_error", "a glob cannot be fed as stdin data"),
        ("'x'.feed(nosuchprogram)", "not_found", "command not found: nosuchprogram"),
    ],
)
def test_feed_refuses(shell: Shell, source: str, code: str, text: str) -> None:
    error = shell.error(source)
    assert error.code == code
    assert text in error.msg


# -- background work (40 §12) ----------------------------------------------------------------------


def test_trailing_ampersand_gives_a_task(shell: Shell) -> None:
    assert shell("let t = (words a &)\nt.await().out") == '"a"'
    assert shell("let t = (^false &)\nt.await().ok") == "false"
    assert shell("jobs.len()") == "2"


def test_suspended_task_stands_still_and_goes_on(shell: Shell) -> None:
    from tests.commands.processes import eventually, pids_in, state

    shell("let t = (^sh -c 'echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; echo end' &)")
    (pid,) = pids_in(shell.folder / "pid")
    shell("t.suspend()")
    assert eventually(lambda: state(pid) == "T")
    (shell.folder / "go").touch()
    assert shell("t.is_suspended()") == "true"
    assert state(pid) == "T"
    assert shell("t.resume()\nt.await().out") == '"end"'


def test_cancelled_task_ends_its_program(shell: Shell) -> None:
    from tests.commands.processes import alive, eventually, pids_in

    shell("let t = (^sh -c 'echo $$ > pid; exec sleep 600' &)")
    (pid,) = pids_in(shell.folder / "pid")
    shell("t.cancel()")
    assert eventually(lambda: not alive(pid))


# -- terminals (40 §6.6) ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, value",
    [
        ("(interact sh -c 'stty size; echo err >&2').stdout.str()", '"24 80\\r\\nerr\\r\\n"'),
        ("(interact sh -c 'echo x > /dev/tty').stdout.str()", '"x\\r\\n"'),
        ("(interact sh -c 'test -t 0 && test -t 1 && test -t 2').ok", "true"),
        ("(interact words --dry-run -x).stdout.str()", '"--dry-run\\r\\n-x\\r\\n"'),
        ("(interact sh -c 'echo a >&2').stderr.len()", "0"),
    ],
)
def test_interact_runs_on_a_terminal(shell: Shell, source: str, value: str) -> None:
    assert shell(source) == value


@pytest.mark.parametrize(
    "source, code, text",
    [
        ("interact", "arg_error", "interact expects a command"),
        ("let r = (interact sh -c 'exit 3')", "cmd_failed", "exited with status 3"),
        ("interact nosuchprogram", "not_found", "command not found: nosuchprogram"),
        ("interact ([1])", "type_error", "list cannot be passed as argv"),
    ],
)
def test_interact_refuses(shell: Shell, source: str, code: str, text: str) -> None:
    error = shell.error(source)
    assert error.code == code
    assert text in error.msg
