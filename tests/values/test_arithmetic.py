"""Chapter 20 §3.1, §3.2: the arithmetic matrix, complete, and the rules of its cells."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from tests.values.samples import SAMPLES, SECOND, hours, moment
from worker.errors import Raised
from worker.values.operators import CELLS, FUNCTIONS, binary, negate
from worker.values.render import inline
from worker.values.types import (
    INT_MAX,
    INT_MIN,
    SIZE_MAX,
    TYPE_NAMES,
    DateTime,
    Duration,
    Size,
    Value,
    type_name,
)

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}

# Left, right, then the result type under + - * / % (`-`: type_error).
MATRIX = """
int       int       int       int       int       int       int
int       float     float     float     float     float     float
float     int       float     float     float     float     float
float     float     float     float     float     float     float
str       str       str       -         -         -         -
list      list      list      -         -         -         -
size      size      size      size      -         float     -
size      int       -         -         size      size      -
int       size      -         -         size      -         -
size      float     -         -         size      -         -
float     size      -         -         size      -         -
duration  duration  duration  duration  -         float     -
duration  int       -         -         duration  duration  -
int       duration  -         -         duration  -         -
duration  float     -         -         duration  -         -
float     duration  -         -         duration  -         -
datetime  duration  datetime  datetime  -         -         -
duration  datetime  datetime  -         -         -         -
datetime  datetime  -         duration  -         -         -
"""
RESULTS: dict[tuple[str, str, str], str] = {}
for line in MATRIX.strip().splitlines():
    left, right, *results = line.split()
    for name, result in zip(OPERATORS, results, strict=True):
        if result != "-":
            RESULTS[left, right, name] = result


@pytest.mark.parametrize("op", OPERATORS)
def test_every_pair_of_types_has_the_result_of_the_matrix_or_is_a_type_error(op: str) -> None:
    for left, right in product(TYPE_NAMES, TYPE_NAMES):
        a, b = SAMPLES[left], SAMPLES[right]
        expected = RESULTS.get((left, right, op))
        if expected is not None:
            assert type_name(binary(op, a, b)) == expected, (left, op, right)
            continue
        with pytest.raises(Raised) as caught:
            binary(op, a, b)
        assert caught.value.error.code == "type_error"
        assert caught.value.error.msg == f"cannot apply `{OPERATORS[op]}` to {left} and {right}"


def test_published_cells_are_the_cells_of_the_matrix() -> None:
    published = {
        (type_name_of(left), type_name_of(right), op)
        for op, cells in CELLS.items()
        for left, right in cells
    }
    assert published == set(RESULTS)


def type_name_of(kind: type) -> str:
    return next(name for name, sample in SAMPLES.items() if type(sample) is kind)


KB, MB = 1000, 1_000_000
DAY = hours(24)

VALUES: list[tuple[str, Value, Value, str]] = [
    ("add", 2, 3, "5"),
    ("add", INT_MAX, 0, str(INT_MAX)),
    ("sub", INT_MIN + 1, 1, str(INT_MIN)),
    ("div", 9, 4, "2"),
    ("div", -17, 5, "-3"),
    ("div", 5, -2, "-2"),
    ("div", -5, -2, "2"),
    ("div", 0, -7, "0"),
    ("rem", -17, 5, "-2"),
    ("rem", 17, -5, "2"),
    ("rem", -5, -2, "-1"),
    ("rem", -6, 3, "0"),
    ("div", 9, 4.0, "2.25"),
    ("rem", 7.5, 2, "1.5"),
    ("rem", -7.5, 2, "-1.5"),
    ("rem", 7.5, math.inf, "7.5"),
    ("rem", math.inf, 2, "nan"),
    ("rem", 1.0, 0, "nan"),
    ("div", 1.0, 0, "inf"),
    ("div", -1.0, 0.0, "-inf"),
    ("div", 1.0, -0.0, "-inf"),
    ("div", 0.0, 0.0, "nan"),
    ("div", math.nan, 0.0, "nan"),
    ("mul", 1e300, 1e300, "inf"),
    ("add", 2**53 + 1, 0.0, "9007199254740992"),
    ("add", "ab", "cd", '"abcd"'),
    ("add", [1], ["x", None], '[1, "x", null]'),
    ("sub", Size(3 * MB), Size(750 * KB), "2.25mb"),
    ("sub", Size(5), Size(5), "0b"),
    ("div", Size(9 * MB), Size(4 * MB), "2.25"),
    ("div", Size(10 * MB), 7, "1.43mb"),
    ("div", Size(0), 5, "0b"),
    ("mul", Size(KB), 0, "0b"),
    ("mul", 4, Size(3 * KB), "12kb"),
    ("mul", Size(2 * KB), 1.5, "3kb"),
    ("mul", Size(1), 0.5, "1b"),
    ("mul", Size(1), 0.49999999999999994, "0b"),
    ("mul", Size(1), -0.4, "0b"),
    ("mul", 0.5, Duration(9 * SECOND), "4s500ms"),
    ("mul", Duration(1), 0.5, "1ns"),
    ("mul", Duration(-1), 0.5, "-1ns"),
    ("mul", Duration(5 * SECOND), -1.0, "-5s"),
    ("div", hours(3), Duration(40 * 60 * SECOND), "4.5"),
    ("div", Duration(-7), 2, "-3ns"),
    ("sub", Duration(0), Duration(5), "-5ns"),
    ("sub", moment("2031-03-01T06:00Z"), hours(36), "2031-02-27T18:00:00Z"),
    ("sub", moment("2031-03-02T00:00Z"), moment("2031-03-01T20:15Z"), "3h45m"),
    ("add", hours(1), moment("2026-07-09T14:00Z"), "2026-07-09T15:00:00Z"),
    ("add", moment("2026-12-31T23:00Z"), hours(2), "2027-01-01T01:00:00Z"),
    ("add", moment("2026-12-31T23:59:59.999999999Z"), Duration(1), "2027-01-01T00:00:00Z"),
]


@pytest.mark.parametrize(("op", "a", "b", "expected"), VALUES)
def test_cells_give_the_exact_value(op: str, a: Value, b: Value, expected: str) -> None:
    assert inline(binary(op, a, b)) == expected


YEAR_9999_END = moment("9999-12-31T23:59:59.999999999Z")
NEGATIVE = "size cannot go negative"

FAILURES: list[tuple[str, Value, Value, str, str]] = [
    ("add", INT_MAX, 1, "overflow", "integer overflow in"),
    ("sub", INT_MIN, 1, "overflow", "integer overflow in"),
    ("mul", INT_MAX, 2, "overflow", "integer overflow in"),
    ("div", INT_MIN, -1, "overflow", "integer overflow in"),
    ("rem", INT_MIN, -1, "overflow", "integer overflow in"),
    ("div", 1, 0, "div_zero", "division by zero"),
    ("rem", 6, 0, "div_zero", "remainder by zero"),
    ("add", Size(SIZE_MAX), Size(1), "overflow", "size overflow"),
    ("sub", Size(1), Size(2), "type_error", NEGATIVE),
    ("div", Size(1), Size(0), "div_zero", "division by zero"),
    ("div", Size(1), 0, "div_zero", "division by zero"),
    ("div", Size(1), -1, "type_error", NEGATIVE),
    ("mul", Size(1), -1, "type_error", NEGATIVE),
    ("mul", -1, Size(1), "type_error", NEGATIVE),
    ("mul", Size(SIZE_MAX), 2, "overflow", "size overflow"),
    ("mul", Size(1000), -1.0, "type_error", NEGATIVE),
    ("mul", -1.0, Size(1000), "type_error", NEGATIVE),
    ("mul", Size(1), -0.5, "type_error", NEGATIVE),
    ("mul", Size(1), math.nan, "overflow", "size overflow"),
    ("mul", Size(1), math.inf, "overflow", "size overflow"),
    ("mul", Size(SIZE_MAX), 1.0, "overflow", "size overflow"),
    ("add", Duration(INT_MAX), Duration(1), "overflow", "duration overflow"),
    ("sub", Duration(INT_MIN), Duration(1), "overflow", "duration overflow"),
    ("mul", Duration(INT_MAX), 2, "overflow", "duration overflow"),
    ("mul", 2, Duration(INT_MAX), "overflow", "duration overflow"),
    ("mul", Duration(1), math.nan, "overflow", "duration overflow"),
    ("mul", Duration(INT_MAX), 1.0, "overflow", "duration overflow"),
    ("mul", 1000.0, Duration(INT_MAX), "overflow", "duration overflow"),
    ("div", Duration(1), Duration(0), "div_zero", "division by zero"),
    ("div", Duration(1), 0, "div_zero", "division by zero"),
    ("div", Duration(INT_MIN), -1, "overflow", "duration overflow"),
    ("add", YEAR_9999_END, Duration(1), "overflow", "datetime out of range"),
    ("sub", moment("-009999-01-01"), Duration(1), "overflow", "datetime out of range"),
    ("sub", YEAR_9999_END, moment("2000-01-01"), "overflow", "duration overflow"),
]


@pytest.mark.parametrize(("op", "a", "b", "code", "message"), FAILURES)
def test_cells_fail_at_the_ends_of_their_range(
    op: str, a: Value, b: Value, code: str, message: str
) -> None:
    with pytest.raises(Raised, match=message) as caught:
        binary(op, a, b)
    assert caught.value.error.code == code


def test_datetime_arithmetic_keeps_the_zone_of_the_datetime() -> None:
    start = moment("2031-05-04T09:30[Asia/Tokyo]")
    for result in (binary("add", start, DAY), binary("add", DAY, start), binary("sub", start, DAY)):
        assert isinstance(result, DateTime)
        assert result.zone is start.zone


def test_a_day_is_24_hours_across_a_clock_change() -> None:
    before = moment("2030-03-30T12:00[Europe/Berlin]")
    assert binary("add", before, DAY) == moment("2030-03-31T13:00[Europe/Berlin]")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, "-5"),
        (INT_MAX, str(-INT_MAX)),
        (0.0, "-0"),
        (-2.5, "2.5"),
        (Duration(5 * SECOND), "-5s"),
    ],
)
def test_unary_minus_negates_numbers_and_durations(value: Value, expected: str) -> None:
    assert inline(negate(value)) == expected


@pytest.mark.parametrize("value", [INT_MIN, Duration(INT_MIN)])
def test_the_minimum_has_no_negation(value: Value) -> None:
    with pytest.raises(Raised) as caught:
        negate(value)
    assert caught.value.error.code == "overflow"


@pytest.mark.parametrize("name", [n for n in TYPE_NAMES if n not in ("int", "float", "duration")])
def test_unary_minus_refuses_every_other_type(name: str) -> None:
    with pytest.raises(Raised, match=f"cannot apply unary operator to {name}"):
        negate(SAMPLES[name])


def test_binary_knows_exactly_the_operators_of_the_syntax_tree() -> None:
    assert set(FUNCTIONS) == {*OPERATORS, "eq", "ne", "lt", "le", "gt", "ge", "in"}
    unknown: Any = "and"
    with pytest.raises(KeyError):
        binary(unknown, 1, 2)
