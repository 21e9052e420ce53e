"""References, weights, estimates and coverage of plans."""

from __future__ import annotations

from typing import Any

import pytest

from leash.effects import (
    MalformedEffect,
    checked,
    files,
    json_path,
    line,
    normal_path,
    os_path,
    request_kind,
)
from leash.plan import Plan, heaviest, item_count, reference, unattended_reversible, uncovered

DEMO = Plan(
    ({"kind": "fs_write", "paths": ["/srv/demo/out.txt"]},),
    "reversible",
    {"bytes": None, "items": 1},
)
WHERE = {"owner": "agent:demo", "session_owner": "agent:demo", "session": "lab"}


def test_the_reference_is_that_of_the_test_vector() -> None:
    found = reference(DEMO, src="touch out.txt", **WHERE)
    assert found == "plan:ccd6a153c4e2096cd370d87f1794c21c"


@pytest.mark.parametrize(
    "change",
    [
        {"src": "touch out.txt "},
        {"owner": "agent:other"},
        {"session_owner": "agent:other"},
        {"session": "lab2"},
    ],
)
def test_another_source_owner_or_session_has_another_reference(change: dict[str, str]) -> None:
    names = {"src": "touch out.txt", **WHERE}
    assert reference(DEMO, **names) != reference(DEMO, **{**names, **change})


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([], "reversible"),
        (["reversible", "conditional"], "conditional"),
        (["irreversible", "reversible", "conditional"], "irreversible"),
    ],
)
def test_a_plan_weighs_what_its_heaviest_contribution_weighs(
    weights: list[str], expected: str
) -> None:
    assert heaviest(weights) == expected


def test_a_deletion_is_reversible_but_not_unattended() -> None:
    assert not unattended_reversible([files("fs_delete", ["/a"])], "reversible")
    assert unattended_reversible([files("fs_write", ["/a"])], "reversible")
    assert not unattended_reversible([], "irreversible")


@pytest.mark.parametrize(
    ("effects", "items"),
    [
        ([], None),
        ([{"kind": "time"}], None),
        ([files("fs_read", ["/a", "/b"]), files("fs_write", ["/a"])], 2),
        ([files("fs_read", [])], 0),
        ([files("fs_read", ["/a"]), {"kind": "opaque"}], None),
    ],
)
def test_items_counts_distinct_paths_of_file_effects(
    effects: list[dict[str, Any]], items: int | None
) -> None:
    assert item_count(effects) == items


APPROVED = [
    files("fs_write", ["/a", "/b"]),
    files("fs_write", ["/c"]),
    {"kind": "env_read", "names": ["PATH"]},
    {"kind": "net_connect", "host": "api.test", "port": 443},
]


@pytest.mark.parametrize(
    ("effect", "covered"),
    [
        (files("fs_write", ["/b"]), True),
        (files("fs_write", ["/a", "/c"]), True),
        (files("fs_write", ["/d"]), False),
        (files("fs_delete", ["/a"]), False),
        ({"kind": "env_read", "names": ["PATH"]}, True),
        ({"kind": "env_read", "names": ["*"]}, False),
        ({"kind": "net_connect", "host": "api.test", "port": 443}, True),
        ({"kind": "net_connect", "host": "api.test", "port": 80}, False),
        ({"kind": "opaque"}, False),
    ],
)
def test_an_approval_covers_subsets_of_operands_and_equal_effects(
    effect: dict[str, Any], covered: bool
) -> None:
    assert uncovered([effect], APPROVED) == ([] if covered else [effect])


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (files("fs_read", ["/p", "/q"]), "read /p, /q"),
        (files("fs_write", ["/p"]), "write /p"),
        (files("fs_delete", ["/p"]), "delete /p"),
        ({"kind": "proc_spawn", "bin_hash": "", "argv0": "git"}, "spawn git"),
        ({"kind": "net_connect", "host": "h", "port": 1}, "connect h:1"),
        ({"kind": "net_listen", "port": 2}, "listen 2"),
        ({"kind": "env_read", "names": ["A", "B"]}, "env-read A, B"),
        ({"kind": "env_write", "names": ["A"]}, "env-write A"),
        ({"kind": "secret_use", "names": ["k"]}, "secret-use k"),
        ({"kind": "session_write"}, "session-write"),
        ({"kind": "journal_read"}, "journal-read"),
        ({"kind": "time"}, "read-clock"),
        ({"kind": "opaque"}, "opaque (effects unknown)"),
    ],
)
def test_every_kind_has_its_line(effect: dict[str, Any], text: str) -> None:
    assert checked(effect) == effect
    assert line(effect) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"kind": "fs.read", "paths": []},
        {"kind": "fs_read"},
        {"kind": "fs_read", "paths": ["relative"]},
        {"kind": "fs_read", "paths": [], "more": 1},
        {"kind": "proc_spawn", "bin_hash": "xyz", "argv0": "a"},
        {"kind": "net_listen", "port": 65536},
        {"kind": "net_listen", "port": True},
        {"kind": "env_read", "names": [1]},
        {"kind": "opaque", "paths": []},
    ],
)
def test_what_is_no_effect_is_refused(value: Any) -> None:
    with pytest.raises(MalformedEffect):
        checked(value)


def test_a_path_that_is_not_utf8_keeps_its_bytes() -> None:
    raw = "/a/\udcff"
    assert json_path(raw) == {"display": "/a/\ufffd", "raw": "L2Ev/w=="}
    assert os_path(json_path(raw)) == raw


@pytest.mark.parametrize(
    ("path", "normal"),
    [("/srv/a/../x", "/srv/x"), ("/a/./b/", "/a/b"), ("//a", "/a"), ("/..", "/")],
)
def test_paths_are_normalised_lexically(path: str, normal: str) -> None:
    assert normal_path(path) == normal


def test_kinds_in_requests_may_be_dotted() -> None:
    assert request_kind("fs.write") == request_kind("fs_write") == "fs_write"
