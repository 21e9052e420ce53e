"""Methods of list, table and range (chapter 21 §4)."""

from __future__ import annotations

import pytest

from tests.methods.support import check_failure, run, value_of
from worker.values.types import Table

TABLE = """json.parse('[{"n": 3, "s": "c"}, {"n": 1, "s": "a"}, {"n": 2}]')"""

RESULTS = [
    # size
    ("[].len()", "0"),
    ("[null, []].count()", "2"),
    ("(4..9).len()", "5"),
    ("(9..4).count()", "0"),
    ("(0..9000000000000000000).len()", "9000000000000000000"),
    ("(7..=7).is_empty()", "false"),
    ("(7..7).is_empty()", "true"),
    (f"{TABLE}.len()", "3"),
    # ends
    ("[].first()", "null"),
    ("[].last()", "null"),
    ("[8, 6].first()", "8"),
    ("[8, 6].last()", "6"),
    ("(5..9).last()", "8"),
    ("[8, 6, 4].first(2)", "[8, 6]"),
    ("[8, 6, 4].last(2)", "[6, 4]"),
    ("[8].first(5)", "[8]"),
    ("[8].last(5)", "[8]"),
    ("[8].last(0)", "[]"),
    ("[8].first(whatever: 3)", "[]"),
    ("[8].last(whatever: 3)", "[]"),
    ("(0..9000000000000000000).first(2)", "[0, 1]"),
    ("(0..9000000000000000000).last(2)", "[8999999999999999998, 8999999999999999999]"),
    (f"{TABLE}.first().n", "3"),
    # as a whole
    ("(2..5).collect()", "[2, 3, 4]"),
    ("[1, [2]].collect(9)", "[1, [2]]"),
    ("[4, 5].stream()", "stream<value>"),
    ("[4, 5].tee(3).map(s => s.collect())", "[[4, 5], [4, 5], [4, 5]]"),
    # callbacks
    ("[3, 4].map(n => n * n)", "[9, 16]"),
    ("(0..4).map(n => -n)", "[0, -1, -2, -3]"),
    (f"{TABLE}.map(.n)", "[3, 1, 2]"),
    ("[5, 8, 2].where(n => n > 4)", "[5, 8]"),
    ("[5, 8, 2].filter(n => n > 9)", "[]"),
    (f"{TABLE}.where(r => r.n > 1).len()", "2"),
    ("[1, 2].each(n => n)", "null"),
    ("var t = 0\n[4, 5].each(n => { t += n })\nt", "9"),
    ("[2, 3].reduce(10, (acc, n) => acc - n)", "5"),
    ('[].fold("z", (acc, n) => acc + n)', '"z"'),
    ("[1, 4].any(n => n == 4)", "true"),
    ("[1, 4].any(n => n == 5)", "false"),
    ("[].any(n => n)", "false"),
    ("[1, 4].all(n => n < 9)", "true"),
    ("[1, 4].all(n => n < 4)", "false"),
    ("[].all(n => n)", "true"),
    ("[6, 7, 9].find(n => n % 2 == 1)", "7"),
    ("[6].find(n => n == 1)", "null"),
    ("[].find(3)", "null"),
    ("[].map(3)", "[]"),
    # nesting
    ("[1, 3].flat_map(n => [n, n + 1])", "[1, 2, 3, 4]"),
    ("[2].flat_map(n => 0..n)", "[0, 1]"),
    (f"[0].flat_map(n => {TABLE}).len()", "3"),
    ("[[], [1, [2]], 3..5].flatten()", "[1, [2], 3, 4]"),
    # order
    ("[1, 2, 3].reverse()", "[3, 2, 1]"),
    ("(1..4).reverse()", "[3, 2, 1]"),
    ("[3, 1, 2].sort()", "[1, 2, 3]"),
    ("[1, 0.5, 2].sort()", "[0.5, 1, 2]"),
    ('["é", "B", "a"].sort()', '["B", "a", "é"]'),
    ("[2mb, 3kb].sort()", "[3kb, 2mb]"),
    ("[1m, 2s].sort()", "[2s, 1m]"),
    ("[7:30, 7:05].sort()", "[07:05, 07:30]"),
    ('[path("a.txt"), path("a/b")].sort()', "[a/b, a.txt]"),
    ("[[1, 2]].sort()", "[[1, 2]]"),
    ('[{k: 2, t: "x"}, {k: 1, t: "y"}, {k: 2, t: "z"}].sort(.k).map(.t)', '["y", "x", "z"]'),
    ("[3, 1, 2].sort_by(n => 0 - n)", "[3, 2, 1]"),
    (f"{TABLE}.sort_by(.n).map(.n)", "[1, 2, 3]"),
    ("[].sort_by(3)", "[]"),
    ("[4, 2.5, 3].min()", "2.5"),
    ("[1.0, 1].max()", "1"),
    ("[].min()", "null"),
    ("[].max()", "null"),
    ("[null].min()", "null"),
    ('["b", "c"].max()', '"c"'),
    # equality
    ("[1, 1.0, true, 1].uniq()", "[1, true]"),
    ('[path("a//b"), "a/b", path("a/b")].uniq()', '[a//b, "a/b"]'),
    ("[{a: 1, b: 2}, {b: 2, a: 1}].uniq().len()", "1"),
    ("(1..4).uniq()", "[1, 2, 3]"),
    (
        '["ox", "ape", "ant"].group_by(s => s.take(1))',
        '[{key: "o", values: ["ox"]}, {key: "a", values: ["ape", "ant"]}]',
    ),
    (
        "[1, 2.0, 2].group(n => n)",
        "[{key: 1, values: [1]}, {key: 2, values: [2, 2]}]",
    ),
    ("[[1], [2]].contains([2])", "true"),
    ("[1, 2].contains(true)", "false"),
    ("[1, 2].contains(2.0)", "true"),
    ('["a", path("b")].contains("b")', "true"),
    ("(0..9).contains(8.0)", "true"),
    ("(0..9).contains(8.5)", "false"),
    ("(0..9).contains(9)", "false"),
    ('(0..9).contains("3")', "false"),
    (f'{TABLE}.contains({{s: "a", n: 1}})', "true"),
    # adding up
    ("[].sum()", "0"),
    ("(1..=4).sum()", "10"),
    ("[1, 0.5].sum()", "1.5"),
    ("(-3..3).sum()", "-3"),
    ("(1..4000000000).sum()", "7999999998000000000"),
    ("(3..9000000000000000000).min()", "3"),
    ("(3..=9000000000000000000).max()", "9000000000000000000"),
    ('["a", "b"].sum()', '"ab"'),
    ("[[1], [2, 3]].sum()", "[1, 2, 3]"),
    ("[4kb, 1mb].sum()", "1mb"),
    ("[2m, 30s].sum()", "2m30s"),
    ("[null].sum()", "null"),
    ("[0.1, 0.2, 0.3].sum()", "0.6000000000000001"),
    # places
    ('["u", "v"].enumerate()', '[[0, "u"], [1, "v"]]'),
    ("[5, 6, 7].take(2)", "[5, 6]"),
    ("[5, 6, 7].skip(2)", "[7]"),
    ("[5, 6].take()", "[]"),
    ("[5, 6].skip()", "[5, 6]"),
    ("[5, 6].take(9)", "[5, 6]"),
    ("[5, 6].skip(9)", "[]"),
    ("(0..5).chunks(2)", "[[0, 1], [2, 3], [4]]"),
    ("[].chunks(2)", "[]"),
    ("[1, 2, 3].zip(5..7)", "[[1, 5], [2, 6]]"),
    ('["u", "v", "w"].join("-")', '"u-v-w"'),
    ("[].join()", '""'),
    ('["u", "v"].join()', '"uv"'),
    ("[7, 8].get(1)", "8"),
    ("[7, 8].get(-2)", "7"),
    ("[7, 8].get(2)", "null"),
    ("[7, 8].get(-3, 0)", "0"),
    # surplus and unknown arguments are ignored
    ("[1, 2].reverse(5, odd: 6)", "[2, 1]"),
    ("[1].map(n => n, 7)", "[1]"),
]


@pytest.mark.parametrize(("source", "shown"), RESULTS, ids=[row[0][:60] for row in RESULTS])
def test_result(source: str, shown: str) -> None:
    assert run(source) == shown


def test_a_table_stays_a_table_only_when_collected() -> None:
    assert type(value_of(f"{TABLE}.collect()")) is Table
    assert type(value_of(f"{TABLE}.map(r => r)")) is list


FAILURES = [
    ("[1].len(2)", "arg_error", "method takes no arguments"),
    ("[1].is_empty(x: 2)", "arg_error", "method takes no arguments"),
    ("[1].stream(2)", "arg_error", "method takes no arguments"),
    ("[1].sum(2)", "arg_error", "sum takes no arguments (did you mean .map(f).sum()?)"),
    ("[1].min(k: 2)", "arg_error", "min takes no arguments (did you mean .map(f).min()?)"),
    ("[1].max(2)", "arg_error", "max takes no arguments (did you mean .map(f).max()?)"),
    ("[1].map()", "arg_error", "missing argument 1"),
    ("[1].reduce(0)", "arg_error", "missing argument 2"),
    ("[1].sort_by()", "arg_error", "missing argument 1"),
    ("[1].group()", "arg_error", "missing argument 1"),
    ("[1].contains()", "arg_error", "missing argument 1"),
    ("[1].zip()", "arg_error", "missing argument 1"),
    ("[1].get()", "arg_error", "missing argument 1"),
    ("[1].tee(0)", "arg_error", "tee count must be positive"),
    ("[1].chunks()", "arg_error", "chunk size must be positive"),
    ("[1].chunks(0)", "arg_error", "chunk size must be positive"),
    ("[1].first(-1)", "type_error", "expected non-negative int, found int"),
    ("[1].take(1.0)", "type_error", "expected non-negative int, found float"),
    ("[1].skip(true)", "type_error", "expected non-negative int, found bool"),
    ("[1].chunks(-2)", "type_error", "expected non-negative int"),
    ("[1].tee(-2)", "type_error", "expected non-negative int"),
    ("[1].map(4)", "type_error", "int is not callable"),
    ("[1].map(() => 0)", "arg_error", "expected 0 arguments, got 1"),
    ("[1].map((a, b) => a)", "arg_error", "missing argument `b`"),
    ("[1].where(n => n)", "type_error", "expected bool in condition, found int"),
    ("[1].any(n => null)", "type_error", "expected bool in condition, found null"),
    ('[1].all(n => "")', "type_error", "expected bool in condition, found str"),
    ("[1].find(n => [])", "type_error", "expected bool in condition, found list"),
    ("[1].flat_map(n => n)", "type_error", "expected collection, found int"),
    ("[[1], 2].flatten()", "type_error", "expected collection, found int"),
    ("[[1].stream()].flatten()", "stream_consumed", "`.collect()` before this operation"),
    ("[1].zip([1].stream())", "stream_consumed", "`.collect()` before this operation"),
    ('[1].zip("a")', "type_error", "expected collection, found str"),
    ("[true, 3].sort()", "type_error", "cannot compare bool with int"),
    ("[[1], [2]].sort()", "type_error", "cannot compare list with list"),
    ("[null, null].min()", "type_error", "cannot compare null with null"),
    ("[1.0, 0.0 / 0.0].max()", "type_error", "cannot compare float with float"),
    ("[0.0 / 0.0, 1].sort()", "type_error", "cannot compare float with float"),
    ('[{k: 1}, {k: "a"}].sort(.k)', "type_error", "cannot compare int with str"),
    ("[9223372036854775807, 1, -5].sum()", "overflow", ""),
    ('[1, "a"].sum()', "type_error", "cannot apply"),
    ("[{a: 1}, {a: 2}].sum()", "type_error", "cannot apply"),
    ("[true, true].sum()", "type_error", "cannot apply"),
    ('[1, 2].join(",")', "type_error", "join expects str elements, found int"),
    ('["a"].join(1)', "type_error", "expected str, found int"),
    ('[1].get("0")', "type_error", "get expects record+str or list+int"),
    ("[1].get(true)", "type_error", "get expects record+str or list+int"),
    ("(1..3).get(0)", "type_error", "get expects record+str or list+int"),
    (f"{TABLE}.get(0)", "type_error", "get expects record+str or list+int"),
    (f"{TABLE}.keys()", "type_error", "expected record, found table"),
    (f"{TABLE}.map(.s)", "field_missing", "missing field `s`"),
]


@pytest.mark.parametrize(
    ("source", "code", "phrase"), FAILURES, ids=[row[0][:60] for row in FAILURES]
)
def test_failure(source: str, code: str, phrase: str) -> None:
    check_failure(source, code, phrase)


def test_a_predicate_that_is_no_condition_is_told_why() -> None:
    check_failure("[0].where(n => n)", "type_error", hint="no truthiness")


def test_an_error_stops_the_method_but_keeps_side_effects() -> None:
    source = """
    var seen = []
    let got = [1, 2, 0, 4].map(n => { seen = seen + [n]; 4 / n }) catch e { e.code }
    [got, seen]
    """
    assert run(source) == '["div_zero", [1, 2, 0]]'


def test_any_and_all_stop_at_the_deciding_element() -> None:
    source = """
    var seen = 0
    [1, 2, 3].any(n => { seen += 1; n == 2 })
    [1, 2, 3].all(n => { seen += 10; n < 2 })
    seen
    """
    assert run(source) == "22"


def test_neighbours_are_compared_before_anything_is_sorted() -> None:
    check_failure('[2, 1, "a", 0].sort()', "type_error", "cannot compare int with str")


def test_an_outcome_is_a_condition() -> None:
    assert run("[1].where(n => (echo x))") == "[1]"


def test_the_receiver_is_not_changed_by_its_methods() -> None:
    source = "let xs = [3, 1]\nxs.sort()\nxs.reverse()\nxs.take(1)\nxs"
    assert run(source) == "[3, 1]"
