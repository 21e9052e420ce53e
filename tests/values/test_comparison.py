"""Chapter 20 §2, §3.3: equality, order, conditions and membership."""

from __future__ import annotations

import math
from itertools import product

import pytest

from tests.values.samples import (
    SAMPLES,
    ClosureStandIn,
    CommandStandIn,
    StreamStandIn,
    TaskStandIn,
    lazy,
    moment,
    outcome,
)
from worker.errors import Raised
from worker.values.operators import (
    binary,
    compare,
    contains,
    equal,
    negated_truth,
    truth,
)
from worker.values.regexes import compile_regex
from worker.values.types import (
    TYPE_NAMES,
    Duration,
    ErrorValue,
    Glob,
    LazyBytes,
    Path,
    Range,
    Secret,
    Size,
    Span,
    Table,
    TimeOfDay,
    Value,
)

EQUAL: list[tuple[Value, Value]] = [
    (None, None),
    (1, 1.0),
    (0.0, -0.0),
    (2**53 + 1, float(2**53)),
    (Path("a//b"), Path("a/b")),
    (Path("a/./b"), Path("a/b")),
    (Path("a/b/"), Path("a/b")),
    (Path("/./a"), Path("//a")),
    (Path("a//b"), "a//b"),
    (Path("caf\udce9"), "caf\ufffd"),
    (Glob("*.c", "/a"), Glob("*.c", "/b", hidden=True)),
    (compile_regex("a+"), compile_regex("a+")),
    (Size(5), Size(5)),
    (Duration(5), Duration(5)),
    (moment("2031-05-04T09:30[Asia/Tokyo]"), moment("2031-05-04T00:30Z")),
    (TimeOfDay(1, 2, 3), TimeOfDay(1, 2, 3)),
    (b"xy", b"xy"),
    (lazy(b"long content"), lazy(b"long content", shown=2)),
    ([1, [2.0]], [1.0, [2]]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (Table([{"a": 1, "b": 2}]), Table([{"b": 2, "a": 1}])),
    (Table([{"a": 1}]), [{"a": 1.0}]),
    (Table([]), []),
    (Range(2, 6, True), Range(2, 6, True)),
    (ErrorValue("a", "b", span=Span(0, 1)), ErrorValue("a", "b", span=Span(0, 1))),
    (CommandStandIn("git", ["log"]), CommandStandIn("git", ["log"])),
    (Secret("k", "t"), Secret("k", "t")),
]
UNEQUAL: list[tuple[Value, Value]] = [
    (1, True),
    (0, False),
    (1.0, True),
    (0, None),
    (9, Size(9)),
    ("7", 7),
    (math.nan, math.nan),
    (2**53 + 1, 2**53),
    (Path("./a"), Path("a")),
    (Path("a//b"), "a/b"),
    (Path("a/../b"), Path("b")),
    (Glob("*.c", "/"), "*.c"),
    (compile_regex("a+"), "a+"),
    (moment("2031-05-04"), "2031-05-04T00:00:00Z"),
    (b"long content", lazy(b"long content")),
    (lazy(b"long content"), LazyBytes("cd" * 32, 12, b"long", False)),
    ([math.nan], [math.nan]),
    ([1], [1, 2]),
    ([1], [True]),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": None}),
    ({"a": None}, {}),
    (Table([{"a": 1}]), [1]),
    (Table([{"a": 1}]), [{"a": 1}, {"a": 1}]),
    ([1, 2], Range(1, 3, False)),
    (Range(2, 6, False), Range(2, 5, True)),
    (ErrorValue("a", "b", span=Span(0, 1)), ErrorValue("a", "b")),
    (outcome(), outcome()),
    (ClosureStandIn(), ClosureStandIn()),
    (TaskStandIn(), TaskStandIn()),
    (StreamStandIn(), StreamStandIn()),
    (CommandStandIn("git", ["log"]), CommandStandIn("git", ["diff"])),
    (Secret("k", "t"), Secret("k", "u")),
    (Secret("k", "t"), Secret("j", "t")),
    ([StreamStandIn()], [1]),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal_in_both_orders(a: Value, b: Value) -> None:
    assert equal(a, b) is True
    assert binary("eq", b, a) is True
    assert binary("ne", a, b) is False


@pytest.mark.parametrize(("a", "b"), UNEQUAL)
def test_unequal_in_both_orders(a: Value, b: Value) -> None:
    assert equal(a, b) is False
    assert binary("eq", b, a) is False
    assert binary("ne", a, b) is True


def test_equality_is_total_over_all_pairs_of_types_and_true_only_for_a_value_itself() -> None:
    for left, right in product(TYPE_NAMES, TYPE_NAMES):
        assert equal(SAMPLES[left], SAMPLES[right]) is (left == right), (left, right)


def test_equality_is_not_transitive_through_a_str() -> None:
    assert equal(Path("a//b"), Path("a/b"))
    assert equal(Path("a/b"), "a/b")
    assert not equal(Path("a//b"), "a/b")


@pytest.mark.parametrize("name", [name for name in TYPE_NAMES if name != "stream"])
def test_the_operator_refuses_a_stream_against_any_other_value(name: str) -> None:
    for a, b in ((StreamStandIn(), SAMPLES[name]), (SAMPLES[name], StreamStandIn())):
        for op in ("eq", "ne"):
            with pytest.raises(Raised, match="cannot compare a stream with a value") as caught:
                binary(op, a, b)
            assert caught.value.error.hint == "collect first (`.collect()`)"


def test_a_stream_equals_itself_only() -> None:
    stream = StreamStandIn()
    assert binary("eq", stream, stream) is True
    assert binary("eq", stream, StreamStandIn()) is False


# --- order ----------------------------------------------------------------------------------------

ASCENDING: list[tuple[Value, Value]] = [
    (1, 2),
    (-1.5, 2),
    (2, 2.5),
    ("B", "a"),
    ("z", "é"),
    ("\ufffd", "\U0001f600"),
    ("", "a"),
    (Path("a/b"), Path("a.txt")),
    (Path("a"), Path("a/b")),
    (Path("/z"), Path("a")),
    (Path("\U0001f600"), Path("\udcff")),
    (Size(1), Size(2)),
    (Duration(-1), Duration(0)),
    (moment("2031-05-04T09:30[Asia/Tokyo]"), moment("2031-05-04T00:31Z")),
    (TimeOfDay(10, 0, 0), TimeOfDay(10, 1, 0)),
    (TimeOfDay(9, 59, 59), TimeOfDay(10, 0, 0)),
    (False, True),
]


@pytest.mark.parametrize(("a", "b"), ASCENDING)
def test_order_within_a_kind(a: Value, b: Value) -> None:
    assert (compare(a, b), compare(b, a), compare(a, a)) == (-1, 1, 0)
    assert [binary(op, a, b) for op in ("lt", "le", "gt", "ge")] == [True, True, False, False]
    assert [binary(op, b, a) for op in ("lt", "le", "gt", "ge")] == [False, False, True, True]
    assert [binary(op, a, a) for op in ("lt", "le", "gt", "ge")] == [False, True, False, True]


ORDERED = {"int", "float", "str", "path", "size", "duration", "datetime", "time", "bool"}


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge"])
def test_every_other_pair_of_types_has_no_order(op: str) -> None:
    for left, right in product(TYPE_NAMES, TYPE_NAMES):
        a, b = SAMPLES[left], SAMPLES[right]
        if (left == right and left in ORDERED) or {left, right} == {"int", "float"}:
            assert type(binary(op, a, b)) is bool
            continue
        with pytest.raises(Raised) as caught:
            binary(op, a, b)
        assert caught.value.error.code == "type_error"
        assert caught.value.error.msg == f"cannot compare {left} with {right}"


@pytest.mark.parametrize(
    ("a", "b"), [(math.nan, 1.0), (1.0, math.nan), (math.nan, 1), (1, math.nan)]
)
def test_nan_has_no_order(a: Value, b: Value) -> None:
    for op in ("lt", "le", "gt", "ge"):
        with pytest.raises(Raised, match="cannot compare float with float"):
            binary(op, a, b)


def test_a_mixed_pair_is_compared_as_binary64() -> None:
    assert binary("le", 2**53 + 1, float(2**53)) is True
    assert binary("lt", float(2**53), 2**53 + 1) is False


# --- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), (False, False), (outcome(), True), (outcome(ok=False, status=1), False)],
)
def test_bools_and_outcomes_are_conditions(value: Value, expected: bool) -> None:
    assert truth(value) is expected
    assert negated_truth(value) is not expected


@pytest.mark.parametrize("name", [name for name in TYPE_NAMES if name not in ("bool", "outcome")])
def test_no_other_type_is_a_condition(name: str) -> None:
    for ask in (truth, negated_truth):
        with pytest.raises(Raised) as caught:
            ask(SAMPLES[name])
        error = caught.value.error
        assert (error.code, error.msg) == (
            "type_error",
            f"expected bool in condition, found {name}",
        )
        assert "no truthiness" in (error.hint or "")
        assert ".is_empty()" in (error.hint or "")
        assert "!= null" in (error.hint or "")


# --- membership -----------------------------------------------------------------------------------

MEMBERS: list[tuple[Value, Value, bool]] = [
    (2, [1, 2.0], True),
    (True, [0, 1], False),
    (0, [False], False),
    (math.nan, [math.nan], False),
    ("a", [], False),
    ("a/b", [Path("a/b")], True),
    ([2], [[1], [2]], True),
    (None, [None], True),
    ({"a": 1.0}, Table([{"a": 1}]), True),
    ({"a": 1}, Table([{"a": 1, "b": 2}]), False),
    ("b", "abc", True),
    ("", "", True),
    ("x", "abc", False),
    ("a", {"a": None}, True),
    ("b", {"a": None}, False),
    (3, Range(3, 3, False), False),
    (3, Range(3, 3, True), True),
    (5, Range(1, 5, False), False),
    (4, Range(1, 5, False), True),
    (10**18, Range(0, 2**62, False), True),
]


@pytest.mark.parametrize(("needle", "haystack", "expected"), MEMBERS)
def test_membership(needle: Value, haystack: Value, expected: bool) -> None:
    assert contains(needle, haystack) is expected
    assert binary("in", needle, haystack) is expected


MEMBERSHIP_PAIRS = {("record", "table"), ("str", "str"), ("str", "record"), ("int", "range")}


def test_every_other_pair_of_types_has_no_membership() -> None:
    for needle, haystack in product(TYPE_NAMES, TYPE_NAMES):
        if haystack == "list" or (needle, haystack) in MEMBERSHIP_PAIRS:
            assert type(contains(SAMPLES[needle], SAMPLES[haystack])) is bool
            continue
        with pytest.raises(Raised) as caught:
            contains(SAMPLES[needle], SAMPLES[haystack])
        assert caught.value.error.code == "type_error"
        assert caught.value.error.msg == f"cannot test {needle} membership in {haystack}"


def test_a_list_is_not_a_member_of_itself() -> None:
    items = [1, 2]
    assert contains(items, items) is False
