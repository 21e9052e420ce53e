"""Methods of numbers and bool, and the types without methods (chapter 21 §6, §15)."""

from __future__ import annotations

import pytest

from tests.methods.support import check_failure, run, value_of

RESULTS = [
    ("(-7).abs()", "7"),
    ("(-7.5).abs()", "7.5"),
    ("(2.5).round()", "3"),
    ("(-2.5).round()", "-3"),
    ("(3.5).round()", "4"),
    ("(0.49999999999999994).round()", "0"),
    ("(6.283).round(2)", "6.28"),
    ("(1.005).round(2)", "1"),
    ("(-1.2).floor()", "-2"),
    ("(5.678).floor(1)", "5.6"),
    ("(5.612).ceil(1)", "5.7"),
    ("(-0.2).ceil()", "-0"),
    ("(-0.2).round()", "-0"),
    ("(0.0).floor(3)", "0"),
    ("8.ceil(3)", "8"),
    ("(1.5).round(400)", "1.5"),
    ("(1e300).round(20)", "1" + "0" * 300),
    ("(1.0 / 0.0).round()", "inf"),
    ("(0.0 / 0.0).floor(2)", "nan"),
    ("7.str()", '"7"'),
    ("(0.25).display()", '"0.25"'),
    ("(4.0).str()", '"4"'),
    ("true.str()", '"true"'),
    ("(1 == 2).display()", '"false"'),
    ("5.abs", "5"),
    ("(2.5).ceil", "3"),
]


@pytest.mark.parametrize(("source", "shown"), RESULTS, ids=[row[0] for row in RESULTS])
def test_result(source: str, shown: str) -> None:
    assert run(source) == shown


def test_rounding_keeps_the_type() -> None:
    assert type(value_of("(2.0).round()")) is float
    assert type(value_of("2.round()")) is int


FAILURES = [
    ("(-9223372036854775807 - 1).abs()", "overflow", ""),
    ("(1.5).round(-1)", "type_error", "expected non-negative int"),
    ("3.floor(1.0)", "type_error", "expected non-negative int, found float"),
    ("true.abs()", "type_error", "expected number, found bool"),
    ("4kb.abs()", "type_error", "expected number, found size"),
    ("3s.round()", "type_error", "expected number, found duration"),
    ('"a".abs()', "type_error", "expected number, found str"),
    ("3s.str()", "type_error", "cannot convert duration to str"),
    ("null.display()", "type_error", "cannot convert null to str"),
    ("[1].str()", "type_error", "cannot convert list to str"),
    ("7:30.len()", "type_error", ".len unsupported on time"),
    ("5.count()", "type_error", ".len unsupported on int"),
    ("5.upper", "type_error", "expected str, found int"),
    ("null.x", "field_missing", "null has no field `x`"),
    ("(x => x).len()", "type_error", ".len unsupported on closure"),
    ("5.collect()", "type_error", "cannot collect int"),
    ("5.stream()", "type_error", "cannot make a stream from int"),
    ("5.keys()", "type_error", "expected record, found int"),
    ("5.await()", "type_error", ".await expects a task, found int"),
    ("[1].is_done()", "type_error", ".is_done expects a task, found list"),
    ("5.take(1)", "type_error", "expected collection, found int"),
    ('5.matches(re"a")', "type_error", "matches expects str receiver and regex"),
    ("5.get(1)", "type_error", "get expects record+str or list+int"),
]


@pytest.mark.parametrize(("source", "code", "phrase"), FAILURES, ids=[row[0] for row in FAILURES])
def test_failure(source: str, code: str, phrase: str) -> None:
    check_failure(source, code, phrase)


def test_text_of_other_values_is_pointed_to_interpolation() -> None:
    check_failure("3s.str()", "type_error", hint="interpolation")
