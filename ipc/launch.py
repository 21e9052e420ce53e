"""What the zygote runs in a freshly forked process: the entry point of a role.

The router names a role and never imports what is behind it; the import happens in the child, where
the zygote has it loaded already.

Failure: whatever the role's entry point raises ends the child with a traceback on its standard
error.
"""

from __future__ import annotations

import importlib
import socket
from typing import Final

ENTRY_MODULE: Final = "worker.main"


def enter(role: str, title: str, channel: socket.socket, settings: dict[str, int]) -> None:
    """Become `role` (a function of `worker.main`) with one end of the control channel."""
    entry = getattr(importlib.import_module(ENTRY_MODULE), role)
    entry(title, channel, settings)
