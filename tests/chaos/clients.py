"""Clients of a chaos run: each drives one session, keeps its promises, and survives everything.

A client that loses its connection connects again; a submission whose answer did not come counts as
open. Now and then a client cuts its connection in the middle of a frame, or right after one.

Failure: an answer that no client should ever see is kept in `failure` and ends the client.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.chaos.ledger import Ledger, SessionLedger

ANSWER_S: Final = 20.0
RETRY_S: Final = 0.02
LARGE_BYTES: Final = 400_000
# What a session keeps in memory when the store does not take the rest.
CAPTURE_BYTES: Final = 100_000
DECLARE: Final = "var n = 0; var twin = 0"
COUNT: Final = "n = n + 1; twin = n; n"
# Kinds of errors that say no more than that the submission did not happen, or that nobody knows.
EXPECTED: Final = frozenset(
    ("worker_lost", "worker_backoff", "journal_unavailable", "shutting_down", "internal_error",
     "quota", "raised")
)  # fmt: skip


class Lost(Exception):
    """The connection is gone; what was asked last has no answer."""


class Connection:
    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_S)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise Lost from error
        self._file = self._socket.makefile("rb")

    def frame(self, method: str, params: object) -> bytes:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return msgspec.json.encode(request) + b"\n"

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Lost from error

    def call(self, method: str, params: object) -> dict[str, Any]:
        self.send(self.frame(method, params))
        try:
            line = self._file.readline()
        except OSError as error:
            raise Lost from error
        if not line.endswith(b"\n"):
            raise Lost
        answer: dict[str, Any] = msgspec.json.decode(line)
        return answer

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Client:
    # The thread owns `_connection` and the ledger of its session; `stop` is set from outside.

    def __init__(self, path: Path, ledger: Ledger, session: SessionLedger, seed: int) -> None:
        self._path = path
        self._ledger = ledger
        self._session = session
        self._random = random.Random(seed)
        self._connection: Connection | None = None
        self.stop = threading.Event()
        self.failure: str | None = None
        self.thread = threading.Thread(target=self._run, name=session.name)

    def _run(self) -> None:
        moves: list[tuple[int, Callable[[Connection], None]]] = [
            (70, self._count),
            (10, self._text),
            (5, self._large),
            (5, self._fail),
            (4, self._cut_in_frame),
            (4, self._leave_after_frame),
        ]
        weights = [weight for weight, _ in moves]
        while not self.stop.is_set():
            try:
                connection = self._attached()
                (move,) = self._random.choices([move for _, move in moves], weights)
                move(connection)
            except Lost:
                self._ledger.note("lost connection")
                self._disconnect()
                time.sleep(RETRY_S)
            except AssertionError as error:
                self.failure = f"{self._session.name}: {error}"
                break
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _attached(self) -> Connection:
        if self._connection is None:
            connection = Connection(self._path)
            answer = connection.call("session.attach", {"session": self._session.name})
            if "error" in answer:
                connection.close()
                self._refused(answer["error"])
                raise Lost
            self._connection = connection
        connection = self._connection
        if not self._session.declared:
            # Refused while the disk is full, for example: then again before anything else.
            self._session.declared = self._exec(connection, DECLARE) is not None
            if not self._session.declared:
                raise Lost
        return self._connection

    # -- moves -------------------------------------------------------------------------------------

    def _exec(self, connection: Connection, src: str) -> Any:
        """The value of an acknowledged submission, None when there was an error instead."""
        answer = connection.call("exec", {"src": src})
        if "error" in answer:
            self._refused(answer["error"])
            return None
        result = answer["result"]
        assert result["ref"] not in self._session.acknowledged, f"{result['ref']} given twice"
        self._session.acknowledged[result["ref"]] = result["value"]
        return result["value"]

    def _refused(self, error: dict[str, Any]) -> None:
        kind = error.get("data", {}).get("kind")
        assert kind in EXPECTED, f"unexpected answer {error}"
        self._ledger.note(str(kind))

    def _count(self, connection: Connection) -> None:
        session = self._session
        session.open += 1
        value = self._exec(connection, COUNT)
        if value is None:
            return
        number = value["v"]
        assert session.counted < number <= session.counted + session.open, (
            f"counted {number} after {session.counted} and {session.open} open ones"
        )
        session.counted, session.open = number, 0

    def _text(self, connection: Connection) -> None:
        length = self._random.randrange(1, 3000)
        self._exec(connection, f'(1..={length}).map(i => "x").join("")')

    def _large(self, connection: Connection) -> None:
        src = f"sh -c 'yes 0123456 | head -c {LARGE_BYTES}'"
        answer = connection.call("exec", {"src": src, "position": "value"})
        if "error" in answer:
            self._refused(answer["error"])
            return
        # A spill may degrade to what fits into memory, never to less; what the session says it has
        # it must keep.
        ref, outcome = answer["result"]["ref"], answer["result"]["value"]
        assert outcome["ok"], f"nobody kills the programs of a session that lives: {answer}"
        page = connection.call(
            "value.get", {"ref": ref, "path": "stdout", "format": "raw", "offset": 0, "length": 0}
        )
        if "result" in page:
            length = page["result"]["total"]
            assert CAPTURE_BYTES <= length <= LARGE_BYTES, f"{ref} has {length} bytes: {answer}"
            self._session.large[ref] = length

    def _fail(self, connection: Connection) -> None:
        answer = connection.call("exec", {"src": "1 / 0"})
        assert "error" in answer, "a division by zero succeeded"
        self._refused(answer["error"])

    def _cut_in_frame(self, connection: Connection) -> None:
        frame = connection.frame("exec", {"src": COUNT})
        connection.send(frame[: self._random.randrange(1, len(frame) - 1)])
        self._ledger.note("cut in a frame")
        self._disconnect()

    def _leave_after_frame(self, connection: Connection) -> None:
        self._session.open += 1
        connection.send(connection.frame("exec", {"src": COUNT}))
        self._ledger.note("left before the answer")
        self._disconnect()
