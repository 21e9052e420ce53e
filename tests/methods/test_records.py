"""Methods of record (chapter 21 §10)."""

from __future__ import annotations

import pytest

from tests.methods.support import check_failure, run

RESULTS = [
    ("{z: 1, a: 2}.keys()", '["z", "a"]'),
    ("{z: 1, a: [2]}.values()", "[1, [2]]"),
    ("{z: 1, a: 2}.items()", '[["z", 1], ["a", 2]]'),
    ("{}.items()", "[]"),
    ('{z: 1, a: 2}.set("z", 7)', "{z: 7, a: 2}"),
    ('{z: 1}.set("new", null)', "{z: 1, new: null}"),
    ("{z: 1, a: 2}.merge({a: 3, b: 4})", "{z: 1, a: 3, b: 4}"),
    ('{z: 1}.get("z")', "1"),
    ('{z: null}.get("z", 5)', "null"),
    ('{z: 1}.get("q")', "null"),
    ('{z: 1}.get("q", 5)', "5"),
    ('{z: 1}.contains("z")', "true"),
    ('{z: 1}.contains("q")', "false"),
    ("{z: 1, a: 2}.len()", "2"),
    ("{}.count()", "0"),
    ("{}.is_empty()", "true"),
    # fields come first, and only they answer without parentheses
    ("{keys: 5}.keys", "5"),
    ("{keys: 5}.keys()", '["keys"]'),
    ("{keys: () => 6}.keys()", "6"),
    ("{double: n => n * 2}.double(8)", "16"),
    ("{tap: f => 1}.tap(2)", "1"),
    ('let r = {a: 1}\nr.set("a", 2)\nr', "{a: 1}"),
]


@pytest.mark.parametrize(("source", "shown"), RESULTS, ids=[row[0][:60] for row in RESULTS])
def test_result(source: str, shown: str) -> None:
    assert run(source) == shown


FAILURES = [
    ("{a: 1}.set()", "arg_error", ".set requires a key argument: .set(key, value)"),
    ('{a: 1}.set("a")', "arg_error", "missing argument 2"),
    ("{a: 1}.set(1, 2)", "type_error", "expected str, found int"),
    ("{a: 1}.merge()", "arg_error", "missing argument 1"),
    ("{a: 1}.merge([])", "type_error", "merge expects a record argument, found list"),
    ("{a: 1}.get(0)", "type_error", "get expects record+str or list+int"),
    ("{a: 1}.get()", "arg_error", "missing argument 1"),
    ("{a: 1}.contains(1)", "type_error", "record contains expects str key"),
    ("{a: 1}.len(1)", "arg_error", "method takes no arguments"),
    ("{a: 1}.map(n => n)", "type_error", "expected collection, found record"),
    ("{a: 1}.first()", "type_error", "expected collection, found record"),
    ("{a: 1}.upper()", "type_error", "expected str, found record"),
    ("[1].merge({})", "type_error", "expected record, found list"),
    ("5.keys()", "type_error", "expected record, found int"),
    ("{a: 1}.keys", "field_missing", "missing field `keys`"),
    ("{a: 1}.len", "field_missing", "missing field `len`"),
    ("{a: 1}.a()", "field_missing", "unknown method `.a` on record"),
]


@pytest.mark.parametrize(
    ("source", "code", "phrase"), FAILURES, ids=[row[0][:60] for row in FAILURES]
)
def test_failure(source: str, code: str, phrase: str) -> None:
    check_failure(source, code, phrase)
