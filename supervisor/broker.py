"""The model broker as the router sees it: one process, started when the first model is called.

For every call the router makes a pair of connected sockets: one end goes to the broker with
address, key and body, the other to the session's worker. What the model says never passes the
router, and the key never comes near a worker.

Failure: `call` raises OSError when no broker can be started. A broker that ends breaks the streams
it served, and the next call starts another.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

import structlog

from ipc.messages import FromWorker, ModelRequest
from supervisor.contents import close_all
from supervisor.control_channel import ControlChannel
from supervisor.launcher import Launched, LaunchFailed

if TYPE_CHECKING:
    from supervisor.agent.settings import Provider
    from supervisor.kernel import Kernel

log = structlog.get_logger()

TITLE: Final = "shoal:broker"


class Broker:
    # `_channel` leads to the running process, None when there is none; `_starting` is held while
    # one is started, so that two calls never start two.

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._channel: ControlChannel | None = None
        self._launched: Launched | None = None
        self._starting = asyncio.Lock()
        self.failure: str | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        return None if self._launched is None else self._launched.pid

    async def call(self, provider: Provider, body: bytes) -> int:
        """Start one chat completion; the descriptor its answer can be read from. Raises OSError."""
        async with self._starting:
            if self._channel is None:
                await self._start()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        channel = self._channel
        if channel is None:
            ours.close()
            theirs.close()
            raise OSError("it ended")
        request = ModelRequest(
            url=(provider.base_url or "").rstrip("/") + "/chat/completions",
            headers=list(provider.headers.items()),
            key=provider.api_key,
            key_variable=provider.api_key_env,
            body=body,
            connect_s=provider.connect_timeout_secs,
            idle_s=provider.idle_timeout_secs,
        )
        channel.send(request, [theirs.detach()])
        return ours.detach()

    async def _start(self) -> None:
        try:
            launched = await self._kernel.launcher.launch("model_broker", TITLE, {})
        except LaunchFailed as error:
            self.failure = str(error)
            raise OSError(str(error)) from error
        self.failure = None
        self._launched = launched
        self._channel = ControlChannel(
            launched.channel, self._kernel.loop, self._unexpected, self._ended
        )
        log.info("broker.start", worker=launched.pid)

    def _unexpected(self, _message: FromWorker, fds: list[int]) -> None:
        """The broker has nothing to say to the router."""
        close_all(fds)

    def _ended(self, reason: str) -> None:
        launched, self._launched = self._launched, None
        self._channel = None
        if launched is not None:
            launched.close()
        if reason != "shutdown":
            self.restarts += 1
            log.error("broker.exit", reason=reason)

    def close(self) -> None:
        """End the broker: it leaves when its channel ends."""
        if self._channel is not None:
            self._channel.close("shutdown")
