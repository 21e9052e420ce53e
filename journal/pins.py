"""Pins: why a blob must stay (chapter 61 §6.1), and the access times of blobs.

Setting a pin twice and releasing a missing one succeed and change nothing.

Failure: pinning what is not stored is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final

from journal.errors import OperationRefused
from journal.records import Operation, ReleaseManualPins, ReleasePin, SetPin, TouchBlobs
from journal.rows import INSERT_PIN


def _set_pin(connection: sqlite3.Connection, pin: SetPin) -> bool:
    if connection.execute("SELECT 1 FROM blob WHERE hash = ?", (pin.hash,)).fetchone() is None:
        raise OperationRefused(f"missing CAS blob {pin.hash.hex()}")
    row = (pin.hash, pin.reason, pin.holder, pin.now_ns)
    return connection.execute(INSERT_PIN, row).rowcount > 0


def _release_pin(connection: sqlite3.Connection, pin: ReleasePin) -> bool:
    return (
        connection.execute(
            "DELETE FROM pin WHERE hash = ? AND reason = ? AND holder = ?",
            (pin.hash, pin.reason, pin.holder),
        ).rowcount
        > 0
    )


def _release_manual(connection: sqlite3.Connection, pin: ReleaseManualPins) -> bool:
    deleted = connection.execute(
        "DELETE FROM pin WHERE hash = ? AND reason = 'manual'", (pin.hash,)
    )
    return deleted.rowcount > 0


def _touch_blobs(connection: sqlite3.Connection, touch: TouchBlobs) -> None:
    connection.executemany(
        "UPDATE blob SET last_access_ns = max(last_access_ns, ?) WHERE hash = ?",
        [(touch.now_ns, digest) for digest in touch.hashes],
    )


WRITES: Final[Mapping[type[Operation[Any]], Callable[[sqlite3.Connection, Any], Any]]] = {
    SetPin: _set_pin,
    ReleasePin: _release_pin,
    ReleaseManualPins: _release_manual,
    TouchBlobs: _touch_blobs,
}
