"""What programs are foreseen to touch: the tables of the chapter row by row.

`@` in expected paths is the session's directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from worker.builtins import BUILTINS
from worker.builtins.functions import FUNCTIONS, Function
from worker.builtins.namespaces import NAMESPACES
from worker.errors import Raised
from worker.evaluate.calls import RESERVED_CALLS
from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.language import ParseContext, ast, parse
from worker.planning import derive, is_pure
from worker.planning import walk as limits
from worker.planning.walk import VISITORS
from worker.values.methods.registry import METHODS

READ, WRITE, DELETE = "fs_read", "fs_write", "fs_delete"
OPAQUE: dict[str, Any] = {"kind": "opaque"}
TIME: dict[str, Any] = {"kind": "time"}
MOVE: dict[str, Any] = {"kind": "session_write"}
HISTORY: dict[str, Any] = {"kind": "journal_read"}


def fs(kind: str, *paths: str) -> dict[str, Any]:
    return {"kind": kind, "paths": list(paths)}


def names(kind: str, *values: str) -> dict[str, Any]:
    return {"kind": kind, "names": list(values)}


def net(host: str, port: int) -> dict[str, Any]:
    return {"kind": "net_connect", "host": host, "port": port}


@pytest.fixture
def ev(tmp_path: Path) -> Evaluator:
    directory = tmp_path.resolve() / "p"
    (directory / "sub").mkdir(parents=True)
    (directory / "a.txt").write_text("12345")
    (directory / "b.txt").write_text("1")
    (directory / "script.shl").write_text("touch made\n")
    (directory / "arguments.shl").write_text("for a in args { rm (a) }\n")
    (directory / "broken.shl").write_text("let = \n")
    (directory / "mod.shl").write_text("touch here\nexport fn clean(p) { rm (p) }\n")
    (directory / "declares.shl").write_text("fn wipe() { rm wiped }\n")
    evaluator = bare_evaluator(str(directory))
    evaluator.env[b"HOME"] = b"/home/io"
    return evaluator


def effects_of(ev: Evaluator, src: str, **options: bool) -> list[dict[str, Any]]:
    values, commands = ev.bound_names()
    context = ParseContext(values=frozenset(values), commands=frozenset(commands))
    derived = derive(ev, parse(src, context), **options)
    return [_relative(effect, ev.cwd) for effect in derived.plan.effects]


def _relative(effect: dict[str, Any], cwd: str) -> dict[str, Any]:
    if "paths" not in effect:
        return effect
    return {**effect, "paths": [path.replace(cwd, "@", 1) for path in effect["paths"]]}


STATEMENTS = [
    ("40 + 2", []),
    ("let x = 1\nvar y = x\ny = 2", []),
    ("fn f() { rm a }", []),
    ("alias g = rm a", []),
    ('env.MODE = "x"', [names("env_write", "MODE")]),
    ("env.MODE = (cat a)", [fs(READ, "@/a"), names("env_write", "MODE")]),
    ("use mod", [fs(READ, "@/mod.shl"), fs(WRITE, "@/here")]),
    ("use gone", [fs(READ, "@/gone.shl"), OPAQUE]),
    ('use mod\nmod.clean("x")', [fs(READ, "@/mod.shl"), fs(WRITE, "@/here"), fs(DELETE, "@/x")]),
    ("for f in (ls a) { touch b }", [fs(READ, "@/a"), fs(WRITE, "@/b")]),
    ('for f in ["a", "b"] { rm (f) }', [fs(DELETE, "@/a", "@/b")]),
    ('for n in 1..3 { touch "f{n}" }', [fs(WRITE, "@/f1", "@/f2")]),
    ('for f in glob("*.txt") { rm (f) }', [fs(DELETE, "@/a.txt", "@/b.txt")]),
    ("while true { touch a }", [fs(WRITE, "@/a")]),
    ("spawn { touch a }", [fs(WRITE, "@/a")]),
    ("touch a &", [fs(WRITE, "@/a")]),
    ("if true { touch y } else { rm n }", [fs(WRITE, "@/y"), fs(DELETE, "@/n")]),
    (
        'match 1 { 1 if (cat g) == "" => (rm one), _ => (rm two) }',
        [fs(READ, "@/g"), fs(DELETE, "@/one"), fs(DELETE, "@/two")],
    ),
    ("try { rm a } catch e { touch b }", [fs(DELETE, "@/a"), fs(WRITE, "@/b")]),
    ("(cat a) catch e { touch b }", [fs(READ, "@/a"), fs(WRITE, "@/b")]),
    ("[(cat a), (cat b)]", [fs(READ, "@/a"), fs(READ, "@/b")]),
    ("{k: (cat a)}", [fs(READ, "@/a")]),
    ('"{cat a}"', [fs(READ, "@/a")]),
    ("[1].map(x => (rm a))", [fs(DELETE, "@/a")]),
    ('with cwd: "/srv" { touch a }', [fs(WRITE, "/srv/a")]),
    ('with env: {A: "1"} { touch a }', [fs(WRITE, "@/a")]),
    ("with cwd: (cat d).out { touch a }", [fs(READ, "@/d"), OPAQUE]),
    ("sh { make }", [OPAQUE]),
    ("python3 { print(1) }", [OPAQUE]),
]

VALUES = [
    ('let d = "out"\nmkdir (d)', [fs(WRITE, "@/out")]),
    ('var d = "out"\nmkdir (d)', [fs(WRITE, "@/out")]),
    ('var d = "out"\nd = "x"\nmkdir (d)', [OPAQUE]),
    ('let n = "k"\ntouch "a-{n}.txt"', [fs(WRITE, "@/a-k.txt")]),
    ('touch ("a" + "b")', [fs(WRITE, "@/ab")]),
    ('touch (path("d").join("f"))', [fs(WRITE, "@/d/f")]),
    ('touch (path("d/f").parent)', [fs(WRITE, "@/d")]),
    ('touch (path("f").abs())', [fs(WRITE, "@/f")]),
    ('touch (if true { "a" } else { "b" })', [fs(WRITE, "@/a", "@/b")]),
    ('fn f(p) { rm (p) }\nf q\nf("z")', [fs(DELETE, "@/q"), fs(DELETE, "@/z")]),
    ("fn f(p) { rm (p) }\n[1].each(f)", [OPAQUE]),
    ("fn f() { f() }\nf()", []),
    ("fn clean() { rm old }\n[1].each(clean)", [fs(DELETE, "@/old")]),
    ("alias g = rm x\ng y", [fs(DELETE, "@/x", "@/y")]),
    ("touch ../x", [fs(WRITE, "@/../x")]),
    ("touch ./a/../b/", [fs(WRITE, "@/b")]),
    ("touch ~/x", [fs(WRITE, "/home/io/x")]),
    ('touch "~/x"', [fs(WRITE, "@/~/x")]),
    ("touch (cat a)", [fs(READ, "@/a"), OPAQUE]),
    ("rm a\nrm a", [fs(DELETE, "@/a")]),
    ("rm a a", [fs(DELETE, "@/a", "@/a")]),
    ("rm a\nrm b", [fs(DELETE, "@/a"), fs(DELETE, "@/b")]),
]

DIRECTORIES = [
    ("cd build\ntouch ok", [MOVE, fs(WRITE, "@/build/ok")]),
    ("pushd build\ntouch ok", [MOVE, fs(WRITE, "@/build/ok")]),
    ("cd\ntouch ok", [MOVE, fs(WRITE, "/home/io/ok")]),
    ("cd -\ntouch ok", [MOVE, OPAQUE]),
    ("popd\ntouch ok", [MOVE, OPAQUE]),
    ("j x\ntouch ok", [MOVE, OPAQUE]),
    ("if true { cd build }\ntouch ok", [MOVE, OPAQUE]),
    ("for x in [1] { cd build }\ntouch ok\ntouch /abs", [MOVE, OPAQUE, fs(WRITE, "/abs")]),
    ("cd (cat a)\ntouch ok", [fs(READ, "@/a"), MOVE, OPAQUE]),
    ("spawn { cd build }\ntouch ok", [MOVE, fs(WRITE, "@/ok")]),
    ("./cds.shl\ntouch ok", [fs(READ, "@/cds.shl"), OPAQUE, fs(WRITE, "@/ok")]),
]

BUILTIN_ROWS = [
    ("echo a", []),
    ("sleep 1s", []),
    ("ls", [fs(READ, "@")]),
    ("ls a b", [fs(READ, "@/a", "@/b")]),
    ("ls *.none", [fs(READ, "@")]),
    ("stat a", [fs(READ, "@/a")]),
    ("cat -n a", [fs(READ, "@/a")]),
    ("head a 3", [fs(READ, "@/a")]),
    ("head", [fs(READ, "@")]),
    ("mkdir -p a b", [fs(WRITE, "@/a", "@/b")]),
    ("touch -- a", [fs(WRITE, "@/a")]),
    ("touch *.none", [fs(WRITE)]),
    ("cp a b", [fs(READ, "@/a"), fs(WRITE, "@/b")]),
    ("cp a b sub", [fs(READ, "@/a", "@/b"), fs(WRITE, "@/sub/a", "@/sub/b")]),
    ("cp a", [OPAQUE]),
    ("mv a b", [fs(READ, "@/a"), fs(WRITE, "@/b"), fs(DELETE, "@/a")]),
    ("mv a sub", [fs(READ, "@/a"), fs(WRITE, "@/sub/a"), fs(DELETE, "@/a")]),
    ("rm a *.txt", [fs(DELETE, "@/a", "@/a.txt", "@/b.txt")]),
    ("rm *.none", [fs(DELETE)]),
    ("ln a b", [fs(READ, "@/a"), fs(WRITE, "@/b")]),
    ("ln -s a b", [fs(WRITE, "@/b")]),
    ("ln --symbolic a b", [fs(WRITE, "@/b")]),
    ("which git", [names("env_read", "PATH")]),
    ("env", [names("env_read", "*")]),
    ("env HOME", [names("env_read", "HOME")]),
    ("env (cat a)", [fs(READ, "@/a"), names("env_read", "*")]),
    ("pwd", []),
    ("dirs", []),
    ("jobs", []),
    ("exit 3", []),
    ("assert (1 > 0)", []),
    ("plan { rm a }", []),
    ('explain "rm a"', []),
    ("save a.txt hi", [fs(WRITE, "@/a.txt")]),
    ("source declares.shl\nwipe", [fs(READ, "@/declares.shl"), fs(DELETE, "@/wiped")]),
    ("run script.shl", [fs(READ, "@/script.shl"), fs(WRITE, "@/made")]),
    ("./script.shl", [fs(READ, "@/script.shl"), fs(WRITE, "@/made")]),
    ("run arguments.shl x y", [fs(READ, "@/arguments.shl"), fs(DELETE, "@/x", "@/y")]),
    ("run gone.shl", [fs(READ, "@/gone.shl"), OPAQUE]),
    ("run broken.shl", [fs(READ, "@/broken.shl"), OPAQUE]),
    ("run ./tool.py", [OPAQUE]),
    ("run git status", [OPAQUE]),
    ("journal", [HISTORY]),
    ("history", [HISTORY]),
    ("undo", [HISTORY, OPAQUE]),
    ("apply 1", [OPAQUE]),
    ("interact vi", [OPAQUE]),
    ("open a", [OPAQUE]),
    ("reef", [OPAQUE]),
    ("reef doctor", [OPAQUE]),
    ("^make", [OPAQUE]),
    ("frobnicate -x", [OPAQUE]),
    ("^rm a", [fs(DELETE, "@/a")]),
]

CALLS = [
    ('http.get("https://u:p@api.test/x")', [net("api.test", 443)]),
    ('http.post("http://api.test:8080?q", 1)', [net("api.test", 8080)]),
    ('http.put("http://api.test#f", 1)', [net("api.test", 80)]),
    ("http.delete((cat u).out)", [net("*", 443), fs(READ, "@/u")]),
    ('secret.get("k")', [names("secret_use", "k")]),
    ("secret.get((cat u).out)", [names("secret_use", "*"), fs(READ, "@/u")]),
    ("os.env()", [names("env_read", "*")]),
    ("os.pid()", []),
    ("env.PATH", [names("env_read", "PATH")]),
    ("let env = {A: 1}\nenv.A", []),
    ("math.pi", []),
    ('json.parse("1")', []),
    ("let t = now", [TIME]),
    ("now()", [TIME]),
    ("today()", [TIME]),
    ("every(1s)", [TIME]),
    ("3m.ago", [TIME]),
    ("3m.from_now", [TIME]),
    ('watch("d")', [fs(READ, "@/d")]),
    ('watch(glob("d/*.c"))', [fs(READ, "@/d")]),
    ('watch("d/*.c")', [fs(READ, "@/d")]),
    ('tail("d/*.c")', [fs(READ, "@/d/*.c")]),
    ('tail("d")', [fs(READ, "@/d")]),
    ('path("a")', []),
    ('channel("c")', []),
    ("parallel(() => (rm a), () => { rm b })", [fs(DELETE, "@/a"), fs(DELETE, "@/b")]),
    ("retry(2, () => { rm a })", [fs(DELETE, "@/a")]),
    ('on(channel("c"), e => (rm a))', [fs(DELETE, "@/a")]),
    ('run("script.shl")', [fs(READ, "@/script.shl"), fs(WRITE, "@/made")]),
    ('run("git")', [OPAQUE]),
    ('save("f", 1)', [fs(WRITE, "@/f")]),
    ('open("f")', [OPAQUE]),
    ('"x".save("f")', [fs(WRITE, "@/f")]),
    ('"x".append("f")', [fs(WRITE, "@/f")]),
    ('(cat a).save(path("f"))', [fs(WRITE, "@/f"), fs(READ, "@/a")]),
    ('path("a").read', [fs(READ, "@/a")]),
    ('path("a").read_bytes()', [fs(READ, "@/a")]),
    ("(pwd).read", [OPAQUE]),
    ('path("a").lines', [fs(READ, "@/a")]),
    ('path("a").exists()', [fs(READ, "@/a")]),
    ("(pwd).exists", []),
    ('"a\\nb".lines()', []),
    ('"x".feed(sort -r)', [OPAQUE]),
    ('"x".feed(cat)', [OPAQUE]),
    ("(cat a).feed(sort)", [fs(READ, "@/a"), OPAQUE]),
    ('(ls .).where(.type == "file")', [fs(READ, "@")]),
    ('rm("x")', [fs(DELETE, "@/x")]),
    ("let t = ls", [fs(READ, "@")]),
    ("nobody_has_this_name(1)", []),
    ("[1, 2].each(x => sh { true })", [OPAQUE]),
]

REDIRECTS = [
    ("echo hi > note.txt", [fs(WRITE, "@/note.txt")]),
    ("ls >> log", [fs(READ, "@"), fs(WRITE, "@/log")]),
    ("frobnicate < in.txt", [OPAQUE, fs(READ, "@/in.txt")]),
    ("A=1 frobnicate", [OPAQUE]),
    ("echo hi > (cat a)", [fs(READ, "@/a"), OPAQUE]),
]


@pytest.mark.parametrize(
    ("src", "expected"), [*STATEMENTS, *VALUES, *DIRECTORIES, *BUILTIN_ROWS, *CALLS, *REDIRECTS]
)
def test_a_program_is_foreseen_to_touch(
    ev: Evaluator, src: str, expected: list[dict[str, Any]]
) -> None:
    if "../x" in src:
        parent = str(Path(ev.cwd).parent)
        expected = [fs(WRITE, f"{parent}/x")]
    assert effects_of(ev, src) == expected


@pytest.mark.parametrize(
    ("src", "reversibility"),
    [
        ("1 + 2", "reversible"),
        ("rm a.txt", "reversible"),
        ("mv a b", "reversible"),
        ("rm --permanent a.txt", "irreversible"),
        ("sh { true }", "irreversible"),
        ('http.get("http://h")', "irreversible"),
        ("rm a\nsh { true }", "irreversible"),
    ],
)
def test_a_plan_is_as_reversible_as_its_heaviest_part(
    ev: Evaluator, src: str, reversibility: str
) -> None:
    assert derive(ev, parse(src)).leash.reversibility == reversibility


@pytest.mark.parametrize(
    ("src", "estimates"),
    [
        ("rm a.txt b.txt", {"bytes": 6, "items": 2}),
        ("rm a.txt\nrm a.txt gone", {"bytes": 5, "items": 2}),
        ("cp a.txt c", {"bytes": 5, "items": 2}),
        ("cat a.txt", {"bytes": None, "items": 1}),
        ("rm a.txt\nsh { true }", {"bytes": None, "items": None}),
        ("now()", {"bytes": None, "items": None}),
        ("rm sub", {"bytes": None, "items": 1}),
    ],
)
def test_estimates_count_items_and_bytes(
    ev: Evaluator, src: str, estimates: dict[str, int | None]
) -> None:
    assert dict(derive(ev, parse(src)).leash.estimates) == estimates


def test_each_statement_has_a_plan_of_its_own(ev: Evaluator) -> None:
    derived = derive(ev, parse("fn f() { rm a }\nf()\n1\nf()"))
    assert [plan.kinds for plan in derived.statements] == [[], ["fs_delete"], [], ["fs_delete"]]


# --- the session ---------------------------------------------------------------------------------


def test_bindings_of_the_session_are_known(ev: Evaluator) -> None:
    ev.evaluate_source('let d = "out"\nfn f(p) { rm (p) }\nalias g = touch')
    assert effects_of(ev, 'mkdir (d)\nf("x")\ng y') == [
        fs(WRITE, "@/out"),
        fs(DELETE, "@/x"),
        fs(WRITE, "@/y"),
    ]


def test_a_session_binding_that_the_program_assigns_is_dynamic(ev: Evaluator) -> None:
    ev.evaluate_source('var d = "out"')
    assert effects_of(ev, 'mkdir (d)\nd = "x"') == [OPAQUE]


def test_a_closure_of_the_session_is_followed_into_what_it_captured(ev: Evaluator) -> None:
    ev.evaluate_source('fn make(p) { () => rm (p) }\nlet gone = make("old")')
    assert effects_of(ev, "gone()") == [fs(DELETE, "@/old")]


def test_names_of_the_session_are_unknown_to_scripts(ev: Evaluator) -> None:
    ev.evaluate_source("fn cleanup() { rm old }")
    Path(ev.cwd, "calls.shl").write_text("cleanup\n")
    assert effects_of(ev, "run calls.shl") == [fs(READ, "@/calls.shl"), OPAQUE]


def test_a_kept_plan_is_followed_by_apply(ev: Evaluator) -> None:
    ev.evaluate_source("plan { rm a }")
    assert effects_of(ev, "apply 1") == [fs(DELETE, "@/a")]


def test_planning_changes_nothing(ev: Evaluator) -> None:
    before = sorted(Path(ev.cwd).iterdir())
    effects_of(ev, "touch new\nrm a.txt\ncd sub\nrun script.shl\nuse mod")
    assert sorted(Path(ev.cwd).iterdir()) == before
    assert ev.cwd.endswith("/p")


def test_a_strict_derivation_wants_literal_paths(ev: Evaluator) -> None:
    with pytest.raises(Raised) as caught:
        effects_of(ev, "rm (cat a)", strict=True)
    assert caught.value.error.code == "arg_error"
    assert caught.value.error.msg == "planning requires a literal argument"
    assert effects_of(ev, 'let d = "x"\nrm (d)', strict=True) == [fs(DELETE, "@/x")]


# --- limits --------------------------------------------------------------------------------------


def test_too_many_nodes_make_the_whole_plan_opaque(
    ev: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NODES_MAX", 50)
    assert effects_of(ev, "touch a\n" + "1\n" * 50) == [OPAQUE]


def test_too_much_time_makes_the_whole_plan_opaque(
    ev: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SECONDS_MAX", -1.0)
    derived = derive(ev, parse("touch a"))
    assert list(derived.plan.effects) == [OPAQUE]
    assert derived.leash.reversibility == "irreversible"


def test_too_many_paths_make_the_effect_opaque(
    ev: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PATHS_MAX", 2)
    assert effects_of(ev, "rm a b c\nrm a b") == [OPAQUE, fs(DELETE, "@/a", "@/b")]


def test_a_glob_that_takes_too_long_makes_the_whole_plan_opaque(
    ev: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[None] = []

    def check_time(walk: limits.Walk) -> None:
        looked.append(None)
        if len(looked) > 3:
            raise limits.Exhausted

    for number in range(5):
        Path(ev.cwd, f"d{number}").mkdir()
    monkeypatch.setattr(limits.Walk, "check_time", check_time)
    assert effects_of(ev, "ls **/*.c") == [OPAQUE]
    assert len(looked) == 4


def test_functions_nested_too_deep_are_opaque(ev: Evaluator) -> None:
    source = "fn f0() { rm a }\n" + "".join(f"fn f{n}() {{ f{n - 1}() }}\n" for n in range(1, 70))
    assert effects_of(ev, source + "f60()") == [fs(DELETE, "@/a")]
    assert effects_of(ev, source + "f69()") == [OPAQUE]


def test_a_script_that_is_too_long_is_opaque(
    ev: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.planning.looks.SCRIPT_BYTES_MAX", 5)
    assert effects_of(ev, "run script.shl") == [fs(READ, "@/script.shl"), OPAQUE]


# --- completeness --------------------------------------------------------------------------------

_NO_CODE = {ast.Node, ast.LitPart, ast.ExprPart}


def test_every_statement_and_expression_has_a_visitor(ev: Evaluator) -> None:
    derive(ev, parse("1"))
    members: set[type] = set()
    for union in (ast.Stmt, ast.Expr):
        members |= set(union.__args__)
    assert members - set(VISITORS) == set()


# Heads whose effects depend on more than their arguments: the planner knows them by name.
_NOTHING = {"echo", "sleep", "pwd", "dirs", "jobs", "exit", "quit", "assert", "plan", "explain"}


def test_every_builtin_declares_effects_or_is_known_to_have_none() -> None:
    silent = {name for name, entry in BUILTINS.items() if not entry.effects}
    assert silent == _NOTHING


def test_every_call_form_declares_effects_or_is_known_to_have_none() -> None:
    silent = {
        name
        for name in RESERVED_CALLS
        if not (isinstance(form := FUNCTIONS.get(name), Function) and form.effects)
    }
    assert silent == {"parallel", "retry", "on", "assert", "path", "glob", "regex", "channel"}


def test_only_these_namespace_members_reach_out() -> None:
    reaching = {
        f"{namespace}.{name}"
        for namespace, entry in NAMESPACES.items()
        for name, member in entry.functions.items()
        if member.effects
    }
    assert reaching == {
        *(f"http.{verb}" for verb in ("get", "post", "put", "delete")),
        "secret.get",
        "os.env",
    }


def test_only_these_methods_reach_out() -> None:
    reaching = {method.name for method in METHODS if method.effects}
    assert reaching == {
        "save",
        "append",
        "read",
        "read_bytes",
        "lines",
        "exists",
        "is_dir",
        "is_file",
        "size",
        "modified",
    }


# --- purity --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "pure"),
    [
        ("6 * 7", True),
        ("let a = [1, 2]\na.map(x => x * 2).sum()", True),
        ("n + 1", True),
        ("for x in [1] { x }", True),
        ("match 1 { n => n }", True),
        ("ls", False),
        ("let t = ls", False),
        ("now", False),
        ("f(1)", False),
        ('env.X = "1"', False),
        ("3m.ago", False),
        ("unknown + 1", False),
        ('n.save("f")', False),
        ('secret.get("x")', False),
    ],
)
def test_what_can_only_compute_is_found_without_derivation(src: str, pure: bool) -> None:
    context = ParseContext(values=frozenset(("n", "secret")))
    assert is_pure(parse(src, context), frozenset(("n", "secret"))) is pure


def test_a_huge_tree_is_left_to_the_derivation() -> None:
    assert not is_pure(parse("1\n" * 50_000), frozenset())


def _pure_sources() -> Iterable[str]:
    for table in (STATEMENTS, VALUES, DIRECTORIES, BUILTIN_ROWS, CALLS, REDIRECTS):
        for src, _expected in table:
            yield src


@pytest.mark.parametrize("src", list(_pure_sources()))
def test_what_is_pure_derives_to_nothing(ev: Evaluator, src: str) -> None:
    if is_pure(parse(src), frozenset()):
        assert effects_of(ev, src) == []
