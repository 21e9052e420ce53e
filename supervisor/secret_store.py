"""The secret store: one encrypted file and its key in a private directory (chapter 50 §12.1).

The key lies beside the data, so at rest it is the permissions of the files that protect it; the
encryption notices a change of either and keeps material out of what copies single files. Every
operation opens the store anew: a change by the command line is seen by the next read of a daemon.

Failure: SecretStoreError with a text for people, for a file that is open to others, broken, of
another version, or changed; OSError when the system refuses. No text holds material.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from journal.state_dir import secure_directory

VERSION: Final = 1
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
MATERIAL_BYTES_MAX: Final = 1024 * 1024
KEY_FILE: Final = "master.key"
DATA_FILE: Final = "secrets.json"
LOCK_FILE: Final = "secrets.lock"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_SHARED_BITS: Final = 0o077
_encode = msgspec.json.Encoder().encode


class SecretStoreError(Exception):
    """The store cannot be used, or the name cannot be one."""


class _File(msgspec.Struct):
    version: int
    nonce: str
    ciphertext: str


_decode_file = msgspec.json.Decoder(_File).decode
_decode_plain = msgspec.json.Decoder(dict[str, list[int]]).decode


def check_name(name: str) -> None:
    """Raises SecretStoreError."""
    if not _NAME.match(name):
        raise SecretStoreError("secret name must contain only ASCII letters, digits, _ or -")


class SecretStore:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key_path = directory / KEY_FILE
        self._data_path = directory / DATA_FILE

    def read(self, name: str) -> bytes | None:
        """The material of a secret, None when there is none of that name."""
        check_name(name)
        material = self._load().get(name) if self._data_path.exists() else None
        return None if material is None else bytes(material)

    def names(self) -> list[str]:
        """Sorted."""
        return sorted(self._load()) if self._data_path.exists() else []

    def set(self, name: str, material: bytes) -> None:
        check_name(name)
        if len(material) > MATERIAL_BYTES_MAX:
            raise SecretStoreError(f"a secret has at most {MATERIAL_BYTES_MAX} bytes")
        with self._changing() as known:
            known[name] = list(material)

    def delete(self, name: str) -> None:
        """Deleting what is not there succeeds."""
        check_name(name)
        with self._changing() as known:
            known.pop(name, None)

    # -- files -------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[dict[str, list[int]]]:
        secure_directory(self._directory)
        lock = os.open(self._directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self._load() if self._data_path.exists() else {}
            yield known
            self._save(known)
        finally:
            os.close(lock)

    def _load(self) -> dict[str, list[int]]:
        key = self._key()
        _check_private(self._data_path)
        try:
            file = _decode_file(self._data_path.read_bytes())
            nonce = base64.b64decode(file.nonce, validate=True)
            ciphertext = base64.b64decode(file.ciphertext, validate=True)
        except (msgspec.MsgspecError, binascii.Error, ValueError):
            raise SecretStoreError("malformed secret store") from None
        if file.version != VERSION:
            raise SecretStoreError("unsupported secret store version")
        if len(nonce) != NONCE_BYTES:
            raise SecretStoreError("invalid secret store nonce length")
        try:
            return _decode_plain(AESGCM(bytes(key)).decrypt(nonce, ciphertext, None))
        except (InvalidTag, msgspec.MsgspecError):
            raise SecretStoreError("secret store authentication failed") from None
        finally:
            _clear(key)

    def _save(self, known: dict[str, list[int]]) -> None:
        key = self._key() if self._key_path.exists() else self._new_key()
        nonce = secrets.token_bytes(NONCE_BYTES)
        plain = bytearray(_encode({name: known[name] for name in sorted(known)}))
        try:
            ciphertext = AESGCM(bytes(key)).encrypt(nonce, bytes(plain), None)
        finally:
            _clear(plain)
            _clear(key)
        encoded = _File(VERSION, base64.b64encode(nonce).decode(), _text(ciphertext))
        _replace(self._data_path, _encode(encoded))

    def _key(self) -> bytearray:
        if not self._key_path.exists() and self._data_path.exists():
            raise SecretStoreError("secret store authentication failed")
        _check_private(self._key_path)
        key = bytearray(self._key_path.read_bytes())
        if len(key) != KEY_BYTES:
            raise SecretStoreError("invalid secret key length")
        return key

    def _new_key(self) -> bytearray:
        key = bytearray(secrets.token_bytes(KEY_BYTES))
        _replace(self._key_path, bytes(key))
        return key


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _check_private(path: Path) -> None:
    if stat.S_IMODE(path.stat().st_mode) & _SHARED_BITS:
        raise SecretStoreError("secret file permissions must be 0600")


def _replace(path: Path, data: bytes) -> None:
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _clear(buffer: bytearray) -> None:
    buffer[:] = bytes(len(buffer))
