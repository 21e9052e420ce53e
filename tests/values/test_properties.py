"""Properties that hold for all values: round trips, order, slicing, elision bounds."""

from __future__ import annotations

import base64
import json
from datetime import UTC
from functools import cmp_to_key
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.values.samples import outcome
from worker.values.json_codec import from_json, to_json
from worker.values.operators import binary, compare, contains, equal
from worker.values.render import block, bound_render, inline, render_text, strip_terminal
from worker.values.selectors import select, slice_value
from worker.values.temporal import NS_MAX, NS_MIN, parse_datetime_text
from worker.values.types import (
    INT_MAX,
    INT_MIN,
    SIZE_MAX,
    DateTime,
    Duration,
    Path,
    Range,
    Size,
    Table,
    TimeOfDay,
    Value,
)
from worker.values.wire import Budget, elide, encode

INTS = st.integers(INT_MIN, INT_MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=20)
SIZES = st.builds(Size, st.integers(0, SIZE_MAX))
DURATIONS = st.builds(Duration, INTS)
DATETIMES = st.builds(DateTime, st.integers(NS_MIN, NS_MAX), st.just(UTC))
TIMES = st.builds(TimeOfDay, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
PATHS = st.builds(Path, st.text(alphabet="ab./é\udcff", max_size=8))
RANGES = st.builds(Range, INTS, INTS, st.booleans())
BYTES = st.binary(max_size=20)
PLAIN = st.one_of(st.none(), st.booleans(), INTS, FLOATS, TEXTS)
SCALARS = st.one_of(PLAIN, SIZES, DURATIONS, DATETIMES, TIMES, PATHS, RANGES, BYTES)


def containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    records = st.dictionaries(TEXTS, inner, max_size=4)
    return st.one_of(
        st.lists(inner, max_size=4), records, st.builds(Table, st.lists(records, max_size=3))
    )


VALUES = st.recursive(SCALARS, containers, max_leaves=12)
JSON_VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def decoded(wire: Any) -> Value:
    """The plain value of a wire value: a decoder written from the table of forms alone."""
    kind, payload = wire["$"], wire.get("v")
    match kind:
        case "null":
            return None
        case "bool" | "int" | "float" | "str":
            return payload
        case "size":
            return Size(payload)
        case "duration":
            return Duration(payload)
        case "bytes":
            return base64.b64decode(payload, validate=True)
        case "path":
            raw = base64.b64decode(wire["raw"]) if "raw" in wire else payload.encode()
            return Path(raw.decode("utf-8", "surrogateescape"))
        case "datetime":
            moment = parse_datetime_text(wire["rfc3339"])
            assert moment is not None
            assert moment.ns // 10**9 == int(payload)
            return moment
        case "time":
            return TimeOfDay(*map(int, payload.split(":")))
        case "range":
            return Range(wire["start"], wire["end"], wire["inclusive"])
        case "list":
            return [decoded(item) for item in payload]
        case "record":
            return {key: decoded(item) for key, item in payload.items()}
        case "table":
            return Table(
                [
                    {name: decoded(column[at]) for name, column in wire["cols"].items()}
                    for at in range(wire["n"])
                ]
            )
    raise AssertionError(kind)


def without_missing_cells(value: Value) -> Value:
    """The value as its wire form shows it: every row of a table has every column."""
    if isinstance(value, list):
        return [without_missing_cells(item) for item in value]
    if isinstance(value, dict):
        return {key: without_missing_cells(item) for key, item in value.items()}
    if isinstance(value, Table):
        names = {name for row in value.rows for name in row}
        return Table(
            [{name: without_missing_cells(row.get(name)) for name in names} for row in value.rows]
        )
    return value


@given(VALUES)
def test_the_wire_form_holds_the_whole_value(value: Value) -> None:
    assert equal(decoded(json.loads(encode(value))), without_missing_cells(value))


@given(JSON_VALUES)
def test_json_reads_back_as_the_same_value(value: Value) -> None:
    for pretty in (False, True):
        text = to_json(value, pretty)
        json.loads(text)
        assert equal(from_json(text, "x"), value)


@given(VALUES)
def test_every_value_equals_itself_and_renders(value: Value) -> None:
    assert equal(value, value)
    assert "\x1b" not in strip_terminal(block(value))
    assert isinstance(inline(value), str)


# --- order ----------------------------------------------------------------------------------------

NUMBERS = st.one_of(INTS.filter(lambda n: abs(n) < 2**53), FLOATS)
KINDS: list[st.SearchStrategy[Value]] = [
    INTS, NUMBERS, TEXTS, PATHS, SIZES, DURATIONS, DATETIMES, TIMES, st.booleans(),
]  # fmt: skip


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(kind, kind, kind)))
def test_compare_is_a_total_order_within_a_kind(values: tuple[Value, Value, Value]) -> None:
    a, b, c = values
    assert compare(a, b) == -compare(b, a)
    assert (compare(a, b) == 0) is equal(a, b)
    if compare(a, b) <= 0 and compare(b, c) <= 0:
        assert compare(a, c) <= 0
    assert binary("lt", a, b) is (compare(a, b) < 0)
    assert binary("le", a, b) is (compare(a, b) <= 0)
    assert binary("gt", a, b) is (compare(a, b) > 0)
    assert binary("ge", a, b) is (compare(a, b) >= 0)


@given(st.lists(TEXTS))
def test_strings_sort_by_code_points(texts: list[str]) -> None:
    expected = sorted(texts, key=lambda text: [ord(char) for char in text])
    assert sorted(texts, key=cmp_to_key(compare)) == expected


@given(st.lists(SCALARS, max_size=6), SCALARS)
def test_membership_in_a_list_is_equality_with_some_element(
    items: list[Value], needle: Value
) -> None:
    assert contains(needle, items) is any(equal(needle, item) for item in items)


# --- integers -------------------------------------------------------------------------------------


@given(INTS, INTS.filter(bool))
def test_division_and_remainder_belong_together(a: int, b: int) -> None:
    if (a, b) == (INT_MIN, -1):
        return
    quotient, remainder = binary("div", a, b), binary("rem", a, b)
    assert quotient * b + remainder == a
    assert abs(remainder) < abs(b)
    assert remainder == 0 or (remainder < 0) == (a < 0)


# --- slices and elision ---------------------------------------------------------------------------

ENDS = st.integers(0, 12)


@given(st.lists(INTS, max_size=9), ENDS, ENDS)
def test_slices_are_those_of_a_plain_sequence(items: list[int], start: int, end: int) -> None:
    expected = [item for at, item in enumerate(items) if start <= at < end]
    assert slice_value(items, start, end) == expected
    assert select(items, f"[{start}..{end}]") == expected
    table = Table([{"n": item} for item in items])
    assert [row["n"] for row in slice_value(table, start, end).rows] == expected
    text = "".join(chr(0x100 + at) for at in range(len(items)))
    assert slice_value(text, start, end) == text[start : max(start, end)]


@settings(deadline=None)
@given(
    VALUES,
    st.integers(0, 400),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
)
def test_elision_answers_the_encoding_or_a_bounded_ref(
    value: Value, max_bytes: int, max_rows: int, max_items: int, tty: bool
) -> None:
    budget = Budget.asked(max_bytes, max_rows, max_items)
    answer = elide(value, "shoal://out/1", budget, tty)
    complete = encode(value)
    too_large = (
        len(complete) > max_bytes
        or (isinstance(value, Table) and len(value.rows) > max_rows)
        or (isinstance(value, list) and len(value) > max_items)
        or (isinstance(value, bytes) and len(value) > max_bytes)
    )
    if not too_large:
        assert answer == complete
    else:
        assert json.loads(answer)["$"] == "ref"
        assert len(answer) < 65_536
    wrapped = json.loads(elide(outcome(structured=value), "shoal://out/1", budget, tty))
    assert (wrapped["out"]["$"] == "ref") is too_large


@given(st.text(max_size=300), st.integers(1, 400))
def test_a_bounded_render_never_passes_the_limit(piece: str, times: int) -> None:
    text = bound_render(piece * times, "shoal://out/1")
    assert len(text.encode()) <= 65_536


@given(VALUES)
def test_a_plain_render_has_no_control_characters_but_line_feeds(value: Value) -> None:
    text = render_text(value, uri="shoal://out/1", tty=False)
    assert not [char for char in text if (char < " " and char != "\n") or "\x7f" <= char <= "\x9f"]
