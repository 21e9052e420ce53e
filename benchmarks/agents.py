"""The agent endpoint: many sessions prompting at once, the first update, a chunked upload.

Failure: a daemon that does not start fails the benchmark.
"""

from __future__ import annotations

import base64
import os
import threading
import time
from typing import Final

from benchmarks import echo
from benchmarks.report import Row, median
from tests.agent.client import Agent
from tests.system.daemon import Daemon

SESSIONS: Final = 64
PROMPTS: Final = 10
MIB: Final = 1024 * 1024
UPLOAD_BYTES: Final = 10 * MIB


def _connect(daemon: Daemon) -> Agent:
    client = Agent(daemon.state / "daemon.sock")
    client.initialize()
    return client


def _first_update_s(client: Agent, session: str) -> float:
    """From the prompt to the first `session/update`; the turn is then waited for."""
    started = time.perf_counter()
    number = client.send("session/prompt", {"session_id": session, "prompt": "6 * 7"})
    client.until("turn_started")
    first_s = time.perf_counter() - started
    client.wait(number)
    client.kinds()
    return first_s


def turns() -> list[Row]:
    """Turns of the shell agent: alone, and with all sessions at once."""
    prompt = b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"prompt":"6 * 7"}}\n'
    with echo.two_hops() as bare, Daemon("--log-level", "warn") as daemon:
        clients = [_connect(daemon) for _ in range(SESSIONS)]
        for number, client in enumerate(clients):
            client.result("session/new", {"agent_alias": "shell", "session_id": f"s{number}"})
            client.prompt(f"s{number}", "1")
            client.kinds()
        alone: list[float] = []
        bare_samples: list[float] = []
        for _ in range(10):
            bare_samples += echo.round_trips(bare, prompt, 200)
            alone += [_first_update_s(clients[0], "s0") for _ in range(20)]
        started = time.perf_counter()
        threads = [
            threading.Thread(target=_prompt_often, args=(client, f"s{number}"))
            for number, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together_s = time.perf_counter() - started
        for client in clients:
            client.close()
    first, bare_median = median(alone), median(bare_samples)
    return [
        Row("agents", "first update after a prompt", first * 1e6, "µs", "bare echo",
            first / bare_median, "at most", 4),
        Row("agents", f"turns of {SESSIONS} sessions at once",
            SESSIONS * PROMPTS / together_s, "1/s"),
    ]  # fmt: skip


def _prompt_often(client: Agent, session: str) -> None:
    for _ in range(PROMPTS):
        client.prompt(session, "6 * 7")
        client.kinds()


def uploads() -> list[Row]:
    """An upload of 10 MB in chunks of 1 MiB."""
    data = os.urandom(UPLOAD_BYTES)
    pieces = [base64.b64encode(data[at : at + MIB]).decode() for at in range(0, len(data), MIB)]
    with Daemon("--log-level", "warn") as daemon:
        client = _connect(daemon)
        client.result("session/new", {"agent_alias": "shell", "session_id": "s"})
        client.prompt("s", "1")
        samples = []
        for _ in range(5):
            made = client.result("file/upload/begin", {"session_id": "s", "size_bytes": len(data)})
            started = time.perf_counter()
            for number, piece in enumerate(pieces):
                client.result(
                    "file/upload/chunk",
                    {"upload_id": made["upload_id"], "offset": number * MIB, "data_b64": piece},
                )
            samples.append(time.perf_counter() - started)
            client.result("file/upload/commit", {"upload_id": made["upload_id"]})
        client.close()
    rate = UPLOAD_BYTES / median(samples) / 1e6
    return [
        Row("uploads", "chunks of 1 MiB", rate, "MB/s", "100 MB/s", rate / 100, "at least", 1),
    ]
