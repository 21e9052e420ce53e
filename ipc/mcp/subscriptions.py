"""Subscriptions: the event connection, its reconnects, and the notifications (chapter 80, 11).

Failure: `subscribe` and `unsubscribe` raise McpError and RpcError; a lost connection is made again
for as long as something is subscribed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from ipc.client.aio import AsyncClient
from ipc.client.errors import ClientError
from ipc.client.protocol import Event, EventQueue, backoff
from ipc.jsonrpc import RpcError
from ipc.mcp.frames import McpError, notification_line
from ipc.mcp.link import Link, Target, kernel_error_text
from ipc.mcp.registry import Registry
from ipc.mcp.uris import channel_of

# Writes a line, unless the condition, asked just before, says no.
Write = Callable[[bytes, Callable[[], bool]], Awaitable[None]]


class Subscriptions:
    # `_waiting` holds events by channel until `_pump` has written them; `_live` are the channels
    # that the kernel has agreed to; `_keeping` watches over the connection while there are any.
    def __init__(self, target: Target, write: Write, log: Callable[[str], None]) -> None:
        self._link = Link(target, log, self._arrived, self._resume)
        self._write = write
        self._log = log
        self._registry = Registry()
        self._waiting: dict[str, EventQueue] = {}
        self._live: set[str] = set()
        self._more = asyncio.Event()
        self._pumping = asyncio.create_task(self._pump())
        self._keeping: asyncio.Task[None] | None = None

    async def call(self, method: str, params: Any) -> Any:
        """A kernel call that must not wait behind the call connection's."""
        return await self._link.call(method, params)

    async def subscribe(self, uri: str) -> None:
        channel, since = channel_of(uri)
        if uri in self._registry:
            return
        self._registry.add(uri, channel, since)
        try:
            await self._link.call("events.subscribe", {"channel": channel, "since": since})
        except BaseException:
            if self._registry.remove(uri) == channel:
                self._waiting.pop(channel, None)
            raise
        self._live.add(channel)
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())

    async def unsubscribe(self, uri: str) -> None:
        if uri not in self._registry:
            return
        channel = self._registry.remove(uri)
        if channel is None:
            return
        self._live.discard(channel)
        self._waiting.pop(channel, None)
        if self._link.connected:
            # Without a connection the kernel has nothing to forget.
            with contextlib.suppress(McpError, RpcError):
                await self._link.call("events.unsubscribe", {"channel": channel})
        if not self._registry:
            await self._stop_keeping()
            await self._link.close()

    async def close(self) -> None:
        await self._stop_keeping()
        self._pumping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pumping
        await self._link.close()

    async def _stop_keeping(self) -> None:
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping

    def _arrived(self, event: Event) -> None:
        self._waiting.setdefault(event.channel, EventQueue()).put(event)
        self._more.set()

    async def _pump(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while channel := next((name for name, queue in self._waiting.items() if queue), None):
                await self._forward(self._waiting[channel].take())

    async def _forward(self, event: Event) -> None:
        for uri, params in self._registry.updates(event):
            line = notification_line("notifications/resources/updated", params)
            await self._write(line, lambda uri=uri: uri in self._registry)  # type: ignore[misc]

    async def _keep(self) -> None:
        """Reconnect and subscribe again whenever the connection ends."""
        while True:
            client = await self._reopened()
            await client.ended()
            self._log("event connection lost")

    async def _resume(self, client: AsyncClient) -> None:
        """Subscribe on a new connection what was subscribed on the one before."""
        for channel, last in self._registry.resume():
            if channel in self._live:
                params = {"channel": channel, "since": last}
                await client.call("events.subscribe", params)

    async def _reopened(self) -> AsyncClient:
        if self._link.connected:
            return await self._link.open(autostart=False)
        for pause in backoff():
            await asyncio.sleep(pause)
            try:
                return await self._link.open(autostart=False)
            except RpcError as error:
                self._log(kernel_error_text(error))
            except ClientError:
                continue
        raise AssertionError("backoff never ends")
