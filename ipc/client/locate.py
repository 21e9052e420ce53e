"""Where the kernel's socket is, for clients and daemon alike (chapter 60, section 1.1).

Pure: everything comes from the arguments.

Failure: `InvalidLabel` when a session name cannot name a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_SESSION: Final = "default"

_UNUSABLE: Final = frozenset({"", ".", ".."})


class InvalidLabel(ValueError):
    """A session name whose last part names no socket file."""

    def __init__(self, session: str) -> None:
        super().__init__("invalid session name")
        self.session = session


def runtime_dir(environ: Mapping[str, str], uid: int | None = None) -> Path:
    """The directory of the sockets; an empty variable counts as unset."""
    uid = os.geteuid() if uid is None else uid
    xdg = environ.get("XDG_RUNTIME_DIR")
    if xdg:
        return Path(xdg) / "shoal"
    return Path(environ.get("TMPDIR") or "/tmp") / f"shoal-{uid}" / "shoal"


def socket_label(session: str) -> str:
    """The part of a session name (`name`, or `owner/name`) that names the socket file."""
    label = session.rpartition("/")[2]
    if label in _UNUSABLE or "\0" in label:
        raise InvalidLabel(session)
    return label


def socket_path(
    environ: Mapping[str, str],
    *,
    explicit: str | os.PathLike[str] | None = None,
    session: str = DEFAULT_SESSION,
    uid: int | None = None,
) -> Path:
    """The socket of a kernel. `explicit` is a flag, a variable or a setting, whoever read it."""
    if explicit:
        return Path(explicit)
    return runtime_dir(environ, uid) / f"{socket_label(session)}.sock"
