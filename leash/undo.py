"""Replaying undo records: files put back the way they were before (chapter 50 §13.3).

Inverses are the stored objects of an entry in recording order; they are replayed newest first.
Every step is checked against the file system before it changes anything: a file that was modified
since, or a target outside the root, stops the replay. Steps already applied stay. Replaying twice
is harmless: a step whose result is already there is reported as such.

Failure: `Refused` with the reason; `stale` tells a file changed since from a target or a record
that must never be replayed. The callback `allow` may raise anything of its own before a file is
changed.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from blake3 import blake3

# The content of a hash, or None when the store does not have it.
Snapshots = Callable[[str], bytes | None]
Inverse = Mapping[str, Any]

_HASH_CHUNK_BYTES: Final = 1 << 20
_HASH_DIGITS: Final = 64


class Refused(Exception):
    """A step that must not be done; the text says why."""

    def __init__(self, reason: str, *, stale: bool = False) -> None:
        super().__init__(reason)
        self.stale = stale


@dataclass(frozen=True, slots=True)
class Step:
    """One replayed inverse; `what` says in words what has been put back."""

    inverse: Inverse
    applied: bool
    what: str


def replay(
    inverses: Sequence[Inverse],
    *,
    root: str,
    snapshots: Snapshots,
    allow: Callable[[str], None] = lambda path: None,
) -> list[Step]:
    """Take back one entry below `root`; the steps in the order they were done."""
    scope = _Scope(root)
    steps: list[Step] = []
    for inverse in reversed(inverses):
        act = _ACTIONS.get(str(inverse.get("kind")))
        if act is None:
            raise Refused("invalid undo inverse: unknown kind")
        steps.append(act(_Replay(inverse, scope, snapshots, allow)))
    return steps


class _Scope:
    """The directory every target must lie in. Symlinks in the way to the root itself are fine."""

    def __init__(self, root: str) -> None:
        self._lexical = os.path.normpath(root)
        self._real = os.path.realpath(root)

    def place(self, target: str) -> str:
        """The path to work on, reached through no symlink below the root."""
        inside = self._inside(os.path.normpath(target)) if target.startswith("/") else None
        if not inside:
            raise Refused(f"undo target escapes scope: {_shown(target)}")
        *parents, name = inside.split("/")
        path = self._real
        for part in parents:
            path = os.path.join(path, part)
            if os.path.islink(path):
                raise Refused(f"undo target escapes scope: {_shown(target)}")
        return os.path.join(path, name)

    def _inside(self, target: str) -> str | None:
        for root in (self._lexical, self._real):
            prefix = root.rstrip("/") + "/"
            if target.startswith(prefix):
                return target[len(prefix) :]
        return None


def _shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


class _Replay:
    """One inverse with everything its step needs."""

    def __init__(
        self,
        inverse: Inverse,
        scope: _Scope,
        snapshots: Snapshots,
        allow: Callable[[str], None],
    ) -> None:
        self.inverse = inverse
        self.scope = scope
        self.snapshots = snapshots
        self.allow = allow

    def text(self, member: str) -> str:
        value = self.inverse.get(member)
        if not isinstance(value, str) or not value or "\0" in value:
            raise Refused(f"invalid undo inverse: {member} is not a path or hash")
        return value

    def fingerprint(self, member: str) -> Mapping[str, Any]:
        value = self.inverse.get(member)
        if not isinstance(value, Mapping):
            raise Refused(f"invalid undo inverse: {member} is not a fingerprint")
        return value


def _stale(path: str) -> Refused:
    return Refused(f"undo target was modified since recording: {_shown(path)}", stale=True)


def _hash(path: str) -> str:
    digest = blake3()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb", buffering=0) as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _matches(path: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a path still has the fingerprint it was left with."""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode) or info.st_size != wanted.get("size"):
            return False
        modified = wanted.get("modified_ns")
        if modified is not None and info.st_mtime_ns != modified:
            return False
        digest = wanted.get("hash")
        if digest is None:
            return not stat.S_ISREG(info.st_mode)
        return stat.S_ISREG(info.st_mode) and _hash(path) == digest
    except OSError:
        return False


def _move(step: _Replay, source: str, target: str, wanted: Mapping[str, Any], what: str) -> Step:
    """Move `source` back to `target` unless that has been done already."""
    here, there = os.path.lexists(source), os.path.lexists(target)
    if there and not here:
        return Step(step.inverse, False, what)
    if here == there or not _matches(source, wanted):
        raise _stale(source if here else target)
    step.allow(target)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.move(source, target)
    except OSError as error:
        raise Refused(f"{_shown(target)}: {error.strerror or error}") from None
    return Step(step.inverse, True, what)


def _trash_move(step: _Replay) -> Step:
    original = step.text("original")
    return _move(
        step,
        step.text("trash"),
        step.scope.place(original),
        step.fingerprint("trash_fingerprint"),
        f"restored {_shown(original)}",
    )


def _move_back(step: _Replay) -> Step:
    old = step.text("to")
    return _move(
        step,
        step.scope.place(step.text("from")),
        step.scope.place(old),
        step.fingerprint("expected_from"),
        f"moved back to {_shown(old)}",
    )


def _restore_bytes(step: _Replay) -> Step:
    path, wanted = step.text("path"), step.text("prior_hash")
    if len(wanted) != _HASH_DIGITS:
        raise Refused("invalid undo inverse: prior_hash is not a hash")
    place = step.scope.place(path)
    what = f"restored prior contents of {_shown(path)}"
    try:
        info = os.lstat(place)
        current = _hash(place) if stat.S_ISREG(info.st_mode) else None
    except OSError:
        raise _stale(path) from None
    if current is None:
        raise _stale(path)
    if current == wanted:
        return Step(step.inverse, False, what)
    if not _matches(place, step.fingerprint("expected_current")):
        raise _stale(path)
    content = step.snapshots(wanted)
    if content is None:
        raise Refused(f"invalid undo inverse: missing CAS blob {wanted}")
    if blake3(content).hexdigest() != wanted:
        raise Refused(f"invalid undo inverse: CAS blob {wanted} has other content")
    step.allow(place)
    try:
        _replace(place, content, stat.S_IMODE(info.st_mode))
    except OSError as error:
        raise Refused(f"{_shown(path)}: {error.strerror or error}") from None
    return Step(step.inverse, True, what)


def _replace(path: str, content: bytes, mode: int) -> None:
    """Readers see the old file or the whole new one."""
    fd, temporary = tempfile.mkstemp(prefix=".undo-", dir=os.path.dirname(path))
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


_ACTIONS: Final[dict[str, Callable[[_Replay], Step]]] = {
    "trash_move": _trash_move,
    "move_back": _move_back,
    "restore_bytes": _restore_bytes,
}
