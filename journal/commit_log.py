"""The commit log: what was acknowledged and is not in the database yet.

`commit.log` in the state directory is a header and then records, each of a length, a checksum, a
sequence number and a payload. A record is appended by one write and stands as soon as that write
returned: the page cache outlives every process. Sequence numbers ascend by one over the life of the
database, whatever was cut from the file between; the database remembers the last one it holds
(`APPLIED`), in the transaction that applied it, so that a record counts exactly once.

The header names the database the log belongs to. A log of another one, or no log at all under this
name, is set aside as `commit.log.foreign` and never replayed.

Failure: `append` raises OSError and keeps nothing of the record. At open everything from the first
torn or damaged record on is cut off; such a record was never acknowledged.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from journal.state_dir import FILE_MODE, tighten_file

LOG_NAME: Final = "commit.log"
FOREIGN_SUFFIX: Final = ".foreign"
MAGIC: Final = b"shoallog"
FORMAT: Final = 1
# Names in the table `counter`: whose log it is, and the sequence number of the last record applied.
IDENTITY: Final = "log:identity"
APPLIED: Final = "log:applied"
RECORD_BYTES_MAX: Final = 256 * 1024 * 1024

_HEADER: Final = Struct("<8sIQ")
_RECORD: Final = Struct("<IIQ")
_SEQUENCE: Final = Struct("<Q")

log = logging.getLogger("shoal.journal")


class CommitLog:
    """One open log. Used by one thread at a time."""

    # `_end` is where the next record goes: everything before it is whole, whatever is behind it
    # belongs to a write that failed. `sequence` is that of the last record.
    _end: int
    sequence: int

    def __init__(self, directory: Path, identity: int, applied: int) -> None:
        """Open or create. Raises OSError."""
        self.path = directory / LOG_NAME
        self._identity = identity
        self.sequence = applied
        tighten_file(self.path)
        self._fd = self._opened()
        try:
            if not self._is_ours():
                self._set_aside()
            self._end = _HEADER.size
        except BaseException:
            os.close(self._fd)
            raise

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def _is_ours(self) -> bool:
        head = os.pread(self._fd, _HEADER.size, 0)
        return head == _HEADER.pack(MAGIC, FORMAT, self._identity)

    def _set_aside(self) -> None:
        """Begin a fresh log; what stands there and holds more than a header is kept for people."""
        if os.fstat(self._fd).st_size > _HEADER.size:
            aside = f"{self.path}{FOREIGN_SUFFIX}"
            log.error("%s is not the log of this database: renamed to %s", self.path, aside)
            self.path.rename(aside)
            os.close(self._fd)
            self._fd = self._opened()
        os.ftruncate(self._fd, 0)
        _write(self._fd, _HEADER.pack(MAGIC, FORMAT, self._identity), 0)

    def unapplied(self) -> Iterator[tuple[int, bytes]]:
        """The records behind the last one applied, with their numbers. Read it to its end before
        the first `append`: the walk finds the end of what is whole, and cuts the rest.
        """
        applied = self.sequence
        previous = 0
        size = os.fstat(self._fd).st_size
        while (found := _record_at(self._fd, self._end, size)) is not None:
            sequence, payload = found
            if sequence <= previous:
                # Left behind by a write that failed and could not be taken back.
                break
            previous = sequence
            self._end += _RECORD.size + len(payload)
            self.sequence = max(sequence, applied)
            if sequence > applied:
                yield sequence, payload
        if self._end < size:
            log.warning("%s: %d bytes of a torn record are cut off", self.path, size - self._end)
            os.ftruncate(self._fd, self._end)

    def append(self, payload: bytes) -> int:
        """Write one record; when this returns it outlives the process. Returns its number."""
        sequence = self.sequence + 1
        head = _RECORD.pack(len(payload), _checksum(sequence, payload), sequence)
        try:
            _write(self._fd, head + payload, self._end)
        except OSError:
            self._cut()
            raise
        self._end += len(head) + len(payload)
        self.sequence = sequence
        return sequence

    def _cut(self) -> None:
        """Take back what a failed write left; where even that fails, the next record covers it."""
        try:
            os.ftruncate(self._fd, self._end)
        except OSError as error:
            log.error("%s could not be cut after a failed write: %s", self.path, error)

    def room(self) -> int:
        """Bytes that this user can still write on the disk of the log. Raises OSError."""
        disk = os.fstatvfs(self._fd)
        return disk.f_bavail * disk.f_frsize

    @property
    def size(self) -> int:
        """Bytes of records in the file."""
        return self._end - _HEADER.size

    def clear(self) -> None:
        """Drop every record, since the database has them all. Raises OSError."""
        if self.size:
            os.ftruncate(self._fd, _HEADER.size)
            self._end = _HEADER.size

    def remove(self) -> None:
        """Close for good: the file goes, nothing in it is needed."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._fd)


def newest_sequence(path: Path, identity: int) -> int:
    """The number of the last whole record, looked at while a daemon may write; 0 when there is
    none, or the log belongs to another database. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        if os.pread(fd, _HEADER.size, 0) != _HEADER.pack(MAGIC, FORMAT, identity):
            return 0
        newest, position, size = 0, _HEADER.size, os.fstat(fd).st_size
        while (found := _record_at(fd, position, size)) is not None and found[0] > newest:
            newest = found[0]
            position += _RECORD.size + len(found[1])
        return newest
    finally:
        os.close(fd)


def _record_at(fd: int, position: int, size: int) -> tuple[int, bytes] | None:
    """The whole record at a place of a file of that size, with its number."""
    head = os.pread(fd, _RECORD.size, position)
    if len(head) < _RECORD.size:
        return None
    length, checksum, sequence = _RECORD.unpack(head)
    if length > min(RECORD_BYTES_MAX, size - position - _RECORD.size):
        return None
    payload = os.pread(fd, length, position + _RECORD.size)
    if len(payload) < length or _checksum(sequence, payload) != checksum:
        return None
    return sequence, payload


def _checksum(sequence: int, payload: bytes) -> int:
    return crc32(payload, crc32(_SEQUENCE.pack(sequence)))


def _write(fd: int, data: bytes, position: int) -> None:
    written = os.pwrite(fd, data, position)
    while written < len(data):
        # A full disk or a limit in the middle: the next write says which.
        more = os.pwrite(fd, data[written:], position + written)
        if not more:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more


def log_identity(connection: sqlite3.Connection) -> int:
    """The name of this database in the header of its log; given to it when it has none."""
    known = known_identity(connection)
    if known is not None:
        return known
    identity = secrets.randbits(62)
    connection.execute("INSERT INTO counter VALUES (?, ?)", (IDENTITY, identity))
    return identity


def known_identity(connection: sqlite3.Connection) -> int | None:
    """The name of this database, None when it never had a log."""
    return _counter(connection, IDENTITY)


def applied_sequence(connection: sqlite3.Connection) -> int:
    """The number of the last record the database holds, 0 before the first."""
    return _counter(connection, APPLIED) or 0


def _counter(connection: sqlite3.Connection, name: str) -> int | None:
    row = connection.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def note_applied(connection: sqlite3.Connection, sequence: int) -> None:
    """Have the database remember, in the transaction that is open."""
    connection.execute(
        "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (APPLIED, sequence),
    )
