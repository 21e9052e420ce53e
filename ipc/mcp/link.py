"""A connection to the kernel that is made when it is needed and attached before it is used.

Failure: McpError -32603 for everything between here and the kernel; RpcError for what the kernel
answers. A call whose answer was lost is never sent again: it may have had its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ipc.client.aio import AsyncClient
from ipc.client.errors import ClientError, EmptyAnswer
from ipc.client.protocol import Event, Notice
from ipc.jsonrpc import RpcError
from ipc.mcp.frames import INTERNAL_ERROR, McpError

CLIENT: Final = {"kind": "mcp", "tty": False}


class Target(msgspec.Struct, frozen=True):
    """Which kernel, and as whom."""

    socket: Path
    session: str | None
    token: str | None
    autostart: bool
    # Refuse a listener of another user: for sockets that nobody named.
    check_owner: bool
    environ: Mapping[str, str]


def error_object(error: RpcError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "data": error.data}


def kernel_error_text(error: RpcError) -> str:
    return "kernel error: " + msgspec.json.encode(error_object(error)).decode()


class Link:
    # `_client` is replaced under `_opening` only; None while there is no use for one.
    _client: AsyncClient | None

    def __init__(
        self,
        target: Target,
        log: Callable[[str], None],
        on_event: Callable[[Event], None] | None = None,
        on_open: Callable[[AsyncClient], Awaitable[None]] | None = None,
    ) -> None:
        self._target = target
        self._log = log
        self._on_event = on_event
        self._on_open = on_open
        self._opening = asyncio.Lock()
        self._client = None

    async def open(self, *, autostart: bool = True) -> AsyncClient:
        """The attached connection. Raises NotReachable, RpcError and other ClientErrors."""
        async with self._opening:
            if self._client is not None and not self._client.lost:
                return self._client
            await self._drop()
            target = self._target
            client = await AsyncClient.connect(
                target.socket,
                autostart=autostart and target.autostart,
                environ=target.environ,
                check_owner=target.check_owner,
                on_notice=self._notice,
                on_event=self._on_event,
            )
            try:
                await client.attach(target.session, token=target.token, client=CLIENT)
                if self._on_open is not None:
                    await self._on_open(client)
            except BaseException:
                await client.close()
                raise
            self._client = client
            return client

    async def call(self, method: str, params: Any) -> Any:
        """The kernel's result. Raises RpcError and McpError."""
        try:
            client = await self.open()
        except RpcError as error:
            raise McpError(INTERNAL_ERROR, kernel_error_text(error), error_object(error)) from error
        except ClientError as error:
            raise McpError(INTERNAL_ERROR, str(error)) from error
        try:
            return await client.call(method, params)
        except EmptyAnswer as error:
            raise McpError(INTERNAL_ERROR, str(error)) from error
        except ClientError as error:
            raise McpError(INTERNAL_ERROR, "kernel disconnected") from error

    @property
    def connected(self) -> bool:
        return self._client is not None and not self._client.lost

    async def close(self) -> None:
        async with self._opening:
            await self._drop()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _notice(self, notice: Notice) -> None:
        if notice.method == "kernel":
            self._log(f"kernel: {msgspec.json.encode(notice.params).decode()}")
