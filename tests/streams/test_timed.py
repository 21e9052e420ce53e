"""Stages that depend on time, on a clock that only moves when they wait (chapter 30 §14.3)."""

from __future__ import annotations

from typing import Any

from tests.streams.support import MS, Driver, FakeClock, Script, stream_of
from worker.evaluate.streams.combinators import TimeWindow
from worker.evaluate.streams.core import END, PENDING
from worker.evaluate.streams.sinks import drive
from worker.evaluate.streams.sources import Finite, Ticks
from worker.evaluate.streams.timed import Debounce, Merge, TakeUntilStream, Throttle, Zip
from worker.values.types import Value


def timeline(clock: FakeClock, source: Any) -> list[tuple[int, Value]]:
    """Everything the source gives, each with the milliseconds since the start."""
    start = clock.ns
    seen: list[tuple[int, Value]] = []
    drive(
        Driver(clock),  # type: ignore[arg-type]
        stream_of(source),
        lambda item: seen.append(((clock.ns - start) // MS, item)),
    )
    return seen


def test_debounce_gives_the_newest_item_after_the_pause() -> None:
    clock = FakeClock()
    source = Script(clock, (0, "a"), (10, "b"), (15, "c"), (100, "d"), (300, END))
    assert timeline(clock, Debounce(source, 20 * MS)) == [(35, "c"), (120, "d")]


def test_debounce_gives_the_pending_item_at_the_end() -> None:
    clock = FakeClock()
    source = Script(clock, (0, "a"), (5, "b"), (6, END))
    assert timeline(clock, Debounce(source, 20 * MS)) == [(6, "b")]
    assert source.closed


def test_debounce_keeps_its_item_across_an_outer_deadline() -> None:
    clock = FakeClock()
    ev: Any = Driver(clock)
    stage = Debounce(Script(clock, (0, "a"), (500, END)), 50 * MS)
    start = clock.ns
    assert stage.pull(ev, start + 10 * MS) is PENDING
    assert stage.pull(ev, start + 20 * MS) is PENDING
    assert stage.pull(ev, None) == "a"
    assert clock.ns == start + 50 * MS


def test_debounce_gives_what_fell_due_between_two_pulls_before_anything_newer() -> None:
    clock = FakeClock()
    ev: Any = Driver(clock)
    stage = Debounce(Script(clock, (0, "a"), (10, "b"), (20, "c")), 5 * MS)
    assert stage.pull(ev, 0) is PENDING
    clock.ns += 12 * MS
    assert stage.pull(ev, 0) == "a"
    assert stage.pull(ev, 0) is PENDING
    clock.ns += 12 * MS
    assert stage.pull(ev, 0) == "b"


def test_throttle_opens_again_after_the_interval() -> None:
    clock = FakeClock()
    source = Script(clock, (0, 1), (5, 2), (19, 3), (20, 4), (30, 5), (40, 6), (41, END))
    assert timeline(clock, Throttle(source, 20 * MS)) == [(0, 1), (20, 4), (40, 6)]


def test_a_time_window_holds_what_is_not_older() -> None:
    clock = FakeClock()
    source = Script(clock, (0, 1), (10, 2), (20, 3), (45, 4), (46, END))
    assert timeline(clock, TimeWindow(source, 20 * MS)) == [
        (0, [1]),
        (10, [1, 2]),
        (20, [1, 2, 3]),
        (45, [4]),
    ]


def test_merge_asks_the_receiver_first_for_one_turn() -> None:
    clock = FakeClock()
    left = Script(clock, (0, "l1"), (15, "l2"), (90, END))
    right = Script(clock, (0, "r1"), (50, "r2"), (90, END))
    assert timeline(clock, Merge(left, right)) == [(0, "l1"), (15, "l2"), (35, "r1"), (55, "r2")]
    assert left.closed and right.closed


def test_merge_waits_without_turns_once_one_side_has_ended() -> None:
    clock = FakeClock()
    merged = Merge(Finite(["a"]), Script(clock, (500, "b"), (500, END)))
    assert timeline(clock, merged) == [(0, "a"), (500, "b")]


def test_take_until_a_stream_notices_its_item_within_one_turn() -> None:
    clock = FakeClock()
    source = Script(clock, *[(at, at) for at in range(0, 500, 50)])
    signal = Script(clock, (120, "stop"))
    seen = timeline(clock, TakeUntilStream(source, signal))
    assert [item for _, item in seen] == [0, 50, 100]
    assert source.closed and signal.closed
    assert clock.ns <= 1_000 * MS + 140 * MS


def test_take_until_a_stream_that_is_ready_gives_nothing() -> None:
    clock = FakeClock()
    assert timeline(clock, TakeUntilStream(Finite([1, 2]), Finite([0]))) == []


def test_take_until_a_stream_that_ends_empty_gives_everything() -> None:
    clock = FakeClock()
    assert timeline(clock, TakeUntilStream(Finite([1, 2]), Finite([]))) == [(0, 1), (0, 2)]


def test_zip_keeps_the_left_half_while_it_waits_for_the_right() -> None:
    clock = FakeClock()
    ev: Any = Driver(clock)
    stage = Zip(Finite([1, 2]), Script(clock, (30, "a"), (40, END)))
    start = clock.ns
    assert stage.pull(ev, start + 10 * MS) is PENDING
    assert stage.pull(ev, None) == [1, "a"]
    assert stage.pull(ev, None) is END
    assert stage.pull(ev, None) is END


def test_every_keeps_the_oldest_tick_and_loses_the_rest() -> None:
    clock = FakeClock()
    ev: Any = Driver(clock)
    start = clock.ns
    ticks = Ticks(start, 10 * MS)
    clock.ns = start + 35 * MS
    # Ticks 1, 2 and 3 have fired: the first is kept, the others are gone.
    assert ticks.pull(ev, None).ns == start + 10 * MS
    assert ticks.pull(ev, clock.ns) is PENDING
    clock.ns = start + 40 * MS
    assert ticks.pull(ev, None).ns == start + 40 * MS


def test_every_waits_one_interval_for_its_first_tick() -> None:
    clock = FakeClock()
    ev: Any = Driver(clock)
    ticks = Ticks(clock.ns, 10 * MS)
    assert ticks.pull(ev, clock.ns) is PENDING
    clock.ns += 9 * MS
    assert ticks.pull(ev, clock.ns) is PENDING
    clock.ns += MS
    assert ticks.pull(ev, clock.ns) is not PENDING


def test_a_tick_that_is_due_is_taken_by_a_pull_that_must_not_wait() -> None:
    clock = FakeClock()
    ev: Any = Driver(clock)
    ticks = Ticks(clock.ns, 10 * MS)
    assert ticks.pull(ev, 0) is PENDING
    clock.ns += 10 * MS - 1
    assert ticks.pull(ev, 0) is PENDING
    clock.ns += 1
    assert ticks.pull(ev, 0) is not PENDING
    assert ticks.pull(ev, 0) is PENDING


def test_take_until_ticks_ends_at_the_first_tick() -> None:
    clock = FakeClock()
    source = Script(clock, *[(at, at) for at in range(0, 500, 50)])
    seen = timeline(clock, TakeUntilStream(source, Ticks(clock.ns, 120 * MS)))
    assert [item for _, item in seen] == [0, 50, 100]
    assert source.closed
