"""What the host can enforce: its sandbox tier (chapter 50 §9.11, chapter 60 §5.1).

Tier `A` is Linux with Landlock, `B` Linux without it, `C` macOS with Seatbelt, `D` nothing.

Failure: none; a host that cannot be asked counts as one that cannot enforce.
"""

from __future__ import annotations

import os

_SEATBELT = "/usr/bin/sandbox-exec"


def landlock_abi() -> int:
    """The Landlock ABI version of the running kernel, 0 when there is none."""
    if os.uname().sysname != "Linux":
        return 0
    try:
        from landlock.plumbing import landlock_abi_version

        return int(landlock_abi_version())
    except (ImportError, OSError):
        return 0


def sandbox_tier() -> str:
    """`A`, `B`, `C` or `D`."""
    if os.uname().sysname == "Linux":
        return "A" if landlock_abi() > 0 else "B"
    return "C" if os.path.exists(_SEATBELT) else "D"
