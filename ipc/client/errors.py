"""What a client can fail with, beside the error answers of the kernel (`ipc.jsonrpc.RpcError`).

Failure: these are the failures.
"""

from __future__ import annotations

from pathlib import Path


class ClientError(Exception):
    """Any failure between this process and the kernel."""


class NotReachable(ClientError):
    """No kernel answers at the socket."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot reach the kernel at {path}: {reason}")
        self.path = path
        self.reason = reason


class ConnectionLost(ClientError):
    """The connection ended while an answer was awaited: whether the call took effect is unknown."""

    def __init__(self, reason: str = "kernel connection lost") -> None:
        super().__init__(reason)


class ClientClosed(ClientError):
    """The client was closed by its owner."""

    def __init__(self) -> None:
        super().__init__("the client is closed")


class ProtocolViolation(ClientError):
    """The other side sent something that is no frame of this protocol."""


class EmptyAnswer(ProtocolViolation):
    """An answer that carries neither a result nor an error."""

    def __init__(self) -> None:
        super().__init__("kernel response has neither result nor error")


class TokenFileError(ClientError):
    """A token file that must not or cannot be used. The text never holds the token."""
