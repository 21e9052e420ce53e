"""One client connection of the agent endpoint: lines in, requests one after the other, a FIFO out.

Both sides send requests. Responses of the client are handled as they are read, so they never wait
behind a request that runs; requests run one at a time in arrival order, and a prompt counts as done
once it is admitted. Everything that goes out passes one queue, which is written frame by frame.

Failure: a frame that is too large or too slow is answered once, then the connection ends; a client
that does not take a frame for WRITE_STALL_S is dropped. The end of the connection fails every
request the server has pending on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec
import structlog

from ipc.agent_envelope import (
    NULL_ID,
    AgentCode,
    Dropped,
    Refused,
    Request,
    Response,
    agent_error,
    classify,
)
from ipc.framing import LineFramer
from ipc.jsonrpc import RpcError, error_line, notification_line, result_line
from supervisor.agent.limits import (
    FRAME_BYTES_MAX,
    FRAME_TIME_S,
    INITIALIZE_TIME_S,
    OUTGOING_FRAMES_MAX,
    PARKED_FRAMES_MAX,
    SERVER_REQUESTS_MAX,
    WRITE_STALL_S,
)
from supervisor.connection import peer_of
from supervisor.peers import Peer

if TYPE_CHECKING:
    from supervisor.agent.identity import Binding

log = structlog.get_logger()
_encode: Final = msgspec.json.Encoder().encode
_RAW_METHOD: Final = b'{"jsonrpc":"2.0","id":"%b","method":"%b","params":%b}\n'


class NoAnswer(Exception):
    """A request to the client got no result: `reason` is `closed`, `busy` or `timeout`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AnsweredError(Exception):
    """The client answered a request with an error object."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message")))
        self.error = error


class Endpoint(Protocol):
    """Who serves the requests of a connection."""

    def opened(self, connection: AgentConnection) -> RpcError | None: ...
    def serve(self, connection: AgentConnection, request: Request) -> None: ...
    def closed(self, connection: AgentConnection) -> None: ...


class AgentConnection(asyncio.Protocol):
    # `_parked` holds requests behind the one that runs (`busy`); `_advancing` is true while they
    # are taken from it, so that requests answered at once do not nest. `_outgoing` holds frames not
    # yet given to the transport; at most one frame is in the transport's buffer. `pending` maps ids
    # of our requests to whoever waits. `detached` counts prompts that run, `ended` is done when the
    # connection is gone. `binding` is set by `initialize` alone. All of it changes on the loop's
    # thread.

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self.endpoint = endpoint
        self.loop = loop
        self.number = number
        self.binding: Binding | None = None
        self.peer_uid = -1
        self.peer_pid = 0
        self.process: Peer | None = None
        self.open = False
        self.admitted = False
        self.busy = False
        self._advancing = False
        self.detached = 0
        self.ended: asyncio.Future[None] = loop.create_future()
        self.pending: dict[str, asyncio.Future[bytes]] = {}
        self._next_request = 0
        self._transport: asyncio.Transport | None = None
        self._framer = LineFramer(FRAME_BYTES_MAX + 1)
        self._parked: deque[tuple[Request | Refused, int]] = deque()
        self._parked_bytes = 0
        self._paused = False
        self._half_closed = False
        self._hangup: select.epoll | None = None
        self._outgoing: deque[bytes] = deque()
        self._writing = False
        self._ending = False
        self._room: list[asyncio.Future[None]] = []
        self._frame_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._initialize_timer: asyncio.TimerHandle | None = None

    @property
    def peer(self) -> str:
        """The peer label of logs and audit rows."""
        if self.peer_uid < 0:
            return "unix:unknown"
        return f"unix:pid={self.peer_pid},uid={self.peer_uid}"

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=0)
        with contextlib.suppress(OSError):
            sock = transport.get_extra_info("socket")
            self.peer_uid, self.peer_pid = peer_of(sock)
            self.process = Peer(sock, self.peer_pid)
        refusal = self.endpoint.opened(self)
        if refusal is not None:
            self._refuse(refusal)
            return
        if not self.admitted:
            transport.abort()
            return
        self.open = True
        self._initialize_timer = self.loop.call_later(INITIALIZE_TIME_S, self._not_initialized)

    def data_received(self, data: bytes) -> None:
        if not self.open or self._ending:
            return
        lines, overflow = self._framer.feed(data)
        for line in lines:
            self._line(line)
        if overflow is not None:
            self._refuse(_frame_too_large())
        else:
            self._watch_frame(bool(lines))

    def eof_received(self) -> bool:
        """A client that closed its sending side still gets its answers."""
        if not self.open or self._ending:
            return False
        self._stop_frame_timer()
        rest, self._half_closed = self._framer.take(), True
        if rest:
            self._line(rest)
        if _hung_up(self._transport):
            return False
        self._watch_hangup()
        self._close_when_done()
        return self.open

    def connection_lost(self, exc: Exception | None) -> None:
        was_open, self.open = self.open, False
        self._transport = None
        if self.process is not None:
            self.process.close()
        if not self.ended.done():
            self.ended.set_result(None)
        self._parked.clear()
        self._outgoing.clear()
        for timer in (self._frame_timer, self._stall_timer, self._initialize_timer):
            if timer is not None:
                timer.cancel()
        if self._hangup is not None:
            self.loop.remove_reader(self._hangup.fileno())
            self._hangup.close()
        self._make_room()
        pending, self.pending = self.pending, {}
        for waiting in pending.values():
            if not waiting.done():
                waiting.set_exception(NoAnswer("closed"))
        if was_open or self.admitted or self._ending:
            self.endpoint.closed(self)

    def pause_writing(self) -> None:
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(WRITE_STALL_S, self._stalled)
        self._writing = True

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._writing = False
        self._pump()

    # -- frames in ---------------------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        line = line.strip()
        if not line:
            return
        match classify(line):
            case Request() | Refused() as frame:
                if self.busy or self._parked:
                    self._park(frame, len(line))
                else:
                    self._take(frame)
            case Response() as response:
                self._answered(response)
            case Dropped(reason):
                log.warning("frame.dropped", conn=self.number, endpoint="agent", reason=reason)

    def _park(self, frame: Request | Refused, size: int) -> None:
        self._parked.append((frame, size))
        self._parked_bytes += size
        crowded = len(self._parked) >= PARKED_FRAMES_MAX or self._parked_bytes > FRAME_BYTES_MAX
        if crowded and not self._paused and self._transport is not None and not self._half_closed:
            self._paused = True
            self._transport.pause_reading()
            self._stop_frame_timer()

    def _take(self, frame: Request | Refused) -> None:
        if isinstance(frame, Refused):
            self.send(error_line(frame.id, frame.error.encode()))
            return
        self.busy = True
        self.endpoint.serve(self, frame)

    def finished(self) -> None:
        """The running request was answered (or admitted): go on with the next."""
        self.busy = False
        if self._advancing:
            return
        self._advancing = True
        while self._parked and not self.busy and self.open:
            frame, size = self._parked.popleft()
            self._parked_bytes -= size
            self._take(frame)
        self._advancing = False
        if not self._parked and self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
            self._watch_frame(True)
        if self._half_closed:
            self._close_when_done()

    def _answered(self, response: Response) -> None:
        waiting = None if response.key is None else self.pending.pop(response.key, None)
        if waiting is None or waiting.done():
            log.info("response.ignored", conn=self.number)
        elif response.error is not None:
            waiting.set_exception(AnsweredError(response.error))
        else:
            waiting.set_result(response.result or b"null")

    def _watch_frame(self, anew: bool) -> None:
        """Time the unfinished frame from its first byte."""
        if self._framer.held == 0 or anew:
            self._stop_frame_timer()
        if self._framer.held and self._frame_timer is None and not self._paused:
            self._frame_timer = self.loop.call_later(FRAME_TIME_S, self._frame_too_slow)

    def _stop_frame_timer(self) -> None:
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None

    def _frame_too_slow(self) -> None:
        self._frame_timer = None
        limit_ms = int(FRAME_TIME_S * 1000)
        self._refuse(
            agent_error(
                AgentCode.INVALID_REQUEST,
                f"Frame was not completed within {limit_ms} ms",
                "frame_timeout",
                limit_ms=limit_ms,
            )
        )

    def _not_initialized(self) -> None:
        if self.binding is None:
            log.info("conn.close", conn=self.number, endpoint="agent", reason="initialize")
            self.abort()

    def initialized(self, binding: Binding) -> None:
        """Bind the connection; from now on it may be silent."""
        self.binding = binding
        if self._initialize_timer is not None:
            self._initialize_timer.cancel()
            self._initialize_timer = None

    # -- frames out --------------------------------------------------------------------------------

    def answer(self, raw_id: bytes, result: bytes) -> None:
        """Answer a request; nothing goes out for a notification."""
        if raw_id:
            self.send(result_line(raw_id, result))

    def fail(self, raw_id: bytes, error: RpcError) -> None:
        if raw_id:
            self.send(error_line(raw_id, error.encode()))

    def notify(self, method: str, params: bytes) -> None:
        self.send(notification_line(method, params))

    async def request(self, method: str, params: bytes, seconds: float) -> bytes:
        """Send a request and wait for its result. Raises NoAnswer or AnsweredError."""
        if not self.open:
            raise NoAnswer("closed")
        if len(self.pending) >= SERVER_REQUESTS_MAX:
            raise NoAnswer("busy")
        key = f"zc-out-{self._next_request}"
        self._next_request += 1
        waiting: asyncio.Future[bytes] = self.loop.create_future()
        self.pending[key] = waiting
        self.send(_RAW_METHOD % (key.encode(), method.encode(), params))
        try:
            return await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            raise NoAnswer("timeout") from None
        finally:
            self.pending.pop(key, None)

    def send(self, line: bytes) -> None:
        """Queue one frame; on a closed connection it is dropped."""
        if self._transport is None or self._ending or not self.open:
            return
        self._outgoing.append(line)
        self._pump()

    async def room(self) -> None:
        """Wait until the outgoing queue has room, or the connection ended."""
        while self.open and len(self._outgoing) >= OUTGOING_FRAMES_MAX:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._room.append(waiter)
            await waiter

    def when_room(self, call: Callable[[], None]) -> None:
        """Call once there is room; never when the connection ends first."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        waiter.add_done_callback(lambda _waiter: call() if self.open else None)
        self._room.append(waiter)

    def has_room(self) -> bool:
        return not self.open or len(self._outgoing) < OUTGOING_FRAMES_MAX

    def _pump(self) -> None:
        transport = self._transport
        if transport is None:
            return
        while self._outgoing and not self._writing:
            transport.write(self._outgoing.popleft())
        if len(self._outgoing) < OUTGOING_FRAMES_MAX:
            self._make_room()
        if self._ending and not self._outgoing:
            transport.close()

    def _make_room(self) -> None:
        waiters, self._room = self._room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _stalled(self) -> None:
        log.warning("conn.close", conn=self.number, endpoint="agent", reason="stalled")
        self.abort()

    # -- the end -----------------------------------------------------------------------------------

    def _refuse(self, error: RpcError) -> None:
        """One error with id null behind what is queued, then the end; nothing is read any more."""
        if self._transport is None:
            return
        log.warning("frame.rejected", conn=self.number, endpoint="agent", reason=error.kind)
        self._outgoing.append(error_line(NULL_ID, error.encode()))
        self.close()

    def close(self) -> None:
        """End the connection after what is queued for the client was written."""
        transport = self._transport
        if transport is None or self._ending:
            return
        self._ending = True
        self._parked.clear()
        self._stop_frame_timer()
        if not self._half_closed and not self._paused:
            transport.pause_reading()
        self._pump()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def _close_when_done(self) -> None:
        if not self.busy and not self._parked and self.detached == 0:
            self.close()

    def _watch_hangup(self) -> None:
        """After a half-close, learn when the peer is gone altogether: only epoll tells."""
        if self._transport is None or not hasattr(select, "epoll"):
            return
        sock = self._transport.get_extra_info("socket")
        self._hangup = select.epoll()
        self._hangup.register(sock.fileno(), 0)
        self.loop.add_reader(self._hangup.fileno(), self.abort)


def _hung_up(transport: asyncio.Transport | None) -> bool:
    """Whether the peer has closed both directions."""
    if transport is None:
        return True
    poller = select.poll()
    sock: socket.socket = transport.get_extra_info("socket")
    poller.register(sock.fileno(), 0)
    return any(mask & select.POLLHUP for _fd, mask in poller.poll(0))


def _frame_too_large() -> RpcError:
    return agent_error(
        AgentCode.INVALID_REQUEST,
        f"Frame exceeds the {FRAME_BYTES_MAX} byte limit",
        "frame_too_large",
        limit_bytes=FRAME_BYTES_MAX,
    )
