"""Methods of every receiver, outcomes and tasks (chapter 21 §3, §11, §12)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.methods.support import check_failure, evaluator, failure, run
from worker.evaluate.host import Host

RESULTS = [
    ("[2, 4].tap(xs => xs.sum())", "[2, 4]"),
    ("var seen = 0\n5.also(n => { seen = n })\nseen", "5"),
    ("null.tap(n => n)", "null"),
    ("{q: 3kb, a: [null, 1.0]}.json()", '"{\\"a\\":[null,1.0],\\"q\\":3000}"'),
    ("null.json()", '"null"'),
    ('re"a".json()', '"\\"a\\""'),
    ("(1..4).json()", '"[1,2,3]"'),
    ("2s.json()", '"2000000000"'),
    ("7:05.json()", '"\\"07:05\\""'),
    ("(n => n).json()", '"\\"closure(n)\\""'),
    ('path("a b").json()', '"\\"a b\\""'),
    ("(echo ok).json()", '"\\"ok\\""'),
    ("(echo a b).words()", '["a", "b"]'),
    ("(echo a b).len", "3"),
    ("(echo ab).tap(o => o.ok).out", '"ab"'),
    ("(echo ab).stdout().str()", '"ab\\n"'),
    ("(echo ab).stderr().len()", "0"),
    ("(echo ab).also(o => o.status).status", "0"),
    ("(^sh -c 'printf abc; exit 3').len()", "3"),
    ("(^sh -c 'printf \"[1, 2]\"; exit 3').sum()", "3"),
    ("let t = spawn { 3 * 7 }\n[t.await(), t.wait(), t.is_done()]", "[21, 21, true]"),
    ("let t = spawn { 1 / 0 }\nt.await() catch e { e.code }", '"div_zero"'),
    ("let t = spawn { sleep 1h }\nt.cancel()", "null"),
    ("let t = spawn { sleep 1h }\nlet s = t.suspend()\n[s == t, t.is_suspended, t.resume() == t, "
     "t.is_suspended(), t.cancel()]", "[true, true, true, false, null]"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "shown"), RESULTS, ids=[row[0][:60] for row in RESULTS])
def test_result(source: str, shown: str) -> None:
    assert run(source) == shown


FAILURES = [
    ("5.tap()", "arg_error", "missing argument 1"),
    ("5.also(6)", "type_error", "int is not callable"),
    ("5.tap(n => 1 / 0)", "div_zero", ""),
    ("5.save()", "arg_error", "missing argument 1"),
    ("5.save(6)", "type_error", "expected path, found int"),
    ("5.append([])", "type_error", "expected path, found list"),
    ("[1].pick()", "arg_error", "pick needs a terminal"),
    ('5.pick(prompt: "? ", multi: true)', "arg_error", "pick needs a terminal"),
    ("{pick: 1}.pick()", "arg_error", "pick needs a terminal"),
    ("every(1h).pick()", "arg_error", "pick needs a terminal"),
    ("(echo a).nothing()", "field_missing", "unknown method `.nothing` on str"),
    ("(echo a).map(n => n)", "type_error", "expected collection, found str"),
    ("(spawn { 1 }).await(1)", "arg_error", "method takes no arguments"),
    ("(spawn { 1 }).is_done(x: 1)", "arg_error", "method takes no arguments"),
    ("(spawn { 1 }).len()", "type_error", ".len unsupported on task"),
]


@pytest.mark.parametrize(
    ("source", "code", "phrase"), FAILURES, ids=[row[0][:60] for row in FAILURES]
)
def test_failure(source: str, code: str, phrase: str) -> None:
    check_failure(source, code, phrase)


SAVED = [
    ('"no newline".save("f")', b"no newline", '"no newline"'),
    ('{v: 2, a: 1}.save("f")', b'{"a":1,"v":2}', "{v: 2, a: 1}"),
    ('null.save("f")', b"null", "null"),
    ('[1, "x"].save(path("f"))', b'[1,"x"]', '[1, "x"]'),
    ('path("p q").save("f")', b'"p q"', '"p q"'),
    ('2kb.save("f")', b"2000", "2kb"),
    ('(echo text).save("f")', b"text", '"text"'),
    ('(echo text).stdout.save("f")', b"text\n", "bytes(5b)"),
]


@pytest.mark.parametrize(("source", "content", "shown"), SAVED, ids=[row[0] for row in SAVED])
def test_save(source: str, content: bytes, shown: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"something longer that is here already")
    assert run(source, str(tmp_path)) == shown
    assert (tmp_path / "f").read_bytes() == content


def test_append_creates_and_extends(tmp_path: Path) -> None:
    run('"a".append("f")\n"b\\n".append("f")\n[1].append("f")', str(tmp_path))
    assert (tmp_path / "f").read_bytes() == b"ab\n[1]"


def test_a_tilde_is_an_ordinary_name(tmp_path: Path) -> None:
    run('"x".save("~")', str(tmp_path))
    assert (tmp_path / "~").read_text() == "x"


def test_writing_failures_name_the_absolute_path(tmp_path: Path) -> None:
    cwd = str(tmp_path)
    missing = f"{cwd}/no/f: No such file or directory (os error 2)"
    check_failure('"x".save("no/f")', "custom", missing, cwd=cwd)
    check_failure('"x".append("no/f")', "custom", missing, cwd=cwd)
    check_failure('"x".save("")', "custom", f"{cwd}/: ", cwd=cwd)


def test_the_session_directory_decides_where_a_relative_target_is(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    run('cd sub\n"x".save("f")', str(tmp_path))
    assert (tmp_path / "sub" / "f").read_text() == "x"
    assert "f" not in os.listdir(tmp_path)


class Journal:
    """Keeps what a journal would."""

    def __init__(self) -> None:
        self.snapshots: list[bytes] = []
        self.inverses: list[dict[str, Any]] = []

    def snapshot(self, entry: Any, content: bytes) -> str:
        self.snapshots.append(content)
        return f"{len(self.snapshots):064x}"

    def record_undo(self, entry: Any, inverse: dict[str, Any]) -> None:
        self.inverses.append(inverse)


@pytest.mark.parametrize(
    ("source", "restored"),
    [
        ('"new".save("f")', True),
        ('"new".append("f")', True),
        ('["new"].stream().save("f")', True),
        ('"new".save("fresh")', False),
    ],
)
def test_an_overwritten_file_can_be_restored(source: str, restored: bool, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    journal = Journal()
    ev = evaluator(str(tmp_path), Host(journal=journal))
    ev.entry = object()
    run(source, ev=ev)
    assert journal.snapshots == ([b"old"] if restored else [])
    assert [inverse["kind"] for inverse in journal.inverses] == ["restore_bytes"] * restored
    if restored:
        assert journal.inverses[0]["path"] == f"{tmp_path}/f"
        assert journal.inverses[0]["expected_current"]["size"] == (tmp_path / "f").stat().st_size


def test_awaiting_ends_with_the_waiting_program() -> None:
    assert run("let t = spawn { channel(\"c\").take() }\nlet u = spawn { t.await() }\n"
               "u.cancel()\nlet r = u.is_suspended\nt.cancel()\nr") == "false"  # fmt: skip


def test_a_failed_outcome_answers_methods_but_not_fields() -> None:
    assert failure("(^false).len").code == "cmd_failed"
    assert run("(^false).len()") == "0"
