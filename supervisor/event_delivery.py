"""How events reach subscribers: queues, gaps, and the replay of what was there before.

A subscription is in one of two states. *Live*: events go straight to the subscriber or, while that
has no room, into a queue of bounded length; what does not fit is counted and becomes one `dropped`
event in its place. *Replaying*: the subscription walks its cursor through the durable log and the
ring, waits for room as long as the connection moves, and turns live at the newest event. New events
need no queue then: they are ahead of the cursor.

Failure: a log that cannot be read makes the replay's rest count as dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol, TypeAlias

from journal import CountEvents, LogEvents, LoggedEvents, StoreError
from supervisor.event_channels import (
    EVERY_EVENT,
    KINDS,
    Channel,
    Event,
    Reading,
    View,
    kind_of,
    log_request,
)

REPLAY_PATIENCE_NS: Final = 1_000_000_000


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


class Delivery:
    """Brings events to subscriptions. Used on one thread only."""

    # Replays that wait for room, and whether an alarm is pending for them.
    _stalled: set[Subscription]
    _alarmed: bool

    def __init__(self, ports: Ports, queue_events: int) -> None:
        self._ports = ports
        self.queue_events = queue_events
        self._stalled = set()
        self._alarmed = False
        self.dropped: dict[str, int] = dict.fromkeys(KINDS.values(), 0)

    def published(self, channel: AnyChannel, event: Event, lost: Event | None) -> None:
        """Bring a new event to everybody; `lost` is what left a memory-only ring for it."""
        for subscription in tuple(channel.subscriptions.values()):
            if not subscription.replaying:
                self._live(subscription, event)
                continue
            if lost is not None and lost.seq > subscription.cursor:
                subscription.missed += subscription.view.shows(lost)
            if subscription.stalled_ns is None:
                self.walk(subscription)

    def resume(self, subscription: Subscription) -> None:
        """The connection has room again."""
        self._drain(subscription)
        self.walk(subscription)

    def end(self, subscription: Subscription) -> None:
        """Nothing more goes to this subscription."""
        subscription.fetching = None
        subscription.replaying = False
        subscription.queue.clear()
        self._stalled.discard(subscription)

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

    def walk(self, subscription: Subscription) -> None:
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
        self.walk(subscription)

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
