"""The worker's end of the control channel: blocking, shared by the I/O thread and evaluator
threads.

One thread receives; any thread may send. A message is written whole under the send lock, so
messages never interleave. Contents above INLINE_CONTENT_BYTES_MAX leave as sealed memory files
whose descriptors travel with the frame.

Failure: `receive` returns None when the router is gone; `send` raises LinkClosed then. Bytes that
are no message raise ProtocolError: the channel comes from the router alone, so the worker ends.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import socket
import sys
import threading
from collections import deque
from typing import Final

from ipc.framing import CONTROL_HEADER, FRAME_FDS_MAX, FrameSplitter, control_frame
from ipc.messages import (
    INLINE_CONTENT_BYTES_MAX,
    Content,
    FromWorker,
    ToWorker,
    decode_to_worker,
    encode,
)

_READ_BYTES: Final = 256 * 1024
# Values of linux/fcntl.h; Python's fcntl module names them too late (3.12) for the oldest version.
_F_ADD_SEALS: Final = 1033
_SEALS: Final = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write


class LinkClosed(Exception):
    """The router closed the channel or is gone."""


class Link:
    # `_received` holds decoded messages not yet given out, `_fds` descriptors that arrived before
    # their frame was complete; both belong to the receiving thread. `_pack` buffers descriptors of
    # the frame being built and is guarded by `_send_lock`.

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(True)
        self._send_lock = threading.Lock()
        self._splitter = FrameSplitter()
        self._received: deque[tuple[ToWorker, list[int]]] = deque()
        self._fds: deque[int] = deque()

    def fileno(self) -> int:
        return self._sock.fileno()

    def wait(self, seconds: float) -> bool:
        """Whether something is there to receive within the time."""
        return bool(self._received) or bool(select.select([self._sock], [], [], seconds)[0])

    def receive(self) -> tuple[ToWorker, list[int]] | None:
        """The next message with its descriptors; None at the end of the channel."""
        while not self._received:
            data, ancillary, _flags, _address = self._sock.recvmsg(
                _READ_BYTES,
                socket.CMSG_SPACE(FRAME_FDS_MAX * 4),
                socket.MSG_CMSG_CLOEXEC if hasattr(socket, "MSG_CMSG_CLOEXEC") else 0,
            )
            if not data:
                return None
            self._keep_descriptors(ancillary)
            for payload, count in self._splitter.feed(data):
                fds = [self._fds.popleft() for _ in range(count)]
                self._received.append((decode_to_worker(payload), fds))
        return self._received.popleft()

    def _keep_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, body in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
                for fd in fds:
                    os.set_inheritable(fd, False)
                    self._fds.append(fd)

    def send(self, message: FromWorker, fds: list[int] | None = None) -> None:
        """Write one message; the descriptors stay the caller's."""
        frame = control_frame(encode(message), len(fds) if fds else 0)
        with self._send_lock:
            try:
                if fds:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                    sent = self._sock.sendmsg([frame[: CONTROL_HEADER.size]], rights)
                    self._sock.sendall(frame[sent:])
                else:
                    self._sock.sendall(frame)
            except OSError as error:
                raise LinkClosed from error

    def close(self) -> None:
        self._sock.close()


class Parcel:
    """Collects contents for one message; large ones become sealed memory files.

    Use as a context manager: the descriptors are closed at its end, after the message was sent.
    """

    __slots__ = ("fds",)

    def __init__(self) -> None:
        self.fds: list[int] = []

    def content(self, data: bytes) -> Content:
        if len(data) <= INLINE_CONTENT_BYTES_MAX or len(self.fds) >= FRAME_FDS_MAX:
            return Content(data)
        self.fds.append(memory_file(data))
        return Content(b"", len(self.fds) - 1, len(data))

    def descriptor(self, fd: int, length: int) -> Content:
        """Send along a descriptor that exists already; it is closed with the parcel."""
        self.fds.append(fd)
        return Content(b"", len(self.fds) - 1, length)

    def __enter__(self) -> Parcel:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


def memory_file(data: bytes) -> int:
    """A descriptor of an anonymous file with this content, sealed where the platform can."""
    if sys.platform == "linux":
        fd = os.memfd_create("shoal-content", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        import tempfile

        fd, name = tempfile.mkstemp()
        os.unlink(name)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    if sys.platform == "linux":
        fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
    return fd


def read_content(content: Content, fds: list[int]) -> bytes:
    """The bytes of a received content; closes its descriptor."""
    if content.fd < 0:
        return content.data
    fd = fds[content.fd]
    try:
        chunks = []
        offset = 0
        while offset < content.length:
            piece = os.pread(fd, min(content.length - offset, 1 << 24), offset)
            if not piece:
                break
            chunks.append(piece)
            offset += len(piece)
        return b"".join(chunks)
    finally:
        os.close(fd)
