"""A client of the agent endpoint for tests: requests, notifications, questions of the server.

Failure: a wait that lasts longer than ANSWER_S fails the test.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final, Self

import msgspec

ANSWER_S: Final = 30.0
FORM: Final[dict[str, Any]] = {"elicitation": {"form": {}}}


class Agent:
    """One connection. `updates` holds every notification that was read, in order."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(str(path))
        self._file = self.socket.makefile("rb")
        self._next = 1
        self.updates: list[dict[str, Any]] = []
        self.questions: list[dict[str, Any]] = []
        self._answers: dict[Any, dict[str, Any]] = {}

    # -- bytes -------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """The next line; empty at the end."""
        try:
            return self._file.readline()
        except ConnectionResetError:
            return b""

    def frame(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.line())
        return found

    # -- requests ----------------------------------------------------------------------------------

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; returns its id."""
        number = self._next
        self._next += 1
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            frame["params"] = params
        self.raw(msgspec.json.encode(frame) + b"\n")
        return number

    def wait(self, number: int) -> dict[str, Any]:
        """The answer of a request; what comes before it is kept."""
        while number not in self._answers:
            self._keep(self.frame())
        return self._answers.pop(number)

    def _keep(self, frame: dict[str, Any]) -> None:
        if "method" not in frame:
            self._answers[frame["id"]] = frame
        elif "id" in frame:
            self.questions.append(frame)
        else:
            self.updates.append(frame)

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.wait(self.send(method, params))

    def result(self, method: str, params: dict[str, Any] | None = None) -> Any:
        answer = self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: dict[str, Any] | None = None) -> Any:
        answer = self.request(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def initialize(self, **params: Any) -> Any:
        return self.result("initialize", {"protocolVersion": 1, **params})

    # -- turns -------------------------------------------------------------------------------------

    def prompt(self, session: str, text: str, **params: Any) -> dict[str, Any]:
        """Run a turn to its end; the answer frame."""
        return self.request("session/prompt", {"session_id": session, "prompt": text, **params})

    def until(self, kind: str) -> dict[str, Any]:
        """Read until an update of this type; its params."""
        for update in self.updates:
            if update["params"].get("type") == kind:
                self.updates.remove(update)
                return dict(update["params"])
        while True:
            frame = self.frame()
            self._keep(frame)
            if frame.get("method") == "session/update" and frame["params"]["type"] == kind:
                self.updates.pop()
                return dict(frame["params"])

    def question(self) -> dict[str, Any]:
        """The next request of the server."""
        while not self.questions:
            self._keep(self.frame())
        return self.questions.pop(0)

    def answer(self, question: dict[str, Any], result: Any) -> None:
        frame = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        self.raw(msgspec.json.encode(frame) + b"\n")

    def kinds(self) -> list[str]:
        """The types of the updates read so far; they are forgotten."""
        kinds = [str(update["params"].get("type")) for update in self.updates]
        self.updates.clear()
        return kinds

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
