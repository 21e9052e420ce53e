"""The model broker: the one process that holds model keys and makes outbound HTTPS calls.

The router hands over a request with one end of a socket pair; the answer of the provider goes there
as frames: `head` (status, content type), `data`, then `end` or `error` (a text). The reader closing
its end cancels the call. Refusals that may pass are tried again before the first byte, as chapter
70 §18.2 says. Redirects are not followed, and nothing of a request is logged.

Failure: a call that fails ends its own stream with `error`; the end of the control channel ends the
process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
import msgspec

from ipc.messages import ModelRequest, Ping, Pong
from worker.link import Link, LinkClosed

RETRY_STATUS: Final = frozenset({429, 500, 502, 503, 504})
RETRY_PAUSES_S: Final = (0.5, 1.5)
RETRY_AFTER_S_MAX: Final = 30.0
_LENGTH: Final = struct.Struct("<I")
_ERROR_BYTES_MAX: Final = 64 * 1024


def serve(link: Link) -> None:
    """Serve until the control channel ends."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=_receive, args=(link, loop), name="broker link", daemon=True).start()
    loop.run_forever()


def _receive(link: Link, loop: asyncio.AbstractEventLoop) -> None:
    """Hand requests to the loop; runs on a thread, since the link blocks."""
    tasks: set[asyncio.Task[None]] = set()

    def start(request: ModelRequest, fd: int) -> None:
        task = loop.create_task(_call(request, fd))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    try:
        while (received := link.receive()) is not None:
            message, fds = received
            if isinstance(message, ModelRequest) and fds:
                loop.call_soon_threadsafe(start, message, fds[0])
            elif isinstance(message, Ping):
                link.send(Pong(message.number))
    except (LinkClosed, OSError):
        pass
    loop.call_soon_threadsafe(loop.stop)


class _Gone(Exception):
    """The reader closed its end."""


class _Stream:
    """The end of the socket pair that frames go to."""

    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)
        self._sock.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def send(self, *frame: Any) -> None:
        payload = msgspec.msgpack.encode(frame)
        try:
            await self._loop.sock_sendall(self._sock, _LENGTH.pack(len(payload)) + payload)
        except OSError as error:
            raise _Gone from error

    async def closed(self) -> None:
        """Until the reader closed its end."""
        try:
            while await self._loop.sock_recv(self._sock, 4096):
                pass
        except OSError:
            return

    def close(self) -> None:
        self._sock.close()


async def _call(request: ModelRequest, fd: int) -> None:
    stream = _Stream(fd)
    work = asyncio.ensure_future(_complete(request, stream))
    gone = asyncio.ensure_future(stream.closed())
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    finally:
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        stream.close()


async def _complete(request: ModelRequest, stream: _Stream) -> None:
    try:
        await _attempts(request, stream)
    except _Gone:
        return
    except httpx.TimeoutException as error:
        await _fail(stream, f"no byte within the time limit ({type(error).__name__})")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # The text of an error may hold the address, never a header.
        await _fail(stream, f"connection failed: {type(error).__name__}: {error}")


async def _fail(stream: _Stream, text: str) -> None:
    try:
        await stream.send("error", text)
    except _Gone:
        return


async def _attempts(request: ModelRequest, stream: _Stream) -> None:
    timeout = httpx.Timeout(
        connect=request.connect_s, read=request.idle_s, write=request.idle_s, pool=request.connect_s
    )
    async with httpx.AsyncClient(
        timeout=timeout, follow_redirects=False, trust_env=False
    ) as client:
        for pause_s in (*RETRY_PAUSES_S, None):
            try:
                wait_s = await _attempt(client, request, stream, pause_s)
            except httpx.ConnectError:
                if pause_s is None:
                    raise
                wait_s = pause_s
            if wait_s is None:
                return
            await asyncio.sleep(wait_s)


async def _attempt(
    client: httpx.AsyncClient, request: ModelRequest, stream: _Stream, pause_s: float | None
) -> float | None:
    """One attempt; how long to wait before the next one, None when it is over."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
    headers.update(request.headers)
    key = request.key
    if key is None and request.key_variable:
        key = os.environ.get(request.key_variable)
    if key:
        headers["Authorization"] = f"Bearer {key}"
    async with client.stream(
        "POST", request.url, headers=headers, content=request.body
    ) as response:
        if response.status_code in RETRY_STATUS and pause_s is not None:
            return _retry_after(response, pause_s)
        await stream.send("head", response.status_code, response.headers.get("content-type", ""))
        sent = 0
        async for piece in response.aiter_bytes():
            if piece:
                await stream.send("data", piece)
            sent += len(piece)
            if response.status_code >= 300 and sent > _ERROR_BYTES_MAX:
                break
        await stream.send("end")
    return None


def _retry_after(response: httpx.Response, pause_s: float) -> float:
    """What the server asks for, when it is not too long; else the usual pause."""
    text = response.headers.get("retry-after", "").strip()
    if not text:
        return pause_s
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return pause_s
    return max(pause_s, seconds) if 0 <= seconds <= RETRY_AFTER_S_MAX else pause_s
