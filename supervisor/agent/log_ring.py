"""The ring of log events and who follows it (chapter 70 §19).

The router's log lines pass by here as structured events, without source, prompts or outputs, which
never reach the log at all. A follower that falls behind the ring is told how far and goes on from
its oldest event.

Failure: RpcError -32602 for a ninth subscription, or a sequence number that does not exist yet.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_methods import LogsSubscribeParams, LogsSubscribeResult
from ipc.agent_params import invalid_params
from supervisor.agent.limits import (
    LOG_RING_BYTES_MAX,
    LOG_RING_EVENTS_MAX,
    LOG_SUBSCRIPTIONS_MAX,
)

if TYPE_CHECKING:
    import asyncio

    from supervisor.agent.connection import AgentConnection

_PRIVATE: Final = frozenset({"src", "source", "prompt", "output", "stdout", "stderr", "params"})


@dataclass(slots=True)
class Subscription:
    id: str
    connection: AgentConnection
    next_seq: int
    waiting: bool = False


class LogRing:
    # `_events` holds (seq, encoded event), oldest first; `_bytes` is their size. `seq` is the
    # number of the next event. Subscriptions by id.

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.epoch = uuid.uuid4().hex
        self.seq = 0
        self._events: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._subscriptions: dict[str, Subscription] = {}

    def add(self, level: str, event: dict[str, Any]) -> None:
        """Take one log event; called from the logger."""
        members = {name: value for name, value in event.items() if name not in _PRIVATE}
        data = msgspec.json.encode({"level": level, **members}, enc_hook=str)
        self._events.append((self.seq, data))
        self.seq += 1
        self._bytes += len(data)
        while self._events and (
            len(self._events) > LOG_RING_EVENTS_MAX or self._bytes > LOG_RING_BYTES_MAX
        ):
            _seq, gone = self._events.popleft()
            self._bytes -= len(gone)
        for subscription in self._subscriptions.values():
            self._wake(subscription)

    def subscribe(
        self, connection: AgentConnection, params: LogsSubscribeParams
    ) -> LogsSubscribeResult:
        mine = [s for s in self._subscriptions.values() if s.connection is connection]
        if len(mine) >= LOG_SUBSCRIPTIONS_MAX:
            raise invalid_params("too many subscriptions")
        start, epoch_changed = self.seq, False
        if params.since_seq is not None:
            if params.since_seq < 0:
                raise invalid_params("`since_seq` must not be negative", field="since_seq")
            epoch_changed = params.epoch is not None and params.epoch != self.epoch
            if epoch_changed:
                start = self._oldest
            elif params.since_seq > self.seq:
                raise invalid_params(
                    f"`since_seq` is beyond the head {self.seq}", field="since_seq"
                )
            else:
                start = params.since_seq
        subscription = Subscription(uuid.uuid4().hex, connection, start)
        self._subscriptions[subscription.id] = subscription
        if epoch_changed:
            assert params.since_seq is not None
            self._loop.call_soon(self._lagged, subscription, params.since_seq, True)
        self._wake(subscription)
        return LogsSubscribeResult(True, subscription.id, self.seq, self.epoch)

    def cancel(self, connection: AgentConnection, subscription_id: str) -> bool:
        subscription = self._subscriptions.get(subscription_id)
        if subscription is None or subscription.connection is not connection:
            return False
        del self._subscriptions[subscription_id]
        return True

    def forget(self, connection: AgentConnection) -> None:
        for subscription in list(self._subscriptions.values()):
            if subscription.connection is connection:
                del self._subscriptions[subscription.id]

    @property
    def _oldest(self) -> int:
        return self._events[0][0] if self._events else self.seq

    def _wake(self, subscription: Subscription) -> None:
        """Deliver soon: an answer that is due goes out before the events behind it."""
        if not subscription.waiting:
            subscription.waiting = True
            self._loop.call_soon(self._deliver, subscription)

    def _deliver(self, subscription: Subscription) -> None:
        subscription.waiting = False
        if self._subscriptions.get(subscription.id) is not subscription:
            return
        if subscription.next_seq < self._oldest:
            self._lagged(subscription, subscription.next_seq, False)
            subscription.next_seq = self._oldest
        connection = subscription.connection
        while subscription.next_seq < self.seq and connection.has_room():
            seq, data = self._events[subscription.next_seq - self._oldest]
            params = b'{"subscription_id":"%b","seq":%d,"event":%b}' % (
                subscription.id.encode(), seq, data
            )  # fmt: skip
            connection.notify("logs/event", params)
            subscription.next_seq += 1
        if subscription.next_seq < self.seq:
            connection.when_room(lambda: self._wake(subscription))

    def _lagged(self, subscription: Subscription, from_seq: int, epoch_changed: bool) -> None:
        params = {
            "subscription_id": subscription.id,
            "from_seq": from_seq,
            "resume_seq": self._oldest,
            "epoch_changed": epoch_changed,
        }
        subscription.connection.notify("subscription/lagged", msgspec.json.encode(params))
