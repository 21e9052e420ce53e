"""The blocking client of the kernel endpoint, for commands and scripts without an event loop.

    with Client.connect(path, autostart=True) as client:
        client.attach("work")
        answer = client.call("exec", {"src": "6 * 7", "position": "value"})

Same rules as `AsyncClient`. One thread reads the connection; calls may come from any thread, and
each waits for its own reply only. A wait can be interrupted by a signal (Ctrl-C) like any other.

Failure: RpcError for error answers, NotReachable when no kernel answers, ConnectionLost for calls
that were open when the connection ended, ClientClosed after `close`, TimeoutError where a timeout
was given.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Self

from ipc.client.autostart import ensure_kernel
from ipc.client.credentials import check_listener
from ipc.client.errors import ClientClosed, ClientError, ConnectionLost, NotReachable
from ipc.client.protocol import (
    READ_BYTES,
    Event,
    EventQueue,
    Exchange,
    Notice,
    NoticeHandler,
    Reply,
    backoff,
)
from ipc.jsonrpc import RpcError


class Subscription:
    """The events of one channel, in order; iterate over it. Ends when the client is closed."""

    # Filled by the reader thread, emptied by the consumer, both under the client's lock; `_more` is
    # a condition on that lock. `last_seq` is the newest event taken.
    def __init__(self, client: Client, channel: str, since: int | None) -> None:
        self.channel = channel
        self.last_seq = since
        self._client = client
        self._queue = EventQueue()
        self._more = threading.Condition(client._lock)
        self._ended = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.take()
        if event is None:
            raise StopIteration
        return event

    def take(self, timeout: float | None = None) -> Event | None:
        """The next event; None at the end. Raises TimeoutError."""
        with self._more:
            if not self._more.wait_for(lambda: self._queue or self._ended, timeout):
                raise TimeoutError
            if not self._queue:
                return None
            event = self._queue.take()
            self.last_seq = event.seq
            return event

    def close(self) -> None:
        """Unsubscribe; the iteration ends."""
        self._client._unsubscribe(self)

    def _put(self, event: Event) -> None:
        self._queue.put(event)
        self._more.notify_all()

    def _end(self) -> None:
        self._ended = True
        self._more.notify_all()


class _Prepared(NamedTuple):
    """A request that is expected to be answered but not yet sent."""

    connection: socket.socket
    line: bytes
    answer: Future[Any]


class Client:
    """One connection to a kernel, made again when asked to."""

    # Everything below is changed under `_lock`, except that only the reader thread replaces
    # `_socket` and `_exchange`, and writes are kept whole by `_sending`. `_usable` is a condition
    # on `_lock`: there is an attached connection, or `_failure` says why there never will be.
    _socket: socket.socket | None
    _exchange: Exchange
    _pending: dict[int, Future[Any]]
    _subscriptions: dict[str, Subscription]
    _attachment: dict[str, Any] | None
    _failure: Exception | None
    _ready: bool

    def __init__(
        self, path: Path, *, reconnect: bool, check_owner: bool, on_notice: NoticeHandler | None
    ) -> None:
        self.path = path
        self._reconnect = reconnect
        self._check_owner = check_owner
        self._on_notice = on_notice
        self._lock = threading.RLock()
        self._usable = threading.Condition(self._lock)
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._socket = None
        self._exchange = Exchange()
        self._pending = {}
        self._subscriptions = {}
        self._attachment = None
        self._failure = None
        self._ready = False
        self._pauses = backoff()
        self._reader: threading.Thread | None = None

    @classmethod
    def connect(
        cls,
        path: str | os.PathLike[str],
        *,
        autostart: bool = False,
        environ: Mapping[str, str] | None = None,
        reconnect: bool = False,
        check_owner: bool = False,
        on_notice: NoticeHandler | None = None,
    ) -> Self:
        """Connect, starting a kernel first when `autostart` and none listens. Raises NotReachable.

        `check_owner` refuses a listener of another user (for derived paths); `on_notice` is called
        from the reader thread with notifications that are no events.
        """
        client = cls(Path(path), reconnect=reconnect, check_owner=check_owner, on_notice=on_notice)
        try:
            client._open()
        except NotReachable:
            if not autostart:
                raise
            ensure_kernel(client.path, os.environ if environ is None else environ)
            client._open()
        client._ready = True
        client._reader = threading.Thread(target=client._run, name="shoal-client", daemon=True)
        client._reader.start()
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, params: object = None, *, timeout: float | None = None) -> Any:
        """Call a method and return its result. Waits for a reconnect that is under way."""
        return self.start(method, params).result(timeout)

    def start(self, method: str, params: object = None) -> Future[Any]:
        """Send a call and return at once; the result is in the future."""
        with self._usable:
            self._wait_usable()
            prepared = self._prepare(method, params)
        return self._send(prepared)

    def attach(
        self,
        session: str | None = None,
        *,
        token: str | None = None,
        client: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Attach to a session, and again after every reconnect. Returns the attach result."""
        params = {"session": session, "token": token, "client": client}
        answer: dict[str, Any] = self.call("session.attach", params)
        self._attachment = params
        return answer

    def subscribe(self, channel: str, since: int | None = None) -> Subscription:
        """Subscribe to a channel: what is after `since` (absent: what the kernel still holds in
        memory), then what comes. One subscription per channel and client."""
        subscription = Subscription(self, channel, since)
        with self._usable:
            self._wait_usable()
            prepared = self._prepare("events.subscribe", {"channel": channel, "since": since})
            replaced = self._subscriptions.pop(channel, None)
            if replaced is not None:
                replaced._end()
            # In place before the answer: events may come first.
            self._subscriptions[channel] = subscription
        try:
            self._send(prepared).result()
        except BaseException:
            with self._lock:
                if self._subscriptions.get(channel) is subscription:
                    del self._subscriptions[channel]
            raise
        return subscription

    def close(self) -> None:
        """End the connection. Open calls fail with ClientClosed, iterations end. Idempotent."""
        self._closing.set()
        self._finish(ClientClosed())
        reader = self._reader
        if reader is not None and reader is not threading.current_thread():
            reader.join()

    def _wait_usable(self) -> None:
        self._usable.wait_for(lambda: self._ready or self._failure is not None)

    def _prepare(self, method: str, params: object) -> _Prepared:
        """Number a request and expect its answer; the caller holds the lock."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._socket is None:
            raise ConnectionLost
        number, line = self._exchange.request(method, params)
        answer: Future[Any] = Future()
        # From here on it cannot be cancelled, so whoever settles it need not ask.
        answer.set_running_or_notify_cancel()
        self._pending[number] = answer
        return _Prepared(self._socket, line, answer)

    def _send(self, prepared: _Prepared) -> Future[Any]:
        """Write a prepared request. The lock is not held meanwhile: the reader thread needs it to
        take answers in, without which the kernel may stop reading."""
        # A failing write is not reported from here. The reader thread sees the end of the stream
        # too, after what the kernel still said (perhaps why it refuses us), and fails every call.
        with self._sending, contextlib.suppress(OSError):
            prepared.connection.sendall(prepared.line)
        return prepared.answer

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._lock:
            known = self._subscriptions.get(subscription.channel) is subscription
            if known:
                del self._subscriptions[subscription.channel]
            subscription._end()
        if known and self._ready:
            with contextlib.suppress(ClientError, RpcError):
                self.call("events.unsubscribe", {"channel": subscription.channel})

    def _open(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.path))
            if self._check_owner:
                check_listener(connection, self.path)
        except OSError as error:
            connection.close()
            raise NotReachable(self.path, error.strerror or str(error)) from error
        except NotReachable:
            connection.close()
            raise
        with self._lock:
            if self._failure is not None:
                connection.close()
                return
            self._exchange = Exchange()
            self._socket = connection

    def _run(self) -> None:
        """Read until the client is closed or, without `reconnect`, the connection ends."""
        try:
            while self._failure is None:
                self._read()
                self._lose()
                if not self._reconnect:
                    raise ConnectionLost
                self._open_again()
        except (ClientError, RpcError) as error:
            self._finish(error)
        finally:
            self._finish(ConnectionLost())

    def _read(self) -> None:
        connection = self._socket
        while connection is not None:
            try:
                data = connection.recv(READ_BYTES)
            except OSError:
                return
            if not data:
                return
            for message in self._exchange.feed(data):
                self._dispatch(message)

    def _dispatch(self, message: Reply | Event | Notice) -> None:
        if isinstance(message, Reply):
            with self._lock:
                answer = self._pending.pop(message.number, None)
            if answer is None:
                return
            if message.error is not None:
                answer.set_exception(message.error)
            else:
                answer.set_result(message.result)
        elif isinstance(message, Event):
            with self._lock:
                subscription = self._subscriptions.get(message.channel)
                if subscription is not None:
                    subscription._put(message)
        elif self._on_notice is not None:
            self._on_notice(message)

    def _lose(self) -> None:
        """Forget a connection that ended."""
        with self._lock:
            self._ready = False
            connection, self._socket = self._socket, None
            self._fail_pending(ConnectionLost())
        if connection is not None:
            connection.close()

    def _open_again(self) -> None:
        for pause in self._pauses:
            if self._closing.wait(pause):
                return
            try:
                self._open()
            except NotReachable:
                continue
            break
        # The reader thread cannot wait for answers that it has to read itself.
        threading.Thread(target=self._resume, name="shoal-client-resume", daemon=True).start()

    def _resume(self) -> None:
        """Repeat the attachment and the subscriptions on a new connection."""
        try:
            if self._attachment is not None:
                self._call_now("session.attach", self._attachment)
            with self._lock:
                subscriptions = list(self._subscriptions.items())
            for channel, subscription in subscriptions:
                again = {"channel": channel, "since": subscription.last_seq}
                self._call_now("events.subscribe", again)
        except RpcError as error:
            # Refused (a revoked token, a session no longer shared): trying again cannot help.
            self._finish(error)
        except ClientError:
            # Lost once more; the reader thread notices too and goes on from there.
            return
        else:
            with self._usable:
                self._pauses = backoff()
                self._ready = self._socket is not None
                self._usable.notify_all()

    def _call_now(self, method: str, params: object) -> Any:
        with self._lock:
            prepared = self._prepare(method, params)
        return self._send(prepared).result()

    def _fail_pending(self, error: Exception) -> None:
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            answer.set_exception(error)

    def _finish(self, error: Exception) -> None:
        """The end of everything; the first reason stays."""
        with self._usable:
            if self._failure is None:
                self._failure = error
            connection, self._socket = self._socket, None
            self._ready = False
            self._fail_pending(self._failure)
            for subscription in self._subscriptions.values():
                subscription._end()
            self._subscriptions.clear()
            self._usable.notify_all()
        if connection is not None:
            # Wakes the reader thread out of its recv; close alone would not.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
