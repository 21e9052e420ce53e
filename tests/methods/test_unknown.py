"""Unknown methods, wrong receivers and the hints that go with them (chapter 21 §1.5, §1.6)."""

from __future__ import annotations

import pytest

from tests.methods.support import check_failure, failure, run
from worker.values.methods import BY_TYPE, METHODS, VOCABULARY
from worker.values.methods.hints import edit_distance, method_hint

HINTS = [
    ("[1].length()", "did you mean .len()?"),
    ("[1].size()", "did you mean .len()?"),
    ("[1].push(2)", "list + [item]"),
    ('"abc".substr(1)', ".take(n)"),
    ('"abc".slice(1)', ".skip(n)"),
    ("{a: 1}.to_json()", "did you mean .json()?"),
    ("5.to_str()", "did you mean .str()?"),
    ('["a"].flatmap(.len)', "did you mean .flat_map()?"),
    ("[2].revers()", "did you mean .reverse()?"),
    ('"a".uper()', "did you mean .upper()?"),
    ("{a: 1}.kees()", "did you mean .keys()?"),
    ('path("f").lines_of()', "did you mean .lines()?"),
    ("(1..4).maps(n => n)", "did you mean .map()?"),
    ("4mb.jsn()", "did you mean .json()?"),
]


@pytest.mark.parametrize(("source", "hint"), HINTS, ids=[row[0] for row in HINTS])
def test_hint(source: str, hint: str) -> None:
    check_failure(source, "field_missing", "unknown method `.", hint)


@pytest.mark.parametrize(
    "source",
    ["[1].type()", '"a".hash()', "[1].pop()", "{a: 1}.copy()", "null.jsom()", 're"a".jsom()'],
)
def test_no_hint(source: str) -> None:
    error = failure(source)
    assert (error.code, error.hint) == ("field_missing", None)


def test_the_first_of_equally_near_names_is_suggested() -> None:
    # `skip` and `trim` are both two steps away; `trim` stands earlier in the table.
    assert method_hint("str", "strip") == "did you mean .trim()?"


@pytest.mark.parametrize(
    ("left", "right", "steps"),
    [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2)],
)
def test_edit_distance(left: str, right: str, steps: int) -> None:
    assert edit_distance(left, right) == edit_distance(right, left) == steps


UNKNOWN = [
    ("[1].frob()", "unknown method `.frob` on list"),
    ("[1].stem()", "unknown method `.stem` on list"),
    ('"a".exists()', "unknown method `.exists` on str"),
    ('"a".modified()', "unknown method `.modified` on str"),
    ("[1].pattern()", "unknown method `.pattern` on list"),
    ('path("a").expand()', "unknown method `.expand` on path"),
    ("[1].scan(0, (a, b) => a)", "unknown method `.scan` on list"),
    ("[1].window(2)", "unknown method `.window` on list"),
    ("[1].render()", "unknown method `.render` on list"),
    ("{a: 1}.emit(1)", "unknown method `.emit` on record"),
    ("{channel: 1}.latest()", "unknown method `.latest` on record"),
    ('{channel: "c", more: 1}.latest()', "unknown method `.latest` on record"),
    ("[1].load()", "unknown method `.load` on list"),
    ("[1].stdout()", "unknown method `.stdout` on list"),
    ("(echo a).frob()", "unknown method `.frob` on str"),
    ('glob("*.nothing").frob()', "unknown method `.frob` on list"),
    ("[1].stream().frob()", "unknown method `.frob` on list"),
]


@pytest.mark.parametrize(("source", "message"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_unknown_on_this_type(source: str, message: str) -> None:
    check_failure(source, "field_missing", message)


def test_the_field_form_reports_the_field() -> None:
    check_failure("[1].zzz", "field_missing", "list has no field `zzz`")
    check_failure('"a".exists', "field_missing", "str has no field `exists`")


def test_the_field_form_calls_the_method() -> None:
    assert run("[4, 5].sum") == "9"
    assert run('"go".upper') == '"GO"'


def test_arguments_are_checked_before_the_receiver() -> None:
    check_failure("5.split()", "arg_error", ".split requires a separator argument")
    check_failure('5.split(",")', "type_error", "expected str, found int")
    check_failure("5.map()", "arg_error", "missing argument 1")
    check_failure("5.sum(1)", "arg_error", "sum takes no arguments")


def test_feed_needs_parentheses() -> None:
    check_failure('"a".feed', "type_error")


def test_the_vocabulary_names_only_methods_of_its_type() -> None:
    for type_name, names in VOCABULARY.items():
        known = set(BY_TYPE[type_name]) | {"feed"}
        # `get` of a table or range is in the shared table of collections and answers with an error.
        if type_name in ("table", "range"):
            known.add("get")
        assert set(names) <= known, type_name


def test_every_declared_method_says_what_it_does() -> None:
    for entry in METHODS:
        assert entry.doc.endswith("."), entry.name
        assert entry.result, entry.name
        assert entry.receivers, entry.name
