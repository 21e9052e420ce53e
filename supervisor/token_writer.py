"""Changing the token store (chapter 50, section 11; chapter 81, section 7.10).

A change holds the lock file, reads, changes and replaces the whole file atomically, so that two
writers cannot lose each other's tokens and a reader sees the old store or the new one. The bearer
itself is never stored.

Failure: TokenStoreBroken for a store that cannot be read or parsed, OSError for one that cannot be
written, UnknownToken.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from journal.state_dir import secure_directory
from supervisor.tokens import KEY_BYTES, Token, TokenStoreBroken, digest_of

BEARER_BYTES: Final = 32
ID_DIGITS: Final = 16
EXPIRES_NS_MAX: Final = 2**63 - 1
_SECOND_NS: Final = 1_000_000_000


class UnknownToken(Exception):
    """No token has this id."""

    def __init__(self) -> None:
        super().__init__("unknown token id")


class StoredTokens(msgspec.Struct):
    """The file, in the order of its members."""

    version: int
    key: str
    tokens: list[Token]

    def secret_key(self) -> bytes:
        return base64.b64decode(self.key, validate=True)


def read_tokens(path: Path) -> StoredTokens:
    """The store as it is; an empty one when there is no file. Raises TokenStoreBroken."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return StoredTokens(1, base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode(), [])
    except OSError as error:
        raise TokenStoreBroken(f"token store {path}: {error.strerror}") from error
    try:
        stored = msgspec.json.decode(data, type=StoredTokens)
        sound = stored.version == 1 and len(stored.secret_key()) == KEY_BYTES
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise TokenStoreBroken(f"token store {path}: malformed") from error
    if not sound:
        raise TokenStoreBroken(f"token store {path}: malformed")
    return stored


def create_token(
    path: Path,
    principal: str,
    profile: str,
    caps: Sequence[str],
    *,
    now_ns: int,
    ttl_s: int | None,
) -> tuple[str, Token]:
    """Add a token; returns the bearer, which exists nowhere else, and the stored record."""
    bearer = base64.urlsafe_b64encode(secrets.token_bytes(BEARER_BYTES)).rstrip(b"=").decode()
    expires_ns = None
    if ttl_s is not None:
        expires_ns = min(now_ns + ttl_s * _SECOND_NS, EXPIRES_NS_MAX)
    with _changing(path) as stored:
        digest = digest_of(stored.secret_key(), bearer)
        token = Token(
            id=digest[:ID_DIGITS],
            principal=principal,
            profile=profile,
            caps=list(caps),
            created_ns=now_ns,
            expires_ns=expires_ns,
            revoked_ns=None,
            digest=digest,
        )
        stored.tokens.append(token)
    return bearer, token


def revoke_token(path: Path, token_id: str, now_ns: int) -> None:
    """Revoke a token; one that is revoked already stays as it is. Raises UnknownToken."""
    with _changing(path) as stored:
        for index, token in enumerate(stored.tokens):
            if token.id == token_id:
                if token.revoked_ns is None:
                    stored.tokens[index] = msgspec.structs.replace(token, revoked_ns=now_ns)
                return
        raise UnknownToken


@contextmanager
def _changing(path: Path) -> Iterator[StoredTokens]:
    """The store, to change; written back when the block ends without an error."""
    secure_directory(path.parent)
    lock = os.open(
        path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored = read_tokens(path)
        yield stored
        _replace(path, msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
    finally:
        os.close(lock)


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
