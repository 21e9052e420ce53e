"""Privileges that confined work gives up: set-uid programs, and what only root could do.

Both calls act on the calling thread and on what it starts later.

`drop_capabilities` matters when the daemon runs as root: Landlock holds files, ports and signals,
but not loading a kernel module, setting the clock or becoming another user. What is kept concerns
files below the granted roots only.

Failure: OSError when the system refuses.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any, Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
# The numbers of capget and capset.
_SYS_CAPABILITIES: Final = {"x86_64": (125, 126), "aarch64": (90, 91)}
_CAPABILITY_VERSION_3: Final = 0x20080522
# chown, dac_override, fowner, fsetid, net_bind_service.
_KEPT: Final = frozenset((0, 1, 3, 4, 10))
_HEADER: Final = struct.Struct("=Ii")
_SETS: Final = struct.Struct("=6I")

# Types are made here, once: every worker is forked from a process that has them.
_SetsBuffer: Final = ctypes.c_char * _SETS.size

_libc: Final = ctypes.CDLL(None, use_errno=True)
_prctl: Final[Any] = getattr(_libc, "prctl", None)
_syscall: Final[Any] = getattr(_libc, "syscall", None)


def no_new_privs() -> None:
    """Programs started from here on gain nothing from set-uid bits or file capabilities."""
    if sys.platform == "linux" and _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _last_error("no_new_privs")


def drop_capabilities() -> None:
    """Keep what an owner of files needs, whoever runs this. Without any capability it does
    nothing. With no_new_privs no program gets back what was given up here."""
    numbers = _SYS_CAPABILITIES.get(os.uname().machine)
    if sys.platform != "linux" or numbers is None or os.geteuid() != 0:
        return
    header, sets = _HEADER.pack(_CAPABILITY_VERSION_3, 0), _SetsBuffer()
    if _syscall(numbers[0], header, sets) != 0:
        raise _last_error("capget")
    permitted = _SETS.unpack(sets.raw)[1]
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    kept = permitted & sum(1 << capability for capability in _KEPT)
    if _syscall(numbers[1], header, _SETS.pack(kept, kept, 0, 0, 0, 0)) != 0:
        raise _last_error("capset")


def _last_error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
