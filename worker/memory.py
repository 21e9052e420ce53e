"""The memory limit of the worker: an evaluation that wants more fails, the session stays.

The limit is the system's own limit of private memory (RLIMIT_DATA), counted from what the process
holds when it starts. Allocations beyond it fail inside the evaluation that asks, as MemoryError,
which becomes a language error. The stacks of evaluator threads are address space that is hardly
ever touched, so every one that is mapped raises the limit by its size.

Programs that the worker starts inherit the limit. Without `limit` nothing is limited, and neither
is it where the system does not say how much a process holds.

Failure: none; a limit that cannot be set is no limit.
"""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Iterator
from typing import Final

from worker.errors import Raised, raised

STACK_BYTES: Final = 512 << 20

_STATUS: Final = "/proc/self/status"
_MAPPINGS: Final = "/proc/self/maps"
_HELD: Final = "VmData:"

# `_base`: bytes the process may hold without its stacks, None without a limit. `_lifted`: for how
# many the limit is lifted. Both change under `_lock`, together with the limit of the process.
_lock: Final = threading.Lock()
_base: int | None = None
_lifted: int = 0

# A mapping this much smaller than a stack is one without its guard pages.
_GUARD_BYTES_MAX: Final = 1 << 20


def out_of_memory(failure: BaseException) -> Raised:
    """The language error for a MemoryError, which lets go of what the failed evaluation held.

    Otherwise its traceback would keep all of it for as long as the error is dealt with, which takes
    memory too.
    """
    release(failure)
    return raised("custom", "out of memory: the values of this session are too large")


def release(failure: BaseException) -> None:
    """Drop the frames of a failure, and of what it came from."""
    seen: BaseException | None = failure
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__context__


def limit(memory_bytes: int) -> None:
    """Let the process hold `memory_bytes` more than it does now; 0 leaves it without a limit."""
    global _base
    held = _held()
    if memory_bytes and held is not None:
        with _lock:
            _base = held + memory_bytes
            _apply()


def settle() -> None:
    """Count the stacks again: some began, or some ended."""
    with _lock:
        _apply()


@contextlib.contextmanager
def lifted() -> Iterator[None]:
    """Without the limit: for what must not fail, like handing over what an evaluation has done."""
    global _lifted
    with _lock:
        _lifted += 1
        _apply()
    try:
        yield
    finally:
        with _lock:
            _lifted -= 1
            _apply()


def _apply() -> None:
    if _base is None:
        return
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = hard if _lifted else _base + _stacks() * STACK_BYTES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def _stacks() -> int:
    """How many evaluator stacks are mapped.

    Only the system knows: the C library keeps the stack of an ended thread for the next one, or
    gives it back when another thread ends.
    """
    count = 0
    with contextlib.suppress(OSError), open(_MAPPINGS, encoding="ascii", errors="replace") as lines:
        for line in lines:
            span, permissions, _rest = line.split(" ", 2)
            begin, end = span.split("-")
            size = int(end, 16) - int(begin, 16)
            if permissions == "rw-p" and STACK_BYTES - _GUARD_BYTES_MAX <= size <= STACK_BYTES:
                count += 1
    return count


def _held() -> int | None:
    """Bytes of private memory of this process, None where the system does not say."""
    try:
        with open(_STATUS, encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith(_HELD):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None
