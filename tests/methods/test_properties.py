"""Methods against plain models: order, equality classes, slices."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.support import evaluator
from worker.errors import Raised
from worker.values.methods import call_method
from worker.values.operators import compare, equal
from worker.values.types import Duration, Path, Range, Size, Table, Value

EV = evaluator()
FIRST = EV.evaluate_source("let first_of = p => p[0]\nfirst_of")
SAME = EV.evaluate_source("let same = v => v\nsame")

# Values that meet every rule of equality: numbers at the edge of binary64, nan, paths and their
# texts, bools next to ints, tables next to lists.
SCALARS: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2.0**53, 0.0, -0.0, float("nan"), 1.0, 2.5]),
    st.sampled_from(["a", "b", "a/b", "a//b", ""]),
    st.sampled_from([Path("a"), Path("a//b"), Path("a/b"), Path("a/./b")]),
    st.sampled_from([Size(1), Size(2), Duration(1), Range(1, 3, False), Range(1, 2, True), b"a"]),
)
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
        st.lists(st.dictionaries(st.sampled_from("xy"), inner, max_size=1), max_size=2).map(Table),
    ),
    max_leaves=4,
)


def call(recv: Value, name: str, *pos: Value) -> Any:
    return call_method(EV, recv, name, list(pos))


@settings(deadline=None)
@given(st.lists(VALUES, max_size=12))
def test_uniq_is_the_linear_scan(items: list[Value]) -> None:
    kept: list[Value] = []
    for item in items:
        if not any(equal(known, item) for known in kept):
            kept.append(item)
    found = call(items, "uniq")
    assert [id(item) for item in found] == [id(item) for item in kept]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=12))
def test_distinct_is_the_linear_scan(items: list[Value]) -> None:
    found = call(call(call(items, "stream"), "distinct"), "collect")
    assert [id(item) for item in found] == [id(item) for item in call(items, "uniq")]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=12))
def test_group_is_the_linear_scan(items: list[Value]) -> None:
    groups: list[tuple[Value, list[Value]]] = []
    for item in items:
        for key, members in groups:
            if equal(key, item):
                members.append(item)
                break
        else:
            groups.append((item, [item]))
    found = call(items, "group", SAME)
    assert [[id(member) for member in group["values"]] for group in found] == [
        [id(member) for member in members] for _, members in groups
    ]
    assert [id(group["key"]) for group in found] == [id(key) for key, _ in groups]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=8), VALUES)
def test_contains_is_some_equal_element(items: list[Value], wanted: Value) -> None:
    assert call(items, "contains", wanted) is any(equal(item, wanted) for item in items)


@given(st.integers(-5, 5), st.integers(-5, 12), st.booleans(), SCALARS)
def test_contains_of_a_range_is_some_equal_int(
    start: int, end: int, inclusive: bool, wanted: Value
) -> None:
    members = Range(start, end, inclusive)
    expected = any(equal(number, wanted) for number in members.python_range())
    assert call(members, "contains", wanted) is expected


def test_contains_of_a_range_of_large_ints_rounds_like_equality() -> None:
    edge = Range(2**53 + 1, 2**53 + 2, False)
    assert equal(2**53 + 1, 2.0**53)
    assert call(edge, "contains", 2.0**53) is True
    assert call(Range(2**53 + 2, 2**53 + 9, False), "contains", 2.0**53) is False
    assert call(Range(0, 5, False), "contains", 1e300) is False


NUMBERS: Any = st.one_of(
    st.integers(-4, 4),
    st.floats(allow_nan=False, width=16),
    st.sampled_from([2**53, 2**53 + 1, 2**53 + 2, 2.0**53]),
)
KEYS: Any = st.one_of(
    st.lists(NUMBERS, max_size=12),
    st.lists(st.text("abé🦀", max_size=3), max_size=12),
    st.lists(st.booleans(), max_size=12),
    st.lists(st.sampled_from([Path("a/b"), Path("a"), Path("/a"), Path("a//b")]), max_size=12),
    st.lists(st.integers(0, 5).map(Size), max_size=12),
)


@settings(deadline=None)
@given(KEYS)
def test_sorting_is_stable_and_ascending(keys: list[Value]) -> None:
    items = [[key, number] for number, key in enumerate(keys)]
    ordered = call(items, "sort_by", FIRST)
    assert sorted(number for _, number in ordered) == list(range(len(keys)))
    for (left, left_number), (right, right_number) in pairwise(ordered):
        order = compare(left, right)
        assert order <= 0
        if order == 0 and type(left) is type(right):
            assert left_number < right_number
    assert [key for key, _ in ordered] == call(keys, "sort")


@settings(deadline=None)
@given(st.lists(SCALARS, min_size=2, max_size=8))
def test_sorting_fails_exactly_when_neighbours_do(items: list[Value]) -> None:
    def comparable() -> bool:
        try:
            for left, right in pairwise(items):
                compare(left, right)
        except Raised:
            return False
        return True

    expected = comparable()
    for name in ("sort", "min", "max"):
        try:
            call(items, name)
            passed = True
        except Raised as error:
            assert error.error.msg.startswith("cannot compare")
            passed = False
        assert passed is expected, name


@settings(deadline=None)
@given(KEYS)
def test_min_and_max_are_the_first_of_the_extremes(items: list[Value]) -> None:
    for name, sign in (("min", -1), ("max", 1)):
        best = items[0] if items else None
        for item in items:
            if compare(item, best) * sign > 0:
                best = item
        assert call(items, name) is best


SEQUENCES: Any = st.one_of(
    st.lists(st.integers(0, 9), max_size=10),
    st.text("aé🦀\n", max_size=10),
    st.builds(Range, st.integers(-3, 3), st.integers(-3, 9), st.booleans()),
)


@given(SEQUENCES, st.integers(0, 12))
def test_slices_follow_the_python_slice(recv: Value, n: int) -> None:
    model = list(recv.python_range()) if type(recv) is Range else recv
    assert call(recv, "take", n) == model[:n]
    assert call(recv, "skip", n) == model[n:]
    assert call(recv, "reverse") == model[::-1]
    assert call(recv, "len") == len(model)
    if type(recv) is not str:
        assert call(recv, "first", n) == model[:n]
        assert call(recv, "last", n) == (model[-n:] if n else [])
        assert [x for chunk in call(recv, "chunks", n + 1) for x in chunk] == model
        stream = call(call(recv, "stream"), "take", n)
        assert call(stream, "collect") == model[:n]


@given(st.lists(st.integers(-(2**62), 2**62), max_size=6))
def test_the_sum_is_the_fold_with_plus(items: list[int]) -> None:
    total = 0
    fits = True
    for item in items:
        total += item
        fits = fits and -(2**63) <= total < 2**63
    try:
        assert call(items, "sum") == total
        assert fits
    except Raised as error:
        assert error.error.code == "overflow"
        assert not fits


@given(st.text("ab\r\n", max_size=12))
def test_lines_of_text_and_of_its_stream_differ_in_carriage_returns_only(text: str) -> None:
    lines = call(text, "lines")
    streamed = call(call(text, "stream"), "collect")
    assert [line.rstrip("\r") for line in streamed] == lines
    assert len(lines) == text.count("\n") + (not text.endswith("\n") and text != "")
