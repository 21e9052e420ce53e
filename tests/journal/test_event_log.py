"""Durable event numbers and rebuilt events (chapter 61 §9.4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal import CountEvents, LogEvents, LogSequences, RemoveEntries, Store, journal_payload
from tests.journal.support import OWNER, change, open_store, run


def test_payload_is_exactly_that_of_the_chapter() -> None:
    assert journal_payload(17, "make", False, "agent:fmt") == (
        b'{"$":"record","v":{"entry_id":{"$":"int","v":17},"head":{"$":"str","v":"make"},'
        b'"ok":{"$":"bool","v":false},"principal":{"$":"str","v":"agent:fmt"}}}'
    )
    assert b'"v":"\xc3\xbc\\"\\n"' in journal_payload(1, 'ü"\n', True, "p")
    assert b'"ok":{"$":"bool","v":false}' in journal_payload(1, "", None, "p")


def test_rebuilt_events_equal_the_live_ones_also_after_a_restart(state: Path) -> None:
    with open_store(state) as store:
        entry_id, done = run(store, src="make x", transcript=b'{"n" : 1}', ended_ns=777)
        live = journal_payload(entry_id, "make", True, OWNER)
    for _ in range(2):
        with open_store(state) as store:
            (event,) = store.fetch(LogEvents("journal", "*", -1, None, 9, newest=False)).events
            assert (event.seq, event.ts, event.session, event.payload) == (
                done.journal_seq_all,
                777,
                "build",
                live,
            )
            log = LogEvents("session.transcript", OWNER, -1, None, 9, newest=False)
            assert store.fetch(log).events[0].payload == b'{"n" : 1}'


def test_each_space_counts_for_itself(any_store: Store) -> None:
    numbers = [
        run(any_store, owner=owner, ok=ok)[1]
        for owner, ok in (("a", True), ("b", False), ("a", True), ("b", True))
    ]
    assert [done.journal_seq_all for done in numbers] == [0, 1, 2, 3]
    assert [done.journal_seq for done in numbers] == [0, 0, 1, 1]
    assert [done.transcript_seq for done in numbers] == [0, None, 1, 0]
    assert any_store.fetch(LogSequences()) == {
        ("journal", "*"): 3,
        ("journal", "a"): 1,
        ("journal", "b"): 1,
        ("session.transcript", "a"): 1,
        ("session.transcript", "b"): 0,
    }


def test_sequences_know_spaces_whose_rows_are_all_removed(any_store: Store) -> None:
    run(any_store, owner="a:b", ts=1)
    any_store.perform(RemoveEntries(before_ns=10))
    assert any_store.fetch(LogSequences()) == {
        ("journal", "*"): 0,
        ("journal", "a:b"): 0,
        ("session.transcript", "a:b"): 0,
    }


@pytest.mark.parametrize(
    ("after", "before", "limit", "newest", "seqs", "more"),
    [
        (-1, None, 100, False, list(range(10)), False),
        (-1, None, 4, False, [0, 1, 2, 3], True),
        (-1, None, 4, True, [6, 7, 8, 9], True),
        (3, 8, 100, False, [4, 5, 6, 7], False),
        (3, 8, 4, True, [4, 5, 6, 7], False),
        (3, 8, 2, True, [6, 7], True),
        (9, None, 5, False, [], False),
        (-1, None, 0, True, [], True),
    ],
)
def test_pages_of_the_log(
    any_store: Store,
    after: int,
    before: int | None,
    limit: int,
    newest: bool,
    seqs: list[int],
    more: bool,
) -> None:
    for _ in range(10):
        run(any_store)
    log = LogEvents("journal", OWNER, after, before, limit, newest=newest)
    page = any_store.fetch(log)
    assert ([event.seq for event in page.events], page.more) == (seqs, more)


def test_guests_get_their_session_and_on_journal_their_own(any_store: Store) -> None:
    run(any_store, session="one")
    run(any_store, session="two")
    run(any_store, session="one", principal="agent:g")
    transcript = LogEvents("session.transcript", OWNER, -1, None, 9, newest=False, session="one")
    assert [event.seq for event in any_store.fetch(transcript).events] == [0, 2]
    journal = LogEvents(
        "journal", OWNER, -1, None, 9, newest=False, session="one", principal="agent:g"
    )
    assert [event.seq for event in any_store.fetch(journal).events] == [2]
    assert any_store.fetch(CountEvents(journal)) == 1


def test_answer_ends_when_the_bytes_are_used_up(any_store: Store) -> None:
    for _ in range(5):
        run(any_store, transcript=b'"' + b"x" * 98 + b'"')
    log = LogEvents("session.transcript", OWNER, -1, None, 99, newest=True, bytes_max=250)
    page = any_store.fetch(log)
    assert ([event.seq for event in page.events], page.more) == ([2, 3, 4], True)


def test_malformed_payload_is_left_out_and_counted(store: Store, state: Path) -> None:
    for _ in range(3):
        run(store)
    change(state, "UPDATE transcript_event SET payload = '{broken' WHERE entry_id = 2")
    page = store.fetch(LogEvents("session.transcript", OWNER, -1, None, 9, newest=False))
    assert ([event.seq for event in page.events], page.malformed) == ([0, 2], 1)
