"""The registry: which type has which method, and what tools can read from it (chapter 21 §16)."""

from __future__ import annotations

import json

import pytest

from worker.values.methods import BY_TYPE, METHODS, walk
from worker.values.methods.registry import CHANNEL, CONTENT
from worker.values.types import TYPE_NAMES

COLLECTION = {"list", "table", "range"}
TEXTUAL = {"str", "path", "bytes", "int", "float", "bool"}
EVERY = set(TYPE_NAMES) | {CONTENT}
# Outcomes, globs and streams have been replaced by what they stand for.
WRITABLE = set(TYPE_NAMES) - {"outcome", "glob"}

OWNERS: list[tuple[str, set[str]]] = [
    ("all any chunks find first flatten fold group group_by last max min reduce sort sort_by sum "
     "uniq", COLLECTION),
    ("abs", {"int", "float", "path"}),
    ("round floor ceil", {"int", "float"}),
    ("tap also pick", EVERY),
    ("save append", WRITABLE),
    ("json", (WRITABLE - {"stream"}) | {CONTENT}),
    ("await wait cancel is_done suspend resume is_suspended", {"task"}),
    ("scan take_until dedupe distinct debounce throttle window buffer into render", {"stream"}),
    ("load ref", {CONTENT}),
    ("bytes", {CONTENT}),
    ("chars ends_with lower match matches parse_float parse_int replace split starts_with trim "
     "upper words", {"str"}),
    ("lines", {"str", "path"}),
    ("collect each filter flat_map map tee where enumerate", COLLECTION | {"stream"}),
    ("zip", COLLECTION | {"stream"}),
    ("contains", COLLECTION | {"str", "record"}),
    ("len count is_empty", COLLECTION | {"str", "record", "bytes", CONTENT}),
    ("str display", TEXTUAL),
    ("emit events latest", {CHANNEL}),
    ("name stem ext parent read read_bytes exists is_dir is_file size modified", {"path"}),
    ("pattern expand", {"glob"}),
    ("get", {"list", "record"}),
    ("items keys set values", {"record"}),
    ("join", COLLECTION | {"path"}),
    ("merge", {"record", "stream"}),
    ("reverse skip", COLLECTION | {"str"}),
    ("take", COLLECTION | {"str", "stream", CHANNEL}),
    ("stdout stderr", {"outcome"}),
    ("stream", COLLECTION | {"str", "bytes"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "owners"),
    [(name, owners) for names, owners in OWNERS for name in names.split()],
)
def test_owners(name: str, owners: set[str]) -> None:
    assert {receiver for receiver, table in BY_TYPE.items() if name in table} == owners


def test_there_are_no_other_methods() -> None:
    known = {name for names, _ in OWNERS for name in names.split()}
    assert {entry.name for entry in METHODS} == known


def test_effects_stand_beside_the_methods_that_have_them() -> None:
    effects = {
        (entry.name, effect.kind, effect.operand, effect.unknown)
        for entry in METHODS
        for effect in entry.effects
    }
    probes = ("lines", "exists", "is_dir", "is_file", "size", "modified")
    assert effects == {
        ("save", "fs_write", "argument 0", "dynamic"),
        ("append", "fs_write", "argument 0", "dynamic"),
        ("read", "fs_read", "receiver", "opaque"),
        ("read_bytes", "fs_read", "receiver", "opaque"),
        *((name, "fs_read", "receiver", "none") for name in probes),
    }


def test_the_registry_reads_as_plain_data() -> None:
    rows = json.loads(json.dumps(walk()))
    (row,) = [row for row in rows if row["name"] == "get" and row["receivers"] == ["record"]]
    assert row["parameters"] == ["key: str", "default: any = null"]
    (row,) = [row for row in rows if row["name"] == "join" and "list" in row["receivers"]]
    assert row["parameters"] == ['sep: str = ""']
    (row,) = [row for row in rows if row["name"] == "sort"]
    assert row["parameters"] == ["key?: x -> any"]
