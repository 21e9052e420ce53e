"""Entry queries: filters, visibility, paging, cost (chapter 61 §7)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import (
    EVERYTHING,
    Custom,
    CustomRead,
    EntryFilter,
    Output,
    Probe,
    QueryEntries,
    QueryEntriesJson,
    Store,
    Visibility,
)
from journal.query import Driver, _choose, _filters, _statement
from tests.journal.support import begin, change, finish, open_store, run, statement

OWNERS = ("uid:1000", "agent:a", "agent:b")
SESSIONS = ("build", "test")
HEADS = ("make", "makefoo", "ls", "")
KINDS = ("fs_read", "fs_write", "opaque")


def ids(store: Store, wanted: EntryFilter, visibility: Visibility = EVERYTHING) -> list[int]:
    return [row.id for row in store.fetch(QueryEntries(wanted, visibility))]


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Store, list[dict[str, Any]]]]:
    """A store with every mix of owner, session, guest, head, effect, state and time."""
    model: list[dict[str, Any]] = []
    with open_store(tmp_path_factory.mktemp("query") / "state") as store:
        for number in range(360):
            owner = OWNERS[number % 3]
            principal = OWNERS[number // 3 % 3] if number % 5 == 0 else owner
            session, head = SESSIONS[number // 9 % 2], HEADS[number // 2 % 4]
            kinds = tuple(kind for bit, kind in enumerate(KINDS) if number >> bit & 1)
            effects = json.dumps([{"kind": kind} for kind in kinds]).encode()
            ts = 1000 + number * 7 % 900
            first = store.reserve_entries(2)
            store.apply(
                begin(
                    first,
                    src=f"  {head} fs_read",
                    owner=owner,
                    session=session,
                    principal=principal,
                    kinds=kinds,
                    effects=effects,
                    ts=ts,
                )
            )
            row = {
                "id": first,
                "kind": "submission",
                "owner": owner,
                "session": session,
                "principal": principal,
                "head": head or "fs_read",
                "kinds": set(kinds),
                "ts": ts,
                "ok": None,
            }
            model.append(row)
            if number % 7:
                row["ok"] = number % 4 != 0
                store.apply(
                    finish(
                        first,
                        owner=owner,
                        session=session,
                        principal=principal,
                        ok=number % 4 != 0,
                        statements=(statement(first + 1, first, src="ls", ts=ts + 1),),
                    )
                )
                model.append(
                    row
                    | {
                        "id": first + 1,
                        "kind": "statement",
                        "head": "ls",
                        "kinds": set(),
                        "ts": ts + 1,
                        "ok": True,
                    }
                )
        yield store, model


def expected(model: list[dict[str, Any]], wanted: EntryFilter, visibility: Visibility) -> list[int]:
    """The rules of the chapter, one by one, in plain Python."""
    found = []
    for row in sorted(model, key=lambda row: -row["id"]):
        visible = (
            visibility.everything
            or row["principal"] == visibility.principal
            or row["owner"] in visibility.owners
        )
        if (
            visible
            and (wanted.kind == "all" or row["kind"] == wanted.kind)
            and (wanted.since is None or row["ts"] >= wanted.since)
            and (wanted.until is None or row["ts"] <= wanted.until)
            and (wanted.principal is None or row["principal"] == wanted.principal)
            and (wanted.session is None or row["session"] == wanted.session)
            and (wanted.head is None or row["head"] == wanted.head)
            and (wanted.ok is None or row["ok"] is wanted.ok)
            and {kind.replace(".", "_") for kind in wanted.effects} <= row["kinds"]
            and (wanted.before_id is None or row["id"] < wanted.before_id)
        ):
            found.append(row["id"])
    return found[: wanted.limit or 100]


filters = st.builds(
    EntryFilter,
    since=st.none() | st.integers(990, 1910),
    until=st.none() | st.integers(990, 1910),
    principal=st.none() | st.sampled_from((*OWNERS, "nobody")),
    session=st.none() | st.sampled_from((*SESSIONS, "nowhere")),
    head=st.none() | st.sampled_from((*HEADS, "fs_read")),
    ok=st.none() | st.booleans(),
    effects=st.lists(st.sampled_from((*KINDS, "fs.read", "net_listen")), max_size=2).map(tuple),
    kind=st.sampled_from(["submission", "statement", "all"]),
    before_id=st.none() | st.integers(0, 800),
    limit=st.sampled_from([0, 1, 5, 1000]),
)
views = st.sampled_from(
    [
        EVERYTHING,
        Visibility(False, "agent:a", ("agent:a",)),
        Visibility(False, "agent:b", ("agent:b", "uid:1000")),
        Visibility(False, "nobody", ("nobody",)),
    ]
)


@given(wanted=filters, visibility=views)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_query_is_filters_then_visibility_then_limit(
    filled: tuple[Store, list[dict[str, Any]]], wanted: EntryFilter, visibility: Visibility
) -> None:
    store, model = filled
    assert ids(store, wanted, visibility) == expected(model, wanted, visibility)


@given(wanted=filters, visibility=views, probe=st.sampled_from([1, 20]))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_choice_of_index_gives_the_same_rows(
    filled: tuple[Store, list[dict[str, Any]]],
    wanted: EntryFilter,
    visibility: Visibility,
    probe: int,
) -> None:
    """With a small probe the wide paths are taken that a small table would never need."""
    store, model = filled
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("journal.query.PROBE_ROWS", probe)
        assert ids(store, wanted, visibility) == expected(model, wanted, visibility)


@given(wanted=filters, visibility=views)
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pages_by_before_id_cover_everything_once(
    filled: tuple[Store, list[dict[str, Any]]], wanted: EntryFilter, visibility: Visibility
) -> None:
    store, model = filled
    wanted = replace(wanted, before_id=None, limit=37)
    found: list[int] = []
    while page := ids(store, wanted, visibility):
        found += page
        wanted = replace(wanted, before_id=page[-1])
    assert found == expected(model, replace(wanted, before_id=None, limit=10_000), visibility)


def test_default_limit_is_100(filled: tuple[Store, list[dict[str, Any]]]) -> None:
    assert len(ids(filled[0], EntryFilter())) == 100


USUAL = [
    EntryFilter(),
    EntryFilter(head="rare"),
    EntryFilter(effects=("net_listen",)),
    EntryFilter(session="nowhere"),
    EntryFilter(principal="agent:rare"),
    EntryFilter(since=10**17),
    EntryFilter(until=5),
    EntryFilter(before_id=100),
    EntryFilter(head="rare", ok=True, since=5),
]


@pytest.mark.parametrize("visibility", [EVERYTHING, Visibility(False, "agent:x", ("agent:x",))])
@pytest.mark.parametrize("wanted", USUAL, ids=repr)
def test_no_usual_query_scans_the_table(
    filled: tuple[Store, list[dict[str, Any]]], wanted: EntryFilter, visibility: Visibility
) -> None:
    def plans(connection: sqlite3.Connection) -> list[str]:
        drivers: list[Driver] = _choose(connection, wanted, visibility)
        found = []
        for driver in drivers:
            conditions, values = _filters(wanted, visibility)
            sql, parameters = _statement(driver, conditions, values, wanted.before_id, 100)
            rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
            found += [str(row[3]) for row in rows]
        return found

    plan = filled[0].fetch(CustomRead(plans))
    # Without any filter the newest ids are walked from the top: a scan that ends at the limit.
    walks = wanted == EntryFilter() and visibility.everything
    assert not any(step.startswith("SCAN") for step in plan) or walks, plan
    if wanted.since is None and wanted.until is None:
        assert not any("TEMP B-TREE" in step for step in plan), plan


def test_rare_matches_are_found_fast_in_a_large_table(tmp_path: Path) -> None:
    """Counted in virtual machine steps of SQLite, which do not depend on the machine."""

    def bulk(connection: sqlite3.Connection) -> None:
        connection.execute(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
            INSERT INTO entry (kind, session, owner, principal, ts, cwd, src, head, ast, effects,
                               ok, opaque, state)
            SELECT 'submission', 'build', 'uid:1', 'uid:1', i, x'2f', 'make', 'make', x'7b7d',
                   '[]', 1, 0, 'finished' FROM n
            """
        )

    with open_store(tmp_path / "state") as store:
        run(store, src="rare", owner="agent:x", session="old", ts=5)
        store.apply(Custom(bulk))
        store.apply(Probe())
        for wanted, visibility in (
            (EntryFilter(head="rare"), EVERYTHING),
            (EntryFilter(session="old"), EVERYTHING),
            (EntryFilter(principal="agent:x", until=10), EVERYTHING),
            (EntryFilter(until=4), EVERYTHING),
            (EntryFilter(), Visibility(False, "agent:x", ("agent:x",))),
            (EntryFilter(head="make"), Visibility(False, "agent:x", ("agent:x",))),
            (EntryFilter(since=59_990), EVERYTHING),
            (EntryFilter(), EVERYTHING),
        ):
            steps = 0

            def count(
                connection: sqlite3.Connection,
                wanted: EntryFilter = wanted,
                visibility: Visibility = visibility,
            ) -> None:
                nonlocal steps

                def step() -> int:
                    nonlocal steps
                    steps += 1
                    return 0

                connection.set_progress_handler(step, 100)
                from journal.query import _matching

                list(_matching(connection, wanted, visibility, 100))
                connection.set_progress_handler(None, 0)

            store.fetch(CustomRead(count))
            assert steps * 100 < 60_000, (wanted, steps * 100)


# --- rows ----------------------------------------------------------------------------------------


def one(store: Store, **options: Any) -> dict[str, Any]:
    run(store, **options)
    raw = store.fetch(QueryEntriesJson(EntryFilter(limit=1), EVERYTHING, 16 * 1024 * 1024))
    assert b"\n" not in raw
    found = json.loads(raw)
    assert isinstance(found[0], dict)
    return found[0]


def test_entry_has_the_members_of_the_chapter(store: Store) -> None:
    row = one(
        store,
        src="make 'ü'",
        outputs=(Output("value", b"v"), Output("stdout", b"")),
        effects=b'[{"kind":"opaque"}]',
        kinds=("opaque",),
        task="task:4",
    )
    assert set(row) == {
        "id", "kind", "parent_id", "ordinal", "session", "owner", "principal", "ts", "dur_ns",
        "cwd", "src", "ast", "effects", "status", "ok", "opaque", "outputs", "state", "task",
    }  # fmt: skip
    assert row["src"] == "make 'ü'"
    assert row["cwd"] == {"display": "/srv/app"}
    assert row["ast"] == {"stmts": []}
    assert row["effects"] == [{"kind": "opaque"}]
    assert (row["opaque"], row["ok"], row["task"]) == (True, True, "task:4")
    assert [(output["kind"], output["len"]) for output in row["outputs"]] == [
        ("value", 1),
        ("stdout", 0),
    ]
    assert all(set(output) == {"kind", "hash", "len"} for output in row["outputs"])


def test_directory_that_is_no_text_keeps_its_bytes(store: Store) -> None:
    row = one(store, cwd=b"/srv/\xff")
    assert row["cwd"] == {"display": "/srv/\ufffd", "raw": "L3Nydi//"}


@pytest.mark.parametrize(
    ("ast", "answer"),
    [
        (b"{broken", None),
        (b"", None),
        (b"\xff", None),
        (b'{"a":NaN}', None),
        (b'{"a":1}\x00{"b":2}', None),
        (b'{"stmts":["' + b"x" * (1 << 20) + b'"]}', None),
        (b'{"a":\n1,\r\n"b":[ ]}', {"a": 1, "b": []}),
        (b'{"n":123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
    ],
    ids=["broken", "empty", "not utf-8", "nan", "nul", "too large", "line breaks", "big number"],
)
def test_stored_ast_can_never_break_a_frame(store: Store, ast: bytes, answer: object) -> None:
    assert one(store, ast=ast)["ast"] == answer


def test_big_number_is_spliced_and_not_decoded(store: Store) -> None:
    run(store, ast=b'{"n":1.0000000000000000000000001}')
    raw = store.fetch(QueryEntriesJson(EntryFilter(), EVERYTHING, 1 << 20))
    assert b'"ast":{"n":1.0000000000000000000000001}' in raw


@pytest.mark.parametrize("effects", [b"{}", b"nothing", b'"text"'])
def test_effects_that_are_no_array_are_null(store: Store, effects: bytes) -> None:
    assert one(store, effects=effects)["effects"] is None


def test_answer_ends_before_the_row_that_would_not_fit(store: Store) -> None:
    for _ in range(10):
        run(store, src="x" * 1000)
    whole = store.fetch(QueryEntriesJson(EntryFilter(), EVERYTHING, 1 << 24))
    assert len(json.loads(whole)) == 10
    exact = store.fetch(QueryEntriesJson(EntryFilter(), EVERYTHING, len(whole)))
    assert exact == whole
    less = store.fetch(QueryEntriesJson(EntryFilter(), EVERYTHING, len(whole) - 1))
    assert len(less) < len(whole)
    assert json.loads(less) == json.loads(whole)[:9]
    assert store.fetch(QueryEntriesJson(EntryFilter(), EVERYTHING, 10)) == b"[]"


def test_effect_filter_never_looks_into_source_or_paths(store: Store) -> None:
    run(
        store,
        src="cat fs_read",
        effects=b'[{"kind":"fs_write","paths":["/fs_read"]}]',
        kinds=("fs_write",),
    )
    assert ids(store, EntryFilter(effects=("fs.read",))) == []
    assert ids(store, EntryFilter(effects=("fs.write",))) == [1]


def test_head_is_compared_whole_and_leading_blanks_do_not_matter(store: Store) -> None:
    run(store, src="\n  make all")
    run(store, src="makefoo")
    assert ids(store, EntryFilter(head="make")) == [1]


def test_kind_all_includes_unknown_rows(store: Store, state: Path) -> None:
    run(store)
    change(state, "UPDATE entry SET kind = 'unknown'")
    assert ids(store, EntryFilter()) == []
    assert ids(store, EntryFilter(kind="all")) == [1]
