"""The macOS sandbox: the profile of a confined child (chapter 50 §9.10).

`profile` is text, made from a confinement; `install` gives it to the system, in the process that is
about to become the child.

Failure: SeatbeltError for a root that cannot be written into a profile or resolved, for a profile
the system refuses, and everywhere but on macOS.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable, Iterator
from typing import Final

from leash.confinement import Confinement

BASE_ROOTS: Final = (
    "/usr", "/bin", "/sbin", "/System", "/Library", "/private/etc/localtime", "/dev",
)  # fmt: skip
_HEAD: Final = (
    "(version 1)",
    "(deny default)",
    "(allow process*)",
    "(allow signal (target self))",
    "(allow sysctl-read)",
    "(allow mach-lookup)",
)


class SeatbeltError(Exception):
    """No profile could be made or installed."""


def profile(confined: Confinement) -> str:
    """The profile text; every group sorted and without duplicates."""
    lines = list(_HEAD)
    lines += _subpaths("file-read*", (*BASE_ROOTS, *confined.read))
    lines += _subpaths("file-read* file-write*", confined.write)
    lines += _subpaths("file-read-metadata file-write-unlink", confined.delete)
    if not confined.filesystem:
        lines.append("(allow file*)")
    connect, listen = confined.connect.held, confined.listen.held
    if connect is None and listen is None:
        lines.append("(allow network*)")
        return "\n".join(lines) + "\n"
    if connect is None:
        lines.append("(allow network-outbound)")
    if listen is None:
        lines += ["(allow network-bind)", "(allow network-inbound)"]
    lines += [f'(allow network-outbound (remote tcp "*:{port}"))' for port in connect or ()]
    lines += [f'(allow network-bind (local tcp "*:{port}"))' for port in listen or ()]
    lines += [f'(allow network-inbound (local tcp "*:{port}"))' for port in listen or ()]
    return "\n".join(lines) + "\n"


def _subpaths(operations: str, roots: Iterable[str]) -> Iterator[str]:
    for root in sorted({_canonical(root) for root in roots}):
        yield f'(allow {operations} (subpath "{_escaped(root)}"))'


def _canonical(root: str) -> str:
    if not os.path.lexists(root):
        return root
    try:
        return os.path.realpath(root, strict=True)
    except OSError as failure:
        raise SeatbeltError(f"cannot resolve root {root!r}: {failure.strerror}") from None


def _escaped(path: str) -> str:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise SeatbeltError(f"root {path!r} is not UTF-8") from None
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in path):
        raise SeatbeltError(f"root {path!r} contains a control character")
    return path.replace("\\", "\\\\").replace('"', '\\"')


def install(text: str) -> None:
    """Confine the calling process by a profile. Raises SeatbeltError."""
    if platform.system() != "Darwin":
        raise SeatbeltError("the Seatbelt backend is only available on macOS")
    library = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
    message = ctypes.c_char_p()
    if library.sandbox_init(text.encode(), ctypes.c_uint64(0), ctypes.byref(message)) != 0:
        reason = (message.value or b"refused").decode("utf-8", "replace")
        raise SeatbeltError(f"sandbox_init: {reason}")
