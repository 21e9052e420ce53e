"""Finding the file of a program (chapter 40 §6.1).

A name with `/` is the file itself, relative to the directory the child starts in. A bare name is
looked for in the directories of the child's `PATH`; an empty component is the current directory. A
hit is a regular file, symlinks followed, with any execute bit.

Failure: a name that is not found gives None; nothing is raised. Unreadable directories are skipped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache

_ANY_EXECUTE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


def find_program(name: str, env: Mapping[bytes, bytes], cwd: str) -> str | None:
    """The file a program name means, as an absolute path for bare names; None when not on PATH."""
    if "/" in name:
        return name
    return next(find_all(name, env, cwd), None)


def find_all(name: str, env: Mapping[bytes, bytes], cwd: str) -> Iterator[str]:
    """Every executable of that bare name on PATH, first hit first."""
    if not name:
        return
    for directory in search_path(env, cwd):
        candidate = os.path.join(directory, name)
        if is_executable(candidate):
            yield candidate


def search_path(env: Mapping[bytes, bytes], cwd: str) -> list[str]:
    """The directories of PATH, absolute; the worker's own PATH when the environment has none."""
    value = env.get(b"PATH")
    if value is None:
        value = os.environb.get(b"PATH", b"")
    return list(_directories(value, cwd))


@lru_cache(maxsize=16)
def _directories(value: bytes, cwd: str) -> tuple[str, ...]:
    return tuple(
        os.path.join(cwd, os.fsdecode(part)) if part else cwd for part in value.split(b":")
    )


def is_executable(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and bool(mode & _ANY_EXECUTE)
