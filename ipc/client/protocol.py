"""The client's half of the kernel protocol, without any I/O.

`Exchange` numbers requests, cuts and decodes incoming lines, and says what each one is: the reply
to a numbered request, an event of a channel, or another notification. `EventQueue` holds the events
of one subscription within a bound, and `backoff` gives the pauses between attempts to reconnect.
The async and the sync client are thin drivers around these.

Failure: `Exchange.feed` raises ProtocolViolation for a line that is no frame or is longer than
16 MiB, and RpcError for an error that belongs to no request (a refused connection); after either
the exchange is finished and the connection must end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ipc.client.errors import EmptyAnswer, ProtocolViolation
from ipc.framing import LineFramer
from ipc.jsonrpc import RpcError

EVENTS_QUEUED_MAX: Final = 4_096
RECONNECT_FIRST_S: Final = 0.1
RECONNECT_LONGEST_S: Final = 5.0
READ_BYTES: Final = 256 * 1024


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a channel (chapter 61, section 9.1)."""

    channel: str
    seq: int
    ts: int
    payload: Any
    session: str | None = None


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to request `number`: a decoded result, or the error."""

    number: int
    result: Any = None
    error: RpcError | EmptyAnswer | None = None


class Notice(msgspec.Struct, frozen=True, gc=False):
    """A notification that is no event, such as the `kernel` one at drain."""

    method: str
    params: Any


NoticeHandler = Callable[[Notice], None]
EventHandler = Callable[[Event], None]


class _ErrorObject(msgspec.Struct):
    code: int
    message: str
    data: dict[str, Any] | None = None


class _Frame(msgspec.Struct):
    jsonrpc: str
    id: int | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: _ErrorObject | None = None


_frames = msgspec.json.Decoder(_Frame)
_events = msgspec.json.Decoder(Event)
_anything = msgspec.json.Decoder(Any)


def rpc_error(code: int, message: str, data: dict[str, Any] | None) -> RpcError:
    """The exception of an error answer. Its data may hold members of any name."""
    members = data or {}
    error = RpcError(code, message, str(members.get("kind", "")))
    error.data = members
    return error


class Exchange:
    """One connection's worth of protocol."""

    # The number of the next request, and what has not yet become a whole line.
    _next: int
    _framer: LineFramer

    def __init__(self) -> None:
        self._next = 1
        self._framer = LineFramer()

    def request(self, method: str, params: object) -> tuple[int, bytes]:
        """The number and the line of a new request."""
        number = self._next
        self._next += 1
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        return number, msgspec.json.encode(frame) + b"\n"

    def feed(self, data: bytes) -> Iterator[Reply | Event | Notice]:
        """What `data` completes, in order. Raises ProtocolViolation or RpcError."""
        lines, overflow = self._framer.feed(data)
        for line in lines:
            yield _message(line)
        if overflow is not None:
            raise ProtocolViolation("the kernel sent a line of more than 16 MiB")


def _message(line: bytes) -> Reply | Event | Notice:
    try:
        frame = _frames.decode(line)
        if frame.method is not None:
            if frame.method == "event":
                return _events.decode(frame.params)
            return Notice(frame.method, _anything.decode(frame.params))
        if frame.error is not None:
            error = rpc_error(frame.error.code, frame.error.message, frame.error.data)
            if frame.id is None:
                raise error
            return Reply(frame.id, error=error)
        if frame.id is not None and not isinstance(frame.result, msgspec.UnsetType):
            return Reply(frame.id, _anything.decode(frame.result))
        if frame.id is not None:
            return Reply(frame.id, error=EmptyAnswer())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolViolation("the kernel sent a line that is no frame") from error
    raise ProtocolViolation("the kernel sent a frame that is neither answer nor notification")


class EventQueue:
    """Events of one subscription that nobody has taken yet, at most `limit`.

    What does not fit is counted and becomes one event in the place of the gap, with the payload
    the kernel uses for its own gaps: `{"dropped": N, "latest_seq": S}`. So a reader that falls
    behind costs bounded memory, and learns about it the one way it has to know anyway.
    """

    # Waiting events, and the gap after them: how many were dropped, and the newest of those.
    _waiting: deque[Event]
    _dropped: int
    _latest: Event | None

    def __init__(self, limit: int = EVENTS_QUEUED_MAX) -> None:
        self._limit = limit
        self._waiting = deque()
        self._dropped = 0
        self._latest = None

    def __len__(self) -> int:
        return len(self._waiting) + (self._latest is not None)

    def put(self, event: Event) -> None:
        if self._latest is not None or len(self._waiting) >= self._limit:
            self._dropped += 1
            self._latest = event
        else:
            self._waiting.append(event)

    def take(self) -> Event:
        """The oldest one. Raises IndexError when there is none."""
        if not self._waiting and self._latest is not None:
            latest, self._latest = self._latest, None
            gap = {"dropped": self._dropped, "latest_seq": latest.seq}
            self._dropped = 0
            return Event(latest.channel, latest.seq, latest.ts, gap, latest.session)
        return self._waiting.popleft()


def backoff() -> Iterator[float]:
    """Seconds to wait before each further attempt to reconnect."""
    pause = RECONNECT_FIRST_S
    while True:
        yield pause
        pause = min(pause * 2, RECONNECT_LONGEST_S)
