"""The event bus: publishing, subscriptions, overflow and replay (chapter 61 §9-§11).

`Bus` is plain state on the event loop's thread: it is told of events, subscribers and drained
connections and hands out finished lines; clocks, the durable log and timers come in through
`Ports`. Publishing costs one `offer` for each subscriber that keeps up and one append for one that
does not.

A subscription is in one of two states. *Live*: events go straight to the subscriber or, while that
has no room, into a queue of bounded length; what does not fit is counted and becomes one `dropped`
event in its place. *Replaying*: the subscription walks its cursor through the durable log and the
ring, waits for room as long as the connection moves, and turns live at the newest event. New events
need no queue then: they are ahead of the cursor.

Numbers of the durable channels come from the journal's commit (`publish_numbered`), all others from
here. `seed` tells the bus where the durable ones stand after a start.

Failure: `EventLimit` when a publish or subscription would pass a limit; a log that cannot be read
makes the replay's rest count as dropped, and a read raises the store's error.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, Protocol, TypeAlias

from journal import CountEvents, LogEvents, LoggedEvents, Store, StoreError
from supervisor.event_channels import (
    EVERY_EVENT,
    KINDS,
    Channel,
    Event,
    Reading,
    View,
    kind_of,
    log_request,
    view_of,
)

__all__ = ["Bus", "Event", "EventBus", "EventLimit", "Reading", "Subscriber", "View", "view_of"]

RING_EVENTS: Final = 1_024
QUEUE_EVENTS: Final = 256
REPLAY_PATIENCE_NS: Final = 1_000_000_000
USER_CHANNELS_MAX: Final = 1_024
SUBSCRIPTIONS_MAX: Final = 256
USER_PREFIX: Final = "user."


class Subscriber(Protocol):
    """Who gets lines: one connection. Compared by identity."""

    def offer(self, line: bytes) -> bool:
        """Take one whole line; False when there is no room now, and then `Bus.resume` follows."""

    def moved(self) -> int:
        """A number that grows whenever output of the connection left; says who still reads."""


class Ports(Protocol):
    """What the bus needs from outside."""

    def wall_ns(self) -> int:
        """The time that events carry."""

    def steady_ns(self) -> int:
        """A clock that never jumps, for patience."""

    def load(
        self, read: LogEvents, done: Callable[[LoggedEvents, StoreError | None], None]
    ) -> None:
        """Read the durable log, later, on the loop's thread."""

    def count(self, read: CountEvents, done: Callable[[int, StoreError | None], None]) -> None:
        """Count events of the durable log, later, on the loop's thread."""

    def alarm(self, delay_ns: int) -> None:
        """Call `Bus.tick` after a while. At most one alarm is asked for at a time."""


class EventLimit(Exception):
    """A limit of chapter 60 §2.6 is reached."""

    def __init__(self, quota: str, limit: int, used: int) -> None:
        super().__init__(f"{quota} limit of {limit} is reached")
        self.quota = quota
        self.limit = limit
        self.used = used


class Subscription:
    """One subscriber's place in one channel."""

    # `cursor`: the highest number this subscription has accounted for: delivered, queued, filtered
    # or counted. `queue`: lines the subscriber had no room for. `dropped`, `latest`: the open gap
    # after the queue. `replaying` and the rest: the walk through log and ring. `missed`: events the
    # ring lost ahead of the cursor; `fetching`: the request whose answer is awaited; `stalled_ns`:
    # when it began to wait for room, and `moved` what the connection's counter was then.
    __slots__ = (
        "channel",
        "cursor",
        "dropped",
        "fetching",
        "latest",
        "missed",
        "moved",
        "queue",
        "replaying",
        "stalled_ns",
        "subscriber",
        "view",
    )

    def __init__(
        self, subscriber: Subscriber, channel: AnyChannel, view: View, cursor: int
    ) -> None:
        self.subscriber = subscriber
        self.channel = channel
        self.view = view
        self.cursor = cursor
        self.queue: deque[bytes] = deque()
        self.dropped = 0
        self.latest = 0
        self.replaying = True
        self.missed = 0
        self.fetching: object | None = None
        self.stalled_ns: int | None = None
        self.moved = 0


AnyChannel: TypeAlias = Channel[Subscriber, Subscription]
AnyReading: TypeAlias = Reading[Subscriber, Subscription]


class Bus:
    """All channels of all spaces. Used on one thread only."""

    # Channels by (space, name), created by a publish or a subscription and dropped when nothing is
    # left of them; subscriptions once more by subscriber and channel name; numbers of durable
    # channels that have no Channel yet; how many user channels each space has; replays that wait
    # for room, and whether an alarm is pending for them.
    _channels: dict[tuple[str, str], AnyChannel]
    _by_subscriber: dict[Subscriber, dict[str, Subscription]]
    _seeds: dict[tuple[str, str], int]
    _user_channels: dict[str, int]
    _stalled: set[Subscription]
    _alarmed: bool

    def __init__(
        self, ports: Ports, *, ring_events: int = RING_EVENTS, queue_events: int = QUEUE_EVENTS
    ) -> None:
        self._ports = ports
        self._ring_events = ring_events
        self.queue_events = queue_events
        self.subscriptions_max = SUBSCRIPTIONS_MAX
        self._channels = {}
        self._by_subscriber = {}
        self._seeds = {}
        self._user_channels = {}
        self._stalled = set()
        self._alarmed = False
        # Told of each channel that somebody reads or subscribes to (for channels fed on demand).
        self.on_interest: Callable[[str, str], None] | None = None
        self.published: dict[str, int] = dict.fromkeys(KINDS.values(), 0)
        self.dropped: dict[str, int] = dict.fromkeys(KINDS.values(), 0)

    def seed(self, newest: Mapping[tuple[str, str], int]) -> None:
        """The newest number of each durable (channel, space), as the store knows it at the
        start.
        """
        for (name, space), seq in newest.items():
            self._seeds[space, name] = seq + 1

    # --- publishing ------------------------------------------------------------------------------

    def publish(
        self,
        space: str,
        name: str,
        payload: bytes,
        *,
        session: str | None = None,
        principal: str = "",
    ) -> Event:
        """Publish on a channel whose numbers live in memory."""
        channel = self._channels.get((space, name))
        if name.startswith(USER_PREFIX) and (channel is None or not channel.next_seq):
            used = self._user_channels.get(space, 0)
            if used >= USER_CHANNELS_MAX:
                raise EventLimit("user_channels", USER_CHANNELS_MAX, used)
            self._user_channels[space] = used + 1
        if channel is None:
            channel = self._channel(space, name)
        ts = self._ports.wall_ns()
        return self._publish(channel, channel.next_seq, ts, payload, session, principal)

    def publish_numbered(
        self,
        space: str,
        name: str,
        seq: int,
        ts: int,
        payload: bytes,
        *,
        session: str,
        principal: str,
    ) -> Event:
        """Publish an event of a durable channel under its committed number, in ascending order."""
        channel = self._channel(space, name)
        if seq < channel.next_seq:
            raise ValueError(f"{name} of {space} is past number {seq}")
        return self._publish(channel, seq, ts, payload, session, principal)

    def _publish(
        self,
        channel: AnyChannel,
        seq: int,
        ts: int,
        payload: bytes,
        session: str | None,
        principal: str,
    ) -> Event:
        event = Event(seq, ts, session, principal, channel.line(seq, ts, session, payload))
        ring = channel.ring
        lost = ring[0] if len(ring) == ring.maxlen and not channel.durable else None
        channel.next_seq = seq + 1
        ring.append(event)
        self.published[kind_of(channel.name)] += 1
        for subscription in tuple(channel.subscriptions.values()):
            if not subscription.replaying:
                self._live(subscription, event)
                continue
            if lost is not None and lost.seq > subscription.cursor:
                subscription.missed += subscription.view.shows(lost)
            self._walk(subscription)
        return event

    def _live(self, subscription: Subscription, event: Event) -> None:
        if event.seq <= subscription.cursor:
            return
        subscription.cursor = event.seq
        if not subscription.view.shows(event):
            return
        queue = subscription.queue
        if subscription.dropped or subscription.fetching is not None:
            self._drop(subscription, 1, event.seq)
        elif not queue:
            if not subscription.subscriber.offer(event.line):
                queue.append(event.line)
        elif len(queue) < self.queue_events:
            queue.append(event.line)
        else:
            self._drop(subscription, 1, event.seq)

    def _channel(self, space: str, name: str) -> AnyChannel:
        key = (space, name)
        channel = self._channels.get(key)
        if channel is None:
            channel = Channel(space, name, self._ring_events, self._seeds.get(key, 0))
            self._channels[key] = channel
        return channel

    def drop_channel(self, space: str, name: str) -> None:
        """Forget what a channel published: its source is gone for good."""
        channel = self._channels.get((space, name))
        if channel is None:
            return
        channel.ring.clear()
        channel.retired = True
        self._forget_if_idle(channel)

    def _forget_if_idle(self, channel: AnyChannel) -> None:
        if not channel.subscriptions and (channel.retired or not channel.next_seq):
            self._channels.pop((channel.space, channel.name), None)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, name: str, view: View, since: int | None, limit: int | None) -> AnyReading:
        """Begin an `events.read`; see `Reading` for how it ends."""
        self._interested(view.space, name)
        key = (view.space, name)
        channel = self._channels.get(key)
        if channel is None:
            channel = Channel(view.space, name, self._ring_events, self._seeds.get(key, 0))
        return Reading(channel, view, since, limit)

    def _interested(self, space: str, name: str) -> None:
        if self.on_interest is not None:
            self.on_interest(space, name)

    # --- subscriptions ---------------------------------------------------------------------------

    def subscribe(
        self, subscriber: Subscriber, name: str, view: View, since: int | None = None
    ) -> None:
        """Subscribe, or begin anew from another `since`. Lines may be offered before this
        returns.
        """
        held = self._by_subscriber.get(subscriber, {})
        if name not in held and len(held) >= self.subscriptions_max > 0:
            raise EventLimit(
                "quotas.subscriptions_per_connection", self.subscriptions_max, len(held)
            )
        self.unsubscribe(subscriber, name)
        channel = self._channel(view.space, name)
        oldest = channel.first_in_ring() - 1
        cursor = oldest
        if since is not None:
            # A number nobody has been given yet must not hide the events that will get it.
            cursor = min(since, channel.next_seq - 1)
            if not channel.durable:
                cursor = max(cursor, oldest)
        subscription = Subscription(subscriber, channel, view, cursor)
        self._by_subscriber.setdefault(subscriber, {})[name] = subscription
        channel.subscriptions[subscriber] = subscription
        self._interested(view.space, name)
        self._walk(subscription)

    def unsubscribe(self, subscriber: Subscriber, name: str) -> bool:
        """End a subscription and discard what it queued. False when there was none."""
        held = self._by_subscriber.get(subscriber)
        subscription = None if held is None else held.pop(name, None)
        if held is None or subscription is None:
            return False
        if not held:
            del self._by_subscriber[subscriber]
        subscription.fetching = None
        subscription.replaying = False
        subscription.queue.clear()
        self._stalled.discard(subscription)
        del subscription.channel.subscriptions[subscriber]
        self._forget_if_idle(subscription.channel)
        return True

    def forget(self, subscriber: Subscriber) -> None:
        """End every subscription of a connection."""
        for name in self.subscribed(subscriber):
            self.unsubscribe(subscriber, name)

    def subscribed(self, subscriber: Subscriber) -> list[str]:
        """The channels a connection is subscribed to."""
        return list(self._by_subscriber.get(subscriber, ()))

    def subscriptions(self) -> int:
        """How many subscriptions there are."""
        return sum(map(len, self._by_subscriber.values()))

    def listeners(self, space: str, name: str) -> int:
        """How many subscriptions a channel has."""
        channel = self._channels.get((space, name))
        return 0 if channel is None else len(channel.subscriptions)

    # --- queues and gaps -------------------------------------------------------------------------

    def resume(self, subscriber: Subscriber) -> None:
        """The subscriber's connection has room again."""
        for subscription in tuple(self._by_subscriber.get(subscriber, {}).values()):
            self._drain(subscription)
            self._walk(subscription)

    def _drain(self, subscription: Subscription) -> None:
        """Offer what is queued; once the queue has room the open gap takes its place in it."""
        queue = subscription.queue
        offer = subscription.subscriber.offer
        while queue and offer(queue[0]):
            if queue:
                queue.popleft()
            subscription.stalled_ns = None
        if subscription.dropped and len(queue) < self.queue_events and not subscription.fetching:
            line = self._gap_line(subscription)
            if queue or not offer(line):
                queue.append(line)
        if queue and subscription.replaying:
            self._stall(subscription)

    def _gap_line(self, subscription: Subscription) -> bytes:
        payload = b'{"dropped":%d,"latest_seq":%d}' % (subscription.dropped, subscription.latest)
        subscription.dropped = 0
        channel = subscription.channel
        return channel.line(subscription.latest, self._ports.wall_ns(), None, payload)

    def _drop(self, subscription: Subscription, number: int, latest: int) -> None:
        subscription.dropped += number
        subscription.latest = max(subscription.latest, latest)
        self.dropped[kind_of(subscription.channel.name)] += number

    # --- replay ----------------------------------------------------------------------------------

    def _walk(self, subscription: Subscription) -> None:
        """Replay up to the newest event, a full connection, or a page of the log to wait for."""
        channel = subscription.channel
        while subscription.replaying and not subscription.queue and subscription.fetching is None:
            first = channel.first_in_ring()
            if subscription.cursor + 1 < first:
                if channel.durable:
                    self._fetch(subscription, first)
                else:
                    self._passed_over(subscription, first)
                continue
            ahead = channel.next_seq - 1 - subscription.cursor
            if ahead <= 0:
                subscription.replaying = False
                self._stalled.discard(subscription)
                return
            if not self._walk_ring(subscription, ahead):
                return

    def _walk_ring(self, subscription: Subscription, ahead: int) -> bool:
        """Replay what the ring has beyond the cursor; False when there is no room."""
        ring = subscription.channel.ring
        for event in tuple(islice(ring, max(len(ring) - ahead, 0), None)):
            if event.seq <= subscription.cursor:
                continue
            if subscription.view.shows(event):
                if not subscription.subscriber.offer(event.line):
                    self._stall(subscription)
                    return False
                subscription.stalled_ns = None
                if not subscription.replaying:
                    return False
            subscription.cursor = event.seq
        return True

    def _passed_over(self, subscription: Subscription, first: int) -> None:
        """The ring turned while the replay waited: what it lost is a gap in its place."""
        subscription.cursor = first - 1
        missed, subscription.missed = subscription.missed, 0
        if missed:
            self._drop(subscription, missed, first - 1)
            self._drain(subscription)

    def _stall(self, subscription: Subscription) -> None:
        """Begin to wait for room, unless that began before."""
        if subscription.stalled_ns is None:
            subscription.stalled_ns = self._ports.steady_ns()
            subscription.moved = subscription.subscriber.moved()
        self._stalled.add(subscription)
        if not self._alarmed:
            self._alarmed = True
            self._ports.alarm(REPLAY_PATIENCE_NS)

    def _fetch(self, subscription: Subscription, before: int) -> None:
        token = subscription.fetching = object()

        def done(page: LoggedEvents, error: StoreError | None) -> None:
            if subscription.fetching is not token:
                return
            subscription.fetching = None
            if error is not None:
                self._give_up(subscription)
            else:
                self._supplied(subscription, page, before)

        request = log_request(
            subscription.channel,
            subscription.view,
            subscription.cursor,
            before,
            self.queue_events,
        )
        self._ports.load(request, done)

    def _supplied(self, subscription: Subscription, page: LoggedEvents, before: int) -> None:
        channel = subscription.channel
        for event in page.events:
            subscription.queue.append(
                channel.line(event.seq, event.ts, event.session, event.payload)
            )
            subscription.cursor = event.seq
        if not page.more:
            subscription.cursor = max(subscription.cursor, before - 1)
        self._drain(subscription)
        self._walk(subscription)

    def tick(self) -> None:
        """The alarm: a replay whose connection has not moved for too long counts its rest as
        lost.
        """
        self._alarmed = False
        now = self._ports.steady_ns()
        nearest: int | None = None
        for subscription in tuple(self._stalled):
            if subscription.stalled_ns is None:
                self._stalled.discard(subscription)
                continue
            moved = subscription.subscriber.moved()
            if moved != subscription.moved:
                subscription.moved = moved
                subscription.stalled_ns = now
            left = subscription.stalled_ns + REPLAY_PATIENCE_NS - now
            if left <= 0:
                self._give_up(subscription)
            elif nearest is None or left < nearest:
                nearest = left
        if nearest is not None and not self._alarmed:
            self._alarmed = True
            self._ports.alarm(nearest)

    def _give_up(self, subscription: Subscription) -> None:
        """End a replay: the queue takes what fits, the rest is one gap, live events follow it."""
        channel, view = subscription.channel, subscription.view
        self._stalled.discard(subscription)
        subscription.replaying = False
        subscription.stalled_ns = None
        after, subscription.cursor = subscription.cursor, channel.next_seq - 1
        first = channel.first_in_ring()
        if after + 1 < first:
            if channel.durable:
                self._count_rest(subscription, after, first)
            elif subscription.missed:
                self._drop(subscription, subscription.missed, first - 1)
        for event in channel.ring:
            if event.seq <= after or not view.shows(event):
                continue
            room = len(subscription.queue) < self.queue_events
            if room and not subscription.dropped and subscription.fetching is None:
                subscription.queue.append(event.line)
            else:
                self._drop(subscription, 1, event.seq)
        self._drain(subscription)

    def _count_rest(self, subscription: Subscription, after: int, before: int) -> None:
        """What the log still had is part of the gap; until it is counted the gap stays open."""
        token = subscription.fetching = object()

        def done(number: int, error: StoreError | None) -> None:
            if subscription.fetching is not token:
                return
            subscription.fetching = None
            missed = before - 1 - after if error is not None else number
            if missed:
                self._drop(subscription, missed, before - 1)
            self._drain(subscription)

        request = log_request(subscription.channel, subscription.view, after, before, EVERY_EVENT)
        self._ports.count(CountEvents(request), done)


# --- on a running daemon -------------------------------------------------------------------------


class EventLimits(Protocol):
    """The settings the bus looks at."""

    @property
    def event_ring(self) -> int: ...

    @property
    def event_queue(self) -> int: ...


class LoopPorts:
    """The bus's outside on a running daemon: the loop's timers, the store's readers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self._loop = loop
        self._store = store
        self.bus: Bus | None = None

    def wall_ns(self) -> int:
        return time.time_ns()

    def steady_ns(self) -> int:
        return time.monotonic_ns()

    def load(
        self, read: LogEvents, done: Callable[[LoggedEvents, StoreError | None], None]
    ) -> None:
        self._store.read(read, done)

    def count(self, read: CountEvents, done: Callable[[int, StoreError | None], None]) -> None:
        self._store.read(read, done)

    def alarm(self, delay_ns: int) -> None:
        if self.bus is not None:
            self._loop.call_later(delay_ns / 1e9, self.bus.tick)


class EventBus(Bus):
    """The bus of a daemon."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store, limits: EventLimits) -> None:
        ports = LoopPorts(loop, store)
        super().__init__(
            ports,
            ring_events=max(limits.event_ring, RING_EVENTS),
            queue_events=limits.event_queue,
        )
        ports.bus = self
        self._store = store

    async def answer(self, name: str, view: View, since: int | None, limit: int | None) -> bytes:
        """The result of `events.read`; the ring is looked at before anything is waited for."""
        reading = self.read(name, view, since, limit)
        if reading.log is None:
            return reading.answer()
        return reading.answer((await self._store.load(reading.log)).events)
