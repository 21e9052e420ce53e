"""Values as stored bytes, for the transcript results that must survive the worker.

Only a worker of the same session reads them back, so the bytes are a pickle (dill for what plain
pickle refuses). What has no stored form (a live stream, a running task, secret material) gives
None: the value is lost after a restore.

Failure: `save_value` never raises; `load_value` gives MISSING for anything it cannot bring back.
"""

from __future__ import annotations

import pickle
from typing import Final

from worker.values.types import MISSING, Value

_PROTOCOL: Final = 5


def save_value(value: Value) -> bytes | None:
    """The stored form of a value, None when it has none."""
    try:
        return pickle.dumps(value, _PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError, ValueError):
        return None


def load_value(data: bytes | None) -> Value:
    """The value of a stored form, or MISSING."""
    if data is None:
        return MISSING
    try:
        return pickle.loads(data)
    except Exception:  # noqa: BLE001 - any damage means that the value is lost
        return MISSING
