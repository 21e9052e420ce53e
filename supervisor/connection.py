"""One client connection of the kernel endpoint: bytes in, requests out, answers back.

Reads bounded lines, keeps the acceptance rules of chapter 60 §2 (barrier of `session.attach`,
requests in flight, back-pressure, half-close) and writes whole lines. What a request means is the
endpoint's business.

Failure: a malformed line ends the connection after what is already queued for the client; a client
that stops reading is paused, and closed when nothing moves for STALL_S.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, cast

import structlog

from ipc.framing import FrameTooLarge, LineFramer
from ipc.jsonrpc import (
    Code,
    MalformedFrame,
    RpcError,
    decode_request,
    error_line,
    result_line,
)
from supervisor.peers import Peer

if TYPE_CHECKING:
    from supervisor.attachments import Attachment
    from supervisor.kernel import Kernel

log = structlog.get_logger()

REQUESTS_IN_FLIGHT_MAX: Final = 256
OUTGOING_BYTES_MAX: Final = 32 * 1024 * 1024
# Above this much unsent output, events wait in their subscription's queue instead of the
# transport's.
EVENT_ROOM_BYTES: Final = 256 * 1024
STALL_S: Final = 30.0
_PEERCRED: Final = struct.Struct("3i")
_NULL_ID: Final = b"null"


class Bucket:
    """Counts acts per second: full at the start, refilling at the rate, at most one second's
    worth."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._at = -1.0
        self._level = 0.0

    def take(self, rate: int, now: float) -> bool:
        """Whether one more act is within the rate."""
        if self._at < 0:
            self._level = float(rate)
        else:
            self._level = min(rate, self._level + (now - self._at) * rate)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True


class Endpoint(Protocol):
    """Who serves the requests of a connection."""

    def opened(self, connection: Connection) -> RpcError | None: ...
    def accept(self, call: RouterCall) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class RouterCall:
    """One accepted request. Exactly one of `answer` and `fail` takes effect; a notification gets
    none."""

    __slots__ = ("_done", "attachment", "connection", "method", "params", "raw_id")

    def __init__(self, connection: Connection, method: str, params: bytes, raw_id: bytes) -> None:
        self.connection = connection
        self.method = method
        self.params = params
        self.raw_id = raw_id
        self.attachment: Attachment | None = connection.attachment
        self._done = False

    def answer(self, result: bytes) -> None:
        if not self._done:
            self._done = True
            line = result_line(self.raw_id, result) if self.raw_id else b""
            self.connection.finished(self.method, "ok", line)

    def fail(self, error: RpcError) -> None:
        self.fail_raw(error.code, error.encode())

    def fail_raw(self, code: int, error: bytes) -> None:
        """Answer with an encoded error object."""
        if not self._done:
            self._done = True
            line = error_line(self.raw_id, error) if self.raw_id else b""
            self.connection.finished(self.method, str(code), line)


class Connection(asyncio.Protocol):
    # `in_flight` counts accepted requests without an answer. `_parked` holds lines that may not be
    # accepted yet: behind an unanswered attach (`_barrier`), or above the requests in flight;
    # `_overflow` is the oversize line behind them, which ends the connection when its turn comes.
    # `_reasons` says why reading is paused; it goes on when the set is empty.

    def __init__(self, kernel: Kernel, endpoint: Endpoint, number: int, name: str) -> None:
        self.kernel = kernel
        self.endpoint = endpoint
        self.number = number
        self.endpoint_name = name
        self.attachment: Attachment | None = None
        self.peer_uid = -1
        self.peer_pid = 0
        self.peer: Peer | None = None
        self.in_flight = 0
        self.requests = 0
        self.since_ns = time.time_ns()
        self.publishing = Bucket()
        self.open = False
        self._transport: asyncio.Transport | None = None
        self._framer = LineFramer(kernel.config.limits.max_frame_bytes)
        self._parked: deque[bytes] = deque()
        self._barrier = False
        self._half_closed = False
        self._overflow: FrameTooLarge | None = None
        self._reasons: set[str] = set()
        self._congested = False
        self._queued_bytes = 0
        self._moved_bytes = 0
        self._stall_timer: asyncio.TimerHandle | None = None

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=EVENT_ROOM_BYTES, low=EVENT_ROOM_BYTES // 4)
        sock = transport.get_extra_info("socket")
        self.peer_uid, self.peer_pid = peer_of(sock)
        self.peer = Peer(sock, self.peer_pid)
        refusal = self.endpoint.opened(self)
        if refusal is not None:
            transport.pause_reading()
            transport.write(error_line(_NULL_ID, refusal.encode()))
            transport.close()
            return
        self.open = True

    def data_received(self, data: bytes) -> None:
        if not self.open:
            return
        lines, overflow = self._framer.feed(data)
        for line in lines:
            if self._parked or self._barrier or self.in_flight >= REQUESTS_IN_FLIGHT_MAX:
                self._parked.append(line)
            else:
                self._accept(line)
        if overflow is not None:
            self._overflow = overflow
        if self._parked:
            self._pause("parked")
        elif self._overflow is not None:
            self._reject("oversize", self._overflow.seen)

    def eof_received(self) -> bool:
        """A client that closed its sending side still gets its answers."""
        self._half_closed = True
        self._close_when_done()
        return self.open

    def connection_lost(self, exc: Exception | None) -> None:
        if self.open or self._transport is not None:
            was_open, self.open = self.open, False
            self._transport = None
            if self.peer is not None:
                self.peer.close()
            self._parked.clear()
            if self._stall_timer is not None:
                self._stall_timer.cancel()
            if was_open or self.peer_uid >= 0:
                self.endpoint.closed(self)

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        self._unstall()
        self.kernel.bus.resume(self)

    # -- requests ----------------------------------------------------------------------------------

    def _accept(self, line: bytes) -> None:
        if not self.open:
            return
        try:
            request = decode_request(line)
        except MalformedFrame as malformed:
            self._reject(malformed.reason, len(line))
            return
        self.in_flight += 1
        self.requests += 1
        call = RouterCall(self, request.method, bytes(request.params), bytes(request.id))
        if request.jsonrpc != "2.0":
            call.fail(_bad_version())
            return
        if request.method == "session.attach":
            self._barrier = True
        self.endpoint.accept(call)

    def finished(self, method: str, code: str, line: bytes) -> None:
        """A request got its answer: write it, and go on with what waited for that."""
        self.in_flight -= 1
        self.kernel.metrics.count("shoal_requests_total", self.endpoint_name, method, code)
        if line:
            self.write(line)
        if method == "session.attach":
            self._barrier = False
        if self._parked:
            self.kernel.loop.call_soon(self._unpark)
        elif self._half_closed:
            self._close_when_done()

    def _unpark(self) -> None:
        while (
            self._parked
            and self.open
            and not self._barrier
            and self.in_flight < REQUESTS_IN_FLIGHT_MAX
        ):
            self._accept(self._parked.popleft())
        if not self._parked:
            self._resume("parked")
            if self._overflow is not None:
                self._reject("oversize", self._overflow.seen)
            elif self._half_closed:
                self._close_when_done()

    def _reject(self, reason: str, size: int) -> None:
        log.warning(
            "frame.rejected",
            conn=self.number,
            endpoint=self.endpoint_name,
            reason=reason,
            bytes=size,
        )
        self.kernel.metrics.count("shoal_frames_rejected_total", self.endpoint_name, reason)
        self.close()

    # -- output ------------------------------------------------------------------------------------

    def write(self, line: bytes) -> None:
        """Queue one whole line; on a closed connection it is dropped."""
        transport = self._transport
        if transport is None or not self.open:
            return
        transport.write(line)
        self._queued_bytes += len(line)
        if self._congested and transport.get_write_buffer_size() > OUTGOING_BYTES_MAX:
            self._stall()

    def offer(self, line: bytes) -> bool:
        """Queue one event line if there is room; False: wait for `Bus.resume`."""
        transport = self._transport
        if transport is None or not self.open:
            return True
        if self._congested:
            return False
        transport.write(line)
        self._queued_bytes += len(line)
        return True

    def moved(self) -> int:
        """Bytes that left towards the client since the connection began."""
        transport = self._transport
        return self._queued_bytes - (transport.get_write_buffer_size() if transport else 0)

    def _stall(self) -> None:
        self._pause("stalled")
        if self._stall_timer is None:
            self._moved_bytes = self.moved()
            self._stall_timer = self.kernel.loop.call_later(STALL_S, self._check_stall)

    def _check_stall(self) -> None:
        self._stall_timer = None
        if self.moved() == self._moved_bytes:
            log.warning("conn.close", conn=self.number, reason="stalled")
            self.abort()
        else:
            self._stall()

    def _unstall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._resume("stalled")

    # -- flow and end ------------------------------------------------------------------------------

    def _pause(self, reason: str) -> None:
        if not self._reasons and self._transport is not None and not self._half_closed:
            self._transport.pause_reading()
        self._reasons.add(reason)

    def _resume(self, reason: str) -> None:
        if reason in self._reasons:
            self._reasons.discard(reason)
            if not self._reasons and self._transport is not None and not self._half_closed:
                self._transport.resume_reading()

    def _close_when_done(self) -> None:
        if self.in_flight == 0 and not self._parked:
            self.close()

    def close(self) -> None:
        """End the connection after what is queued for the client was written."""
        transport, self._parked = self._transport, deque()
        self.open = False
        if transport is not None:
            transport.close()

    def abort(self) -> None:
        """End the connection now."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()


def _bad_version() -> RpcError:
    return RpcError(Code.INVALID_REQUEST, "invalid JSON-RPC version", "invalid_request")


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """The uid and pid of the peer, from the operating system; pid 0 when unknown."""
    if hasattr(socket, "SO_PEERCRED"):
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        pid, uid, _gid = _PEERCRED.unpack(raw)
        return uid, pid
    # macOS: struct xucred of LOCAL_PEERCRED starts with version and uid.
    raw = sock.getsockopt(0, 1, 76)
    _version, uid = struct.unpack_from("II", raw)
    return uid, 0
