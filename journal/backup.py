"""Backup archives of a state directory (chapter 81 §9.2).

An archive is a tar file that begins with `manifest.json`, which names every other member with its
size and hash. It is made beside a running daemon: the database by SQLite's online copy once it has
what was acknowledged by then, then every blob the copy refers to, then the small files. Its body is
written to a temporary file first, because the manifest in front can only be written when everything
behind it is known.

Failure: `ArchiveError` for an archive that is not sound or may not be restored there, `StoreInUse`
for a directory a daemon holds, OSError from the system. A failed restore leaves the directory as it
was; a failed creation leaves no archive.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from blake3 import blake3

from journal.commit_log import LOG_NAME
from journal.database import DATABASE_NAME, file_uri, unavailable
from journal.errors import StoreError
from journal.schema import SCHEMA_VERSION
from journal.settling import settle
from journal.state_dir import DIRECTORY_MODE, FILE_MODE, DirectoryLock, secure_directory

FORMAT: Final = 1
MANIFEST_NAME: Final = "manifest.json"
MANIFEST_BYTES_MAX: Final = 256 * 1024 * 1024
COPY_BYTES: Final = 1024 * 1024
SMALL_FILES: Final = (
    "tokens.json",
    "tokens.json.lock",
    "config.toml",
    "history.txt",
    "jump.frecency",
)
AGENTS: Final = "agents"
SECRETS: Final = "secrets"
TOKEN_FILES: Final = ("tokens.json", "tokens.json.lock")


class ArchiveError(StoreError):
    """The archive is not sound, or must not be restored where it was asked to be."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive as the manifest names it."""

    path: str
    size: int
    blake3: str


@dataclass(frozen=True, slots=True)
class Created:
    """What went into an archive; `missing` are blobs that vanished meanwhile, `lacking` counts the
    batches of answers that only the commit log had and the database did not take."""

    members: tuple[Member, ...]
    missing: tuple[str, ...]
    lacking: int


# --- create --------------------------------------------------------------------------------------


def create_archive(
    directory: Path,
    target: Path | BinaryIO,
    *,
    version: str,
    blobs: bool = True,
    secrets: Path | None = None,
) -> Created:
    """Back up a state directory into a file (private, complete or not there) or a stream."""
    if not (directory / DATABASE_NAME).exists():
        raise ArchiveError(f"there is no {DATABASE_NAME} in {directory}")
    folder = target.parent if isinstance(target, Path) else None
    lacking = settle(directory)
    with tempfile.TemporaryFile(dir=folder) as body:
        members: list[Member] = []
        missing: list[str] = []
        schema = _write_body(body, directory, members, missing, blobs=blobs, secrets=secrets)
        manifest = {
            "format": FORMAT,
            "created_ns": time.time_ns(),
            "version": version,
            "schema": schema,
            "files": [
                {"path": member.path, "size": member.size, "blake3": member.blake3}
                for member in members
            ],
        }
        content = json.dumps(manifest, ensure_ascii=False, separators=(",", ":")).encode()
        body.seek(0)
        if isinstance(target, Path):
            _write_file(target, content, body)
        else:
            _write_archive(target, content, body)
    return Created(tuple(members), tuple(missing), lacking)


def _write_file(target: Path, manifest: bytes, body: BinaryIO) -> None:
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(fd, "wb") as out:
            _write_archive(out, manifest, body)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_archive(out: BinaryIO, manifest: bytes, body: BinaryIO) -> None:
    """The manifest's member, then the body, which is a tar file of its own."""
    head = _info(MANIFEST_NAME, len(manifest), time.time())
    out.write(head.tobuf(tarfile.PAX_FORMAT))
    out.write(manifest)
    out.write(b"\0" * (-len(manifest) % tarfile.BLOCKSIZE))
    shutil.copyfileobj(body, out, COPY_BYTES)


def _write_body(
    body: BinaryIO,
    directory: Path,
    members: list[Member],
    missing: list[str],
    *,
    blobs: bool,
    secrets: Path | None,
) -> int:
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as tar:
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, DATABASE_NAME)
            schema, names = _copy_database(directory / DATABASE_NAME, copy)
            members.append(_add(tar, copy, DATABASE_NAME))
        for name in names if blobs else ():
            path = f"cas/{name[:2]}/{name[2:4]}/{name}.zst"
            try:
                members.append(_add(tar, directory / path, path))
            except FileNotFoundError:
                missing.append(name)
        for source, name in _small_files(directory, secrets):
            try:
                members.append(_add(tar, source, name))
            except FileNotFoundError:
                # A file that was there a moment ago: tokens and histories are replaced, not kept.
                continue
    return schema


def _copy_database(source: Path, copy: Path) -> tuple[int, list[str]]:
    """One consistent copy; its schema version and the names of the blobs it has rows of."""
    with (
        _as_store_errors(),
        closing(sqlite3.connect(f"file:{file_uri(source)}?mode=ro", uri=True)) as database,
        closing(sqlite3.connect(copy, isolation_level=None)) as copied,
    ):
        # In one step: a copy in pieces would begin anew with each commit of a running daemon.
        database.backup(copied)
        copied.execute("PRAGMA journal_mode = DELETE")
        (version,) = copied.execute("PRAGMA user_version").fetchone()
        rows = copied.execute("SELECT hash FROM blob ORDER BY hash").fetchall()
    return int(version), [digest.hex() for (digest,) in rows]


@contextmanager
def _as_store_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise unavailable(error) from error


def _small_files(directory: Path, secrets: Path | None) -> Iterator[tuple[Path, str]]:
    for name in SMALL_FILES:
        if (directory / name).is_file():
            yield directory / name, name
    for workspace in sorted(directory.glob(f"{AGENTS}/*/workspace")):
        yield from _tree(workspace, str(workspace.relative_to(directory)))
    if secrets is not None and secrets.is_dir():
        yield from _tree(secrets, SECRETS)


def _tree(root: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path, f"{prefix}/{path.relative_to(root)}"


def _add(tar: tarfile.TarFile, source: Path, name: str) -> Member:
    """Add a file as it is now: what grows while it is read is cut, what shrinks is an error."""
    with source.open("rb") as file:
        found = os.fstat(file.fileno())
        hashing = _Hashing(file)
        tar.addfile(_info(name, found.st_size, found.st_mtime), hashing)
    return Member(name, found.st_size, hashing.hasher.hexdigest())


def _info(name: str, size: int, mtime: float) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mtime = int(mtime)
    info.mode = FILE_MODE
    return info


class _Hashing(io.RawIOBase):
    """A file that hashes what is read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hasher = blake3()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.hasher.update(data)
        return data


# --- verify --------------------------------------------------------------------------------------


def verify_archive(archive: Path) -> tuple[Member, ...]:
    """Check every member against the manifest, and the database's integrity."""
    with tempfile.TemporaryDirectory() as scratch:
        return _unpack(archive, Path(scratch), keep=frozenset({DATABASE_NAME}))


def _unpack(archive: Path, into: Path, *, keep: frozenset[str] | None = None) -> tuple[Member, ...]:
    """Check the archive while writing its files (only `keep`, when given) below a fresh
    directory.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            manifest = _manifest(tar)
            seen: set[str] = set()
            for info in tar:
                if info.name == MANIFEST_NAME:
                    continue
                member = manifest.get(info.name)
                if member is None or info.name in seen or not info.isreg():
                    raise ArchiveError(f"the archive has an unexpected member {info.name!r}")
                seen.add(info.name)
                file = tar.extractfile(info)
                if file is None or not _matches(
                    file, member, into if keep is None or info.name in keep else None
                ):
                    raise ArchiveError(f"{info.name} does not match the manifest")
    except tarfile.TarError as error:
        raise ArchiveError(f"not a backup archive: {error}") from None
    lost = sorted(set(manifest) - seen)
    if lost:
        raise ArchiveError(f"the archive lacks {lost[0]}")
    _check_database(into / DATABASE_NAME)
    return tuple(manifest.values())


def _manifest(tar: tarfile.TarFile) -> dict[str, Member]:
    first = tar.next()
    if first is None or first.name != MANIFEST_NAME or first.size > MANIFEST_BYTES_MAX:
        raise ArchiveError("not a backup archive: it does not begin with a manifest")
    file = tar.extractfile(first)
    try:
        document = json.loads(b"" if file is None else file.read())
        if document["format"] != FORMAT:
            raise ArchiveError(f"backup format {document['format']} is not understood")
        if document["schema"] > SCHEMA_VERSION:
            raise ArchiveError(f"the backup holds journal.db of schema {document['schema']}")
        members = [
            Member(str(entry["path"]), int(entry["size"]), str(entry["blake3"]))
            for entry in document["files"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArchiveError("not a backup archive: its manifest is broken") from None
    for member in members:
        parts = PurePosixPath(member.path).parts
        if not parts or member.path.startswith("/") or ".." in parts:
            raise ArchiveError(f"the archive has an unsafe path {member.path!r}")
    named = {member.path: member for member in members}
    if DATABASE_NAME not in named or len(named) != len(members):
        raise ArchiveError("not a backup archive: its manifest is broken")
    return named


def _matches(file: io.BufferedIOBase | object, member: Member, into: Path | None) -> bool:
    """Whether the content is what the manifest says; it is written below `into` on the way."""
    assert isinstance(file, io.BufferedIOBase)
    hasher, size = blake3(), 0
    out = None if into is None else _create(into, member.path)
    try:
        while piece := file.read(COPY_BYTES):
            hasher.update(piece)
            size += len(piece)
            if out is not None:
                out.write(piece)
    finally:
        if out is not None:
            out.close()
    return size == member.size and hasher.hexdigest() == member.blake3


def _create(into: Path, name: str) -> BinaryIO:
    path = into / name
    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    return os.fdopen(fd, "wb")


def _check_database(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path)) as database:
            (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        verdict = str(error)
    if verdict != "ok":
        raise ArchiveError(f"journal.db in the archive is damaged: {verdict}")


# --- restore -------------------------------------------------------------------------------------


def restore_archive(
    archive: Path, into: Path, *, drop_tokens: bool = False, force: bool = False
) -> tuple[Member, ...]:
    """Restore into a directory that no daemon uses and that is empty, or with `force` is not.

    Everything is checked before anything of the directory changes.
    """
    secure_directory(into)
    lock = DirectoryLock(into)
    try:
        if not force and any(path.name != "lock" for path in into.iterdir()):
            raise ArchiveError(f"{into} is not empty")
        scratch = Path(tempfile.mkdtemp(dir=into.parent, prefix=f".{into.name}.restore-"))
        try:
            members = _unpack(archive, scratch)
            if drop_tokens:
                for name in TOKEN_FILES:
                    (scratch / name).unlink(missing_ok=True)
            _secure_tree(scratch)
            _replace(scratch, into, drop_tokens=drop_tokens)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        lock.release()
    return members


def _secure_tree(root: Path) -> None:
    for folder, _, files in os.walk(root):
        Path(folder).chmod(DIRECTORY_MODE)
        for name in files:
            Path(folder, name).chmod(FILE_MODE)


def _replace(scratch: Path, into: Path, *, drop_tokens: bool) -> None:
    """Put the restored entries in the place of the old ones. Old log files must not outlive
    theirs.
    """
    old = {"cas", LOG_NAME, *(f"{DATABASE_NAME}-{end}" for end in ("wal", "shm", "journal"))}
    if drop_tokens:
        old.update(TOKEN_FILES)
    for path in [into / name for name in old | {path.name for path in scratch.iterdir()}]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in scratch.iterdir():
        path.rename(into / path.name)
