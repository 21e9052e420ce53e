"""Attachments as files of an agent's workspace (chapter 70 §15.2).

Content is stored under its hash below `uploads`, which must be a real directory; what the index
says is stored is opened and hashed again each time, and written again when it is not what it should
be.

Failure: RpcError -32602 with the texts of chapter 70 §15.1; nothing is stored then.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from ipc.jsonrpc import RpcError
from ipc.messages import Call

if TYPE_CHECKING:
    from worker.session import Session

FILE_BYTES_MAX: Final = 10_485_760
FILES_BYTES_MAX: Final = 20_971_520
DIRECTORY: Final = "uploads"
_EXTENSION: Final = re.compile(r"[A-Za-z0-9]{1,16}")
_IMAGE_EXTENSIONS: Final = frozenset({"png", "jpg", "jpeg", "gif", "webp"})
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"})
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(msgspec.Struct):
    path: str | None = None
    data_b64: str | None = None
    # Content that was decoded and checked before.
    data: bytes | None = None
    filename: str | None = None
    mime_type: str | None = None
    source: str | None = None


class Known(msgspec.Struct):
    hash: str
    marker: str
    path: str


class Order(msgspec.Struct):
    workspace: str
    entries: list[Entry]
    known: list[Known]


class Stored(msgspec.Struct):
    ref_id: str
    marker: str
    workspace_path: str
    size_bytes: int
    deduplicated: bool
    file_name: str


@dataclass(slots=True)
class Content:
    """One entry, read and checked."""

    data: bytes
    name: str
    original: str | None
    mime_type: str | None


def attach(_session: Session, call: Call) -> bytes:
    """Serve `agent.attach`: check all entries, then store all."""
    order = msgspec.json.decode(call.params, type=Order)
    contents: list[Content] = []
    total = 0
    for index, entry in enumerate(order.entries):
        contents.append(_content(entry, index))
        total += len(contents[-1].data)
        if total > FILES_BYTES_MAX:
            raise _refused("Total attachment size exceeds 20 MB limit", index)
    known = {row.hash: row for row in order.known}
    try:
        directory = _uploads(order.workspace)
    except OSError as error:
        place = os.path.join(order.workspace, DIRECTORY)
        raise _refused(f"Cannot use {place}: {error.strerror}", None) from None
    stored: list[Stored] = []
    try:
        for content in contents:
            stored.append(_store(directory, order.workspace, content, known))
    except OSError as error:
        place = os.path.join(order.workspace, DIRECTORY)
        raise _refused(f"Cannot write to {place}: {error.strerror}", None) from None
    finally:
        os.close(directory)
    return msgspec.json.encode(stored)


def _refused(message: str, index: int | None) -> RpcError:
    data: dict[str, Any] = {} if index is None else {"index": index}
    return agent_error(AgentCode.INVALID_PARAMS, message, "invalid_params", **data)


# --- reading ------------------------------------------------------------------------------------


def _content(entry: Entry, index: int) -> Content:
    if entry.data is not None:
        _check_size(len(entry.data), index)
        return Content(entry.data, sanitised(entry.filename or "upload"), None, entry.mime_type)
    if entry.data_b64 is not None:
        try:
            data = binascii.a2b_base64(entry.data_b64, strict_mode=True)
        except (binascii.Error, ValueError) as error:
            raise _refused(f"Invalid base64: {error}", index) from None
        _check_size(len(data), index)
        return Content(data, sanitised(entry.filename or "upload"), None, entry.mime_type)
    assert entry.path is not None
    data = _read(entry.path, index)
    original = entry.path if (entry.source or "file") == "file" else None
    return Content(data, sanitised(os.path.basename(entry.path)), original, entry.mime_type)


def _check_size(size: int, index: int) -> None:
    if size > FILE_BYTES_MAX:
        raise _refused(f"File exceeds 10 MB limit ({size} bytes)", index)


def _read(path: str, index: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _refused(f"Cannot read file: {why}", index) from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise _refused("Cannot read file: not a regular file", index)
    with os.fdopen(fd, "rb") as file:
        _check_size(status.st_size, index)
        try:
            data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise _refused(f"Cannot read file: {error.strerror}", index) from None
    _check_size(len(data), index)
    return data


def sanitised(name: str) -> str:
    """A file name without separators and control characters."""
    clean = "".join("_" if char in "/\\" or not _printable(char) else char for char in name)
    return "upload" if clean in ("", ".", "..") else clean


def _printable(char: str) -> bool:
    return not (ord(char) < 32 or 127 <= ord(char) < 160)


# --- storing ------------------------------------------------------------------------------------


def _uploads(workspace: str) -> int:
    """A descriptor of the real directory `uploads` of the workspace, made when missing."""
    os.makedirs(workspace, mode=0o700, exist_ok=True)
    base = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o700, dir_fd=base)
        return os.open(DIRECTORY, _OPEN_DIRECTORY, dir_fd=base)
    finally:
        os.close(base)


def _store(directory: int, workspace: str, content: Content, known: dict[str, Known]) -> Stored:
    digest = hashlib.sha256(content.data).hexdigest()
    ref_id = f"sha256:{digest}"
    indexed = known.get(ref_id)
    if indexed is not None:
        name = os.path.basename(indexed.path)
        if not _intact(directory, name, digest):
            _write(directory, name, content.data)
        return Stored(ref_id, indexed.marker, indexed.path, len(content.data), True, content.name)
    name = digest + _extension(content.name)
    path = os.path.join(workspace, DIRECTORY, name)
    if not _intact(directory, name, digest):
        _write(directory, name, content.data)
    marker = _marker(content, path)
    known[ref_id] = Known(ref_id, marker, path)
    return Stored(ref_id, marker, path, len(content.data), False, content.name)


def _extension(name: str) -> str:
    _stem, dot, extension = name.rpartition(".")
    return f".{extension}" if dot and _EXTENSION.fullmatch(extension) else ""


def _intact(directory: int, name: str, digest: str) -> bool:
    """Whether the stored file is a regular one with this content."""
    try:
        fd = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory
        )
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return False
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def _write(directory: int, name: str, data: bytes) -> None:
    temporary = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)


def _marker(content: Content, path: str) -> str:
    if is_image(content.data, content.mime_type, content.name):
        return f"[IMAGE:{content.original or path}]"
    return f"[Document: {content.name}] {path}"


def is_image(data: bytes, mime_type: str | None, name: str) -> bool:
    """Judged by the first bytes; when they say nothing, by the type, else by the extension."""
    if data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")) or (
        data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    ):
        return True
    if _known_other(data):
        return False
    if mime_type:
        return mime_type.strip().lower() in _IMAGE_TYPES
    return name.rpartition(".")[2].lower() in _IMAGE_EXTENSIONS


def _known_other(data: bytes) -> bool:
    """Whether the first bytes are those of another known type."""
    return data.startswith((b"%PDF-", b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"BM"))
