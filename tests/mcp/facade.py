"""A real `shoal mcp` for tests: its own process, lines in, lines out.

Failure: waiting for a line that does not come fails the test after ANSWER_S.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from tests.system.daemon import ROOT

ANSWER_S: Final = 30.0


class Facade:
    # `_lines` is filled by a thread, None at the end; `notes` are notifications seen so far.
    def __init__(
        self, socket: Path, *options: str, environ: Mapping[str, str] | None = None
    ) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "XDG_"))}
        home = socket.parent
        home.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal", "mcp", "--socket", str(socket), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **(environ or {})},
        )  # fmt: skip
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._next = 0
        self.notes: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """The next frame, decoded; None at the end."""
        line = self._lines.get(timeout=ANSWER_S)
        return None if line is None else msgspec.json.decode(line)

    def post(self, method: str, params: Any = None) -> int:
        self._next += 1
        frame = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self.send(msgspec.json.encode(frame))
        return self._next

    def answer(self, request_id: Any) -> Any:
        """The answer to a request; notifications on the way are kept in `notes`."""
        while True:
            frame = self.receive()
            assert frame is not None, "the facade ended"
            if "method" in frame:
                self.notes.append(frame["params"])
            elif frame["id"] == request_id:
                return frame

    def request(self, method: str, params: Any = None) -> Any:
        return self.answer(self.post(method, params))

    def result(self, method: str, params: Any = None) -> Any:
        answer = self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: Any = None) -> Any:
        answer = self.request(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def tool(self, name: str, **arguments: Any) -> Any:
        return self.result("tools/call", {"name": name, "arguments": arguments})

    def value(self, name: str, **arguments: Any) -> Any:
        """The structured content of a tool call that succeeded."""
        result = self.tool(name, **arguments)
        assert result["isError"] is False, result
        return result["structuredContent"]

    def read(self, uri: str) -> Any:
        return self.result("resources/read", {"uri": uri})

    def note(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first notification that fits, waiting for it."""
        at = 0
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            for note in self.notes[at:]:
                if fits(note):
                    return note
            at = len(self.notes)
            frame = self.receive()
            assert frame is not None and "method" in frame, frame
            self.notes.append(frame["params"])
        raise AssertionError("no such notification")

    def end(self) -> tuple[int, str]:
        """Close stdin; exit code and stderr."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        code = self.process.wait(ANSWER_S)
        self._reader.join(ANSWER_S)
        errors = self.process.stderr.read().decode()
        self.process.stderr.close()
        return code, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
