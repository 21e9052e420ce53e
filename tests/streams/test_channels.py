"""Channels of a session: rings, readers, take, the bridge (chapter 30 §15, chapter 61 §12)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.methods.support import check_failure, evaluator, failure, run, value_of
from tests.streams.support import Driver, FakeClock
from worker.errors import Cancelled, Raised
from worker.evaluate.channels import RING_EVENTS, ChannelBus
from worker.evaluate.streams.core import END, PENDING
from worker.values.types import Value

RESULTS = [
    ('channel("a")', '{channel: "a"}'),
    ('channel("a").emit(1)', "null"),
    ('channel("a").latest()', "null"),
    ('channel("a").emit([1])\nchannel("a").latest()', "[1]"),
    ('{channel: "a"}.emit(7)\nchannel("a").latest()', "7"),
    ('channel("a").emit(1)\nchannel("b").latest()', "null"),
    (
        'for n in 0..4 { channel("a").emit(n * n) }\n'
        'channel("a").events(since: 1).take(2).map(.payload).collect()',
        "[4, 9]",
    ),
    (
        'for n in 0..3 { channel("a").emit(n) }\n'
        'channel("a").events(0).take(2).map(.seq).collect()',
        "[1, 2]",
    ),
    (
        'channel("a").emit(null)\nchannel("a").events().take(1).collect().first().keys()',
        '["channel", "seq", "ts", "payload"]',
    ),
    (
        'channel("a").emit(1)\nchannel("b").emit(2)\nchannel("b").events().take(1).map(.seq).collect()',
        "[0]",
    ),
    # other methods of a record apply to a handle too
    ('channel("a").keys()', '["channel"]'),
    ('channel("a").len()', "1"),
]


@pytest.mark.parametrize(("source", "shown"), RESULTS, ids=[row[0][:60] for row in RESULTS])
def test_result(source: str, shown: str) -> None:
    assert run(source) == shown


FAILURES = [
    ("channel()", "arg_error", ""),
    ('channel("a", "b")', "arg_error", ""),
    ("channel(1)", "type_error", ""),
    ('channel("a").emit()', "arg_error", "emit expects a value to publish"),
    ('channel("a").events(since: -1)', "type_error", "expected non-negative int"),
    ('channel("a").events("1")', "type_error", "expected non-negative int"),
    ('channel("a").take(timeout: 1)', "type_error", ""),
    ('channel("a").take(-1s)', "type_error", ""),
    ('channel("a").take(timeout: 1ms)', "timeout", "channel `a`: no event within timeout"),
    ('channel("a").take(0s)', "timeout", "channel `a`: no event within timeout"),
    ('channel("a").emit(1)\nchannel("a").take(1ms)', "timeout", ""),
    ('channel("a").latest', "field_missing", "missing field `latest`"),
]


@pytest.mark.parametrize(("source", "code", "phrase"), FAILURES, ids=[row[0] for row in FAILURES])
def test_failure(source: str, code: str, phrase: str) -> None:
    check_failure(source, code, phrase)


def test_take_waits_for_an_event_of_another_task() -> None:
    source = """
    let t = spawn { channel("go").take() }
    while !t.is_done { channel("go").emit("x") }
    t.await()
    """
    assert run(source) == '"x"'


def bus_with(count: int) -> tuple[ChannelBus, Any]:
    clock = FakeClock()
    bus = ChannelBus(clock)
    for number in range(count):
        bus.emit("c", number)
    return bus, Driver(clock)


def payloads(source: Any, ev: Any, count: int) -> list[Value]:
    return [source.pull(ev, None)["payload"] for _ in range(count)]


def test_the_ring_keeps_the_newest_events() -> None:
    bus, ev = bus_with(RING_EVENTS + 3)
    replay = bus.subscribe("c")
    assert payloads(replay, ev, 2) == [3, 4]
    assert replay.pull(ev, 0)["seq"] == 5


def test_an_evicted_part_of_a_replay_is_skipped_without_a_marker() -> None:
    bus, ev = bus_with(RING_EVENTS + 3)
    assert payloads(bus.subscribe("c", since=0), ev, 1) == [3]
    assert payloads(bus.subscribe("c", since=RING_EVENTS), ev, 1) == [RING_EVENTS + 1]


def test_a_position_in_the_future_waits_for_it() -> None:
    bus, ev = bus_with(2)
    source = bus.subscribe("c", since=5)
    assert source.pull(ev, 0) is PENDING
    for number in range(2, 8):
        bus.emit("c", number)
    assert payloads(source, ev, 2) == [6, 7]


def test_a_reader_more_than_a_ring_behind_is_told_once() -> None:
    bus, ev = bus_with(1)
    source = bus.subscribe("c")
    assert payloads(source, ev, 1) == [0]
    for number in range(1, RING_EVENTS + 11):
        bus.emit("c", number)
    marker = source.pull(ev, None)
    assert list(marker) == ["channel", "seq", "ts", "payload"]
    assert marker["payload"] == {"dropped": 10, "latest_seq": RING_EVENTS + 10}
    assert payloads(source, ev, 2) == [11, 12]


def test_a_reader_exactly_a_ring_behind_lost_nothing() -> None:
    bus, ev = bus_with(0)
    source = bus.subscribe("c")
    for number in range(RING_EVENTS):
        bus.emit("c", number)
    assert payloads(source, ev, RING_EVENTS) == list(range(RING_EVENTS))


def test_there_is_no_gap_between_replay_and_live_events() -> None:
    bus, _ = bus_with(0)
    total = RING_EVENTS // 2
    got: list[int] = []
    ready = threading.Event()

    def read() -> None:
        ev: Any = Driver()
        source = bus.subscribe("c")
        ready.set()
        got.extend(payloads(source, ev, total))

    bus.emit("c", 0)
    reader = threading.Thread(target=read)
    reader.start()
    ready.wait(20)
    for number in range(1, total):
        bus.emit("c", number)
    reader.join(60)
    assert got == list(range(total))


def test_numbers_have_no_gaps_with_many_writers() -> None:
    bus, ev = bus_with(0)

    def write() -> None:
        for _ in range(200):
            bus.emit("c", 1)

    writers = [threading.Thread(target=write) for _ in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    source = bus.subscribe("c")
    assert [source.pull(ev, 0)["seq"] for _ in range(1000)] == list(range(1000))


def test_the_end_of_the_session_lets_readers_go() -> None:
    bus, ev = bus_with(1)
    source = bus.subscribe("c")
    bus.close()
    assert payloads(source, ev, 1) == [0]
    assert source.pull(ev, None) is END
    with pytest.raises(Raised) as caught:
        bus.take(ev, "c", None)
    assert caught.value.error.code == "channel_closed"
    with pytest.raises(Raised):
        bus.take(ev, "named later", None)


def test_a_handler_that_waits_ends_with_the_session() -> None:
    bus, ev = bus_with(1)
    with bus.subscribe("c") as subscription:
        assert subscription.next(ev.cancel)["payload"] == 0
        bus.close()
        with pytest.raises(Cancelled):
            subscription.next(ev.cancel)


# --- the bridge -----------------------------------------------------------------------------------


def test_only_user_channels_leave_the_session() -> None:
    ev = evaluator()
    sent: list[tuple[str, Value]] = []
    ev.channels.on_emit = lambda name, value: sent.append((name, value))
    for name in ("user.x", "journal", "users"):
        run(f'channel("{name}").emit({{a: 1}})', ev=ev)
    assert sent == [("user.x", {"a": 1})]


def test_injected_events_are_not_sent_back() -> None:
    ev = evaluator()
    sent: list[str] = []
    ev.channels.on_emit = lambda name, value: sent.append(name)
    ev.channels.inject("user.x", [1])
    ev.channels.inject("journal", [2])
    assert run('[channel("user.x").latest(), channel("journal").latest()]', ev=ev) == "[[1], null]"
    assert sent == []


def test_both_directions_share_one_numbering() -> None:
    ev = evaluator()
    ev.channels.inject("user.x", "in")
    source = """
    channel("user.x").emit("out")
    channel("user.x").events().take(2).map(e => [e.seq, e.payload]).collect()
    """
    assert run(source, ev=ev) == '[[0, "in"], [1, "out"]]'


def test_an_injection_reaches_a_program_that_waits() -> None:
    ev = evaluator()
    got: list[Value] = []
    source = 'channel("user.ready").emit(1)\nchannel("user.x").take()'
    ready = threading.Event()
    ev.channels.on_emit = lambda name, value: ready.set()
    thread = threading.Thread(target=lambda: got.append(value_of(source, ev=ev)))
    thread.start()
    ready.wait(20)
    while thread.is_alive():
        ev.channels.inject("user.x", "hello")
        thread.join(0.01)
    assert got == ["hello"]


def test_a_payload_may_be_any_value() -> None:
    assert run('channel("c").emit(null)\nchannel("c").latest()') == "null"
    assert failure('channel("c").take(timeout: null)').code == "type_error"
