"""The asyncio client of the kernel endpoint.

    async with await AsyncClient.connect(path) as client:
        await client.attach("work")
        answer = await client.call("exec", {"src": "6 * 7", "position": "value"})

One task reads the connection and hands each reply to the call that waits for it and each event to
its subscription; any number of calls may be open at once. With `reconnect` a lost connection is
made again with growing pauses, the last attachment repeated and the subscriptions resumed after
the last event they saw. A call whose answer was lost is never repeated: it fails with
ConnectionLost, and whether it took effect is for the caller to find out.

Failure: RpcError for error answers, NotReachable when no kernel answers, ConnectionLost for calls
that were open when the connection ended, ClientClosed after `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

from ipc.client.autostart import ensure_kernel
from ipc.client.credentials import check_listener
from ipc.client.errors import ClientClosed, ClientError, ConnectionLost, NotReachable
from ipc.client.protocol import (
    READ_BYTES,
    Event,
    EventHandler,
    EventQueue,
    Exchange,
    Notice,
    NoticeHandler,
    Reply,
    backoff,
)
from ipc.jsonrpc import RpcError


class AsyncSubscription:
    """The events of one channel, in order; iterate over it. Ends when the client is closed."""

    # Filled by the reader task, emptied by the consumer; `_more` is set while there is something
    # to see. `last_seq` is the newest event taken, from where a reconnect resumes.
    def __init__(self, client: AsyncClient, channel: str, since: int | None) -> None:
        self.channel = channel
        self.last_seq = since
        self._client = client
        self._queue = EventQueue()
        self._more = asyncio.Event()
        self._ended = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        event = self._queue.take()
        self.last_seq = event.seq
        return event

    async def close(self) -> None:
        """Unsubscribe; the iteration ends."""
        await self._client._unsubscribe(self)

    def _put(self, event: Event) -> None:
        self._queue.put(event)
        self._more.set()

    def _end(self) -> None:
        self._ended = True
        self._more.set()


class AsyncClient:
    """One connection to a kernel, made again when asked to."""

    # All of it belongs to the event loop's thread. `_socket` is None while there is no connection;
    # `_connected` is set exactly while there is one that is attached again. `_outgoing` holds lines
    # that the writer task has not taken yet; each belongs to an open call. `_failure` ends
    # everything: once set, it stays, and every call raises it.
    _socket: socket.socket | None
    _outgoing: list[bytes]
    _exchange: Exchange
    _pending: dict[int, asyncio.Future[Any]]
    _subscriptions: dict[str, AsyncSubscription]
    _attachment: dict[str, Any] | None
    _failure: Exception | None

    def __init__(
        self,
        path: Path,
        *,
        reconnect: bool,
        check_owner: bool,
        on_notice: NoticeHandler | None,
        on_event: EventHandler | None = None,
    ) -> None:
        self.path = path
        self._reconnect = reconnect
        self._check_owner = check_owner
        self._on_notice = on_notice
        self._on_event = on_event
        self._socket = None
        self._outgoing = []
        self._to_write = asyncio.Event()
        self._exchange = Exchange()
        self._pending = {}
        self._subscriptions = {}
        self._attachment = None
        self._failure = None
        self._connected = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._pauses = backoff()

    @classmethod
    async def connect(
        cls,
        path: str | os.PathLike[str],
        *,
        autostart: bool = False,
        environ: Mapping[str, str] | None = None,
        reconnect: bool = False,
        check_owner: bool = False,
        on_notice: NoticeHandler | None = None,
        on_event: EventHandler | None = None,
    ) -> Self:
        """Connect, starting a kernel first when `autostart` and none listens. Raises NotReachable.

        `check_owner` refuses a listener of another user (for derived paths); `on_notice` is called
        with notifications that are no events, `on_event` with events of channels that were
        subscribed with `call` and not with `subscribe`.
        """
        client = cls(
            Path(path),
            reconnect=reconnect,
            check_owner=check_owner,
            on_notice=on_notice,
            on_event=on_event,
        )
        try:
            connection = await client._open()
        except NotReachable:
            if not autostart:
                raise
            variables = os.environ if environ is None else environ
            await asyncio.to_thread(ensure_kernel, client.path, variables)
            connection = await client._open()
        client._connected.set()
        client._runner = asyncio.create_task(client._run(connection))
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, method: str, params: object = None) -> Any:
        """Call a method and return its result. Waits for a reconnect that is under way.

        Cancelling the wait drops the answer; what the kernel does is not undone by that.
        """
        await self._connected.wait()
        return await self._call(method, params)

    async def attach(
        self,
        session: str | None = None,
        *,
        token: str | None = None,
        client: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Attach to a session, and again after every reconnect. Returns the attach result."""
        params = {"session": session, "token": token, "client": client}
        answer: dict[str, Any] = await self.call("session.attach", params)
        self._attachment = params
        return answer

    async def subscribe(self, channel: str, since: int | None = None) -> AsyncSubscription:
        """Subscribe to a channel: what is after `since` (absent: what the kernel still holds in
        memory), then what comes. One subscription per channel and client."""
        await self._connected.wait()
        subscription = AsyncSubscription(self, channel, since)
        replaced = self._subscriptions.pop(channel, None)
        if replaced is not None:
            replaced._end()
        # In place before the answer: events may come first.
        self._subscriptions[channel] = subscription
        try:
            await self._call("events.subscribe", {"channel": channel, "since": since})
        except BaseException:
            if self._subscriptions.get(channel) is subscription:
                del self._subscriptions[channel]
            raise
        return subscription

    @property
    def lost(self) -> bool:
        """Whether there is no connection now, or its other end has hung up."""
        connection = self._socket
        if connection is None:
            return True
        poll = select.poll()
        poll.register(connection, select.POLLHUP | getattr(select, "POLLRDHUP", 0))
        return bool(poll.poll(0))

    async def ended(self) -> None:
        """Return when the client is finished: closed, refused, or lost without `reconnect`."""
        if self._runner is not None:
            await asyncio.wait({self._runner})

    async def close(self) -> None:
        """End the connection. Open calls fail with ClientClosed, iterations end. Idempotent."""
        self._finish(ClientClosed())
        for task in (self._runner, self._resuming):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _call(self, method: str, params: object) -> Any:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._socket is None:
            raise ConnectionLost
        number, line = self._exchange.request(method, params)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        self._outgoing.append(line)
        self._to_write.set()
        try:
            return await answer
        finally:
            self._pending.pop(number, None)

    async def _unsubscribe(self, subscription: AsyncSubscription) -> None:
        if self._subscriptions.get(subscription.channel) is subscription:
            del self._subscriptions[subscription.channel]
            if self._socket is not None:
                with contextlib.suppress(ClientError, RpcError):
                    await self._call("events.unsubscribe", {"channel": subscription.channel})
        subscription._end()

    async def _open(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(self.path))
            if self._check_owner:
                check_listener(connection, self.path)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise NotReachable(self.path, error.strerror or str(error)) from error
            raise
        self._exchange = Exchange()
        self._socket = connection
        return connection

    async def _run(self, connection: socket.socket) -> None:
        """Serve connections until the client is closed or, without `reconnect`, the first ends."""
        try:
            while True:
                await self._serve(connection)
                if self._failure is not None:
                    return
                self._lose()
                if not self._reconnect:
                    raise ConnectionLost
                connection = await self._open_again()
                # Its calls are answered by the next round of this loop.
                self._resuming = asyncio.create_task(self._resume())
        except (ClientError, RpcError) as error:
            self._finish(error)
        finally:
            # Whatever else ended the reader: nobody waits for answers that cannot come.
            self._finish(ConnectionLost())

    async def _serve(self, connection: socket.socket) -> None:
        """Read one connection to its end, with a writer beside."""
        writer = asyncio.create_task(self._write(connection))
        try:
            await self._read(connection)
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer
            connection.close()

    async def _read(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await loop.sock_recv(connection, READ_BYTES)
            except OSError:
                return
            if not data:
                return
            for message in self._exchange.feed(data):
                self._dispatch(message)

    async def _write(self, connection: socket.socket) -> None:
        """Send what the calls leave in `_outgoing`, many lines at a time.

        A task of its own, so that a call that is cancelled never leaves half a line behind. A
        failing write is not reported from here: the reader sees the end of the stream too, after
        what the kernel still said (perhaps why it refuses us), and fails every open call.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            lines, self._outgoing = self._outgoing, []
            try:
                await loop.sock_sendall(connection, b"".join(lines))
            except OSError:
                return

    def _dispatch(self, message: Reply | Event | Notice) -> None:
        if isinstance(message, Reply):
            answer = self._pending.pop(message.number, None)
            if answer is None or answer.done():
                return
            if message.error is not None:
                answer.set_exception(message.error)
            else:
                answer.set_result(message.result)
        elif isinstance(message, Event):
            subscription = self._subscriptions.get(message.channel)
            if subscription is not None:
                subscription._put(message)
            elif self._on_event is not None:
                self._on_event(message)
        elif self._on_notice is not None:
            self._on_notice(message)

    def _lose(self) -> None:
        """Forget a connection that ended."""
        self._connected.clear()
        self._socket = None
        self._outgoing.clear()
        self._fail_pending(ConnectionLost())

    async def _open_again(self) -> socket.socket:
        for pause in self._pauses:
            await asyncio.sleep(pause)
            try:
                return await self._open()
            except NotReachable:
                continue
        raise ConnectionLost

    async def _resume(self) -> None:
        """Repeat the attachment and the subscriptions on a new connection."""
        try:
            if self._attachment is not None:
                await self._call("session.attach", self._attachment)
            for channel, subscription in list(self._subscriptions.items()):
                again = {"channel": channel, "since": subscription.last_seq}
                await self._call("events.subscribe", again)
        except RpcError as error:
            # Refused (a revoked token, a session no longer shared): trying again cannot help.
            self._finish(error)
        except ClientError:
            # Lost once more; the reader task notices too and goes on from there.
            return
        else:
            self._pauses = backoff()
            self._connected.set()

    def _fail_pending(self, error: Exception) -> None:
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_exception(error)

    def _finish(self, error: Exception) -> None:
        """The end of everything; the first reason stays."""
        if self._failure is None:
            self._failure = error
        connection, self._socket = self._socket, None
        if connection is not None:
            # Ends the reader's wait; the socket itself is closed where it is read.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._fail_pending(self._failure)
        # Calls that wait for a reconnect wake up and find `_failure`.
        self._connected.set()
        for subscription in self._subscriptions.values():
            subscription._end()
        self._subscriptions.clear()
