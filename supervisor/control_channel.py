"""The router's end of one worker's control channel: non-blocking, on the event loop.

Frames are read with their descriptors and handed to `on_message`; writes go out at once when the
socket takes them and are queued otherwise. Nothing a worker sends is trusted: frames are bounded,
messages typed, descriptors counted.

Failure: any violation of the protocol, an end of file or a socket error closes the channel and
calls `on_closed(reason)` exactly once; `send` on a closed channel does nothing.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from ipc.framing import (
    FRAME_FDS_MAX,
    FrameSplitter,
    FrameTooLarge,
    control_frame,
)
from ipc.messages import FromWorker, ProtocolError, ToWorker, decode_from_worker, encode

log = structlog.get_logger()

_READ_BYTES: Final = 256 * 1024
_CMSG_BYTES: Final = socket.CMSG_SPACE(FRAME_FDS_MAX * 4)
_RECV_FLAGS: Final[int] = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class ControlChannel:
    # `_queue` holds frames the socket did not take yet, each with the descriptors that travel with
    # its first byte; a writer is registered on the loop exactly while it is not empty. `_fds` are
    # descriptors received ahead of their frame. All of it changes on the loop's thread only.

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[FromWorker, list[int]], None],
        on_closed: Callable[[str], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = loop
        self._on_message = on_message
        self._on_closed = on_closed
        self._splitter = FrameSplitter()
        self._queue: deque[tuple[memoryview, list[int]]] = deque()
        self._fds: deque[int] = deque()
        self._open = True
        loop.add_reader(sock.fileno(), self._readable)

    def send(self, message: ToWorker, fds: list[int] | None = None) -> None:
        """Queue one message. The descriptors become the channel's and are closed when sent."""
        if not self._open:
            for fd in fds or ():
                os.close(fd)
            return
        frame = control_frame(encode(message), len(fds) if fds else 0)
        if not self._queue and not fds:
            try:
                sent = self._sock.send(frame)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self.close(f"send: {error.strerror}")
                return
            if sent == len(frame):
                return
            self._queue.append((memoryview(frame)[sent:], []))
        else:
            self._queue.append((memoryview(frame), list(fds or ())))
        self._loop.add_writer(self._sock.fileno(), self._writable)

    def _writable(self) -> None:
        while self._queue:
            piece, fds = self._queue[0]
            try:
                if fds:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                    sent = self._sock.sendmsg([piece], rights)
                else:
                    sent = self._sock.send(piece)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.close(f"send: {error.strerror}")
                return
            for fd in fds:
                os.close(fd)
            if sent < len(piece):
                self._queue[0] = (piece[sent:], [])
                return
            self._queue.popleft()
        self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        try:
            data, ancillary, _flags, _address = self._sock.recvmsg(
                _READ_BYTES, _CMSG_BYTES, _RECV_FLAGS
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive: {error.strerror}")
            return
        if not data:
            self.close("end of file")
            return
        for level, kind, body in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(body[: len(body) - len(body) % received.itemsize])
                self._fds.extend(received)
        try:
            frames = self._splitter.feed(data)
            for payload, count in frames:
                if count > len(self._fds):
                    raise ProtocolError("announced descriptors are missing")
                message = decode_from_worker(payload)
                fds = [self._fds.popleft() for _ in range(count)]
                self._on_message(message, fds)
                if not self._open:
                    return
            # A peer that sends descriptors without frames would exhaust ours.
            if len(self._fds) > FRAME_FDS_MAX:
                raise ProtocolError("descriptors without a frame")
        except (ProtocolError, FrameTooLarge) as error:
            self.close(f"protocol: {error}")
        except Exception:
            # A call that can get no answer any more must fail, and the router must go on.
            log.exception("worker.message")
            self.close("protocol: the message could not be handled")

    def close(self, reason: str) -> None:
        """Close the socket and report; harmless when closed before."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        for _piece, fds in self._queue:
            for fd in fds:
                os.close(fd)
        self._queue.clear()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        self._sock.close()
        self._on_closed(reason)
