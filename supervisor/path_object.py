"""Paths on the wire: lossy text, and the exact bytes in base64 when they are not UTF-8.

Failure: none.
"""

from __future__ import annotations

import base64

from ipc.methods import PathObject


def path_object(raw: bytes) -> PathObject:
    try:
        return PathObject(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return PathObject(raw.decode("utf-8", "replace"), base64.b64encode(raw).decode())
