"""Heads of the session: environment, text, jobs, programs, plans (chapter 31 §4 - §7)."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.builtins.support import MemoryJournal, Shell, shell_in
from worker.errors import Raised

# --- env ------------------------------------------------------------------------------------------


def test_env_is_a_record_in_environment_order(shell: Shell) -> None:
    shell.evaluator.env.clear()
    shell.evaluator.env.update({b"B": b"2", b"A": b"1", b"BAD": b"\xff", b"\xfe": b"x"})
    assert shell.inline("(env).out") == '{B: "2", A: "1"}'
    assert shell.inline("os.env()") == '{B: "2", A: "1"}'
    assert shell.inline('env.B = "3"; (env).out') == '{A: "1", B: "3"}'


def test_env_of_a_name_is_its_value_or_null(shell: Shell) -> None:
    shell.evaluator.env.update({b"TIDE": b"north", b"BAD": b"\xff"})
    assert shell.inline("(env TIDE).out") == '"north"'
    assert shell.inline("(env NO_SUCH).out") == "null"
    assert shell.inline("(env BAD).out") == "null"
    assert shell.inline('(env NO_SUCH).out ?? "x"') == '"x"'
    assert shell.inline("env.TIDE") == '"north"'
    assert shell.code("env.NO_SUCH") == "field_missing"


def test_env_takes_one_name_at_most(shell: Shell) -> None:
    error = shell.fails("env A B")
    assert (error.code, error.msg) == ("arg_error", "env accepts zero or one name")
    assert shell.code("env (5)") == "type_error"


# --- echo, sleep ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("echo", ""),
        ("echo a  b", "a b"),
        ('echo "a b" c', "a b c"),
        ('echo (3..5) ([1, "b"])', '3..5 [1, "b"]'),
        ("echo (null) x", " x"),
        ("echo (1.0) (2kb) (true)", "1 2kb true"),
        ('echo (path("a b"))', "a b"),
        ('echo ({"k": "v"})', '{k: "v"}'),
        ("echo -n --flag x", "x"),
        ('echo "-n" -- x', "-n x"),
        ("echo - x", "- x"),
        ("echo (echo x)", "outcome(status: 0, ok: true)"),
        ("echo '{}'", "{}"),
    ],
)
def test_echo_joins_its_values(shell: Shell, source: str, text: str) -> None:
    assert shell.out(source) == text


def test_echo_expands_globs(shell: Shell) -> None:
    (shell.folder / "a.txt").touch()
    assert shell.out("echo *.txt *.none") == f"{shell.folder}/a.txt"


@pytest.mark.parametrize("source", ["sleep 1ms", "sleep 0", "sleep (1ms)", 'sleep "1ms"'])
def test_sleep_gives_null(shell: Shell, source: str) -> None:
    assert shell.out(source) is None


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("sleep", "arg_error"),
        ("sleep 1s 2s", "arg_error"),
        ("sleep soon", "arg_error"),
        ("sleep 1.5", "arg_error"),
        ("sleep (-1s)", "type_error"),
        ("sleep (-1)", "type_error"),
        ("sleep (1.5)", "type_error"),
        ("sleep (true)", "type_error"),
        ("sleep (null)", "type_error"),
    ],
)
def test_sleep_refuses(shell: Shell, source: str, code: str) -> None:
    assert shell.code(source) == code


def test_sleep_ends_early_when_cancelled(shell: Shell) -> None:
    canceller = threading.Timer(0.05, shell.evaluator.cancel.cancel)
    canceller.start()
    assert shell.out("sleep 1000h") is None
    canceller.join()


# --- exit, jobs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("exit", 0),
        ("quit", 0),
        ("exit 3", 3),
        ("quit (4 + 1)", 5),
        ("exit (-2)", -2),
        ("exit 99999999999", 2**31 - 1),
        ("exit (-99999999999)", -(2**31)),
    ],
)
def test_exit_asks_the_host_to_stop(shell: Shell, source: str, status: int) -> None:
    assert shell.run(source) is None
    assert shell.evaluator.pending_exit == status


@pytest.mark.parametrize(
    "source", ["exit now", "exit (1.0)", "exit (true)", "exit (null)", "quit 1x"]
)
def test_a_status_that_is_no_int_requests_nothing(shell: Shell, source: str) -> None:
    assert shell.code(source) == "arg_error"
    assert shell.evaluator.pending_exit is None


def test_jobs_has_a_row_per_task_in_order_of_start(shell: Shell) -> None:
    assert shell.inline("jobs") == "[]"
    shell.run("let a = spawn { 1 }\na.await()\nlet b = spawn { sleep 1000s }\nb.suspend()")
    assert shell.inline("jobs.map(r => [r.id, r.desc, r.state, r.done, r.suspended])") == (
        '[[1, "spawn block", "done", true, false], [2, "spawn block", "stopped", false, true]]'
    )
    shell.run("b.resume()")
    assert shell.inline("jobs.last().state") == '"running"'
    shell.run("b.cancel()")


# --- source, run, open ----------------------------------------------------------------------------


def test_source_declares_in_the_current_scope(shell: Shell) -> None:
    (shell.folder / "lib.shl").write_text("let answer = 42\nanswer + 1")
    assert shell.inline("source lib.shl") == "43"
    assert shell.inline("answer") == "42"


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("source", "arg_error", "source expects script path"),
        ("source (5)", "arg_error", "source expects path"),
        ("source nope.shl", "io_error", "cannot read script: "),
        ("source bad.shl", "parse_error", ""),
        ("run", "arg_error", "run expects a path or command name"),
        ("run (5)", "type_error", "run expects a str or path, found int"),
        ("run nope.shl", "not_found", ""),
        ("run ./nope.shl", "io_error", "cannot read script: "),
        ("open", "arg_error", "open expects exactly one path"),
        ("open a b", "arg_error", "open expects exactly one path"),
        ("open (5)", "type_error", "expected path, found int"),
    ],
)
def test_program_heads_refuse(shell: Shell, source: str, code: str, message: str) -> None:
    (shell.folder / "bad.shl").write_text("let = ")
    error = shell.fails(source)
    assert error.code == code
    assert error.msg.startswith(message)


def test_run_passes_flags_as_typed_in_both_forms(shell: Shell) -> None:
    (shell.folder / "args.shl").write_text("args")
    assert shell.inline("run args.shl -xvf --dry-run=1 -- a") == (
        '["-xvf", "--dry-run=1", "--", "a"]'
    )
    assert shell.inline('run("args.shl", "--short", 5)') == '["--short", 5]'


def test_run_starts_an_external_program(shell: Shell) -> None:
    assert shell.inline('run("printf", "%s", "x").out') == '"x"'
    assert shell.inline("(run printf %s y).out") == '"y"'
    assert shell.inline('run("sh", "-c", "exit 4").status') == "4"


def test_open_hands_the_path_to_the_opener(tmp_path: Path) -> None:
    opened: list[str] = []
    shell = shell_in(tmp_path, opener=opened.append)
    assert shell.run("open notes.md") is None
    assert shell.run('open(path("b"))') is None
    assert opened == ["notes.md", "b"]


def test_open_starts_the_desktops_program_detached(shell: Shell) -> None:
    programs = shell.folder / "bin"
    programs.mkdir()
    os.mkfifo(shell.folder / "seen")
    (programs / "xdg-open").write_text(
        f'#!/bin/sh\nread line; echo "$1:$line:" > {shell.folder}/seen\n'
    )
    (programs / "xdg-open").chmod(0o755)
    shell.evaluator.env[b"PATH"] = os.fsencode(programs) + b":" + shell.evaluator.env[b"PATH"]
    assert shell.run("open notes.md") is None
    assert (shell.folder / "seen").read_text() == "notes.md::\n"


def test_an_opener_that_cannot_start_is_custom(shell: Shell) -> None:
    shell.evaluator.env[b"PATH"] = os.fsencode(shell.folder)
    error = shell.fails("open notes.md")
    assert error.code == "custom"
    assert error.msg.startswith("open: ")


# --- assert ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", ["assert (1 < 2)", "assert(true)", "assert((echo x))", 'assert(true, "m")']
)
def test_a_condition_that_holds_gives_null(shell: Shell, source: str) -> None:
    assert shell.run(source) is None


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("assert (1 > 2)", "assert_failed", "assertion failed"),
        ('assert (1 > 2) "small"', "assert_failed", "small"),
        ('assert(false, "m")', "assert_failed", "m"),
        ("assert(sh { exit 1 })", "assert_failed", "assertion failed"),
        ("assert", "arg_error", ""),
        ("assert()", "arg_error", ""),
        ('assert(true, "a", "b")', "arg_error", ""),
        ('assert(true, msg: "a")', "arg_error", ""),
        ("assert(1)", "type_error", "expected bool in condition, found int"),
        ("assert word", "type_error", "expected bool in condition, found str"),
        ("assert(false, 5)", "type_error", ""),
    ],
)
def test_assert_raises(shell: Shell, source: str, code: str, message: str) -> None:
    error = shell.fails(source)
    assert error.code == code
    assert error.msg.startswith(message)


# --- journal --------------------------------------------------------------------------------------


def entry(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "ts": number * 10**9,
        "principal": "uid:0",
        "src": f"touch {number}",
        "ok": True,
        "status": 0,
        "effects": [{"kind": "fs_write", "paths": [f"/{number}"]}],
    }


@pytest.mark.parametrize("head", ["journal", "history"])
def test_the_journal_is_a_table_of_its_rows(tmp_path: Path, head: str) -> None:
    journal = MemoryJournal(entries=[entry(2), entry(1)])
    shell = shell_in(tmp_path, journal=journal)
    assert shell.inline(f"{head}.map(.id)") == "[2, 1]"
    assert shell.inline(f"{head}.first()") == (
        '{id: 2, ts: 1970-01-01T00:00:02Z, principal: "uid:0", src: "touch 2", ok: true, '
        'status: 0, effects: "[{\\"kind\\":\\"fs_write\\",\\"paths\\":[\\"/2\\"]}]"}'
    )


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("", {}),
        ("--head=make", {"head": "make"}),
        ("--principal=agent:x", {"principal": "agent:x"}),
        ("--kind=submission", {"kind": "submission"}),
        ("--kind=all", {"kind": "all"}),
        ("--kind=other", {}),
        ("--limit=7", {"limit": 7}),
        ("--limit=0", {}),
        ("--limit=many", {}),
        ("--limit=(5)", {}),
        ("--verbose --head", {}),
    ],
)
def test_filters_are_applied_in_the_store(
    tmp_path: Path, flags: str, asked: dict[str, Any]
) -> None:
    journal = MemoryJournal()
    shell_in(tmp_path, journal=journal).run(f"journal {flags}")
    default = {"kind": "statement", "head": None, "principal": None, "limit": 100}
    assert journal.asked == {**default, **asked}


def test_without_a_journal_the_table_is_empty(shell: Shell) -> None:
    assert shell.inline("journal --limit=3") == "[]"


# --- plans ----------------------------------------------------------------------------------------


def test_a_plan_is_kept_and_can_be_applied_repeatedly(shell: Shell) -> None:
    assert shell.inline("let p = (plan { 6 * 7 })\np") == (
        "{id: 1, effects: [], reversible: true, spawns: false}"
    )
    assert shell.inline("[(apply 1), (apply (p)), (apply (1))]") == "[42, 42, 42]"
    assert shell.inline("(plan { 1 }).id") == "2"


def test_planning_runs_nothing(shell: Shell) -> None:
    shell.run("plan touch made; plan { touch made }")
    assert shell.code('plan touch (save "made" 1)') == "arg_error"
    assert os.listdir(shell.folder) == []


def test_applying_runs_in_the_scope_of_the_command(shell: Shell) -> None:
    shell.run('let n = 5\nplan touch ("f{n}")\napply 1')
    assert os.listdir(shell.folder) == ["f5"]


def test_a_plan_of_unknown_effects_is_neither_reversible_nor_free_of_programs(shell: Shell) -> None:
    assert shell.inline("plan sh { true }") == (
        '{id: 1, effects: ["opaque (effects unknown)"], reversible: false, spawns: true}'
    )


def test_explain_adds_the_source_and_keeps_nothing(shell: Shell) -> None:
    assert shell.inline('explain "1 + 1"') == (
        '{effects: [], reversible: true, spawns: false, source: "1 + 1"}'
    )
    assert shell.code("apply 1") == "not_found"


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("plan", "arg_error", "plan expects a block"),
        ("plan (5)", "arg_error", "plan expects a block"),
        ("apply", "arg_error", "apply expects a plan reference"),
        ("apply one", "arg_error", "apply expects a plan reference"),
        ("apply (1.0)", "arg_error", "apply expects a plan reference"),
        ("apply 9", "not_found", "no plan #9 to apply"),
        ("apply ({id: 9})", "not_found", "no plan #9 to apply"),
        ("explain", "arg_error", "explain expects a source string"),
        ("explain (5)", "arg_error", "explain expects a source string"),
        ('explain "1 +"', "parse_error", ""),
    ],
)
def test_plan_heads_refuse(shell: Shell, source: str, code: str, message: str) -> None:
    error = shell.fails(source)
    assert error.code == code
    assert error.msg.startswith(message)


# --- what is checked when it happens --------------------------------------------------------------


class Refusing:
    """An authority that refuses one effect kind and remembers what it was asked."""

    restricted = False

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.asked: list[dict[str, Any]] = []

    def check(self, effect: dict[str, Any]) -> None:
        self.asked.append(effect)
        if effect["kind"] == self.kind:
            from worker.errors import raised

            raise raised("leash_denied", f"leash: {self.kind} denied")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("ls", "fs_read"),
        ("cat a", "fs_read"),
        ("head a", "fs_read"),
        ("stat a", "fs_read"),
        ("touch a", "fs_write"),
        ("mkdir new", "fs_write"),
        ("cp a b", "fs_write"),
        ("mv a b", "fs_delete"),
        ("rm a", "fs_delete"),
        ("ln a b", "fs_write"),
        ("save a x", "fs_write"),
        ("echo x > a", "fs_write"),
        ("cd d", "session_write"),
        ("env", "env_read"),
        ("os.env()", "env_read"),
        ("which sh", "env_read"),
        ("journal", "journal_read"),
        ('secret.get("k")', "secret_use"),
        ('http.get("http://127.0.0.1:1/")', "net_connect"),
    ],
)
def test_a_refused_effect_does_not_happen(tmp_path: Path, source: str, kind: str) -> None:
    (tmp_path / "a").write_text("before")
    (tmp_path / "d").mkdir()
    shell = shell_in(tmp_path, authority=Refusing(kind), journal=MemoryJournal())
    with pytest.raises(Raised) as caught:
        shell.run(source)
    assert caught.value.error.code == "leash_denied"
    assert sorted(os.listdir(tmp_path)) == ["a", "d"]
    assert (tmp_path / "a").read_text() == "before"


def test_effects_name_normalised_absolute_paths(tmp_path: Path) -> None:
    authority = Refusing("none")
    (tmp_path / "d").mkdir()
    (tmp_path / "a").touch()
    shell_in(tmp_path, authority=authority).run("cp ./d/../a d/.")
    assert authority.asked == [
        {"kind": "fs_read", "paths": [f"{tmp_path}/a"]},
        {"kind": "fs_write", "paths": [f"{tmp_path}/d/a"]},
    ]


# --- secrets --------------------------------------------------------------------------------------


class Store:
    def __init__(self, **secrets: bytes) -> None:
        self._secrets = secrets

    def read(self, name: str) -> bytes | None:
        return self._secrets.get(name)


def test_a_secret_shows_its_name_only(tmp_path: Path) -> None:
    shell = shell_in(tmp_path, secrets=Store(token=b"hush"))
    assert shell.inline('secret.get("token")') == "secret(token)"
    assert shell.inline('let secret = 1\nsecret.get("token")') == "secret(token)"
    assert "hush" not in shell.inline('json.stringify([secret.get("token")])')


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("secret.get()", "arg_error"),
        ("secret.get(5)", "arg_error"),
        ('secret.get("a", "b")', "arg_error"),
        ('secret.get("no dots.")', "permission"),
        ('secret.get("missing")', "not_found"),
        ('secret.get("raw")', "utf8_error"),
    ],
)
def test_secrets_refuse(tmp_path: Path, source: str, code: str) -> None:
    shell = shell_in(tmp_path, secrets=Store(raw=b"\xff"))
    assert shell.code(source) == code


# --- functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ('path("a//b/")', "a//b/"),
        ('path(path("x"))', "x"),
        ('glob("*.md").pattern', '"*.md"'),
        ('glob("*", hidden: true).len()', "2"),
        ('glob("*", follow: true).len()', "1"),
        ('regex("a+")', 're"a+"'),
        ('channel("tide")', '{channel: "tide"}'),
        ("today() <= now()", "true"),
        ("now.hour == now().hour", "true"),
    ],
)
def test_constructors(shell: Shell, source: str, value: str) -> None:
    (shell.folder / "a").touch()
    (shell.folder / ".hidden").touch()
    assert shell.inline(source) == value


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("path()", "arg_error"),
        ('path("a", "b")', "arg_error"),
        ("path(5)", "type_error"),
        ("glob(5)", "type_error"),
        ('glob("*", depth: 1)', "arg_error"),
        ('glob("*", "x")', "arg_error"),
        ('regex("(")', "arg_error"),
        ("regex(5)", "type_error"),
        ("channel()", "arg_error"),
        ("channel(5)", "type_error"),
        ("now(1)", "undefined_var"),
        ("today(zone: 1)", "undefined_var"),
        ("every()", "arg_error"),
        ('every("1s")', "type_error"),
        ("every(0s)", "arg_error"),
        ("watch()", "arg_error"),
        ('watch("missing")', "not_found"),
        ("tail(5)", "type_error"),
        ('tail("missing")', "not_found"),
        ("sleep(1s)", "type_error"),
        ("exit(2)", "type_error"),
    ],
)
def test_functions_refuse(shell: Shell, source: str, code: str) -> None:
    assert shell.code(source) == code


def test_a_head_can_be_called_with_words(shell: Shell) -> None:
    assert shell.inline('mkdir("d").out.len()') == "1"
    assert shell.inline('mkdir("x/y", parents: true).ok') == "true"
    assert (shell.folder / "x/y").is_dir()
