"""The event bus: publishing, reading, subscribing (chapter 61 §9-§11).

`Bus` is plain state on the event loop's thread: it is told of events, subscribers and drained
connections and hands out finished lines; clocks, the durable log and timers come in through
`Ports`. Publishing costs one `offer` for each subscriber that keeps up and one append for one that
does not.

Numbers of the durable channels come from the journal's commit (`publish_numbered`), all others from
here. `seed` tells the bus where the durable ones stand after a start.

Failure: `EventLimit` when a publish or subscription would pass a limit; a log that cannot be read
makes the replay's rest count as dropped, and a read raises the store's error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from journal import CountEvents, LogEvents, LoggedEvents, Store, StoreError
from supervisor.event_channels import KINDS, Channel, Event, Reading, View, kind_of, view_of
from supervisor.event_delivery import (
    AnyChannel,
    AnyReading,
    Delivery,
    Ports,
    Subscriber,
    Subscription,
)

__all__ = ["Bus", "Event", "EventBus", "EventLimit", "Reading", "Subscriber", "View", "view_of"]

RING_EVENTS: Final = 1_024
QUEUE_EVENTS: Final = 256
USER_CHANNELS_MAX: Final = 1_024
SUBSCRIPTIONS_MAX: Final = 256
USER_PREFIX: Final = "user."


class EventLimit(Exception):
    """A limit of chapter 60 §2.6 is reached."""

    def __init__(self, quota: str, limit: int, used: int) -> None:
        super().__init__(f"{quota} limit of {limit} is reached")
        self.quota = quota
        self.limit = limit
        self.used = used


class Bus:
    """All channels of all spaces. Used on one thread only."""

    # Channels by (space, name), created by a publish or a subscription and dropped when nothing is
    # left of them; subscriptions once more by subscriber and channel name; numbers of durable
    # channels that have no Channel yet; how many user channels each space has.
    _channels: dict[tuple[str, str], AnyChannel]
    _by_subscriber: dict[Subscriber, dict[str, Subscription]]
    _seeds: dict[tuple[str, str], int]
    _user_channels: dict[str, int]

    def __init__(
        self, ports: Ports, *, ring_events: int = RING_EVENTS, queue_events: int = QUEUE_EVENTS
    ) -> None:
        self._ports = ports
        self._delivery = Delivery(ports, queue_events)
        self._ring_events = ring_events
        self.subscriptions_max = SUBSCRIPTIONS_MAX
        self._channels = {}
        self._by_subscriber = {}
        self._seeds = {}
        self._user_channels = {}
        # Told of each channel that somebody reads or subscribes to (for channels fed on demand).
        self.on_interest: Callable[[str, str], None] | None = None
        self.published: dict[str, int] = dict.fromkeys(KINDS.values(), 0)

    @property
    def dropped(self) -> dict[str, int]:
        """Events that subscribers lost, by kind."""
        return self._delivery.dropped

    def set_queue(self, events: int) -> None:
        """The length of queues from now on."""
        self._delivery.queue_events = events

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
        if channel.subscriptions:
            self._delivery.published(channel, event, lost)
        return event

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
        self._delivery.walk(subscription)

    def unsubscribe(self, subscriber: Subscriber, name: str) -> bool:
        """End a subscription and discard what it queued. False when there was none."""
        held = self._by_subscriber.get(subscriber)
        subscription = None if held is None else held.pop(name, None)
        if held is None or subscription is None:
            return False
        if not held:
            del self._by_subscriber[subscriber]
        self._delivery.end(subscription)
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

    def resume(self, subscriber: Subscriber) -> None:
        """The subscriber's connection has room again."""
        for subscription in tuple(self._by_subscriber.get(subscriber, {}).values()):
            self._delivery.resume(subscription)

    def tick(self) -> None:
        """The alarm that `Ports.alarm` was asked for."""
        self._delivery.tick()


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
