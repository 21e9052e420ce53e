"""Chapter 60 §6: budgets, the `ref` object, previews, envelopes - at each limit and one past it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.values.samples import SAMPLES, lazy, outcome
from worker.values.types import ErrorValue, Path, Range, Record, Size, Table, Value
from worker.values.wire import Budget, elide, encode

URI = "shoal://out/4"
DEFAULT = Budget()


def elided(value: Value, budget: Budget = DEFAULT, uri: str = URI, tty: bool = False) -> Any:
    return json.loads(elide(value, uri, budget, tty))


def is_ref(value: Value, budget: Budget = DEFAULT) -> bool:
    inline = elide(value, URI, budget) == encode(value)
    ref = bool(elided(value, budget)["$"] == "ref")
    assert inline is not ref
    return ref


def test_default_budgets() -> None:
    assert Budget() == Budget(max_bytes=8192, max_bytes_raw=4096, max_rows=100, max_items=500)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, DEFAULT),
        ({"max_bytes": 0}, Budget(0, 0, 100, 500)),
        ({"max_bytes": 65_536}, Budget(65_536, 65_536, 100, 500)),
        ({"max_bytes": 65_537}, Budget(65_536, 65_536, 100, 500)),
        ({"max_bytes": 2**64 - 1, "max_rows": 10**9}, Budget(65_536, 65_536, 10**9, 500)),
        ({"max_items": 0}, Budget(8192, 4096, 100, 0)),
    ],
)
def test_asked_budgets(asked: dict[str, int], expected: Budget) -> None:
    assert Budget.asked(**asked) == expected


STR_OVERHEAD = len('{"$":"str","v":""}')


@pytest.mark.parametrize("limit", [100, 8192, 65_536])
@pytest.mark.parametrize(("unit", "size"), [("x", 1), ("é", 2), ("日", 3), ("\n", 2), ("\x01", 6)])
def test_bytes_of_the_compact_encoding_count(limit: int, unit: str, size: int) -> None:
    budget = Budget.asked(max_bytes=limit)
    room = limit - STR_OVERHEAD
    fits = unit * (room // size) + "x" * (room % size)
    assert len(encode(fits)) == limit
    assert not is_ref(fits, budget)
    assert is_ref(fits + "x", budget)


def test_rows_items_and_raw_bytes_count() -> None:
    assert not is_ref(Table([{}] * 100))
    assert is_ref(Table([{}] * 101))
    assert is_ref([True] * 501, Budget.asked(max_bytes=65_536))
    assert not is_ref([True] * 500, Budget.asked(max_bytes=65_536))
    assert not is_ref(b"x" * 4096)
    assert is_ref(b"x" * 4097)
    assert not is_ref(Table([{}] * 3), Budget.asked(max_rows=3))
    assert is_ref(Table([{}] * 4), Budget.asked(max_rows=3))


def test_large_counts_never_lift_the_byte_wall() -> None:
    budget = Budget.asked(max_bytes=2**40, max_rows=2**40, max_items=2**40)
    assert is_ref(list(range(100_000)), budget)
    assert is_ref(Table([{"a": n} for n in range(100_000)]), budget)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_budget_of_zero_elides_everything_but_an_ok_outcome(name: str) -> None:
    value = elided(SAMPLES[name], Budget.asked(max_bytes=0))
    if name == "outcome":
        assert value["$"] == "outcome"
        assert value["out"]["$"] == "ref"
    else:
        assert value["$"] == "ref"
        assert value["of"] == name


def test_inner_values_are_never_elided_on_their_own() -> None:
    assert is_ref({"small": 1, "big": "x" * 9000})
    inner = [[True] * 501]
    assert not is_ref(inner, Budget.asked(max_bytes=65_536))


# --- the ref object -------------------------------------------------------------------------------


def test_the_worked_example_of_a_table() -> None:
    rows: list[Record] = [{"name": "abcde"[n % 5] + ".c", "size": Size(10 + n)} for n in range(240)]
    ref = elide(Table(rows), "shoal://out/4?path=out", DEFAULT)
    assert ref.decode() == (
        '{"$":"ref","uri":"shoal://out/4?path=out","of":"table","n":240,'
        '"cols":{"name":"str","size":"size"},"preview":{"$":"table","cols":{"name":['
        '{"$":"str","v":"a.c"},{"$":"str","v":"b.c"},{"$":"str","v":"c.c"},'
        '{"$":"str","v":"d.c"},{"$":"str","v":"e.c"}],"size":[{"$":"size","v":10},'
        '{"$":"size","v":11},{"$":"size","v":12},{"$":"size","v":13},{"$":"size","v":14}]},'
        '"n":5},"render_head":"name  size\\n──────────\\na.c   10b \\nb.c   11b \\nc.c   12b \\n'
        'd.c   13b \\ne.c   14b "}'
    )


ZERO = Budget.asked(max_bytes=0)


@pytest.mark.parametrize(
    ("value", "of", "count", "preview"),
    [
        ("né" * 200, "str", 600, {"$": "str", "v": "né" * 128}),
        (b"x" * 300, "bytes", 300, encode(b"x" * 256)),
        ([1, 2, 3, 4, 5, 6], "list", 6, encode([1, 2, 3, 4, 5])),
        ({"f": 1, "a": 2, "b": 3, "c": 4, "d": 5, "e": 6}, "record", 6,
         encode(dict.fromkeys("fabcd"))),
        (Range(0, 9, False), "range", 1, encode(None)),
        (7, "int", 1, encode(None)),
        (SAMPLES["command"], "command", 1, encode(None)),
        (ErrorValue("c", "m"), "error", 1, encode(None)),
        (outcome(ok=False, status=1), "outcome", 1, encode(None)),
    ],
)  # fmt: skip
def test_count_and_preview_by_type(value: Value, of: str, count: int, preview: Any) -> None:
    ref = elided(value, ZERO)
    wanted = preview if isinstance(preview, dict) else json.loads(preview)
    assert list(ref) == ["$", "uri", "of", "n", "preview", "render_head"]
    assert (ref["uri"], ref["of"], ref["n"], ref["preview"]) == (URI, of, count, wanted)
    if wanted == {"$": "null"}:
        assert ref["render_head"] == ""


def test_columns_name_the_type_of_the_first_row_that_has_them() -> None:
    rows: list[Record] = [{"b": 1}, {"a": None}, {"a": "x", "b": "y", "c": SAMPLES["command"]}]
    ref = elided(Table(rows), ZERO)
    assert list(ref["cols"].items()) == [("a", "null"), ("b", "int"), ("c", "command")]


def test_stored_bytes_are_always_a_ref_with_their_own_uri() -> None:
    ref = elided(lazy(b"x" * 900_000, shown=1000))
    assert (ref["uri"], ref["of"], ref["n"]) == (URI, "bytes", 900_000)
    assert ref["preview"] == json.loads(encode(b"x" * 256))


def test_the_head_of_the_render_is_ten_lines_and_plain_without_a_terminal() -> None:
    value = "\n".join(f"\x1b[31m{n}" for n in range(30)) + "x" * 9000
    assert elided(value)["render_head"] == "\n".join(map(str, range(10)))
    assert elided(value, tty=True)["render_head"].startswith("\x1b[31m0\n\x1b[31m1")


def test_the_head_of_the_render_is_cut_to_4096_characters() -> None:
    table = Table([{f"column{n}": "x" * 60 for n in range(40)}] * 101)
    head = elided(table, Budget.asked(max_bytes=65_536))["render_head"]
    assert len(head) == 4096


# --- bounds of the preview ------------------------------------------------------------------------


def test_long_cells_are_cut_to_256_units() -> None:
    ref = elided([("é" * 300), b"y" * 300, "short"] + [0] * 600)
    cells = ref["preview"]["v"]
    assert cells[0] == {"$": "str", "v": "é" * 256}
    assert cells[1] == json.loads(encode(b"y" * 256))
    assert cells[2] == {"$": "str", "v": "short"}


def test_small_containers_in_cells_pass_and_large_ones_become_null() -> None:
    small: list[Value] = [{"a": [1]}] * 600
    assert elided(small)["preview"]["v"][0] == json.loads(encode({"a": [1]}))
    large: list[Value] = [{"a": "x" * 9000}, "kept", [1], *range(600)]
    assert elided(large)["preview"]["v"] == json.loads(encode([None, "kept", None, 0, 1]))["v"]


def test_the_preview_may_use_4096_bytes_even_with_a_smaller_budget() -> None:
    cell = {"a": "x" * 700}
    preview = elided([cell] * 5, ZERO)["preview"]
    assert len(encode([cell] * 5)) <= 4096
    assert preview == json.loads(encode([cell] * 5))
    wide = {"a": "x" * 800}
    assert len(encode([wide] * 5)) > 4096
    assert elided([wide] * 5, ZERO)["preview"] == json.loads(encode([None] * 5))


def test_a_preview_that_is_still_too_large_is_null() -> None:
    ref = elided({"k" * 9000: 1})
    assert ref["preview"] == {"$": "null"}
    assert ref["render_head"] == ""


HUGE: dict[str, Value] = {
    "wide table": Table([{f"column{n}": n for n in range(20_000)}] * 101),
    "deep cells": [{"k": ["\x01" * 250] * 5}] * 600,
    "long keys": {"k" * 30_000 + str(n): n for n in range(9)},
    "many wide rows": Table([{f"c{n}": "\x01" * 300 for n in range(60)}] * 200),
    "containers that fill the budget": [["x" * 250] * 45] * 600,
    "one long path": Path("p" * 100_000),
    "failed outcome": outcome(ok=False, status=1, stderr=b"e" * 100_000),
    "long error": ErrorValue("c", "m" * 100_000),
    "stored": lazy(b"\x1b" * 100_000, shown=60_000),
    "text of escapes": "\x1b[31m\x01" * 50_000,
}


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("limit", [0, 8192, 65_536])
@pytest.mark.parametrize("tty", [False, True])
def test_a_ref_is_always_below_64_kib(name: str, limit: int, tty: bool) -> None:
    encoded = elide(HUGE[name], URI, Budget.asked(max_bytes=limit), tty)
    assert json.loads(encoded)["$"] == "ref"
    assert len(encoded) < 65_536


# --- outcomes -------------------------------------------------------------------------------------


def test_an_ok_outcome_keeps_its_envelope_and_elides_its_output() -> None:
    value = elided(outcome(structured=Table([{"a": 1}] * 200), stderr=b"warn", pid=7))
    assert list(value) == ["$", "status", "ok", "signal", "out", "err", "dur_ns", "pid", "cmd"]
    assert value["err"] == "warn"
    assert (value["out"]["$"], value["out"]["uri"]) == ("ref", "shoal://out/4?path=out")


def test_the_uri_of_the_output_continues_a_path_with_a_dot() -> None:
    value = elided(outcome(stdout=b"x" * 9000), uri="shoal://out/4?path=a")
    assert value["out"]["uri"] == "shoal://out/4?path=a.out"


def test_a_spilled_output_of_a_builtin_is_a_ref_for_out() -> None:
    value = elided(outcome(structured=lazy(b"x" * 900)))
    assert value["out"]["uri"] == "shoal://out/4?path=out"


def test_a_failed_outcome_is_a_plain_value() -> None:
    small = outcome(ok=False, status=1, stdout=b"partial")
    assert elide(small, URI) == encode(small)
    assert is_ref(outcome(ok=False, status=1, stdout=b"x" * 9000))


def test_long_stderr_is_cut_in_the_envelope() -> None:
    budget = Budget.asked(max_bytes=100)
    fits = elided(outcome(stderr=b"e" * 100), budget)
    assert fits["err"] == "e" * 100
    cut = elided(outcome(stderr="日".encode() * 34), budget)
    assert cut["err"] == "日" * 33 + "…(3 more bytes, fetch via shoal://out/4?path=stderr)"
    below = elided(outcome(stderr=b"e" * 101), budget, uri="shoal://out/4?path=a")
    assert below["err"].endswith("…(1 more bytes, fetch via shoal://out/4?path=a.stderr)")


def test_a_long_command_line_is_cut_in_the_envelope() -> None:
    assert len(elided(outcome(cmd="c" * 5000))["cmd"]) == 4096
    assert json.loads(encode(outcome(cmd="c" * 5000)))["cmd"] == "c" * 5000
