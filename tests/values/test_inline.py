"""Chapter 20 §6: the inline form."""

from __future__ import annotations

import math

import pytest

from tests.values.samples import (
    SAMPLES,
    SECOND,
    ClosureStandIn,
    StreamStandIn,
    lazy,
    moment,
    outcome,
)
from worker.values.regexes import compile_regex
from worker.values.render import inline
from worker.values.types import (
    INT_MIN,
    TYPE_NAMES,
    Duration,
    ErrorValue,
    Glob,
    Path,
    Range,
    Size,
    Table,
    TimeOfDay,
    Value,
    type_name,
)

FORMS: list[tuple[Value, str]] = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    (-5, "-5"),
    (INT_MIN, "-9223372036854775808"),
    ("", '""'),
    ('a"b\\c\n\t\r\0{x}\x01é', '"a\\"b\\\\c\\n\\t\\r\\0{x}\x01é"'),
    (Path("src/caf\udce9"), "src/caf\ufffd"),
    (Path('my "dir"/f'), '"my "dir"/f"'),
    (Path("tab\there"), "tab\there"),
    (Glob("* x", "/"), "* x"),
    (compile_regex(r'\d"+'), 're"\\d"+"'),
    (TimeOfDay(7, 5, 0), "07:05"),
    (TimeOfDay(18, 5, 9), "18:05:09"),
    (b"xyz", "bytes(3b)"),
    (lazy(b"x" * 1234), "bytes(1.23kb) val:blake3:" + "ab" * 32),
    ([], "[]"),
    ([1, "b", None], '[1, "b", null]'),
    ({}, "{}"),
    ({"a-b": 1, "if": 2, "": 3, "_x9": 4, "9x": 5, "é": 6, "q\n": 7},
     '{"a-b": 1, if: 2, "": 3, _x9: 4, "9x": 5, "é": 6, "q\\n": 7}'),
    (Table([]), "[]"),
    (Table([{"b": 1, "a": 2}, {"c": "x"}]), '[{b: 1, a: 2}, {c: "x"}]'),
    (Range(1, 5, False), "1..5"),
    (Range(-1, 5, True), "-1..=5"),
    (StreamStandIn("event"), "stream<event>"),
    (ErrorValue("div_zero", "division by zero", hint="h"), "error(div_zero: division by zero)"),
    (outcome(), "outcome(status: 0, ok: true)"),
    (outcome(status=3, ok=False), "outcome(status: 3, ok: false)"),
    (outcome(status=None, ok=False, signal="SIGTERM"), "outcome(signal: SIGTERM, ok: false)"),
    (outcome(status=None, ok=False), "outcome(status: -1, ok: false)"),
    (SAMPLES["task"], "task(3)"),
    (ClosureStandIn("fn add(a, ...rest)"), "fn add(a, ...rest)"),
    (SAMPLES["command"], "command(git)"),
    (SAMPLES["secret"], "secret(deploy-key)"),
    (
        {"tag": "x y", "at": TimeOfDay(7, 5, 0), "big": Size(2_000_000), "none": None},
        '{tag: "x y", at: 07:05, big: 2mb, none: null}',
    ),
    ([Path("my dir/f"), Path("f"), compile_regex("a+")], '["my dir/f", f, re"a+"]'),
    ([[], {}, Range(0, 3, False), 1.50], "[[], {}, 0..3, 1.5]"),
    # 6.1 floats
    (12.0, "12"),
    (0.25, "0.25"),
    (2.0 / 3, "0.6666666666666666"),
    (6.02e23, "602000000000000000000000"),
    (1e20, "100000000000000000000"),
    (1e-9, "0.000000001"),
    (-1.5e-7, "-0.00000015"),
    (1.25e17, "125000000000000000"),
    (1e16, "10000000000000000"),
    (1234567890123456.7, "1234567890123456.8"),
    (5e-324, "0." + "0" * 323 + "5"),
    (-0.0, "-0"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    (math.nan, "nan"),
    # 6.3 sizes
    (Size(0), "0b"),
    (Size(999), "999b"),
    (Size(1000), "1kb"),
    (Size(1234), "1.23kb"),
    (Size(999_994), "999.99kb"),
    (Size(999_995), "1mb"),
    (Size(999_994_999), "999.99mb"),
    (Size(999_995_000_001), "1tb"),
    (Size(12_345_678), "12.35mb"),
    (Size(3 * 2**30), "3.22gb"),
    (Size(3_500_000_000_000), "3.5tb"),
    (Size(2**40), "1.1tb"),
    (Size(2**64 - 1), "18446744.07tb"),
    # 6.4 durations
    (Duration(0), "0s"),
    (Duration(3661 * SECOND), "1h1m1s"),
    (Duration(1500), "1us500ns"),
    (Duration(-90 * 86_400 * SECOND), "-12w6d"),
    (Duration(8 * 86_400 * SECOND), "1w1d"),
    (Duration(INT_MIN), "-15250w1d23h47m16s854ms775us808ns"),
    # 6.5 datetimes
    (moment("2031-01-02T03:04:05.250Z"), "2031-01-02T03:04:05.25Z"),
    (moment("2031-01-02T03:04:05.000000001Z"), "2031-01-02T03:04:05.000000001Z"),
    (moment("2031-01-02T03:04:05+02:00"), "2031-01-02T01:04:05Z"),
    (moment("2031-05-04T09:30[Asia/Tokyo]"), "2031-05-04T00:30:00Z"),
    (moment("0031-05-04"), "0031-05-04T00:00:00Z"),
    (moment("-000044-03-15"), "-000044-03-15T00:00:00Z"),
    (moment("1969-12-31T23:59:59.5Z"), "1969-12-31T23:59:59.5Z"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), FORMS)
def test_inline_form(value: Value, expected: str) -> None:
    assert inline(value) == expected


def test_every_type_has_an_inline_form() -> None:
    assert {type_name(value) for value, _ in FORMS} == set(TYPE_NAMES)


def test_an_object_that_is_no_value_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        inline(object())


def test_deep_nesting_needs_no_more_than_python_frames() -> None:
    value: Value = []
    for _ in range(400):
        value = [value]
    assert inline(value) == "[" * 401 + "]" * 401
