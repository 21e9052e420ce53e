"""Bearer secrets for clients, and the check that the right user is listening.

A secret never comes from an argument list and never appears in a message.

Failure: TokenFileError, NotReachable.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ipc.client.errors import NotReachable, TokenFileError

TOKEN_FILE_BYTES_MAX: Final = 4_096
_UCRED: Final = struct.Struct("3i")


def find_token(environ: Mapping[str, str], token_file: str | None = None) -> str | None:
    """The secret to attach with: an explicit file, `SHOAL_TOKEN`, `SHOAL_TOKEN_FILE`, or none."""
    if token_file:
        return read_token_file(Path(token_file))
    token = environ.get("SHOAL_TOKEN")
    if token:
        return token
    named = environ.get("SHOAL_TOKEN_FILE")
    return read_token_file(Path(named)) if named else None


def read_token_file(path: Path) -> str:
    """The trimmed content of a regular file with mode 0600. Raises TokenFileError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise TokenFileError(f"cannot read token file {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TokenFileError(f"token file {path} is not a regular file")
        mode = stat.S_IMODE(status.st_mode)
        if mode != 0o600:
            raise TokenFileError(f"token file {path} must have mode 0600, not {mode:04o}")
        data = file.read(TOKEN_FILE_BYTES_MAX + 1)
    token = data.strip()
    if not token or len(data) > TOKEN_FILE_BYTES_MAX or not token.isascii():
        raise TokenFileError(f"token file {path} holds no token")
    return token.decode("ascii")


def check_listener(connection: socket.socket, path: Path) -> None:
    """Refuse a listener of another user at a socket path that was derived, not named.

    Such a path can lie below a directory that everybody writes to. Raises NotReachable.
    """
    uid = _peer_uid(connection)
    if uid is not None and uid not in (os.geteuid(), 0):
        raise NotReachable(path, f"it belongs to uid {uid}")


def _peer_uid(connection: socket.socket) -> int | None:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, option, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])
