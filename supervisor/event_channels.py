"""Channels of the event bus: events, their lines, rings, and what a caller sees of them.

An event's notification line is built once, from payload bytes as they came; the form that
`events.read` lists is a part of that line. A ring keeps the newest events of one channel of one
space; a `Reading` joins it with the durable log, and fixes the ring's side before anything is
waited for.

Failure: nothing here fails; what does not exist is empty.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Generic, TypeVar

from journal import LogEvents, LoggedEvent
from journal.event_log import ALL_SPACE, DURABLE_CHANNELS, DurableChannel

READ_BYTES_MAX: Final = 8 * 1024 * 1024
LINE_HEAD: Final = b'{"jsonrpc":"2.0","method":"event","params":'
LINE_TAIL: Final = b"}\n"
EVERY_EVENT: Final = 1 << 31

# Label of the metrics by the first word of a channel's name.
KINDS: Final[Mapping[str, str]] = {
    "journal": "journal",
    "session": "transcript",
    "task": "task",
    "pty": "pty",
    "approval": "approval",
    "render": "render",
    "user": "user",
}

# Who listens to a channel and what is kept about it.
L = TypeVar("L")
S = TypeVar("S")


class Event:
    """A published event: its identity, what filters look at, and its notification line."""

    __slots__ = ("line", "principal", "seq", "session", "ts")

    def __init__(self, seq: int, ts: int, session: str | None, principal: str, line: bytes) -> None:
        self.seq = seq
        self.ts = ts
        self.session = session
        self.principal = principal
        self.line = line

    @property
    def json(self) -> bytes:
        """The event as `events.read` lists it."""
        return self.line[len(LINE_HEAD) : -len(LINE_TAIL)]


@dataclass(frozen=True, slots=True)
class View:
    """What a caller may see of a channel: a space, and for guests only some of its events."""

    space: str
    session: str | None = None
    principal: str | None = None

    def shows(self, event: Event) -> bool:
        return (self.session is None or event.session == self.session) and (
            self.principal is None or event.principal == self.principal
        )


def view_of(
    channel: str,
    *,
    owner: str,
    session: str,
    principal: str,
    sees_all_entries: bool,
    approver: bool = True,
) -> View:
    """The view of a caller attached to a session, by the rules of chapter 61 §9.2."""
    if channel == "approval":
        # Who may approve nothing sees what becomes of its own plans.
        return View(principal, None, None if approver else principal)
    if channel == "journal" and sees_all_entries:
        return View(ALL_SPACE)
    if principal == owner:
        return View(owner)
    return View(owner, session, principal if channel == "journal" else None)


class Channel(Generic[L, S]):
    """One channel of one space: its ring, its next number, and who listens."""

    __slots__ = ("durable", "head", "name", "next_seq", "retired", "ring", "space", "subscriptions")

    def __init__(self, space: str, name: str, ring_events: int, next_seq: int) -> None:
        self.space = space
        self.name = name
        self.durable = name in DURABLE_CHANNELS
        self.head = b'{"channel":%b,"seq":' % quoted(name)
        self.next_seq = next_seq
        # Its source is gone: the last listener takes it along.
        self.retired = False
        self.ring: deque[Event] = deque(maxlen=ring_events)
        self.subscriptions: dict[L, S] = {}

    def line(self, seq: int, ts: int, session: str | None, payload: bytes) -> bytes:
        origin = b"" if session is None else b',"session":' + quoted(session)
        return b'%b%b%d,"ts":%d%b,"payload":%b}%b' % (
            LINE_HEAD,
            self.head,
            seq,
            ts,
            origin,
            payload,
            LINE_TAIL,
        )

    def first_in_ring(self) -> int:
        """The lowest number the ring holds; the next number when it holds none."""
        return self.ring[0].seq if self.ring else self.next_seq


def log_request(
    channel: Channel[L, S], view: View, after: int, before: int, limit: int, *, newest: bool = False
) -> LogEvents:
    """The question to the durable log for events of a channel between two numbers."""
    name: DurableChannel = "journal" if channel.name == "journal" else "session.transcript"
    return LogEvents(
        name,
        view.space,
        after,
        before,
        limit,
        newest=newest,
        session=view.session,
        principal=view.principal,
    )


class Reading(Generic[L, S]):
    """An `events.read` on its way: what the ring has now, and what the log must add, if anything.

    `log` is None when the ring is enough; else load it and give its events to `answer`.
    """

    def __init__(
        self, channel: Channel[L, S], view: View, since: int | None, limit: int | None
    ) -> None:
        self._channel = channel
        self._room = READ_BYTES_MAX
        self._parts: list[bytes] = []
        after = -1 if since is None else since
        wanted = EVERY_EVENT if limit is None else limit
        for event in reversed(channel.ring):
            if event.seq <= after or len(self._parts) >= wanted:
                break
            if view.shows(event) and not self._add(event.json):
                break
        self.log: LogEvents | None = None
        first = channel.first_in_ring()
        if channel.durable and after + 1 < first and self._room and len(self._parts) < wanted:
            wanted -= len(self._parts)
            request = log_request(channel, view, after, first, wanted, newest=True)
            self.log = replace(request, bytes_max=self._room)

    def _add(self, part: bytes) -> bool:
        """Put an older event in front, if the answer may still grow by it."""
        if len(part) + 1 > self._room:
            self._room = 0
            return False
        self._room -= len(part) + 1
        self._parts.append(part)
        return True

    def answer(self, logged: Iterable[LoggedEvent] = ()) -> bytes:
        """The result object of `events.read`."""
        for event in reversed(tuple(logged)):
            line = self._channel.line(event.seq, event.ts, event.session, event.payload)
            if not self._add(line[len(LINE_HEAD) : -len(LINE_TAIL)]):
                break
        self._parts.reverse()
        return b'{"channel":%b,"events":[%b]}' % (
            quoted(self._channel.name),
            b",".join(self._parts),
        )


@lru_cache(4096)
def quoted(text: str) -> bytes:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False).encode()


def kind_of(channel: str) -> str:
    """The label under which a channel is counted."""
    return KINDS.get(channel.partition(".")[0], "user")
