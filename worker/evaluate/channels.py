"""The channels of one session: named rings of events, read by position (chapter 30 §15).

A channel exists by being named. Each keeps its newest RING_EVENTS events; readers hold a position,
not a queue, so an emit never waits and a reader that is dropped leaves nothing behind. Used by the
evaluator, its tasks and the worker's I/O thread at the same time.

`on_emit(name, value)` is the bridge to the router: it is called for every emitted event of a
`user.` channel, in the order of their numbers, and must not wait. Injected events come from the
router and do not go back.

Failure: `take` raises `timeout` and `channel_closed`; waits raise Cancelled.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from worker.errors import Cancelled, arg_error, raised, type_error
from worker.evaluate.streams.core import (
    END,
    PENDING,
    Stream,
    monotonic_ns,
    wait_for_ready,
    wait_on,
)
from worker.values.temporal import now
from worker.values.types import Record, Span, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.cancel import CancelToken
    from worker.evaluate.evaluator import Evaluator

RING_EVENTS: Final = 1024
USER_PREFIX: Final = "user."


class Channel:
    # The newest events, oldest first; numbers in the ring have no gaps, so the position of an event
    # follows from its number. All of it changes under `changed`.

    __slots__ = ("changed", "closed", "name", "next_seq", "ring")

    def __init__(self, name: str) -> None:
        self.name = name
        self.changed = threading.Condition()
        self.ring: deque[Record] = deque(maxlen=RING_EVENTS)
        self.next_seq = 0
        self.closed = False

    @property
    def oldest_seq(self) -> int:
        return self.next_seq - len(self.ring)


class ChannelBus:
    # Channels by name, added under `_lock` and never removed: their numbering must go on.

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._closed = False
        self.on_emit: Callable[[str, Value], None] | None = None

    def channel(self, name: str) -> Channel:
        with self._lock:
            found = self._channels.get(name)
            if found is None:
                found = self._channels[name] = Channel(name)
                found.closed = self._closed
            return found

    def emit(self, name: str, value: Value) -> None:
        """Publish from the language."""
        forward = self.on_emit if name.startswith(USER_PREFIX) else None
        self._publish(name, value, forward)

    def inject(self, name: str, value: Value) -> None:
        """Publish an event that came from the router's bus; only `user.` channels take part."""
        if name.startswith(USER_PREFIX):
            self._publish(name, value, None)

    def _publish(
        self, name: str, value: Value, forward: Callable[[str, Value], None] | None
    ) -> None:
        channel = self.channel(name)
        with channel.changed:
            channel.ring.append(
                {
                    "channel": name,
                    "seq": channel.next_seq,
                    "ts": now(self._clock.now_ns()),
                    "payload": value,
                }
            )
            channel.next_seq += 1
            channel.changed.notify_all()
            if forward is not None:
                # With the lock held, so that the router sees the order of the numbers.
                forward(name, value)

    def latest(self, name: str) -> Value:
        channel = self.channel(name)
        with channel.changed:
            return channel.ring[-1]["payload"] if channel.ring else None

    def events(self, name: str, since: int | None = None) -> Stream:
        """Replay of what is kept, or of what came after `since`, then live events. Unbounded."""
        return Stream(self.subscribe(name, since), "event", bounded=False)

    def subscribe(self, name: str, since: int | None = None) -> Subscription:
        channel = self.channel(name)
        with channel.changed:
            start = channel.oldest_seq if since is None else max(since + 1, channel.oldest_seq)
            return Subscription(channel, start, self._clock)

    def take(self, ev: Evaluator, name: str, timeout_ns: int | None) -> Value:
        """The payload of the next event emitted from now on."""
        channel = self.channel(name)
        wanted = channel.next_seq

        def ready() -> Value:
            if channel.next_seq > wanted:
                return channel.ring[max(wanted - channel.oldest_seq, 0)]
            if channel.closed:
                raise raised("channel_closed", f"channel `{name}`: the session has ended")
            return PENDING

        deadline = None if timeout_ns is None else monotonic_ns(ev) + timeout_ns
        event = wait_on(ev, channel.changed, ready, deadline)
        if event is PENDING:
            raise raised("timeout", f"channel `{name}`: no event within timeout")
        return event["payload"]

    def close(self) -> None:
        """The session ends: every waiting reader is let go."""
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
        for channel in channels:
            with channel.changed:
                channel.closed = True
                channel.changed.notify_all()


class Subscription:
    """A reader at its own pace. Its position is the number of the next event it wants."""

    __slots__ = ("_channel", "_clock", "_next")

    def __init__(self, channel: Channel, start: int, clock: Any) -> None:
        self._channel: Channel | None = channel
        self._next = start
        self._clock = clock

    def pull(self, ev: Evaluator, deadline: int | None) -> Value:
        channel = self._channel
        if channel is None:
            return END
        return wait_on(ev, channel.changed, lambda: self._ready(channel), deadline)

    def next(self, cancel: CancelToken) -> Record:
        """The next event, for a handler; raises Cancelled at the end of the session too."""
        channel = self._channel
        if channel is not None:
            event = wait_for_ready(
                cancel, channel.changed, lambda: self._ready(channel), lambda: None
            )
            if event is not END:
                return event  # type: ignore[no-any-return]
        raise Cancelled

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self, channel: Channel) -> Value:
        if self._next >= channel.next_seq:
            return END if channel.closed else PENDING
        oldest = channel.oldest_seq
        if self._next < oldest:
            # Fallen behind by more than the ring: say so once, then go on with the oldest kept.
            lost = oldest - self._next
            self._next = oldest
            return {
                "channel": channel.name,
                "seq": oldest - 1,
                "ts": now(self._clock.now_ns()),
                "payload": {"dropped": lost, "latest_seq": channel.next_seq - 1},
            }
        event = channel.ring[self._next - oldest]
        self._next += 1
        return event

    def close(self) -> None:
        self._channel = None


def handle_name(value: Value) -> str | None:
    """The channel a value is a handle of: a record of exactly one str field `channel`."""
    if type(value) is dict and len(value) == 1:
        name = value.get("channel")
        if type(name) is str:
            return name
    return None


def channel(ev: Evaluator, pos: list[Value], named: dict[str, Value], span: Span | None) -> Value:
    """`channel(name)`: the handle of a channel."""
    if len(pos) != 1:
        raise arg_error(f"expected 1 argument, got {len(pos)}")
    if type(pos[0]) is not str:
        raise type_error(f"channel expects a str, found {type_name(pos[0])}")
    return {"channel": pos[0]}
