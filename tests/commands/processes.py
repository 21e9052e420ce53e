"""Looking at other processes from a test, and waiting for what they do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 10.0
_LOOK_AGAIN_S = 0.005


def eventually(look: Callable[[], T]) -> T:
    """The first true result of `look`, which is asked until PATIENCE_S have passed."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found or time.monotonic() > end:
            return found
        time.sleep(_LOOK_AGAIN_S)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def pids_in(file: Path, count: int = 1) -> list[int]:
    """The pids a program has written, one a line, as soon as there are so many."""

    def look() -> list[int]:
        lines = file.read_text().split() if file.exists() else []
        return [int(line) for line in lines] if len(lines) >= count else []

    found = eventually(look)
    assert len(found) >= count
    return found


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
