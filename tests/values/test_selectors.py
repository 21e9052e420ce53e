"""Chapter 60 §5.10: paths, slices and raw pages of stored values."""

from __future__ import annotations

import base64

import pytest

from tests.values.samples import SAMPLES, TaskStandIn, lazy, outcome
from worker.values.content import resident
from worker.values.operators import equal
from worker.values.selectors import BadPath, raw_page, select, slice_value
from worker.values.types import (
    TYPE_NAMES,
    Duration,
    ErrorValue,
    Range,
    Table,
    Value,
)

ROWS = Table([{"name": "a", "n": 1}, {"name": "b"}, {"n": 3, "rows": 9}])
RECORD = {"a b": [10, 20, 30], "t": ROWS, "": "empty", "r": Range(1, 5, True), "x]y": 7}
DONE = outcome(stdout=b'{"k": [1, 2]}', stderr=b"w", dur_ns=5, pid=6)
FAILED = outcome(ok=False, status=3, stdout=b"partial\n")

SELECTED: list[tuple[Value, str | None, Value]] = [
    (RECORD, None, RECORD),
    (RECORD, "", RECORD),
    (RECORD, "...", RECORD),
    (RECORD, "a b", [10, 20, 30]),
    (RECORD, ".a b", [10, 20, 30]),
    (RECORD, "a b[1]", 20),
    (RECORD, "a b.[1]", 20),
    (RECORD, "a b[001]", 20),
    (RECORD, "a b[1..3]", [20, 30]),
    (RECORD, "a b[2..99]", [30]),
    (RECORD, "a b[2..1]", []),
    (RECORD, "a b[9..12]", []),
    (RECORD, "a b[0..2][1]", 20),
    (RECORD, "x]y", 7),
    (RECORD, "r.start", 1),
    (RECORD, "r.end", 5),
    (RECORD, "r.inclusive", True),
    (RECORD, "t[0]", {"name": "a", "n": 1}),
    (RECORD, "t[0].name", "a"),
    (RECORD, "t..name", ["a", "b", None]),
    (RECORD, "t.n", [1, None, 3]),
    (RECORD, "t.rows[2].n", 3),
    (RECORD, "t[1..2]", Table([{"name": "b"}])),
    (RECORD, "t[1..2].name", ["b"]),
    (DONE, "status", 0),
    (DONE, "ok", True),
    (DONE, "signal", None),
    (DONE, "out", {"k": [1, 2]}),
    (DONE, "out.k[0]", 1),
    (DONE, "k[1]", 2),
    (DONE, "stdout", b'{"k": [1, 2]}'),
    (DONE, "stderr", b"w"),
    (DONE, "dur_ns", Duration(5)),
    (DONE, "pid", 6),
    (DONE, "cmd", "make all"),
    (FAILED, "out", "partial"),
    (FAILED, "status", 3),
    (ErrorValue("c", "m", status=3), "code", "c"),
    (ErrorValue("c", "m", status=3), "msg", "m"),
    (ErrorValue("c", "m", status=3), "hint", None),
    (ErrorValue("c", "m", stderr="e"), "stderr", "e"),
    (ErrorValue("c", "m", status=3), "status", 3),
    (TaskStandIn(), "id", 3),
    (TaskStandIn(done=True), "done", True),
]


@pytest.mark.parametrize(("value", "path", "expected"), SELECTED)
def test_paths(value: Value, path: str | None, expected: Value) -> None:
    found = select(value, path)
    assert type(found) is type(expected)
    assert equal(found, expected)


BAD: list[tuple[Value, str, str]] = [
    (RECORD, "zz", "record has no field `zz`"),
    (RECORD, "a b[3]", "index [3] out of bounds (len 3)"),
    (RECORD, "t[3]", "index [3] out of bounds (len 3)"),
    (RECORD, "t.zz", "table has no column `zz`"),
    (RECORD, "r.zz", "range has no field `zz`"),
    (RECORD, "[0]", "cannot index record with [0]"),
    (RECORD, "[0..1]", "cannot range-slice record"),
    (RECORD, "a b.x", "cannot access field `x` on list"),
    (RECORD, "r[0]", "cannot index range with [0]"),
    (RECORD, "a b[0", "unterminated `[` in path `a b[0`"),
    (RECORD, "a b[]", "bad index `` in path `a b[]`"),
    (RECORD, "a b[-1]", "bad index `-1` in path `a b[-1]`"),
    (RECORD, "a b[+1]", "bad index `+1` in path `a b[+1]`"),
    (RECORD, "a b[ 1]", "bad index ` 1` in path `a b[ 1]`"),
    (RECORD, "a b[٣]", "bad index `٣` in path `a b[٣]`"),
    (RECORD, "a b[18446744073709551616]", "bad index `18446744073709551616` in path "),
    (RECORD, "a b[1..]", "bad range end `` in path `a b[1..]`"),
    (RECORD, "a b[..2]", "bad range start `` in path `a b[..2]`"),
    (RECORD, "a b[1..=2]", "bad range end `=2` in path `a b[1..=2]`"),
    (DONE, "zz", "record has no field `zz`"),
    (FAILED, "zz", "cannot access field `zz` on str"),
    (ErrorValue("c", "m"), "span", "error has no field `span`"),
    (TaskStandIn(), "zz", "task has no field `zz`"),
    ("text", "[0]", "cannot index str with [0]"),
    ("text", "[0..1]", "cannot range-slice str"),
    (None, "a", "cannot access field `a` on null"),
    (SAMPLES["secret"], "name", "cannot access field `name` on secret"),
]


@pytest.mark.parametrize(("value", "path", "message"), BAD)
def test_bad_paths(value: Value, path: str, message: str) -> None:
    with pytest.raises(BadPath) as caught:
        select(value, path)
    assert caught.value.message.startswith(message)


def test_syntax_is_checked_before_anything_is_looked_up() -> None:
    with pytest.raises(BadPath, match="unterminated"):
        select(RECORD, "missing[0")


def test_an_index_of_leading_zeros_only_may_be_long() -> None:
    assert select([4], f"[{'0' * 5000}]") == 4


# --- slices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "start", "end", "expected"),
    [
        ([1, 2, 3], 1, 2, [2]),
        ([1, 2, 3], 0, 2**64 - 1, [1, 2, 3]),
        ([1, 2, 3], 3, 9, []),
        ([1, 2, 3], 2, 1, []),
        ("añb", 1, 3, "ñb"),
        ("añb", 7, 9, ""),
        (b"abc", 1, 9, b"bc"),
        (ROWS, 1, 2, Table([{"name": "b"}])),
        (lazy(b"0123456789"), 2, 5, b"234"),
        (lazy(b"0123456789"), 8, 99, b"89"),
        (lazy(b"0123456789"), 99, 100, b""),
        (lazy(b"0123456789"), 5, 2, b""),
    ],
)
def test_slices(value: Value, start: int, end: int, expected: Value) -> None:
    found = slice_value(value, start, end)
    assert type(found) is type(expected)
    assert equal(found, expected)


@pytest.mark.parametrize(
    "name", [name for name in TYPE_NAMES if name not in ("list", "table", "str", "bytes")]
)
def test_other_types_have_no_slices_and_no_raw_form(name: str) -> None:
    with pytest.raises(BadPath, match=f"cannot slice a {name}"):
        slice_value(SAMPLES[name], 0, 1)
    with pytest.raises(BadPath, match=f'format "raw" applies to str/bytes, not {name}'):
        raw_page(SAMPLES[name], None, None)


@pytest.mark.parametrize("name", ["list", "table"])
def test_sequences_of_values_have_no_raw_form(name: str) -> None:
    with pytest.raises(BadPath, match=f'format "raw" applies to str/bytes, not {name}'):
        raw_page(SAMPLES[name], None, None)


# --- raw pages ------------------------------------------------------------------------------------

PAGE = 49_152


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("value", "offset", "length", "expected"),
    [
        ("text", None, None, {"raw": "text"}),
        ("", None, None, {"raw": ""}),
        (b"\x00\xff", None, None, {"raw_base64": "AP8="}),
        (lazy(b"0123456789"), None, None, {"raw_base64": b64(b"0123456789")}),
        ("text", 0, None, {"raw": "text", "offset": 0, "len": 4, "total": 4}),
        ("text", None, 9, {"raw": "text", "offset": 0, "len": 4, "total": 4}),
        ("añb", 1, 1, {"raw": "ñ", "offset": 1, "len": 1, "total": 3, "next": 2}),
        (b"abc", 1, None, {"raw_base64": b64(b"bc"), "offset": 1, "len": 2, "total": 3}),
        (b"abc", 3, None, {"raw_base64": "", "offset": 3, "len": 0, "total": 3}),
        (b"abc", 99, 5, {"raw_base64": "", "offset": 99, "len": 0, "total": 3}),
        (b"abc", 1, 0, {"raw_base64": "", "offset": 1, "len": 0, "total": 3, "next": 1}),
        (
            lazy(b"0123456789"),
            2,
            3,
            {"raw_base64": b64(b"234"), "offset": 2, "len": 3, "total": 10, "next": 5},
        ),
    ],
)
def test_raw_pages(
    value: Value, offset: int | None, length: int | None, expected: dict[str, object]
) -> None:
    assert raw_page(value, offset, length) == expected


def test_a_page_holds_at_most_its_limit() -> None:
    assert set(raw_page(b"x" * PAGE, None, None)) == {"raw_base64"}
    page = raw_page(b"x" * (PAGE + 1), None, None)
    assert (page["offset"], page["len"], page["total"], page["next"]) == (0, PAGE, PAGE + 1, PAGE)
    assert len(page["raw_base64"]) == 65_536
    assert raw_page(b"x" * (PAGE + 1), None, PAGE + 1)["len"] == PAGE
    assert set(raw_page("x" * PAGE, None, None)) == {"raw"}
    assert raw_page("x" * (PAGE + 1), None, None)["next"] == PAGE


def test_a_page_of_text_holds_at_most_64_kib_of_utf_8() -> None:
    assert set(raw_page("é" * 32_768, None, None)) == {"raw"}
    page = raw_page("日" * 30_000, None, None)
    assert page["len"] == 65_536 // 3
    assert page["next"] == page["len"]
    assert len(page["raw"].encode()) <= 65_536


@pytest.mark.parametrize("value", ["日x" * 60_000, bytes(range(256)) * 500, lazy(b"ab" * 70_000)])
def test_pages_joined_by_next_are_the_whole(value: Value) -> None:
    pieces: list[bytes] = []
    at: int | None = 0
    while at is not None:
        page = raw_page(value, at, None)
        raw: str | None = page.get("raw")
        piece = base64.b64decode(page["raw_base64"]) if raw is None else raw.encode()
        pieces.append(piece)
        at = page.get("next")
    assert b"".join(pieces) == (value.encode() if isinstance(value, str) else resident(value))
