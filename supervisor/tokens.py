"""The bearer token store as the router reads it (chapter 50 §11).

The file holds digests, never bearers. It is looked at before each validation and read again when
its identity (device, inode, size, modification time) changed; a store that cannot be read keeps the
last good content for established attachments and refuses new ones.

Failure: `authenticate` raises RpcError `auth_failed` or `token_store_unavailable`; opening a broken
store raises TokenStoreBroken.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

import blake3
import msgspec

from ipc.jsonrpc import Code, RpcError

KEY_BYTES: Final = 32
REFUSED: Final = "invalid, expired, or revoked bearer token"


class TokenStoreBroken(Exception):
    """The store cannot be read or parsed."""


class Token(msgspec.Struct, frozen=True):
    id: str
    principal: str
    profile: str
    caps: list[str]
    created_ns: int
    expires_ns: int | None
    revoked_ns: int | None
    digest: str

    def valid_at(self, now_ns: int) -> bool:
        return self.revoked_ns is None and (self.expires_ns is None or self.expires_ns > now_ns)


class _File(msgspec.Struct, frozen=True):
    version: int
    key: str
    tokens: list[Token]


Identity = tuple[int, int, int, int]


class TokenStore:
    # `_content` is the last good content, `_identity` that of the file it came from, `_broken` why
    # the file cannot be used right now, `_seen` every id there ever was. Changed in `_refresh`.

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: Identity | None = None
        self._broken: str | None = None
        self._key = b""
        self._by_id: dict[str, Token] = {}
        self._seen: set[str] = set()

    @classmethod
    def open(cls, path: Path) -> TokenStore:
        """Read the store, creating an empty one when there is none. Raises TokenStoreBroken."""
        store = cls(path)
        if not path.exists():
            _create(path)
        store._refresh()
        if store._broken is not None:
            raise TokenStoreBroken(f"token store {path}: {store._broken}")
        return store

    @property
    def broken(self) -> str | None:
        return self._broken

    def counts(self, now_ns: int) -> dict[str, int]:
        """How many tokens are active, revoked, expired."""
        tokens = self._by_id.values()
        revoked = sum(1 for token in tokens if token.revoked_ns is not None)
        active = sum(1 for token in tokens if token.valid_at(now_ns))
        return {"active": active, "revoked": revoked, "expired": len(tokens) - active - revoked}

    def authenticate(self, bearer: str, now_ns: int) -> Token:
        """The token of a bearer. Raises RpcError."""
        self._refresh()
        if self._broken is not None:
            raise RpcError(
                Code.AUTH_FAILED, "token store is not readable", "token_store_unavailable"
            )
        digest = digest_of(self._key, bearer)
        found: Token | None = None
        for token in self._by_id.values():
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None or not found.valid_at(now_ns):
            raise RpcError(Code.AUTH_FAILED, REFUSED, "auth_failed")
        return found

    def check(self, token: Token, now_ns: int) -> None:
        """Whether an established token still holds. Raises RpcError `auth_failed`."""
        self._refresh()
        current = self._by_id.get(token.id)
        if current is None or not current.valid_at(now_ns):
            raise RpcError(Code.AUTH_FAILED, REFUSED, "auth_failed")

    def revoked(self, token: Token) -> bool:
        """Whether a token was revoked, or taken out of the store, and did not just expire."""
        current = self._by_id.get(token.id)
        return current is None or current.revoked_ns is not None

    def revoked_ids(self) -> set[str]:
        """The tokens that were revoked or taken out since the store was opened."""
        kept = {token.id for token in self._by_id.values() if token.revoked_ns is None}
        return self._seen - kept

    def refresh(self) -> None:
        """Read the store again when it has changed."""
        self._refresh()

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if identity == self._identity and self._broken is None:
                return
            content = msgspec.json.decode(self._path.read_bytes(), type=_File)
            key = base64.b64decode(content.key, validate=True)
        except OSError as error:
            self._broken = error.strerror or "unreadable"
            return
        except (msgspec.DecodeError, binascii.Error, ValueError):
            self._broken = "malformed"
            return
        if content.version != 1 or len(key) != KEY_BYTES:
            self._broken = "malformed"
            return
        self._identity = identity
        self._broken = None
        self._key = key
        self._by_id = {token.id: token for token in content.tokens}
        self._seen.update(self._by_id)


def digest_of(key: bytes, bearer: str) -> str:
    """The stored digest of a bearer, 64 hex digits."""
    return str(blake3.blake3(bearer.encode("utf-8", "surrogatepass"), key=key).hexdigest())


def _create(path: Path) -> None:
    content = {
        "version": 1,
        "key": base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode(),
        "tokens": [],
    }
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text)
