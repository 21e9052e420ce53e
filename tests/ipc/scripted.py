"""A small kernel stand-in on a real Unix socket: it does exactly what a test tells it.

Each accepted connection is served by `script(connection)` in a thread; a script that returns closes
its connection. So a test decides the order of answers, the cut of frames and the moment of a loss.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WAIT_S = 20


class Connection:
    """The server's end of one connection."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw = raw
        self._lines = raw.makefile("rb")

    def request(self) -> dict[str, Any]:
        """The next request; raises EOFError at the end of the stream."""
        line = self._lines.readline()
        if not line:
            raise EOFError
        request: dict[str, Any] = json.loads(line)
        return request

    def send(self, frame: dict[str, Any]) -> None:
        self.raw.sendall(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    def answer(self, request: dict[str, Any], result: object) -> None:
        self.send({"id": request["id"], "result": result})

    def event(self, channel: str, seq: int, payload: object = None) -> None:
        params = {"channel": channel, "seq": seq, "ts": seq, "session": "s", "payload": payload}
        self.send({"method": "event", "params": params})


Script = Callable[[Connection], None]


class Server:
    """Listens at `path` and runs a script for each connection."""

    def __init__(self, path: Path, *scripts: Script) -> None:
        self.path = path
        self._scripts = list(scripts)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            # The last script serves all further connections.
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            thread = threading.Thread(target=self._serve, args=(script, raw))
            self._threads.append(thread)
            self._open.append(raw)
            thread.start()

    def _serve(self, script: Script, raw: socket.socket) -> None:
        with raw:
            connection = Connection(raw)
            try:
                script(connection)
            except (EOFError, OSError):
                pass
            finally:
                connection._lines.close()

    def close(self) -> None:
        """Stop listening and end every connection."""
        for raw in (self._listener, *self._open):
            with suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)
            raw.close()
        self._acceptor.join(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        self.path.unlink(missing_ok=True)


@contextmanager
def serving(path: Path, *scripts: Script) -> Iterator[Server]:
    server = Server(path, *scripts)
    try:
        yield server
    finally:
        server.close()


def echo(connection: Connection) -> None:
    """Answer every request with its own method and params."""
    while True:
        request = connection.request()
        connection.answer(request, {"method": request["method"], "params": request["params"]})
