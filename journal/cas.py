"""Content-addressed files: `cas/<aa>/<bb>/<hash>.zst`, named by the BLAKE3 of their content.

Content up to FRAME_CONTENT_BYTES is one Zstandard frame, longer content a sequence of independent
frames of that much content each, so that a ranged read decodes only what it needs and any Zstandard
reader decodes the whole. Files appear by rename; nothing is returned before the whole file was
decoded and hashed, and that verdict is remembered for the file's identity. Rows of the database are
none of this module's business.

Failure: writing raises OSError and leaves at worst a temporary file; reading raises `BlobMissing`
for what is not there or is no hash, `BlobDamaged` for what does not decode to its name (the file is
kept).
"""

# ruff: noqa: PTH102, PTH104, PTH108, PTH116

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import zstandard
from blake3 import blake3

from journal.errors import BlobDamaged, BlobMissing
from journal.state_dir import DIRECTORY_MODE, FILE_MODE, secure_directory
from journal.zframes import FrameError, content_after, decode_frame, frame_at

FRAME_CONTENT_BYTES: Final = 1024 * 1024
ZSTD_LEVEL: Final = 3
VERDICTS_KEPT: Final = 16_384
# Below this size writing the file anew is cheaper than finding out whether a good one is there.
REUSE_CHECK_BYTES_MIN: Final = 64 * 1024
TRUNCATION_MARKER: Final = b"\n[shoal: output truncated; see journal metadata]\n"
NAME: Final = re.compile(r"[0-9a-f]{64}\Z")


class Written(NamedTuple):
    """Content that now has a file. `original_length` is None unless it was cut to the cap."""

    hash: bytes
    length: int
    disk_length: int
    original_length: int | None


@dataclass(frozen=True, slots=True)
class BlobPiece:
    """`data` is the content from `offset` on; `total` is the length of the whole."""

    total: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A file that decoded to its name: where its frames start, None when it must be read from the
    front.
    """

    identity: tuple[int, int, int]
    total: int
    frames: tuple[int, ...] | None


class ContentStore:
    """The files below one `cas/` directory. Every method may be called from any thread.

    Paths are text: this runs for every recorded output, and Path objects cost more than the calls.
    """

    # Verdicts by hash, oldest use first; whose content is being read, with the number of readers;
    # damaged files seen. All three change under `_lock`.
    _verdicts: OrderedDict[bytes, _Verdict]
    _readers: dict[bytes, int]
    damaged_seen: int
    # One flag per `aa/bb` directory known to exist; set only after it was made, so a lost race
    # costs a mkdir.
    _directories: bytearray

    def __init__(self, root: Path, *, durable: bool, cap_bytes: int, create: bool = True) -> None:
        if create:
            secure_directory(root)
        self.root = root
        self._prefix = f"{root}/"
        self._durable = durable
        self._cap = cap_bytes
        self._lock = threading.Lock()
        self._verdicts = OrderedDict()
        self._readers = {}
        self._directories = bytearray(1 << 16)
        self._serial = count()
        self._local = threading.local()
        self.damaged_seen = 0
        # Told when content turns out missing or damaged, on the thread that found out.
        self.on_doubt: Callable[[bytes], None] | None = None

    # --- writing ---------------------------------------------------------------------------------

    @staticmethod
    def hash(content: bytes) -> bytes:
        digest: bytes = blake3(content).digest()
        return digest

    def put(self, content: bytes) -> Written:
        """Store content, cut at the cap, under its hash."""
        kept, original = self.cut(content)
        return self.put_hashed(blake3(kept).digest(), kept, original)

    def cut(self, content: bytes) -> tuple[bytes, int | None]:
        """The content as it is stored, and its original length when that is not all of it."""
        if len(content) <= self._cap:
            return content, None
        marker = TRUNCATION_MARKER[: self._cap]
        return content[: self._cap - len(marker)] + marker, len(content)

    def put_hashed(self, digest: bytes, content: bytes, original: int | None = None) -> Written:
        """Store content whose hash the caller has just computed."""
        name = digest.hex()
        if len(content) >= REUSE_CHECK_BYTES_MIN:
            size = self._good_file_size(digest, name)
            if size is not None:
                return Written(digest, len(content), size, original)
        compress = self._compressor().compress
        if len(content) <= FRAME_CONTENT_BYTES:
            packed = compress(content)
        else:
            view = memoryview(content)
            packed = b"".join(
                compress(view[start : start + FRAME_CONTENT_BYTES])
                for start in range(0, len(content), FRAME_CONTENT_BYTES)
            )
        self._place(digest, name, packed)
        return Written(digest, len(content), len(packed), original)

    def put_file(self, fd: int, length: int, *, capped: bool = True) -> Written:
        """Store the first `length` bytes behind a descriptor, hashing while compressing.

        The descriptor stays the caller's. A file that turns out shorter counts as that short.
        """
        cut = capped and length > self._cap
        marker = TRUNCATION_MARKER[: self._cap] if cut else b""
        keep = self._cap - len(marker) if cut else length
        hasher = blake3()
        compress = self._compressor().compress
        temporary = f"{self._prefix}.{os.getpid()}-{next(self._serial)}.tmp"
        out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        total = packed_total = 0
        try:
            try:
                for chunk in _chunks(fd, keep, marker):
                    hasher.update(chunk)
                    total += len(chunk)
                    packed = compress(chunk)
                    packed_total += len(packed)
                    _write_all(out, packed)
                if self._durable:
                    os.fsync(out)
            finally:
                os.close(out)
            digest = hasher.digest()
            name = digest.hex()
            size = self._good_file_size(digest, name)
            if size is None:
                self._rename(temporary, digest, name)
                size = packed_total
            else:
                os.unlink(temporary)
        except BaseException:
            _unlink_quietly(temporary)
            raise
        return Written(digest, total, size, length if cut else None)

    def _place(self, digest: bytes, name: str, packed: bytes) -> None:
        """Write the file beside its final place and rename it there."""
        folder = f"{self._prefix}{name[:2]}/{name[2:4]}"
        index = digest[0] << 8 | digest[1]
        if not self._directories[index]:
            self._make_directory(folder, index)
        temporary = f"{folder}/.{name[4:20]}.{os.getpid()}-{next(self._serial)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, FILE_MODE)
        except FileNotFoundError:
            self._make_directory(folder, index)
            fd = os.open(temporary, flags, FILE_MODE)
        try:
            try:
                if os.write(fd, packed) != len(packed):
                    os.ftruncate(fd, 0)
                    os.lseek(fd, 0, os.SEEK_SET)
                    _write_all(fd, packed)
                if self._durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, f"{folder}/{name}.zst")
        except BaseException:
            _unlink_quietly(temporary)
            raise
        if self._durable:
            _sync_directory(folder)

    def _rename(self, temporary: str, digest: bytes, name: str) -> None:
        folder = f"{self._prefix}{name[:2]}/{name[2:4]}"
        self._make_directory(folder, digest[0] << 8 | digest[1])
        os.rename(temporary, f"{folder}/{name}.zst")
        if self._durable:
            _sync_directory(folder)

    def _make_directory(self, folder: str, index: int) -> None:
        outer = os.path.dirname(folder)
        for path in (outer, folder):
            try:
                os.mkdir(path, DIRECTORY_MODE)
            except FileExistsError:
                continue
            if self._durable:
                _sync_directory(os.path.dirname(path))
        self._directories[index] = 1

    def _good_file_size(self, digest: bytes, name: str) -> int | None:
        """The size of an existing file that verifies, None when there is none or it is damaged."""
        try:
            with self._opened(digest, name) as fd:
                self._verify(digest, name, fd)
                return os.fstat(fd).st_size
        except (BlobMissing, BlobDamaged):
            return None

    # --- reading ---------------------------------------------------------------------------------

    def read(self, name: str, offset: int = 0, length: int | None = None) -> BlobPiece:
        """A verified range of the content; a range at or past the end is empty."""
        digest = digest_of(name)
        with self._opened(digest, name) as fd:
            verdict, whole = self._verify(digest, name, fd)
            start = min(offset, verdict.total)
            end = verdict.total if length is None else min(start + length, verdict.total)
            if whole is not None:
                return BlobPiece(verdict.total, start, whole[start:end])
            try:
                data = b"".join(self._range(fd, verdict, start, end))
            except (FrameError, zstandard.ZstdError):
                raise self._damaged(digest, name) from None
            if len(data) != end - start:
                raise self._damaged(digest, name)
            return BlobPiece(verdict.total, start, data)

    def _range(self, fd: int, verdict: _Verdict, start: int, end: int) -> Iterator[bytes]:
        if start >= end:
            return
        decompressor = self._decompressor()
        if verdict.frames is None:
            yield from content_after(decompressor, fd, 0, start, end)
            return
        for number in range(start // FRAME_CONTENT_BYTES, (end - 1) // FRAME_CONTENT_BYTES + 1):
            frame = frame_at(fd, verdict.frames[number], verdict.identity[1])
            content = decode_frame(decompressor, fd, frame)
            base = number * FRAME_CONTENT_BYTES
            yield content[max(start - base, 0) : end - base]

    def _verify(self, digest: bytes, name: str, fd: int) -> tuple[_Verdict, bytes | None]:
        """Decode and hash the whole file unless that was done; small content comes along."""
        found = os.fstat(fd)
        identity = (found.st_ino, found.st_size, found.st_mtime_ns)
        with self._lock:
            known = self._verdicts.get(digest)
            if known is not None and known.identity == identity:
                self._verdicts.move_to_end(digest)
                return known, None
        whole: bytes | None = None
        try:
            verdict, whole = self._decode(digest, fd, identity)
        except (FrameError, zstandard.ZstdError):
            raise self._damaged(digest, name) from None
        with self._lock:
            self._verdicts[digest] = verdict
            if len(self._verdicts) > VERDICTS_KEPT:
                self._verdicts.popitem(last=False)
        return verdict, whole

    def _decode(
        self, digest: bytes, fd: int, identity: tuple[int, int, int]
    ) -> tuple[_Verdict, bytes | None]:
        size = identity[1]
        hasher = blake3()
        decompressor = self._decompressor()
        total = position = 0
        starts: list[int] = []
        regular = size > 0
        content = b""
        while position < size:
            frame = frame_at(fd, position, size)
            if frame.content_length is None or frame.content_length > FRAME_CONTENT_BYTES:
                regular = False
                for part in content_after(decompressor, fd, position, 0, None):
                    hasher.update(part)
                    total += len(part)
                break
            content = decode_frame(decompressor, fd, frame)
            hasher.update(content)
            regular = regular and total == len(starts) * FRAME_CONTENT_BYTES
            starts.append(position)
            total += len(content)
            position = frame.end
        if hasher.digest() != digest:
            raise FrameError("content hash mismatch")
        verdict = _Verdict(identity, total, tuple(starts) if regular else None)
        return verdict, content if regular and len(starts) == 1 else None

    def _damaged(self, digest: bytes, name: str) -> BlobDamaged:
        with self._lock:
            self._verdicts.pop(digest, None)
            self.damaged_seen += 1
        self._doubt(digest)
        return BlobDamaged(name)

    def _doubt(self, digest: bytes) -> None:
        if self.on_doubt is not None:
            self.on_doubt(digest)

    @contextmanager
    def _opened(self, digest: bytes, name: str) -> Iterator[int]:
        with self._lock:
            self._readers[digest] = self._readers.get(digest, 0) + 1
        try:
            try:
                fd = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                self._doubt(digest)
                raise BlobMissing(name) from None
            try:
                yield fd
            finally:
                os.close(fd)
        finally:
            with self._lock:
                self._readers[digest] -= 1
                if not self._readers[digest]:
                    del self._readers[digest]

    # --- keeping house ---------------------------------------------------------------------------

    def path(self, name: str) -> str:
        return f"{self._prefix}{name[:2]}/{name[2:4]}/{name}.zst"

    def exists(self, digest: bytes) -> bool:
        return self.disk_length(digest) is not None

    def disk_length(self, digest: bytes) -> int | None:
        """The size of the file with this name, None when there is none."""
        try:
            return os.stat(self.path(digest.hex())).st_size
        except FileNotFoundError:
            return None

    def being_read(self, digest: bytes) -> bool:
        with self._lock:
            return digest in self._readers

    def remove(self, digest: bytes) -> None:
        """Remove one file; a missing one is fine. When unlinking fails the file has its name
        back.
        """
        path = self.path(digest.hex())
        aside = f"{path}.gc-{os.getpid()}"
        with self._lock:
            self._verdicts.pop(digest, None)
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return
        try:
            os.unlink(aside)
        except OSError:
            os.rename(aside, path)
            raise

    def _compressor(self) -> zstandard.ZstdCompressor:
        try:
            found: zstandard.ZstdCompressor = self._local.compressor
        except AttributeError:
            found = self._local.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        return found

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        try:
            found: zstandard.ZstdDecompressor = self._local.decompressor
        except AttributeError:
            found = self._local.decompressor = zstandard.ZstdDecompressor()
        return found


def digest_of(name: str) -> bytes:
    """The 32 bytes of a hash given as text; what is not 64 lower-case hex digits names nothing."""
    if not NAME.match(name):
        raise BlobMissing(name)
    return bytes.fromhex(name)


def _chunks(fd: int, keep: int, marker: bytes) -> Iterator[bytes]:
    """The first `keep` bytes and then the marker, in pieces of one frame's content each; never
    nothing.
    """
    position = 0
    pending = b""
    while position < keep:
        piece = os.pread(fd, min(FRAME_CONTENT_BYTES, keep - position), position)
        if not piece:
            break
        position += len(piece)
        pending += piece
        if len(pending) >= FRAME_CONTENT_BYTES:
            yield pending[:FRAME_CONTENT_BYTES]
            pending = pending[FRAME_CONTENT_BYTES:]
    pending += marker
    while len(pending) > FRAME_CONTENT_BYTES:
        yield pending[:FRAME_CONTENT_BYTES]
        pending = pending[FRAME_CONTENT_BYTES:]
    if pending or not position:
        yield pending


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
