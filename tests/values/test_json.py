"""Chapter 20 §5.5, §5.7: JSON of values, both ways."""

from __future__ import annotations

import math

import pytest

from tests.values.samples import SAMPLES, lazy, moment, outcome
from worker.errors import Raised
from worker.values.json_codec import JSON_DEPTH_MAX, from_json, from_plain, to_json
from worker.values.operators import equal
from worker.values.types import TYPE_NAMES, Path, Range, Table, Value, type_name

WRITTEN: list[tuple[Value, str]] = [
    (None, "null"),
    (True, "true"),
    (-7, "-7"),
    ('a/é"\\\b\f\n\r\t\x01\x7f', '"a/é\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f"'),
    (4.0, "4.0"),
    (-0.0, "-0.0"),
    (0.25, "0.25"),
    (1e15, "1000000000000000.0"),
    (123456789012345680.0, "1.2345678901234568e+17"),
    (1e16, "1e+16"),
    (1e-5, "0.00001"),
    (1.5e-5, "0.000015"),
    (2.5e-7, "2.5e-7"),
    (1e-6, "1e-6"),
    (math.inf, "null"),
    (math.nan, "null"),
    (Path("caf\udce9"), '"caf\ufffd"'),
    (SAMPLES["glob"], '"*.c"'),
    (SAMPLES["regex"], '"a+"'),
    (SAMPLES["size"], "4000"),
    (SAMPLES["duration"], "90000000000"),
    (moment("2026-07-09T14:00Z"), '"2026-07-09T14:00:00+00:00[UTC]"'),
    (moment("2031-05-04T09:30:00.25[Asia/Tokyo]"), '"2031-05-04T09:30:00.25+09:00[Asia/Tokyo]"'),
    (moment("2031-05-04T09:30[-03:30]"), '"2031-05-04T09:30:00-03:30[-03:30]"'),
    (SAMPLES["time"], '"07:45"'),
    (b"a\xff", '"a\ufffd"'),
    (
        lazy(b"stored content", truncated=True),
        '{"$":"bytes_ref","len":14,"preview":"stor","ref":"val:blake3:'
        + "ab" * 32
        + '","truncated":true}',
    ),
    ([], "[]"),
    ([1, "x", [None]], '[1,"x",[null]]'),
    ([1.0, 2.5], "[1.0,2.5]"),
    (Range(2, 5, True), "[2,3,4,5]"),
    (Range(5, 2, True), "[]"),
    ({}, "{}"),
    ({"width": 2, "area": 8}, '{"area":8,"width":2}'),
    (
        {"é": 1, "z": 2, "Z": 3, "\U0001f600": 4, "\uffff": 5},
        '{"Z":3,"z":2,"é":1,"\uffff":5,"\U0001f600":4}',
    ),
    (Table([{"b": 1, "a": 2}]), '[{"a":2,"b":1}]'),
    (
        outcome(stdout=b"text\n", stderr=b"w"),
        '{"err":"w","ok":true,"out":"text\\n","status":0}',
    ),
    (SAMPLES["error"], '{"code":"div_zero","msg":"division by zero"}'),
    (SAMPLES["secret"], '"secret(deploy-key)"'),
    (SAMPLES["stream"], '"stream<value>"'),
    (SAMPLES["task"], '"task(3)"'),
    (SAMPLES["closure"], '"closure(a, b)"'),
    (SAMPLES["command"], '"command(git)"'),
]


@pytest.mark.parametrize(("value", "expected"), WRITTEN)
def test_compact_form(value: Value, expected: str) -> None:
    assert to_json(value) == expected


def test_every_type_has_a_json_form() -> None:
    assert {type_name(value) for value, _ in WRITTEN} == set(TYPE_NAMES)


def test_pretty_form() -> None:
    value = {"b": [1, {"x": []}], "a": {}, "t": Table([{"k": "v"}])}
    assert to_json(value, pretty=True) == (
        '{\n  "a": {},\n  "b": [\n    1,\n    {\n      "x": []\n    }\n  ],\n'
        '  "t": [\n    {\n      "k": "v"\n    }\n  ]\n}'
    )


READ: list[tuple[str, Value]] = [
    ("null", None),
    (" true ", True),
    ("9223372036854775807", 2**63 - 1),
    ("9223372036854775808", 9223372036854775808.0),
    ("-9223372036854775808", -(2**63)),
    ("18446744073709551616", 18446744073709551616.0),
    ("1.0", 1.0),
    ("1e2", 100.0),
    ("-0", -0.0),
    ("[-0, -0.5, 10, -01]".replace(", -01", ""), [-0.0, -0.5, 10]),
    (
        '{"t": "-0", "n": 123456789012345678901234567890, "z": -0}',
        {"n": 123456789012345678901234567890.0, "t": "-0", "z": -0.0},
    ),
    ("[]", []),
    ("[{}]", Table([{}])),
    ('[{"a": 1}, {"b": [{"c": 2}]}]', Table([{"a": 1}, {"b": Table([{"c": 2}])}])),
    ('[{"a": 1}, null]', [{"a": 1}, None]),
    ('{"b": 1, "a": 2, "b": 3}', {"a": 2, "b": 3}),
    ('"\\ud83d\\ude00\\u0000"', "\U0001f600\0"),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_reading(text: str, expected: Value) -> None:
    value = from_json(text, "json.parse")
    assert type(value) is type(expected)
    assert repr(value) == repr(expected)


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "[1,]", "nul", "NaN", "Infinity", "'a'", "01", '"\\ud800"', "1 2", '"\x01"'],
)
def test_invalid_text_names_the_reader(text: str) -> None:
    with pytest.raises(Raised, match=r"json\.parse: ") as caught:
        from_json(text, "json.parse")
    assert caught.value.error.code == "arg_error"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_limited(opening: str, closing: str) -> None:
    def nested(depth: int, leaf: str) -> str:
        return opening * depth + leaf + closing * depth

    from_json(nested(JSON_DEPTH_MAX, "1"), "x")
    for depth in (JSON_DEPTH_MAX + 1, 5000):
        for leaf in ("1", "-0"):
            with pytest.raises(Raised) as caught:
                from_json(nested(depth, leaf), "x")
            assert caught.value.error.code == "arg_error"


def test_plain_data_follows_the_same_rules() -> None:
    value = from_plain({"b": [{"x": 2**63}], "a": None}, "yaml.parse")
    assert list(value) == ["a", "b"]
    assert equal(value, {"a": None, "b": Table([{"x": float(2**63)}])})
