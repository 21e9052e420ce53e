"""Forks of one stream, also driven by several threads (chapter 30 §14.5)."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from tests.methods.support import check_failure, run
from tests.streams.support import Driver, FakeClock, Hanging, Script, stream_of
from worker.errors import Cancelled, Raised, raised
from worker.evaluate.streams.core import END, Source
from worker.evaluate.streams.sources import Finite
from worker.evaluate.streams.tee import LIVE_QUEUE_ITEMS, tee


def forks(source: Any, count: int = 2, *, bounded: bool = False) -> list[Source]:
    return [fork.consume() for fork in tee(stream_of(source, bounded=bounded), count)]


def test_forks_of_a_bounded_stream_replay_all_of_it() -> None:
    assert (
        run("let t = (0..500).stream().tee(3)\nt.map(s => s.sum())") == "[124750, 124750, 124750]"
    )


def test_a_bounded_source_runs_once_for_all_forks() -> None:
    source = """
    var calls = 0
    let t = [1, 2].stream().map(n => { calls += 1; n }).tee()
    [t[1].collect(), t[0].collect(), calls]
    """
    assert run(source) == "[[1, 2], [1, 2], 2]"


def test_live_forks_are_unbounded_and_drive_on_their_own() -> None:
    check_failure("every(1h).tee()[1].len()", "stream_unbounded")
    assert run("let t = every(1ms).tee()\n[t[0].take(3).len(), t[1].take(3).len()]") == "[3, 3]"


def test_a_live_fork_that_falls_behind_loses_the_newest_items_and_is_told() -> None:
    ev: Any = Driver()
    fast, slow = forks(Finite(range(LIVE_QUEUE_ITEMS + 10)))
    for number in range(LIVE_QUEUE_ITEMS + 5):
        assert fast.pull(ev, None) == number
    # The first item taken makes room for the marker, which keeps its place among the others.
    assert slow.pull(ev, None) == 0
    assert fast.pull(ev, None) == LIVE_QUEUE_ITEMS + 5
    got = [slow.pull(ev, None) for _ in range(LIVE_QUEUE_ITEMS + 1)]
    assert got[:-2] == list(range(1, LIVE_QUEUE_ITEMS))
    assert got[-2:] == [{"dropped": 5}, {"dropped": 1}]
    assert slow.pull(ev, None) == LIVE_QUEUE_ITEMS + 6


def test_a_waiting_fork_gets_what_another_one_pulls() -> None:
    clock = FakeClock()
    ev: Any = Driver(clock)
    hanging = Hanging()
    left, right = forks(hanging)
    puller: Any = Driver(clock)
    errors: list[BaseException] = []

    def pull_left() -> None:
        try:
            left.pull(puller, None)
        except Cancelled as error:
            errors.append(error)

    thread = threading.Thread(target=pull_left)
    thread.start()
    assert hanging.pulled.wait(20)
    # The other fork takes over once the first one's driver is cancelled.
    waiting = threading.Thread(target=lambda: errors.append(_cancelled(right, ev)))
    waiting.start()
    puller.cancel.cancel()
    thread.join(20)
    ev.cancel.cancel()
    waiting.join(20)
    assert [type(error) for error in errors] == [Cancelled, Cancelled]


def _cancelled(source: Source, ev: Any) -> BaseException:
    with pytest.raises(Cancelled) as caught:
        source.pull(ev, None)
    return caught.value


def test_an_error_of_the_source_reaches_every_fork_after_the_items_before_it() -> None:
    class Failing:
        def __init__(self) -> None:
            self.items = [1, 2]

        def pull(self, ev: Any, deadline: int | None) -> Any:
            if self.items:
                return self.items.pop(0)
            raise raised("io_error", "gone")

        def close(self) -> None:
            return None

    ev: Any = Driver()
    for bounded in (False, True):
        left, right = forks(Failing(), bounded=bounded)
        assert [left.pull(ev, None), left.pull(ev, None)] == [1, 2]
        with pytest.raises(Raised, match="gone"):
            left.pull(ev, None)
        assert [right.pull(ev, None), right.pull(ev, None)] == [1, 2]
        with pytest.raises(Raised, match="gone"):
            right.pull(ev, None)


def test_the_source_is_closed_with_its_last_fork() -> None:
    source = Script(FakeClock())
    left, right = forks(source)
    left.close()
    assert not source.closed
    del right
    gc.collect()
    assert source.closed


def test_a_fork_that_is_gone_takes_no_items() -> None:
    ev: Any = Driver()
    left, right = forks(Finite(range(1000)), bounded=True)
    right.close()
    assert sum(1 for _ in iter(lambda: left.pull(ev, None), END)) == 1000
    assert right.pull(ev, None) is END


def test_many_threads_see_every_item_once_each() -> None:
    sources = forks(Finite(range(5000)), 4, bounded=True)
    totals: list[int] = []

    def drain(source: Source) -> None:
        ev: Any = Driver()
        totals.append(sum(iter(lambda: source.pull(ev, None), END)))

    threads = [threading.Thread(target=drain, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert totals == [sum(range(5000))] * 4
