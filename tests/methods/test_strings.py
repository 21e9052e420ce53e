"""Methods of str (chapter 21 §5)."""

from __future__ import annotations

import pytest

from tests.methods.support import check_failure, run

RESULTS = [
    ('"über".len()', "4"),
    ('"🦀e\\u{301}".count()', "3"),
    ('"".is_empty()', "true"),
    ('" ".is_empty()', "false"),
    ('"u\\nv\\r\\n\\nw".lines()', '["u", "v", "", "w"]'),
    ('"u\\n".lines()', '["u"]'),
    ('"\\n".lines()', '[""]'),
    ('"".lines()', "[]"),
    ('"u\\r\\r\\nv\\r".lines()', '["u", "v"]'),
    ('"u\\rv\\nw".lines()', '["u\\rv", "w"]'),
    ('"\\t in\\u{a0}the  end\\n".words()', '["in", "the", "end"]'),
    ('"".words()', "[]"),
    ('"u\\u{1c}v".words().len()', "1"),
    ('"öx".chars()', '["ö", "x"]'),
    ('"\\u{2003}mid dle\\u{85}".trim()', '"mid dle"'),
    ('"\\u{1f}x".trim().len()', "2"),
    ('"Maße".upper()', '"MASSE"'),
    ('"ΟΔΟΣ".lower()', '"οδος"'),
    ('"a=b==c".split("=")', '["a", "b", "", "c"]'),
    ('"".split("=")', '[""]'),
    ('"xy".split("")', '["", "x", "y", ""]'),
    ('"".split("")', '["", ""]'),
    ('"kernel".starts_with("ker")', "true"),
    ('"kernel".starts_with("Ker")', "false"),
    ('"kernel".ends_with("nel")', "true"),
    ('"kernel".contains("rn")', "true"),
    ('"kernel".contains("")', "true"),
    ('"x.y.z".replace(".", "")', '"xyz"'),
    ('"xy".replace("", "-")', '"-x-y-"'),
    ('"n1 n22".replace(re"\\d+", "<$0>")', '"n<1> n<22>"'),
    ('"k=v".replace(re"(?P<l>\\w)=(?P<r>\\w)", \'${r}=$l\')', '"v=k"'),
    ('"ab".replace(re"(a)", "$1x")', '"b"'),
    ("'ab'.replace(re\"(a)\", '${1}x')", '"axb"'),
    ('"a".replace(re"a", "$$1")', '"$1"'),
    ('"a".replace(re"a", "[$9|$nope]")', '"[|]"'),
    ('"a".replace(re"(b)?a", "<$1>")', '"<>"'),
    ('"a".replace(re"a", "5 $ 6")', '"5 $ 6"'),
    ('"abc".replace(re"x*", "-")', '"-a-b-c-"'),
    ('"u10v2".matches(re"[0-9]+")', '["10", "2"]'),
    ('"u10v2".match(re"[0-9]+")', '"10"'),
    ('"uv".match(re"[0-9]+")', "null"),
    ('"bab".matches(re"a*")', '["", "a", ""]'),
    ('"+7".parse_int()', "7"),
    ('"-0012".parse_int()', "-12"),
    ('"2.5e2".parse_float()', "250"),
    ('"-inf".parse_float()', "-inf"),
    ('".5".parse_float()', "0.5"),
    ('"kernel".take(3)', '"ker"'),
    ('"kernel".take(99)', '"kernel"'),
    ('"kernel".take()', '""'),
    ('"kernel".skip(4)', '"el"'),
    ('"kernel".skip(99)', '""'),
    ('"kernel".skip()', '"kernel"'),
    ('"añb".reverse()', '"bña"'),
    ('"u\\r\\nv\\r\\r\\nw\\r".stream().collect()', '["u", "v\\r", "w\\r"]'),
    ('"".stream().collect()', "[]"),
    ('"t".str()', '"t"'),
    ('"t".display()', '"t"'),
]


@pytest.mark.parametrize(("source", "shown"), RESULTS, ids=[row[0][:60] for row in RESULTS])
def test_result(source: str, shown: str) -> None:
    assert run(source) == shown


FAILURES = [
    ('"a".split()', "arg_error", ".split requires a separator argument"),
    ('"a".starts_with()', "arg_error", ".starts_with requires a prefix argument"),
    ('"a".ends_with()', "arg_error", ".ends_with requires a suffix argument"),
    ('"a".replace("a")', "arg_error", ".replace requires a replacement argument"),
    ('"a".replace(1, "b")', "type_error", "replace pattern must be str or regex, found int"),
    ('"a".replace("a", 1)', "type_error", "expected str, found int"),
    ('"a".split(1)', "type_error", "expected str, found int"),
    ('"a".contains(1)', "type_error", "string contains expects str"),
    ('"a".contains()', "arg_error", "missing argument 1"),
    ('"a".matches("a")', "type_error", "matches expects str receiver and regex"),
    ('"a".match(1)', "type_error", "match expects str receiver and regex"),
    ('"a".matches()', "arg_error", "missing argument 1"),
    ('"4x".parse_int()', "arg_error", "cannot parse "),
    ('" 4".parse_int()', "arg_error", "as int"),
    ('"9223372036854775808".parse_int()', "arg_error", "as int"),
    ('"1_0".parse_float()', "arg_error", "as float"),
    ('"a".take(-1)', "type_error", "expected non-negative int"),
    ('"a".skip("1")', "type_error", "expected non-negative int, found str"),
    ('"a".len(1)', "arg_error", "method takes no arguments"),
    ('"a".stream(1)', "arg_error", "method takes no arguments"),
    ('"ab".first()', "type_error", "expected collection, found str"),
    ('"ab".map(c => c)', "type_error", "expected collection, found str"),
    ('"ab".join("")', "type_error", "expected collection, found str"),
]


@pytest.mark.parametrize(
    ("source", "code", "phrase"), FAILURES, ids=[row[0][:60] for row in FAILURES]
)
def test_failure(source: str, code: str, phrase: str) -> None:
    check_failure(source, code, phrase)
