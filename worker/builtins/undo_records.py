"""What is recorded so that `undo` can take a file change back (chapter 50 §13.1, §13.2).

Only under a journal entry: without a journal every function here does nothing. The journal port of
the host gets inverses in their stored JSON shape through `record_undo(entry, inverse)` and prior
contents through `snapshot(entry, content) -> hash or None` (None: larger than the output cap, or
not stored). Recording never fails the operation it belongs to: what cannot be recorded is not.

Failure: none reaches the caller; a journal that cannot write counts that itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from blake3 import blake3

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# Prior contents above this are never snapshotted: a cut one must not be replayed (chapter 61 §4).
SNAPSHOT_BYTES_MAX: Final = 256 << 20
_HASH_CHUNK_BYTES: Final = 1 << 20

Json = dict[str, Any]


def file_hash(path: str) -> str:
    """BLAKE3 of a regular file's content, lower-case hex; raises OSError."""
    digest = blake3()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb", buffering=0) as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def fingerprint(path: str) -> Json | None:
    """`{size, modified_ns, hash}` of a path; None for a symlink or something unreadable."""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            return None
        digest = file_hash(path) if stat.S_ISREG(info.st_mode) else None
    except OSError:
        return None
    return {"size": info.st_size, "modified_ns": info.st_mtime_ns, "hash": digest}


def _record(ev: Evaluator, inverse: Json) -> None:
    # A journal that is full or gone must not undo what the user asked for.
    with suppress(OSError):
        ev.host.journal.record_undo(ev.entry, inverse)


def recorded_path(path: str) -> str:
    """The absolute path an inverse names: normalised, and still naming the same file.

    Replay normalises lexically, so `..` behind a symlink has to be resolved now.
    """
    if ".." in path.split("/"):
        parent, name = os.path.split(path.rstrip("/"))
        if name not in ("", ".", ".."):
            return os.path.join(os.path.realpath(parent), name)
        return os.path.realpath(path)
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path


def recording(ev: Evaluator) -> bool:
    """Whether changes made now belong to a journal entry."""
    return ev.host.journal is not None and ev.entry is not None


def record_trash_move(ev: Evaluator, original: str, trash: str) -> None:
    if not recording(ev):
        return
    found = fingerprint(trash)
    if found is not None:
        _record(
            ev,
            {
                "kind": "trash_move",
                "original": recorded_path(original),
                "trash": trash,
                "trash_fingerprint": found,
            },
        )


def record_move_back(ev: Evaluator, new: str, old: str) -> None:
    if not recording(ev):
        return
    found = fingerprint(new)
    if found is not None:
        _record(
            ev,
            {
                "kind": "move_back",
                "from": recorded_path(new),
                "to": recorded_path(old),
                "expected_from": found,
            },
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The kept prior content of one file."""

    path: str
    prior_hash: str


def take_snapshot(ev: Evaluator, path: str) -> Snapshot | None:
    """Keep the content of an existing regular file that is about to be overwritten.

    None when there is nothing to restore: no journal, no such file, no regular file (a symlink
    included), too large, or not stored.
    """
    if not recording(ev):
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb", buffering=0) as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > SNAPSHOT_BYTES_MAX:
                return None
            content = file.readall()
        prior_hash = ev.host.journal.snapshot(ev.entry, content)
    except (OSError, ValueError):
        return None
    return None if prior_hash is None else Snapshot(recorded_path(path), prior_hash)


def record_restore(ev: Evaluator, snapshot: Snapshot | None) -> None:
    """The inverse of an overwrite that has happened."""
    if snapshot is None:
        return
    found = fingerprint(snapshot.path)
    if found is not None:
        _record(
            ev,
            {
                "kind": "restore_bytes",
                "path": snapshot.path,
                "prior_hash": snapshot.prior_hash,
                "expected_current": found,
            },
        )


@contextmanager
def overwriting(ev: Evaluator, path: str) -> Iterator[None]:
    """Surround a write to `path`: afterwards its inverse is recorded if the file existed before.

    For everything that writes files outside this package too: redirects, `save`, `append`. The
    inverse is recorded on the way out of a failed write as well, since the file may be half
    written; when nothing was written the replay finds the prior content in place.
    """
    snapshot = take_snapshot(ev, path)
    try:
        yield
    finally:
        record_restore(ev, snapshot)
