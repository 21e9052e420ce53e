"""Chapter 20 §5.6, §6.1, §6.3, §6.4, §9: rounding, number and unit texts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.values.numbers import (
    json_float,
    parse_float_text,
    parse_int_text,
    positional,
    round_half_away,
    wire_float,
)
from worker.values.types import INT_MAX, INT_MIN, SIZE_MAX
from worker.values.units import (
    DURATION_UNITS,
    SIZE_UNITS,
    duration_ns,
    parse_duration_text,
    parse_size_text,
    render_duration,
    render_size,
    size_bytes,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.49999999999999994, 0),
        (0.5, 1),
        (-0.5, -1),
        (1.5, 2),
        (2.5, 3),
        (-2.5, -3),
        (-2.4, -2),
        (4503599627370497.5, 4503599627370498),
        (1e300, int(1e300)),
    ],
)
def test_halves_round_away_from_zero(value: float, expected: int) -> None:
    assert round_half_away(value) == expected


@pytest.mark.parametrize(
    ("unit", "number", "expected"),
    [
        ("b", 1.5, 2),
        ("kb", 0.5, 500),
        ("kib", 1, 1024),
        ("mib", 1, 2**20),
        ("tib", 1, 2**40),
        ("tb", 1e300, SIZE_MAX),
        ("b", float(2**64), SIZE_MAX),
    ],
)
def test_size_units(unit: str, number: float, expected: int) -> None:
    assert size_bytes(number, unit) == expected


@pytest.mark.parametrize(
    ("unit", "number", "expected"),
    [
        ("ns", 2.5, 3),
        ("us", 1.5, 1500),
        ("h", 2.5, 9_000_000_000_000),
        ("w", 1e300, INT_MAX),
        ("w", -1e300, INT_MIN),
    ],
)
def test_duration_units(unit: str, number: float, expected: int) -> None:
    assert duration_ns(number, unit) == expected


def test_there_are_nine_size_and_eight_duration_units() -> None:
    assert sorted(SIZE_UNITS) == ["b", "gb", "gib", "kb", "kib", "mb", "mib", "tb", "tib"]
    assert sorted(DURATION_UNITS) == ["d", "h", "m", "ms", "ns", "s", "us", "w"]


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE)
def test_every_form_of_a_float_reads_back_exactly(value: float) -> None:
    for text in (positional(value), json_float(value), wire_float(value), repr(value)):
        assert float(text) == value
        assert math.copysign(1, float(text)) == math.copysign(1, value)
        assert parse_float_text(text) == value


@given(FINITE)
def test_inline_floats_never_have_an_exponent_or_a_bare_fraction(value: float) -> None:
    text = positional(value)
    assert "e" not in text
    assert not text.endswith((".", ".0"))


@given(FINITE)
def test_json_floats_always_show_that_they_are_floats(value: float) -> None:
    for text in (json_float(value), wire_float(value)):
        assert "." in text or "e" in text
        assert "e0" not in text and "e-0" not in text and "e+0" not in text
    exponent = 0 if value == 0 else int(f"{abs(value):e}".partition("e")[2])
    assert ("e" in json_float(value)) is not (-5 <= exponent <= 15)


@given(st.integers(0, SIZE_MAX))
def test_rendered_sizes_are_within_half_a_percent(count: int) -> None:
    text = render_size(count)
    number = float(text.rstrip("btmgk"))
    assert number < 1000 or text.endswith("tb")
    again = parse_size_text(text)
    assert again is not None
    assert abs(again - count) <= max(count // 190, 0)


@given(st.integers(INT_MIN, INT_MAX))
def test_every_duration_reads_back_from_its_rendering(ns: int) -> None:
    text = render_duration(ns)
    again = parse_duration_text(text)
    assert again is not None
    # Parts are binary64 products: exact while the part stays below 2^53 nanoseconds.
    assert abs(again - ns) <= max(abs(ns) >> 52, 0)


@given(st.integers(INT_MIN, INT_MAX))
def test_every_int_reads_back(number: int) -> None:
    assert parse_int_text(str(number)) == number


@pytest.mark.parametrize("number", [INT_MAX + 1, INT_MIN - 1, 10**30])
def test_ints_out_of_range_do_not_parse(number: int) -> None:
    assert parse_int_text(str(number)) is None


def test_leading_zeros_never_push_an_int_out_of_range() -> None:
    assert parse_int_text("+" + "0" * 6000 + "7") == 7


@given(st.text(alphabet="0123456789+-.eEinfatyINF_ x", max_size=8))
def test_the_float_grammar_is_a_part_of_the_one_of_python(text: str) -> None:
    parsed = parse_float_text(text)
    if parsed is not None:
        assert repr(parsed) == repr(float(text))
    elif "_" not in text and text == text.strip():
        with pytest.raises(ValueError, match="could not convert"):
            float(text)
