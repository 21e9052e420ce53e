"""A blocking client of the agent endpoint: requests, updates, and questions of the server.

Failure: NotReachable when nothing listens, RpcError for an error answer, ConnectionLost when the
connection ends meanwhile.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from ipc.client.errors import ConnectionLost, NotReachable
from ipc.jsonrpc import RpcError

# Gets the parameters of a `session/update`.
UpdateHandler = Callable[[dict[str, Any]], None]
# Gets the parameters of `elicitation/create`; its answer goes back as the result.
QuestionHandler = Callable[[dict[str, Any]], dict[str, Any]]

_PEERCRED: Final = struct.Struct("3i")


def _ignore(_update: dict[str, Any]) -> None:
    return None


def _decline(_question: dict[str, Any]) -> dict[str, Any]:
    return {"action": "decline"}


class AgentClient:
    # `_next` numbers our requests. Notifications and questions that come while an answer is awaited
    # go to `on_update` and `on_question` right away.

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")
        self._next = 1
        self.on_update: UpdateHandler = _ignore
        self.on_question: QuestionHandler = _decline

    @classmethod
    def connect(cls, path: Path) -> Self:
        """Connect, and check that the socket is our own user's."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(os.fspath(path))
        except OSError as error:
            sock.close()
            raise NotReachable(path, error.strerror or str(error)) from None
        if hasattr(socket, "SO_PEERCRED"):
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
            if _PEERCRED.unpack(raw)[1] != os.geteuid():
                sock.close()
                raise NotReachable(path, "the socket belongs to another user")
        return cls(sock)

    def initialize(self, **params: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.call("initialize", {"protocolVersion": 1, **params})
        return found

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a request and wait for its answer. Raises RpcError."""
        number = self.send(method, params)
        while True:
            frame = self._receive()
            if "method" in frame:
                self._take(frame)
            elif frame.get("id") == number:
                if "error" in frame:
                    error = frame["error"]
                    data = dict(error.get("data") or {})
                    kind = str(data.pop("kind", "unknown"))
                    raise RpcError(error["code"], error["message"], kind, **data)
                return frame["result"]

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request without waiting; its id."""
        number, self._next = self._next, self._next + 1
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        self._write(frame)
        return number

    def _take(self, frame: dict[str, Any]) -> None:
        if "id" not in frame:
            self.on_update(frame["params"])
        elif frame["method"] == "elicitation/create":
            answer = self.on_question(frame["params"])
            self._write({"jsonrpc": "2.0", "id": frame["id"], "result": answer})
        else:
            error = {"code": -32601, "message": f"Unknown method: {frame['method']}"}
            self._write({"jsonrpc": "2.0", "id": frame["id"], "error": error})

    def _write(self, frame: dict[str, Any]) -> None:
        try:
            self._sock.sendall(msgspec.json.encode(frame) + b"\n")
        except OSError as error:
            raise ConnectionLost(str(error)) from None

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._file.readline()
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        if not line:
            raise ConnectionLost("the connection ended")
        frame: dict[str, Any] = msgspec.json.decode(line)
        return frame

    def close(self) -> None:
        self._file.close()
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
