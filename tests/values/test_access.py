"""Chapter 20 §4: direct fields, outcomes, indexing."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.values.samples import SAMPLES, SECOND, lazy, moment, outcome
from worker.errors import Raised
from worker.values import temporal
from worker.values.access import decoded_out, direct_field, index_value, outcome_out
from worker.values.operators import equal
from worker.values.types import (
    INT_MAX,
    TYPE_NAMES,
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    Outcome,
    Path,
    Table,
    Value,
)

FIELDS: list[tuple[Value, str, Value]] = [
    ({"if": 1, "": 2}, "if", 1),
    ({"if": 1, "": 2}, "", 2),
    ({"a": None}, "a", None),
    (ErrorValue("c", "m", hint="h", stderr="e", status=3), "code", "c"),
    (ErrorValue("c", "m", hint="h", stderr="e", status=3), "msg", "m"),
    (ErrorValue("c", "m", hint="h", stderr="e", status=3), "hint", "h"),
    (ErrorValue("c", "m", hint="h", stderr="e", status=3), "stderr", "e"),
    (ErrorValue("c", "m", hint="h", stderr="e", status=3), "status", 3),
    (ErrorValue("c", "m"), "hint", None),
    (Glob("*.c", "/src"), "pattern", "*.c"),
    (Path("logs/app.tar.gz"), "stem", "app.tar"),
    (Path("/srv/data/"), "name", "data"),
    (Path("x."), "ext", ""),
    (Path("/srv/data/"), "parent", Path("/srv")),
    (Path("x"), "parent", None),
    (moment("2026-07-09T14:30:45Z"), "year", 2026),
    (moment("2026-07-09T14:30:45Z"), "month", 7),
    (moment("2026-07-09T14:30:45Z"), "day", 9),
    (moment("2026-07-09T14:30:45Z"), "hour", 14),
    (moment("2026-07-09T14:30:45Z"), "minute", 30),
    (moment("2026-07-09T14:30:45Z"), "second", 45),
    (moment("2031-01-01T01:30[Asia/Tokyo]"), "day", 1),
    (moment("2031-01-01T01:30[Asia/Tokyo]"), "hour", 1),
    (moment("-009999-03-01"), "year", -9999),
]


@pytest.mark.parametrize(("value", "name", "expected"), FIELDS)
def test_direct_fields(value: Value, name: str, expected: Value) -> None:
    assert equal(direct_field(value, name), expected)


def test_ago_and_from_now_use_the_given_clock_and_the_system_zone() -> None:
    value = Duration(60 * SECOND)
    ago = direct_field(value, "ago", lambda: 100 * SECOND)
    ahead = direct_field(value, "from_now", lambda: 100 * SECOND)
    assert (ago.ns, ahead.ns) == (40 * SECOND, 160 * SECOND)
    assert isinstance(ago, DateTime)
    assert ago.zone == temporal.system_zone()


def test_ago_past_the_supported_years_overflows() -> None:
    with pytest.raises(Raised, match="datetime out of range") as caught:
        direct_field(Duration(INT_MAX), "from_now", lambda: temporal.NS_MAX)
    assert caught.value.error.code == "overflow"


@pytest.mark.parametrize("name", [name for name in TYPE_NAMES if name != "outcome"])
def test_an_unknown_field_names_the_type(name: str) -> None:
    with pytest.raises(Raised) as caught:
        direct_field(SAMPLES[name], "zzz")
    expected = "missing field `zzz`" if name == "record" else f"{name} has no field `zzz`"
    assert (caught.value.error.code, caught.value.error.msg) == ("field_missing", expected)


def test_errors_have_no_span_field() -> None:
    with pytest.raises(Raised, match="error has no field `span`"):
        direct_field(SAMPLES["error"], "span")


# --- outcomes -------------------------------------------------------------------------------------

DONE = outcome(stdout=b"text\n", stderr=b"warn\n", dur_ns=5 * SECOND, pid=42)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("status", 0),
        ("ok", True),
        ("signal", None),
        ("dur", Duration(5 * SECOND)),
        ("pid", 42),
        ("cmd", "make all"),
        ("stdout", b"text\n"),
        ("stderr", b"warn\n"),
        ("out", "text"),
        ("err", b"warn\n"),
    ],
)
def test_outcome_fields(name: str, expected: Value) -> None:
    assert equal(direct_field(DONE, name), expected)


def failed(**changes: Any) -> Outcome:
    return outcome(**{"ok": False, "status": 3, "stderr": b" gone\n", **changes})


@pytest.mark.parametrize("name", ["out", "err", "forwarded"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "`make all` exited with status 3"),
        ({"status": None, "signal": "SIGTERM"}, "`make all` died from SIGTERM"),
        ({"status": None}, "`make all` failed"),
    ],
)
def test_the_output_of_a_failed_outcome_raises(
    name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Raised) as caught:
        direct_field(failed(**changes), name)
    error = caught.value.error
    assert (error.code, error.msg, error.hint) == ("cmd_failed", message, "gone")
    # Both are still to be had from the outcome.
    assert (error.stderr, error.status) == (None, None)


def test_the_hint_of_a_silent_failure_is_empty() -> None:
    with pytest.raises(Raised) as caught:
        outcome_out(failed(stderr=b""))
    assert caught.value.error.hint == ""


@pytest.mark.parametrize(
    "name", ["status", "ok", "signal", "dur", "pid", "cmd", "stdout", "stderr"]
)
def test_all_other_fields_of_a_failed_outcome_stay_readable(name: str) -> None:
    direct_field(failed(), name)


def test_other_fields_are_looked_up_in_the_output() -> None:
    assert direct_field(outcome(stdout=b'{"n": 4}'), "n") == 4
    assert direct_field(outcome(structured=Path("a/b.c")), "name") == "b.c"
    with pytest.raises(Raised, match="missing field `zzz`"):
        direct_field(outcome(stdout=b'{"n": 4}'), "zzz")
    with pytest.raises(Raised, match="str has no field `zzz`"):
        direct_field(outcome(stdout=b"text"), "zzz")


DECODED: list[tuple[bytes, Value]] = [
    (b"", ""),
    (b"text\n", "text"),
    (b"text\n\n", "text\n"),
    (b"text\r\n", "text\r"),
    (b"caf\xe9", "caf\ufffd"),
    (b"42\n", "42"),
    (b'"x"\n', '"x"'),
    (b' \t{"b": 1, "a": 2.0}\n', {"a": 2.0, "b": 1}),
    (b'[{"a": 1}]', Table([{"a": 1}])),
    (b'[{"a": 1}, 2]', [{"a": 1}, 2]),
    (b"[]", []),
    (b"[1] [2]", "[1] [2]"),
    (b'{"a": 1}\n{"a": 2}\n', '{"a": 1}\n{"a": 2}'),
    (b"{broken", "{broken"),
    (b"[9223372036854775808]", [9223372036854775808.0]),
]


@pytest.mark.parametrize(("stdout", "expected"), DECODED)
def test_output_is_decoded_as_text_or_json(stdout: bytes, expected: Value) -> None:
    for value in (outcome(stdout=stdout), failed(stdout=stdout)):
        decoded = decoded_out(value)
        assert type(decoded) is type(expected)
        assert equal(decoded, expected)


def test_records_decoded_from_output_have_sorted_keys() -> None:
    assert list(decoded_out(outcome(stdout=b'{"b": 1, "a": 2, "B": 3}'))) == ["B", "a", "b"]


def test_a_structured_output_is_never_parsed_again() -> None:
    assert decoded_out(outcome(structured="[1]", stdout=b"[1]\n")) == "[1]"
    assert decoded_out(outcome(structured=None, stdout=b"")) is None


def test_a_spilled_output_decodes_its_resident_part_only() -> None:
    assert decoded_out(outcome(stdout=lazy(b"longer than that", shown=6))) == "longer"


# --- indexing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "index", "expected"),
    [
        ([4, 5, 6], 0, 4),
        ([4, 5, 6], -1, 6),
        ([4, 5, 6], -3, 4),
        ("añ", 1, "ñ"),
        ("añ", -2, "a"),
        ("e\u0301", 1, "\u0301"),
        ({"k": 1}, "k", 1),
    ],
)
def test_indexing(value: Value, index: Value, expected: Value) -> None:
    assert index_value(value, index) == expected


@pytest.mark.parametrize(
    ("value", "index", "code", "message"),
    [
        ([4], 1, "index_range", "list index out of range"),
        ([4], -2, "index_range", "list index out of range"),
        ("a", 1, "index_range", "string index out of range"),
        ("", -1, "index_range", "string index out of range"),
        ([4], INT_MAX, "index_range", "list index out of range"),
        ({"k": 1}, "z", "field_missing", "missing field `z`"),
    ],
)
def test_indexes_outside(value: Value, index: Value, code: str, message: str) -> None:
    with pytest.raises(Raised) as caught:
        index_value(value, index)
    assert (caught.value.error.code, caught.value.error.msg) == (code, message)


def test_no_other_pair_of_types_can_be_indexed() -> None:
    allowed = {("list", "int"), ("str", "int"), ("record", "str")}
    for name, by in product(TYPE_NAMES, TYPE_NAMES):
        if (name, by) in allowed:
            continue
        with pytest.raises(Raised) as caught:
            index_value(SAMPLES[name], SAMPLES[by])
        assert caught.value.error.code == "type_error"
        assert caught.value.error.msg == f"cannot index {name} with {by}"
