"""Chapter 60 §8: the tagged wire form, form by form, with its corner cases."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from tests.values.samples import (
    SAMPLES,
    SECOND,
    ClosureStandIn,
    StreamStandIn,
    TaskStandIn,
    lazy,
    moment,
    outcome,
)
from worker.evaluate.threads import run_on_evaluator_stack
from worker.values.regexes import compile_regex
from worker.values.types import (
    INT_MIN,
    SIZE_MAX,
    TYPE_NAMES,
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    Path,
    Range,
    Size,
    Span,
    Table,
    TimeOfDay,
    Value,
    type_name,
)
from worker.values.wire import encode

FORMS: list[tuple[Value, str]] = [
    (None, '{"$":"null"}'),
    (False, '{"$":"bool","v":false}'),
    (True, '{"$":"bool","v":true}'),
    (INT_MIN, '{"$":"int","v":-9223372036854775808}'),
    (0.25, '{"$":"float","v":0.25}'),
    (2.0, '{"$":"float","v":2.0}'),
    (-0.0, '{"$":"float","v":-0.0}'),
    (1e16, '{"$":"float","v":1e16}'),
    (1.5e300, '{"$":"float","v":1.5e300}'),
    (1e-7, '{"$":"float","v":1e-7}'),
    (0.00001, '{"$":"float","v":0.00001}'),
    (math.nan, '{"$":"float","v":null}'),
    (-math.inf, '{"$":"float","v":null}'),
    ("naïve\n", '{"$":"str","v":"naïve\\n"}'),
    (Size(SIZE_MAX), '{"$":"size","v":18446744073709551615}'),
    (Duration(-1_500_000_000), '{"$":"duration","v":-1500000000}'),
    (b"\x00\xff\x1e", '{"$":"bytes","v":"AP8e"}'),
    (b"\x00\xff", '{"$":"bytes","v":"AP8="}'),
    (Path("src/caf\udce9"), '{"$":"path","v":"src/caf\ufffd","raw":"c3JjL2NhZuk="}'),
    (Path("src/café"), '{"$":"path","v":"src/café"}'),
    (
        DateTime(1_767_225_600 * SECOND, moment("2026-01-01").zone),
        '{"$":"datetime","v":"1767225600","rfc3339":"2026-01-01T00:00:00Z"}',
    ),
    (
        moment("1969-12-31T23:59:59.5Z"),
        '{"$":"datetime","v":"-1","rfc3339":"1969-12-31T23:59:59.5Z"}',
    ),
    (
        moment("2031-05-04T09:30[Asia/Tokyo]"),
        '{"$":"datetime","v":"1935621000","rfc3339":"2031-05-04T00:30:00Z"}',
    ),
    (TimeOfDay(7, 5, 0), '{"$":"time","v":"07:05:00"}'),
    (Glob("src/**/*.c", "/"), '{"$":"glob","pattern":"src/**/*.c"}'),
    (compile_regex(r"^v\d+$"), '{"$":"regex","src":"^v\\\\d+$"}'),
    (Range(1, 9, True), '{"$":"range","start":1,"end":9,"inclusive":true}'),
    ([1, None], '{"$":"list","v":[{"$":"int","v":1},{"$":"null"}]}'),
    ([1, 2], '{"$":"list","v":[{"$":"int","v":1},{"$":"int","v":2}]}'),
    (["a", 'b"'], '{"$":"list","v":[{"$":"str","v":"a"},{"$":"str","v":"b\\""}]}'),
    ([True, False], '{"$":"list","v":[{"$":"bool","v":true},{"$":"bool","v":false}]}'),
    ([], '{"$":"list","v":[]}'),
    ([[], [None]], '{"$":"list","v":[{"$":"list","v":[]},{"$":"list","v":[{"$":"null"}]}]}'),
    ({}, '{"$":"record","v":{}}'),
    (
        {"a": None, "$": "x"},
        '{"$":"record","v":{"$":{"$":"str","v":"x"},"a":{"$":"null"}}}',
    ),
    (Table([]), '{"$":"table","cols":{},"n":0}'),
    (Table([{}, {}]), '{"$":"table","cols":{},"n":2}'),
    (Table([{"k": 7}]), '{"$":"table","cols":{"k":[{"$":"int","v":7}]},"n":1}'),
    (
        Table([{"k": "a"}, {"v": 2, "k": "b"}]),
        '{"$":"table","cols":{"k":[{"$":"str","v":"a"},{"$":"str","v":"b"}],'
        '"v":[{"$":"null"},{"$":"int","v":2}]},"n":2}',
    ),
    ([{"a": 1}], '{"$":"list","v":[{"$":"record","v":{"a":{"$":"int","v":1}}}]}'),
    (
        outcome(
            stdout=b"built 3 files\n",
            stderr=b"warn: old cache\n",
            dur_ns=41_200_000,
            pid=5310,
            span=Span(0, 8),
        ),
        '{"$":"outcome","status":0,"ok":true,"signal":null,"out":{"$":"str","v":"built 3 files"},'
        '"err":"warn: old cache\\n","dur_ns":41200000,"pid":5310,"cmd":"make all",'
        '"span":{"start":0,"end":8}}',
    ),
    (
        outcome(status=None, ok=False, signal="SIGTERM", stderr=b"\xff", structured=[1]),
        '{"$":"outcome","status":null,"ok":false,"signal":"SIGTERM",'
        '"out":{"$":"list","v":[{"$":"int","v":1}]},"err":"\ufffd","dur_ns":0,"pid":0,'
        '"cmd":"make all"}',
    ),
    (
        ErrorValue("div_zero", "division by zero", span=Span(0, 5)),
        '{"$":"error","code":"div_zero","msg":"division by zero","span":{"start":0,"end":5}}',
    ),
    (
        ErrorValue("c", "m", hint="h", stderr="", status=3),
        '{"$":"error","code":"c","msg":"m","hint":"h","stderr":""}',
    ),
    (TaskStandIn(), '{"$":"task","id":3,"done":false}'),
    (TaskStandIn(done=True), '{"$":"task","id":3,"done":true}'),
    (ClosureStandIn("fn add(a, b)"), '{"$":"closure","repr":"fn add(a, b)"}'),
    (SAMPLES["command"], '{"$":"cmd","repr":"command(git)"}'),
    (StreamStandIn("event"), '{"$":"stream","label":"event"}'),
    (SAMPLES["secret"], '{"$":"secret","name":"deploy-key"}'),
]


@pytest.mark.parametrize(("value", "expected"), FORMS)
def test_wire_form(value: Value, expected: str) -> None:
    assert encode(value).decode() == expected
    json.loads(expected)


def test_every_type_has_a_wire_form() -> None:
    assert {type_name(value) for value, _ in FORMS} == set(TYPE_NAMES)


def test_stored_bytes_inside_a_container_are_a_reference_to_the_store() -> None:
    data = lazy(b"x" * 1000, shown=300)
    (cell,) = json.loads(encode([data]))["v"]
    assert list(cell) == ["$", "uri", "of", "n", "preview", "render_head"]
    assert cell["uri"] == "shoal://val/blake3:" + "ab" * 32
    assert (cell["$"], cell["of"], cell["n"]) == ("ref", "bytes", 1000)
    assert cell["render_head"] == "x" * 256


def test_an_outcome_inside_a_list_is_a_full_envelope() -> None:
    (cell,) = json.loads(encode([outcome(stdout=b"x" * 50_000)]))["v"]
    assert len(cell["out"]["v"]) == 50_000


def test_secret_material_is_nowhere_in_an_encoding() -> None:
    everything: list[Any] = [SAMPLES, Table([dict(SAMPLES)]), list(SAMPLES.values())]
    assert b"s3cr3t" not in encode(everything)


def test_fields_and_columns_are_sorted_by_code_points() -> None:
    names = ["é", "a", "Z", "\uffff", "\U0001f600", ""]
    record = dict.fromkeys(names, 1)
    assert list(json.loads(encode(record))["v"]) == sorted(names)
    assert list(json.loads(encode(Table([record])))["cols"]) == sorted(names)


def test_the_cost_of_a_deeply_nested_value_grows_with_its_size_alone() -> None:
    value: Value = 1
    for level in range(30_000):
        value = [value] if level % 2 else {"k": value}
    started = time.process_time()
    encoded = run_on_evaluator_stack(encode, value)
    assert len(encoded) > 30_000 * 20
    # Copying the inner text once a level would take many seconds.
    assert time.process_time() - started < 2
