"""The private temporary directory of a confined session (chapter 50 §9.3).

The worker makes it before it is confined, and could not remove it afterwards, since its parent is
everybody's; so the router does, when the worker has ended. The name is the worker's pid, with
something random behind it when that is taken.

Failure: `make` raises OSError; `remove` leaves what is not ours or cannot be removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_MODE: Final = 0o700


def _name(pid: int) -> str:
    return f"shoal-{pid}"


def _base() -> str:
    # Not `tempfile.gettempdir`, which writes a file to find out.
    return os.environ.get("TMPDIR") or "/tmp"


def make(pid: int) -> str:
    """Make the directory of a worker."""
    base = _base()
    path = os.path.join(base, _name(pid))
    try:
        os.mkdir(path, _MODE)
    except FileExistsError:
        return tempfile.mkdtemp(prefix=_name(pid) + "-", dir=base)
    return path


def remove(pid: int) -> None:
    """Remove the directory of a worker that has ended, with all there is in it."""
    base = Path(_base())
    for path in (base / _name(pid), *base.glob(_name(pid) + "-*")):
        if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)
