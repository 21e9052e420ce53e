"""An IPython kernel through jupyter_client, the measure of the field.

Both packages are dependencies of the benchmarks alone; without them the comparison is left out.

Failure: a kernel that does not answer raises after its client's timeout.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from benchmarks.report import median

ROUNDS: Final = 150


@dataclass(frozen=True, slots=True)
class Measured:
    start_s: float
    exec_s: float


@lru_cache(1)
def measure() -> Measured | None:
    """Start-up until the first result, and the median of `6 * 7`."""
    try:
        from jupyter_client.manager import KernelManager
    except ImportError:
        return None
    started = time.perf_counter()
    manager: Any = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        _execute(client)
        start_s = time.perf_counter() - started
        samples = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            _execute(client)
            samples.append(time.perf_counter() - began)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return Measured(start_s, median(samples))


def _execute(client: Any) -> None:
    """Send the expression and wait for its result and its reply."""
    message_id = client.execute("6 * 7")
    while True:
        message = client.get_iopub_msg(timeout=30)
        if (
            message["parent_header"].get("msg_id") == message_id
            and message["msg_type"] == "status"
            and message["content"]["execution_state"] == "idle"
        ):
            break
    client.get_shell_msg(timeout=30)
