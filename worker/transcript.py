"""The results of a session, `out:1`, `out:2`, ...: values and raised errors by number.

Numbers are used by successes and by raised errors, never given twice within a session's life. The
newest `values_max` results within `bytes_max` (their wire size) are kept; older ones answer
`expired_ref`. A result that could not be brought back after a restart is *lost* (chapter 60 §2.6,
§10).

Failure: `get` raises RpcError `unknown_ref`, `expired_ref` or `lost_value`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from ipc.jsonrpc import Code, RpcError
from worker.values.types import MISSING, Value

_PREFIX: Final = "out:"

# The stored form of a result that has to be asked for.
ON_DEMAND: Final = b"on demand"

# Gets a result by its number from its stored form; MISSING when it cannot be brought back.
LoadResult = Callable[[int, bytes], Value]


class _Stored(NamedTuple):
    data: bytes


class Transcript:
    # `_values` maps numbers to (value, wire bytes), oldest first; a lost result holds MISSING, one
    # that came back holds its stored form until somebody wants it. All of it changes under `_lock`:
    # evaluator threads add, the I/O thread reads.

    def __init__(self, next_number: int, values_max: int, bytes_max: int, load: LoadResult) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[int, tuple[Value, int]] = OrderedDict()
        self._bytes = 0
        self._next = next_number
        self._values_max = values_max
        self._bytes_max = bytes_max
        self._load = load

    @property
    def next_number(self) -> int:
        return self._next

    def add(self, value: Value, size: int) -> tuple[int, list[int]]:
        """Store a result; returns its number and the numbers that had to go for it."""
        with self._lock:
            number = self._next
            self._next += 1
            self._values[number] = (value, size)
            self._bytes += size
            return number, self._shrink()

    def restore(self, number: int, stored: bytes | None, size: int) -> None:
        """Bring a result back by its stored form; None marks it lost."""
        value = MISSING if stored is None else _Stored(stored)
        with self._lock:
            self._values[number] = (value, size)
            self._bytes += size
            self._next = max(self._next, number + 1)
            self._shrink()

    def _shrink(self) -> list[int]:
        gone: list[int] = []
        while len(self._values) > 1 and (
            (self._values_max and len(self._values) > self._values_max)
            or (self._bytes_max and self._bytes > self._bytes_max)
        ):
            number, (_value, size) = self._values.popitem(last=False)
            self._bytes -= size
            gone.append(number)
        return gone

    def get(self, ref: str) -> Value:
        number = out_number(ref)
        if number is None or number >= self._next:
            raise RpcError(Code.UNKNOWN_REF, "unknown value ref", "unknown_ref", ref=ref)
        with self._lock:
            held = self._values.get(number)
        if held is None:
            raise RpcError(
                Code.UNKNOWN_REF, "value ref expired from the transcript", "expired_ref", ref=ref
            )
        value = held[0]
        if type(value) is _Stored:
            value = self._load(number, value.data)
            with self._lock:
                if self._values.get(number) is held:
                    self._values[number] = (value, held[1])
        if value is MISSING:
            raise RpcError(
                Code.UNKNOWN_REF,
                "value was lost when the session was restored",
                "lost_value",
                ref=ref,
            )
        return value


def out_number(ref: str) -> int | None:
    """The N of `out:N` in canonical spelling (no sign, no leading zero), else None."""
    digits = ref[len(_PREFIX) :]
    if not ref.startswith(_PREFIX) or not digits.isascii() or not digits.isdigit():
        return None
    if digits[0] == "0" or len(digits) > 18:
        return None
    return int(digits)
