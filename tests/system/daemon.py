"""A real daemon for tests: a process of its own, on a socket in a temporary directory.

Failure: a daemon that does not say ready within START_S fails the test with what it printed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from ipc.client import Client

START_S: Final = 20.0
ANSWER_S: Final = 20.0
ROOT: Final = Path(__file__).resolve().parents[2]


class Daemon:
    """`shoal kernel` in a child process. Use as a context manager, or `start` and `stop` it."""

    def __init__(
        self,
        *options: str,
        directory: Path | None = None,
        environ: Mapping[str, str] | None = None,
        config: str = "",
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="shoal-test-")
        self.directory = directory or Path(self._scratch.name)
        self.socket = self.directory / "run" / "kernel.sock"
        self.state = self.directory / "state"
        self.work = self.directory / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        if config:
            file = self.directory / ".config" / "shoal" / "shoal.toml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(config)
        self._options = options
        self._environ = dict(environ or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.log = b""

    def start(self) -> Self:
        self.log = b""
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SHOAL_", "XDG_"))
        }
        environ |= {
            "HOME": str(self.directory),
            "PYTHONPATH": str(ROOT),
            **self._environ,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal", "kernel", "--socket", str(self.socket),
             "--state-dir", str(self.state), *self._options],
            cwd=self.work, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self._await_ready()
        return self

    def _await_ready(self) -> None:
        assert self.process is not None and self.process.stderr is not None
        fd = self.process.stderr.fileno()
        os.set_blocking(fd, False)
        deadline = time.monotonic() + START_S
        while b"shoal-kernel: ready " not in self.log:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([fd], [], [], max(left, 0))
            piece = os.read(fd, 65536) if ready else b""
            self.log += piece
            if not piece:
                self.kill()
                raise AssertionError(f"daemon did not start: {self.log.decode()}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def read_log(self) -> str:
        """What the daemon has logged so far."""
        assert self.process is not None and self.process.stderr is not None
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.process.stderr.fileno(), 65536):
                self.log += piece
        return self.log.decode("utf-8", "replace")

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        process = self.process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            _, rest = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            _, rest = process.communicate()
        self.log += rest or b""
        self.process = None
        return process.returncode

    def kill(self) -> None:
        """SIGKILL to the router alone."""
        if self.process is not None:
            self.process.kill()
            _, rest = self.process.communicate()
            self.log += rest or b""
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._scratch.cleanup()

    def client(self, session: str | None = None, **attach: Any) -> Client:
        client = Client.connect(self.socket)
        if session is not None:
            client.attach(session, **attach)
        return client

    def wire(self) -> Wire:
        return Wire(self.socket)


class Wire:
    """A bare connection: exact bytes out, lines in."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(str(path))
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """The next line; empty at the end of the connection."""
        try:
            return self._file.readline()
        except ConnectionResetError:
            return b""

    def json(self) -> Any:
        return msgspec.json.decode(self.line())

    def request(self, method: str, params: object = None, request_id: object = 1) -> Any:
        """Send one request and return the next line, decoded."""
        self.send(
            msgspec.json.encode(
                {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
            )
            + b"\n"
        )
        return self.json()

    def result(self, method: str, params: object = None) -> Any:
        answer = self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: object = None) -> Any:
        answer = self.request(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def error_or_result(self, method: str, params: object = None) -> Any | None:
        """The result, None for an error."""
        return self.request(method, params).get("result")

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_gone(pids: list[int], seconds: float = 5.0) -> list[int]:
    """Wait until none of the processes is alive; returns those that still are."""
    deadline = time.monotonic() + seconds
    left = pids
    while left and time.monotonic() < deadline:
        for pid in left:
            _wait_one(pid, deadline - time.monotonic())
        left = [pid for pid in left if alive(pid)]
    return left


def _wait_one(pid: int, seconds: float) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([fd], [], [], max(seconds, 0))
    finally:
        os.close(fd)
