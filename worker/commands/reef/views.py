"""The folder of links a resolved child finds its tools in (chapter 41 §B6).

One folder per set of bindings, named by their hash, built beside its place and renamed into it, so
that a reader sees all links or none. The root belongs to the user alone.

Failure: `view` raises OSError.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from typing import Final

from blake3 import blake3

_PRIVATE_MODE: Final = 0o700


def view(bindings: Mapping[str, str], env: Mapping[bytes, bytes]) -> str:
    """The `bin` folder in which every name links to its file."""
    root = _root(env)
    folder = os.path.join(root, _name_of(bindings))
    links = os.path.join(folder, "bin")
    if _is_complete(links, bindings):
        return links
    staging = tempfile.mkdtemp(prefix=".staging-", dir=root)
    try:
        os.mkdir(os.path.join(staging, "bin"))
        for name, path in bindings.items():
            os.symlink(path, os.path.join(staging, "bin", name))
        _put_in_place(staging, folder, links, bindings)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return links


def _put_in_place(staging: str, folder: str, links: str, bindings: Mapping[str, str]) -> None:
    try:
        os.rename(staging, folder)
        return
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
    if _is_complete(links, bindings):
        return
    # A damaged view: move it away and put the whole one in its place.
    broken = tempfile.mkdtemp(prefix=".broken-", dir=os.path.dirname(folder))
    try:
        os.rename(folder, os.path.join(broken, "view"))
        os.rename(staging, folder)
    finally:
        shutil.rmtree(broken, ignore_errors=True)


def _name_of(bindings: Mapping[str, str]) -> str:
    digest = blake3()
    for name, path in sorted(bindings.items()):
        digest.update(os.fsencode(name) + b"\0" + os.fsencode(path) + b"\0")
    return digest.hexdigest()


def _is_complete(links: str, bindings: Mapping[str, str]) -> bool:
    try:
        if set(os.listdir(links)) != set(bindings):
            return False
        return all(
            os.readlink(os.path.join(links, name)) == path for name, path in bindings.items()
        )
    except OSError:
        return False


def _root(env: Mapping[bytes, bytes]) -> str:
    runtime = env.get(b"XDG_RUNTIME_DIR")
    if runtime:
        base = os.path.join(os.fsdecode(runtime), "shoal")
        os.makedirs(base, mode=_PRIVATE_MODE, exist_ok=True)
        root = os.path.join(base, "views")
    else:
        temporary = os.fsdecode(env.get(b"TMPDIR") or b"/tmp")
        root = os.path.join(temporary, f"shoal-views-{os.geteuid()}")
    try:
        os.mkdir(root, _PRIVATE_MODE)
    except FileExistsError:
        found = os.lstat(root)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), root) from None
        if found.st_mode & 0o077:
            os.chmod(root, _PRIVATE_MODE)
    return root
