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
_HELD: Final = "VmData:"

# `_base`: bytes the process may hold without its stacks, None without a limit. `_stacks`: stacks
# that count as mapped, `_ended`: those of them whose thread has ended. `_lifted`: for how many the
# limit is lifted. All change under `_lock`, together with the limit of the process.
_lock: Final = threading.Lock()
_base: int | None = None
_stacks: int = 0
_ended: int = 0
_lifted: int = 0

# The C library keeps the stack of the thread that ended last, for the next one to start.
_STACKS_KEPT: Final = 1


def out_of_memory() -> Raised:
    """The language error for a MemoryError."""
    return raised("custom", "out of memory: the values of this session are too large")


def limit(memory_bytes: int) -> None:
    """Let the process hold `memory_bytes` more than it does now; 0 leaves it without a limit."""
    global _base
    held = _held()
    if memory_bytes and held is not None:
        with _lock:
            _base = held + memory_bytes
            _apply()


def stack_begins() -> None:
    """A thread with the stack of an evaluator is about to start."""
    global _stacks, _ended
    with _lock:
        _settle()
        if _ended:
            _ended -= 1
        else:
            _stacks += 1
        _apply()


def stack_ends() -> None:
    """Such a thread is about to end. Its stack is still there for a moment: see `_settle`."""
    global _ended
    with _lock:
        _ended += 1


def _settle() -> None:
    """Forget the stacks that the C library has given back by now."""
    global _stacks, _ended
    gone = max(_ended - _STACKS_KEPT, 0)
    _stacks -= gone
    _ended -= gone


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
            _settle()
            _apply()


def _apply() -> None:
    if _base is None:
        return
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = hard if _lifted else _base + _stacks * STACK_BYTES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


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
