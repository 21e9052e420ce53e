"""The event bus: numbers, spaces, queues, gaps, replay (chapter 61 §9-§11, §13)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal import (
    BeginSubmission,
    CountEvents,
    Finished,
    FinishSubmission,
    LogEvents,
    LoggedEvent,
    LoggedEvents,
    LogSequences,
    Store,
    StoreConfig,
    StoreError,
    StoreUnavailable,
    journal_payload,
    settle,
)
from supervisor.events import Bus, EventBus, EventLimit, View, view_of

SPACE = "uid:1000"
MINE = View(SPACE)


class Connection:
    """A subscriber that takes `room` lines and then has no room."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.lines: list[bytes] = []
        self.left = 0
        self.on_line: Callable[[], None] | None = None

    def offer(self, line: bytes) -> bool:
        if self.room <= 0:
            return False
        self.room -= 1
        self.lines.append(line)
        if self.on_line is not None:
            self.on_line()
        return True

    def moved(self) -> int:
        return self.left

    @property
    def events(self) -> list[dict[str, Any]]:
        found = []
        for line in self.lines:
            assert line.endswith(b"}\n") and line.count(b"\n") == 1
            frame = json.loads(line)
            assert set(frame) == {"jsonrpc", "method", "params"}
            assert (frame["jsonrpc"], frame["method"]) == ("2.0", "event")
            found.append(frame["params"])
        return found

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events if not is_gap(event)]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """(dropped, latest_seq) of each gap."""
        payloads = [event["payload"] for event in self.events if is_gap(event)]
        return [(payload["dropped"], payload["latest_seq"]) for payload in payloads]


def is_gap(event: Mapping[str, Any]) -> bool:
    return isinstance(event["payload"], dict) and "dropped" in event["payload"]


@dataclass
class World:
    """Everything around the bus, moved by hand."""

    wall: int = 5_000
    steady: int = 0
    # The durable log by (channel, space), and requests that wait for an answer.
    log: dict[tuple[str, str], list[LoggedEvent]] = field(default_factory=dict)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    failing: StoreError | None = None
    alarms: list[int] = field(default_factory=list)

    def wall_ns(self) -> int:
        return self.wall

    def steady_ns(self) -> int:
        return self.steady

    def alarm(self, delay_ns: int) -> None:
        self.alarms.append(delay_ns)

    def matching(self, read: LogEvents) -> list[LoggedEvent]:
        return [
            event
            for event in self.log.get((read.channel, read.space), [])
            if event.seq > read.after
            and (read.before is None or event.seq < read.before)
            and (read.session is None or event.session == read.session)
            and (read.principal is None or event.principal == read.principal)
        ]

    def load(
        self, read: LogEvents, done: Callable[[LoggedEvents, StoreError | None], None]
    ) -> None:
        def answer() -> None:
            found = self.matching(read)
            page = found[len(found) - read.limit :] if read.newest else found[: read.limit]
            done(LoggedEvents(tuple(page), len(found) > len(page), 0), self.failing)

        self.waiting.append(answer)

    def count(self, read: CountEvents, done: Callable[[int, StoreError | None], None]) -> None:
        self.waiting.append(lambda: done(len(self.matching(read.events)), self.failing))

    def answer(self) -> None:
        """Let the log answer everything, also what is asked meanwhile."""
        while self.waiting:
            self.waiting.pop(0)()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def bus(world: World) -> Bus:
    return Bus(world)


def publish(bus: Bus, number: int, name: str = "user.x", start: int = 0, **options: Any) -> None:
    for count in range(start, start + number):
        bus.publish(SPACE, name, b"%d" % count, **options)


def commit(
    bus: Bus,
    world: World,
    number: int,
    *,
    name: str = "journal",
    session: str = "build",
    principal: str = SPACE,
    live: bool = True,
) -> None:
    """Durable events: into the log, and onto the bus unless they happened before it began."""
    log = world.log.setdefault((name, SPACE), [])
    for _ in range(number):
        seq = len(log)
        log.append(LoggedEvent(seq, seq * 10, session, principal, b"%d" % seq))
        if live:
            bus.publish_numbered(
                SPACE, name, seq, seq * 10, b"%d" % seq, session=session, principal=principal
            )


def read(
    bus: Bus,
    world: World,
    name: str = "user.x",
    view: View = MINE,
    since: int | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    reading = bus.read(name, view, since, limit)
    logged = () if reading.log is None else tuple(_newest(world, reading.log))
    answer = json.loads(reading.answer(logged))
    assert answer["channel"] == name
    found = answer["events"]
    assert isinstance(found, list)
    return found


def _newest(world: World, log: LogEvents) -> list[LoggedEvent]:
    found = world.matching(log)
    return found[max(len(found) - log.limit, 0) :]


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events]


# --- events --------------------------------------------------------------------------------------


def test_event_has_exactly_the_members_of_the_chapter(bus: Bus) -> None:
    connection = Connection()
    bus.subscribe(connection, "user.lint", MINE)
    bus.publish(SPACE, "user.lint", b'{"phase": "start"}', session="work")
    bus.publish(SPACE, "user.lint", b"null")
    assert connection.lines == [
        b'{"jsonrpc":"2.0","method":"event","params":{"channel":"user.lint","seq":0,"ts":5000,'
        b'"session":"work","payload":{"phase": "start"}}}\n',
        b'{"jsonrpc":"2.0","method":"event","params":{"channel":"user.lint","seq":1,"ts":5000,'
        b'"payload":null}}\n',
    ]


def test_read_lists_the_events_as_they_were_pushed(bus: Bus, world: World) -> None:
    connection = Connection()
    bus.subscribe(connection, "user.ü", MINE)
    bus.publish(SPACE, "user.ü", b'{"a":1}', session="s")
    assert read(bus, world, "user.ü") == connection.events


def test_line_is_built_once_for_all_subscribers(bus: Bus) -> None:
    connections = [Connection() for _ in range(5)]
    for connection in connections:
        bus.subscribe(connection, "user.x", MINE)
    event = bus.publish(SPACE, "user.x", b"1")
    assert all(connection.lines[0] is event.line for connection in connections)


def test_numbers_start_at_0_and_belong_to_space_and_channel(bus: Bus, world: World) -> None:
    publish(bus, 3, "user.a")
    publish(bus, 2, "user.b")
    bus.publish("agent:b", "user.a", b"1")
    assert numbers(read(bus, world, "user.a")) == [0, 1, 2]
    assert numbers(read(bus, world, "user.b")) == [0, 1]
    assert numbers(read(bus, world, "user.a", View("agent:b"))) == [0]


def test_durable_numbers_must_ascend(bus: Bus) -> None:
    def put(seq: int) -> None:
        bus.publish_numbered(SPACE, "journal", seq, 1, b"1", session="s", principal="p")

    put(4)
    put(6)
    with pytest.raises(ValueError, match="past number"):
        put(6)


def test_unknown_channels_are_empty_and_not_an_error(bus: Bus, world: World) -> None:
    assert read(bus, world, "task.99") == []
    bus.subscribe(Connection(), "no such thing", MINE)
    assert bus.listeners(SPACE, "no such thing") == 1


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "limit", "expected"),
    [
        (None, None, [0, 1, 2, 3, 4]),
        (0, None, [1, 2, 3, 4]),
        (3, None, [4]),
        (4, None, []),
        (99, None, []),
        (None, 2, [3, 4]),
        (1, 2, [3, 4]),
        (None, 0, []),
        (2, 99, [3, 4]),
    ],
)
def test_since_is_exclusive_and_limit_keeps_the_newest(
    bus: Bus, world: World, since: int | None, limit: int | None, expected: list[int]
) -> None:
    publish(bus, 5)
    assert numbers(read(bus, world, since=since, limit=limit)) == expected


def test_ring_keeps_the_newest_1024(bus: Bus, world: World) -> None:
    publish(bus, 1500)
    assert numbers(read(bus, world, since=0)) == list(range(476, 1500))


def test_answer_is_at_most_8_mib_and_keeps_the_newest(bus: Bus, world: World) -> None:
    payload = b'"' + b"x" * 250_000 + b'"'
    for _ in range(40):
        bus.publish(SPACE, "user.big", payload)
    reading = bus.read("user.big", MINE, None, None)
    answer = reading.answer()
    assert 8 * 1024 * 1024 - 260_000 < len(answer) <= 8 * 1024 * 1024
    seqs = numbers(json.loads(answer)["events"])
    assert seqs == list(range(40 - len(seqs), 40))


def test_durable_channel_is_read_beyond_the_ring_without_holes(bus: Bus, world: World) -> None:
    commit(bus, world, 1500)
    assert numbers(read(bus, world, "journal", since=0)) == list(range(1, 1500))
    assert numbers(read(bus, world, "journal")) == list(range(1500))
    assert numbers(read(bus, world, "journal", since=0, limit=5)) == list(range(1495, 1500))
    assert numbers(read(bus, world, "journal", since=100, limit=1200)) == list(range(300, 1500))


def test_log_is_asked_only_for_what_the_ring_has_not(bus: Bus, world: World) -> None:
    commit(bus, world, 1500)
    assert bus.read("journal", MINE, 1000, None).log is None
    assert bus.read("journal", MINE, 0, 1024).log is None
    reading = bus.read("journal", MINE, 0, 1030)
    assert reading.log is not None
    assert (reading.log.after, reading.log.before, reading.log.limit) == (0, 476, 6)


def test_events_published_while_the_log_is_read_do_not_appear_twice(bus: Bus, world: World) -> None:
    commit(bus, world, 10, live=False)
    bus.seed({("journal", SPACE): 9})
    reading = bus.read("journal", MINE, None, None)
    commit(bus, world, 5)
    assert reading.log is not None
    answer = json.loads(reading.answer(world.matching(reading.log)))
    assert numbers(answer["events"]) == list(range(10))


def test_after_a_restart_numbers_go_on_and_history_is_there(bus: Bus, world: World) -> None:
    commit(bus, world, 7, live=False)
    bus.seed({("journal", SPACE): 6})
    assert numbers(read(bus, world, "journal")) == list(range(7))
    commit(bus, world, 2)
    assert numbers(read(bus, world, "journal", since=4)) == [5, 6, 7, 8]


# --- visibility ----------------------------------------------------------------------------------

VIEWS = [
    # channel, owner, caller, sees everything, expected view
    ("session.transcript", "o", "o", False, View("o")),
    ("session.transcript", "o", "g", False, View("o", "s")),
    ("journal", "o", "o", False, View("o")),
    ("journal", "o", "g", False, View("o", "s", "g")),
    ("journal", "o", "o", True, View("*")),
    ("journal", "o", "g", True, View("*")),
    ("render", "o", "g", True, View("o", "s")),
    ("approval", "o", "o", False, View("o")),
    ("approval", "o", "g", False, View("g")),
    ("user.x", "o", "g", False, View("o", "s")),
    ("task.4", "o", "o", False, View("o")),
]


@pytest.mark.parametrize(("channel", "owner", "caller", "everything", "expected"), VIEWS)
def test_views(channel: str, owner: str, caller: str, everything: bool, expected: View) -> None:
    view = view_of(channel, owner=owner, session="s", principal=caller, sees_all_entries=everything)
    assert view == expected


def test_guest_gets_only_its_session_on_pull_push_and_replay(bus: Bus, world: World) -> None:
    guest = View(SPACE, "shared")
    publish(bus, 2, session="shared")
    publish(bus, 2, session="private")
    connection = Connection()
    bus.subscribe(connection, "user.x", guest, since=0)
    publish(bus, 2, session="private")
    publish(bus, 1, session="shared")
    assert connection.seqs == [1, 6]
    assert numbers(read(bus, world, view=guest)) == [0, 1, 6]
    assert connection.gaps == []


def test_guest_gets_only_its_own_submissions_on_journal(bus: Bus, world: World) -> None:
    for principal in (SPACE, "g", SPACE, "g"):
        commit(bus, world, 400, principal=principal)
    guest = View(SPACE, "build", "g")
    connection = Connection()
    bus.subscribe(connection, "journal", guest, since=500)
    world.answer()
    expected = [*range(501, 800), *range(1200, 1600)]
    assert connection.seqs == expected
    assert numbers(read(bus, world, "journal", guest, since=500)) == expected


# --- subscriptions -------------------------------------------------------------------------------


def test_replay_comes_before_live_events_and_each_event_once(bus: Bus) -> None:
    publish(bus, 5)
    connection = Connection()
    bus.subscribe(connection, "user.x", MINE, since=1)
    publish(bus, 2)
    assert connection.seqs == [2, 3, 4, 5, 6]


def test_without_since_the_ring_is_replayed(bus: Bus, world: World) -> None:
    commit(bus, world, 2000)
    connection = Connection()
    bus.subscribe(connection, "journal", MINE)
    assert connection.seqs == list(range(976, 2000))
    assert not world.waiting


def test_since_of_the_future_does_not_hide_the_events_to_come(bus: Bus, world: World) -> None:
    publish(bus, 3)
    connection = Connection()
    bus.subscribe(connection, "user.x", MINE, since=1_000_000)
    commit(bus, world, 3)
    bus.subscribe(connection, "journal", MINE, since=1_000_000)
    publish(bus, 1)
    commit(bus, world, 1)
    assert connection.seqs == [3, 3]


def test_subscribing_again_keeps_one_subscription_and_replays_again(bus: Bus) -> None:
    publish(bus, 4)
    connection = Connection()
    bus.subscribe(connection, "user.x", MINE, since=1)
    bus.subscribe(connection, "user.x", MINE, since=2)
    publish(bus, 1)
    assert connection.seqs == [2, 3, 3, 4]
    assert bus.subscriptions() == 1


def test_unsubscribing_discards_the_queue_and_touches_nobody_else(bus: Bus) -> None:
    slow, fast = Connection(room=0), Connection()
    bus.subscribe(slow, "user.x", MINE)
    bus.subscribe(fast, "user.x", MINE)
    publish(bus, 3)
    assert bus.unsubscribe(slow, "user.x")
    assert not bus.unsubscribe(slow, "user.x")
    assert not bus.unsubscribe(fast, "user.never")
    slow.room = 10
    bus.resume(slow)
    publish(bus, 1)
    assert slow.lines == []
    assert fast.seqs == [0, 1, 2, 3]


def test_gone_connection_leaves_nothing_behind(bus: Bus, world: World) -> None:
    commit(bus, world, 2000)
    connection = Connection(room=0)
    for name in ("user.x", "journal", "task.1"):
        bus.subscribe(connection, name, MINE, since=0)
    bus.forget(connection)
    connection.room = 10_000
    world.answer()
    world.steady = 10**10
    bus.tick()
    bus.resume(connection)
    publish(bus, 3)
    assert connection.lines == []
    assert (bus.subscriptions(), bus.subscribed(connection)) == (0, [])
    assert bus.listeners(SPACE, "journal") == 0


def test_limits_of_subscriptions_and_user_channels(bus: Bus, world: World) -> None:
    connection = Connection()
    for number in range(256):
        bus.subscribe(connection, f"user.{number}", MINE)
    with pytest.raises(EventLimit) as caught:
        bus.subscribe(connection, "one.more", MINE)
    assert (caught.value.quota, caught.value.limit, caught.value.used) == (
        "quotas.subscriptions_per_connection",
        256,
        256,
    )
    bus.subscribe(connection, "user.7", MINE)

    for number in range(1024):
        bus.publish(SPACE, f"user.{number}", b"1")
    with pytest.raises(EventLimit) as caught:
        bus.publish(SPACE, "user.more", b"1")
    assert (caught.value.quota, caught.value.limit) == ("user_channels", 1024)
    assert read(bus, world, "user.more") == []
    bus.publish(SPACE, "user.5", b"1")
    bus.publish("agent:b", "user.more", b"1")
    bus.publish(SPACE, "task.1", b"1")


def test_interest_is_told_on_reading_and_subscribing(bus: Bus) -> None:
    seen: list[tuple[str, str]] = []
    bus.on_interest = lambda space, name: seen.append((space, name))
    bus.read("task.1.output", MINE, None, None)
    bus.subscribe(Connection(), "task.2.output", MINE)
    assert seen == [(SPACE, "task.1.output"), (SPACE, "task.2.output")]


def test_ring_of_a_dropped_channel_is_gone(bus: Bus, world: World) -> None:
    publish(bus, 2, "task.1")
    listener = Connection()
    bus.subscribe(listener, "task.1", MINE)
    bus.drop_channel(SPACE, "task.1")
    bus.drop_channel(SPACE, "task.9")
    assert read(bus, world, "task.1") == []
    late = Connection()
    bus.subscribe(late, "task.1", MINE, since=0)
    assert late.lines == []
    bus.forget(listener)
    bus.forget(late)
    assert (SPACE, "task.1") not in bus._channels


# --- queue and overflow --------------------------------------------------------------------------


def test_stalled_subscriber_gets_its_queue_and_one_gap_and_others_get_everything(bus: Bus) -> None:
    stalled, reading = Connection(room=3), Connection()
    bus.subscribe(stalled, "user.x", MINE)
    bus.subscribe(reading, "user.x", MINE)
    publish(bus, 1000)
    assert reading.seqs == list(range(1000))
    assert stalled.seqs == [0, 1, 2]

    stalled.room = 10_000
    bus.resume(stalled)
    publish(bus, 1)

    assert stalled.seqs == [*range(3 + 256), 1000]
    assert stalled.gaps == [(1000 - 3 - 256, 999)]
    gap = stalled.events[-2]
    assert (gap["seq"], gap["channel"], gap["ts"]) == (999, "user.x", 5000)
    assert set(gap) == {"channel", "seq", "ts", "payload"}
    assert bus.dropped["user"] == 741


def test_gap_stands_between_what_was_queued_before_and_what_came_after(bus: Bus) -> None:
    connection = Connection(room=0)
    bus.subscribe(connection, "user.x", MINE)
    publish(bus, 300)
    connection.room = 10
    bus.resume(connection)
    publish(bus, 5)
    connection.room = 10_000
    bus.resume(connection)
    kinds = ["gap" if is_gap(event) else event["seq"] for event in connection.events]
    assert kinds == [*range(256), "gap", *range(300, 305)]
    assert connection.gaps == [(44, 299)]


def test_queue_holds_exactly_256(bus: Bus) -> None:
    connection = Connection(room=0)
    bus.subscribe(connection, "user.x", MINE)
    publish(bus, 256)
    connection.room = 1000
    bus.resume(connection)
    assert (connection.seqs, connection.gaps) == (list(range(256)), [])


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_what_arrives_plus_what_is_counted_is_what_was_published(data: st.DataObject) -> None:
    """Whatever a reader does, every event of an unfiltered channel is delivered or counted, in
    order.
    """
    world = World()
    bus = Bus(world, ring_events=20, queue_events=data.draw(st.sampled_from([1, 4, 8])))
    connection = Connection(room=data.draw(st.integers(0, 3)))
    before = data.draw(st.integers(0, 40))
    publish(bus, before)
    since = data.draw(st.none() | st.integers(0, 45))
    bus.subscribe(connection, "user.x", MINE, since=since)
    oldest = max(before - 20, 0)
    first = oldest if since is None else max(oldest, min(since + 1, before))
    total = before
    for step in data.draw(st.lists(st.sampled_from(["publish", "room", "wait"]), max_size=25)):
        if step == "publish":
            number = data.draw(st.integers(1, 30))
            publish(bus, number)
            total += number
        elif step == "room":
            connection.room = data.draw(st.integers(1, 12))
            bus.resume(connection)
        else:
            world.steady += 600_000_000
            bus.tick()
    connection.room = 1 << 30
    bus.resume(connection)

    position = first
    for event in connection.events:
        if is_gap(event):
            dropped, latest = event["payload"]["dropped"], event["payload"]["latest_seq"]
            assert latest == event["seq"] == position + dropped - 1
            position = latest + 1
        else:
            assert event["seq"] == position
            position += 1
    assert position == total
    assert bus.dropped["user"] == sum(dropped for dropped, _ in connection.gaps)


# --- replay --------------------------------------------------------------------------------------


def test_reader_that_keeps_reading_loses_nothing_of_a_long_replay(bus: Bus, world: World) -> None:
    commit(bus, world, 5000)
    connection = Connection(room=50)
    bus.subscribe(connection, "journal", MINE, since=0)
    while len(connection.lines) < 4999:
        world.answer()
        world.steady += 900_000_000
        connection.left += 1
        connection.room = 50
        bus.resume(connection)
        bus.tick()
    assert connection.seqs == list(range(1, 5000))
    assert connection.gaps == []
    commit(bus, world, 1)
    assert connection.seqs[-1] == 5000


def test_slow_but_moving_connection_is_waited_for_without_room(bus: Bus, world: World) -> None:
    publish(bus, 1000)
    connection = Connection(room=1)
    bus.subscribe(connection, "user.x", MINE)
    for _ in range(20):
        world.steady += 900_000_000
        connection.left += 1
        bus.tick()
    connection.room = 10_000
    bus.resume(connection)
    assert (connection.seqs, connection.gaps) == (list(range(1000)), [])


def test_replay_of_a_dead_connection_is_counted_after_a_second(bus: Bus, world: World) -> None:
    publish(bus, 1000)
    connection = Connection(room=10)
    bus.subscribe(connection, "user.x", MINE)
    assert world.alarms == [1_000_000_000]
    world.steady = 999_999_999
    bus.tick()
    assert world.alarms == [1_000_000_000, 1]
    world.steady = 1_000_000_000
    bus.tick()
    publish(bus, 5)
    assert len(world.alarms) == 2

    connection.room = 10_000
    bus.resume(connection)
    assert connection.seqs == list(range(10 + 256))
    assert connection.gaps == [(1005 - 266, 1004)]


def test_dead_replay_from_the_log_counts_what_the_log_still_had(bus: Bus, world: World) -> None:
    commit(bus, world, 3000)
    connection = Connection(room=10)
    bus.subscribe(connection, "journal", MINE, since=99)
    world.answer()
    world.steady = 10**9
    bus.tick()
    commit(bus, world, 5)
    connection.room = 10_000
    bus.resume(connection)
    world.answer()
    bus.resume(connection)
    assert connection.seqs == list(range(100, 100 + 256))
    assert connection.gaps == [(3005 - 356, 3004)]
    commit(bus, world, 1)
    assert connection.seqs[-1] == 3005


def test_ring_that_turns_during_a_replay_is_a_gap_in_its_place(bus: Bus) -> None:
    publish(bus, 1024)
    connection = Connection(room=100)
    bus.subscribe(connection, "user.x", MINE)
    publish(bus, 500)
    connection.room = 10_000
    bus.resume(connection)
    assert connection.seqs == [*range(100), *range(500, 1524)]
    assert connection.gaps == [(400, 499)]
    assert numbers(connection.events)[99:102] == [99, 499, 500]


def test_guest_is_told_only_of_lost_events_it_could_have_seen(bus: Bus) -> None:
    connection = Connection(room=0)
    publish(bus, 500, session="a")
    publish(bus, 524, session="b")
    bus.subscribe(connection, "user.x", View(SPACE, "a"))
    publish(bus, 300, session="b")
    connection.room = 10_000
    bus.resume(connection)
    assert connection.seqs == list(range(300, 500))
    assert connection.gaps == [(300, 299)]


def test_live_events_during_a_log_replay_come_after_it_and_once(bus: Bus, world: World) -> None:
    commit(bus, world, 600, live=False)
    bus.seed({("journal", SPACE): 599})
    connection = Connection()
    bus.subscribe(connection, "journal", MINE, since=0)
    while world.waiting:
        commit(bus, world, 3)
        world.waiting.pop(0)()
    commit(bus, world, 2)
    total = len(world.log["journal", SPACE])
    assert connection.seqs == list(range(1, total))


def test_removed_entries_leave_holes_and_no_gap(bus: Bus, world: World) -> None:
    commit(bus, world, 1500)
    log = world.log["journal", SPACE]
    del log[10:300]
    connection = Connection()
    bus.subscribe(connection, "journal", MINE, since=0)
    world.answer()
    assert connection.seqs == [*range(1, 10), *range(300, 1500)]
    assert connection.gaps == []


def test_log_that_cannot_be_read_is_a_gap_and_live_events_go_on(bus: Bus, world: World) -> None:
    commit(bus, world, 1500)
    world.failing = StoreUnavailable("io_error", "disk I/O error")
    connection = Connection()
    bus.subscribe(connection, "journal", MINE, since=99)
    world.answer()
    assert connection.seqs == []
    assert connection.gaps == [(1400, 1499)]
    commit(bus, world, 1)
    assert connection.seqs == [1500]


# --- with a real store and a real loop ------------------------------------------------------------


@dataclass
class Limits:
    event_ring: int = 1024
    event_queue: int = 256


async def test_history_of_an_earlier_run_is_replayed_and_read_from_the_store(
    tmp_path: Path,
) -> None:
    with Store.open(StoreConfig(path=tmp_path)) as earlier:
        for _ in range(600):
            submit(earlier)
    loop = asyncio.get_running_loop()
    store = Store.open(StoreConfig(path=tmp_path), lambda b: loop.call_soon_threadsafe(settle, b))
    try:
        bus = EventBus(loop, store, Limits())
        bus.seed(await store.load(LogSequences()))
        connection = Connection()
        bus.subscribe(connection, "journal", MINE, since=0)
        done = asyncio.Event()
        connection.on_line = lambda: done.set() if len(connection.lines) == 600 else None

        entry_id, finished = submit(store)
        payload = journal_payload(entry_id, "ls", True, SPACE)
        bus.publish_numbered(
            SPACE, "journal", finished.journal_seq, 2, payload, session="s", principal=SPACE
        )
        await asyncio.wait_for(done.wait(), 10)

        assert connection.seqs == list(range(1, 601))
        assert connection.events[0]["payload"]["v"]["entry_id"] == {"$": "int", "v": 2}
        answer = json.loads(await bus.answer("journal", MINE, 0, None))
        assert answer["events"] == connection.events
    finally:
        store.close()


async def test_replay_of_a_dead_connection_ends_by_the_loops_own_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.event_delivery.REPLAY_PATIENCE_NS", 10_000_000)
    loop = asyncio.get_running_loop()
    store = Store.open(StoreConfig(path=None), lambda b: loop.call_soon_threadsafe(settle, b))
    try:
        bus = EventBus(loop, store, Limits())
        publish(bus, 500)
        connection = Connection(room=1)
        ticked = asyncio.Event()
        tick = bus.tick

        def ticking() -> None:
            tick()
            ticked.set()

        monkeypatch.setattr(bus, "tick", ticking)
        bus.subscribe(connection, "user.x", MINE)
        await asyncio.wait_for(ticked.wait(), 10)
        connection.room = 1000
        bus.resume(connection)
        assert connection.gaps == [(500 - 257, 499)]
    finally:
        store.close()


def submit(store: Store) -> tuple[int, Finished]:
    entry_id = store.reserve_entries()
    start = BeginSubmission(
        entry_id=entry_id,
        owner=SPACE,
        session="s",
        principal=SPACE,
        ts=1,
        cwd=b"/",
        src="ls",
        ast=b"{}",
        effects=b"[]",
        effect_kinds=(),
    )
    end = FinishSubmission(
        entry_id=entry_id,
        owner=SPACE,
        session="s",
        principal=SPACE,
        ended_ns=2,
        dur_ns=1,
        status=0,
        ok=True,
    )
    store.apply(start)
    return entry_id, store.apply(end)


# --- size ----------------------------------------------------------------------------------------


def test_one_publish_reaches_ten_thousand_subscribers(bus: Bus) -> None:
    connections = [Connection() for _ in range(10_000)]
    for connection in connections:
        bus.subscribe(connection, "user.x", MINE)
    publish(bus, 3)
    assert all(len(connection.lines) == 3 for connection in connections)
    for connection in connections:
        bus.forget(connection)
    assert bus.subscriptions() == 0


def test_a_hundred_subscribers_get_every_one_of_500_events(bus: Bus) -> None:
    connections = [Connection() for _ in range(100)]
    for connection in connections:
        bus.subscribe(connection, "user.x", MINE)
    publish(bus, 500)
    assert [len(connection.lines) for connection in connections] == [500] * 100
