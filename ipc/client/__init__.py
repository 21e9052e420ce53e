"""The client library of the kernel endpoint.

    from ipc.client import Client, socket_path

    with Client.connect(socket_path(os.environ), autostart=True) as client:
        client.attach("work")
        client.call("exec", {"src": "6 * 7", "position": "value"})["render"]   # "42"

`AsyncClient` is the same for asyncio.

Failure: `RpcError(code, message, data)` for error answers, the classes of `ipc.client.errors` for
everything between here and the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipc.client.blocking import Client, Subscription
from ipc.client.credentials import find_token, read_token_file
from ipc.client.errors import (
    ClientClosed,
    ClientError,
    ConnectionLost,
    NotReachable,
    ProtocolViolation,
    TokenFileError,
)
from ipc.client.locate import DEFAULT_SESSION, InvalidLabel, runtime_dir, socket_label, socket_path
from ipc.client.protocol import Event, Notice, NoticeHandler
from ipc.jsonrpc import Code, RpcError

if TYPE_CHECKING:
    from ipc.client.aio import AsyncClient, AsyncSubscription

__all__ = [
    "DEFAULT_SESSION",
    "AsyncClient",
    "AsyncSubscription",
    "Client",
    "ClientClosed",
    "ClientError",
    "Code",
    "ConnectionLost",
    "Event",
    "InvalidLabel",
    "NotReachable",
    "Notice",
    "NoticeHandler",
    "ProtocolViolation",
    "RpcError",
    "Subscription",
    "TokenFileError",
    "find_token",
    "read_token_file",
    "runtime_dir",
    "socket_label",
    "socket_path",
]


def __getattr__(name: str) -> Any:
    # A command that blocks anyway must not pay for loading asyncio.
    if name in ("AsyncClient", "AsyncSubscription"):
        from ipc.client import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
