"""What `health` says about the router's parts and its process (chapter 70 §8).

Failure: none; a number the platform does not give is 0.
"""

from __future__ import annotations

import os
import resource
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervisor.agent_endpoint import AgentEndpoint


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Health:
    # When each part was last well, and its last error; changed in `components`.

    def __init__(self, endpoint: AgentEndpoint) -> None:
        self._endpoint = endpoint
        self._last_ok: dict[str, float] = {}
        self._cpu = (time.monotonic(), time.process_time())

    def components(self) -> dict[str, Any]:
        endpoint, kernel = self._endpoint, self._endpoint.kernel
        failure = kernel.store.failure
        tokens = kernel.tokens
        errors: dict[str, str | None] = {
            "agent_endpoint": endpoint.config.reload_failed
            and f"reload_failed: {endpoint.config.reload_failed}",
            "kernel_endpoint": None,
            "journal": None if failure is None else failure.text,
            "tokens": None if tokens is None else tokens.broken,
            "zygote": None,
            "broker": endpoint.broker.failure,
        }
        restarts = {"broker": endpoint.broker.restarts}
        now = time.time()
        found: dict[str, Any] = {}
        for name, error in errors.items():
            starting = name == "zygote" and not kernel.launcher.helper_pids()
            if error is None and not starting:
                self._last_ok[name] = now
            last_ok = self._last_ok.get(name)
            found[name] = {
                "status": "starting" if starting else "ok" if error is None else "error",
                "updated_at": _text(now),
                "last_ok": None if last_ok is None else _text(last_ok),
                "last_error": error,
                "restart_count": restarts.get(name, 0),
            }
        return found

    def process(self) -> dict[str, Any]:
        now, used = time.monotonic(), time.process_time()
        then, used_then = self._cpu
        self._cpu = (now, used)
        percent = 100 * (used - used_then) / (now - then) if now > then else 0.0
        return {
            "rss_bytes": _resident_bytes(),
            "system_ram_total_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "cpu_percent": round(percent, 1),
            "num_cpus": os.cpu_count() or 1,
        }


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * os.sysconf("SC_PAGE_SIZE")
