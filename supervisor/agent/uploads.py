"""Chunked uploads: bytes staged in the router until they are complete (chapter 70 §15.3).

An upload belongs to its connection and is bound to the incarnation of a session, its owner and its
agent. Staged memory is charged against one budget; what is idle is discarded when the budget is
needed, and by a sweep. Commit takes the upload out of staging before anything else.

Failure: RpcError -32602, or -32000 for a session that is gone, with the texts of chapter 70 §15.3.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipc.agent_methods import UploadBeginParams, UploadChunkParams
from ipc.agent_params import invalid_params
from supervisor.agent.attachments import replaced
from supervisor.agent.limits import (
    FILE_BYTES_MAX,
    FILE_NAME_BYTES_MAX,
    STAGING_BYTES_MAX,
    UPLOAD_CHUNK_BYTES,
    UPLOAD_IDLE_S,
    UPLOAD_SWEEP_S,
    UPLOADS_PER_CONNECTION_MAX,
)

if TYPE_CHECKING:
    import asyncio

    from supervisor.agent.connection import AgentConnection
    from supervisor.agent.sessions import LiveSession

_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(slots=True)
class Upload:
    id: str
    connection: AgentConnection
    live: LiveSession
    owner: str | None
    alias: str
    size: int
    filename: str | None
    sha256: str | None
    charge: int
    touched_s: float
    data: bytearray
    # Of what was received, so that nothing long is left to do at the end; None without `sha256`.
    hasher: hashlib._Hash | None
    # The session went away: the bytes are gone, the name stays to say why.
    gone: bool = False


class Uploads:
    # Staged uploads by id, and the sum of their charges; changed in `begin` and `_drop` only.

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._staged: dict[str, Upload] = {}
        self._charged = 0
        self._sweep_timer: asyncio.TimerHandle | None = None

    def begin(
        self, connection: AgentConnection, live: LiveSession, params: UploadBeginParams
    ) -> Upload:
        """Stage a new upload; ownership was checked. Raises RpcError."""
        if params.size_bytes < 0:
            raise invalid_params("`size_bytes` must not be negative", field="size_bytes")
        if params.size_bytes > FILE_BYTES_MAX:
            raise invalid_params(
                f"{params.size_bytes} bytes exceed the 10 MB file limit", field="size_bytes"
            )
        name = params.filename
        if name is not None and len(name.encode("utf-8", "replace")) > FILE_NAME_BYTES_MAX:
            raise invalid_params(
                f"`filename` must have at most {FILE_NAME_BYTES_MAX} bytes: 255 bytes",
                field="filename",
            )
        if params.sha256 is not None and _SHA256.fullmatch(params.sha256) is None:
            raise invalid_params("`sha256` must be 64 hexadecimal characters", field="sha256")
        mine = sum(
            1
            for upload in self._staged.values()
            if upload.connection is connection and not upload.gone
        )
        if mine >= UPLOADS_PER_CONNECTION_MAX:
            raise invalid_params(
                f"The connection already has {UPLOADS_PER_CONNECTION_MAX} uploads in progress"
            )
        charge = params.size_bytes + sum(
            len(text.encode("utf-8", "replace"))
            for text in (live.id, live.owner or "", live.alias, name or "", params.sha256 or "")
        )
        if self._charged + charge > STAGING_BYTES_MAX:
            self._discard_idle()
        if self._charged + charge > STAGING_BYTES_MAX:
            raise invalid_params("The router is staging too many uploads; try again later")
        upload = Upload(
            secrets.token_hex(16), connection, live, live.owner, live.alias, params.size_bytes,
            name, params.sha256.lower() if params.sha256 else None, charge, self._loop.time(),
            bytearray(), hashlib.sha256() if params.sha256 else None,
        )  # fmt: skip
        self._staged[upload.id] = upload
        self._charged += charge
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(UPLOAD_SWEEP_S, self._sweep)
        return upload

    def find(self, connection: AgentConnection, upload_id: str) -> Upload:
        """An upload of this connection. Raises RpcError."""
        upload = self._staged.get(upload_id)
        if upload is None or upload.connection is not connection:
            raise invalid_params(f"Unknown or expired upload `{upload_id}`", field="upload_id")
        if upload.gone:
            self._drop(upload)
            raise replaced(upload.live.id)
        return upload

    def chunk(self, upload: Upload, params: UploadChunkParams) -> int:
        """Take one chunk; the bytes received so far. Raises RpcError."""
        piece = params.data_b64
        if not 1 <= len(piece) <= UPLOAD_CHUNK_BYTES:
            raise invalid_params(f"A chunk must have 1 to {UPLOAD_CHUNK_BYTES} bytes")
        held, offset = len(upload.data), params.offset
        upload.touched_s = self._loop.time()
        if offset < 0:
            raise invalid_params("`offset` must not be negative", field="offset")
        if offset > held:
            raise invalid_params(f"The chunk leaves a gap; the next offset is {held}")
        if offset < held:
            if upload.data[offset : offset + len(piece)] == piece:
                return held
            raise invalid_params(f"The chunk overlaps received data; the next offset is {held}")
        if held + len(piece) > upload.size:
            raise invalid_params(f"The chunk runs past the declared size of {upload.size} bytes")
        upload.data += piece
        if upload.hasher is not None:
            upload.hasher.update(piece)
        return len(upload.data)

    def take(self, upload: Upload) -> bytearray:
        """Take a complete upload out of staging. Raises RpcError."""
        if len(upload.data) < upload.size:
            raise invalid_params(f"Upload has {len(upload.data)} of {upload.size} declared bytes")
        self._drop(upload)
        if upload.hasher is not None and upload.hasher.hexdigest() != upload.sha256:
            raise invalid_params("The content does not match its sha256; begin again")
        return upload.data

    def discard_connection(self, connection: AgentConnection) -> None:
        for upload in list(self._staged.values()):
            if upload.connection is connection:
                self._drop(upload)

    def discard_session(self, live: LiveSession) -> None:
        """Forget the bytes of a session that goes; its uploads are refused with the reason."""
        for upload in self._staged.values():
            if upload.live is live and not upload.gone:
                upload.gone = True
                upload.data.clear()
                self._charged -= upload.charge
                upload.charge = 0

    def discard_all(self) -> None:
        for upload in list(self._staged.values()):
            self._drop(upload)

    def _drop(self, upload: Upload) -> None:
        if self._staged.pop(upload.id, None) is not None:
            self._charged -= upload.charge
        if not self._staged and self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _discard_idle(self) -> None:
        limit = self._loop.time() - UPLOAD_IDLE_S
        for upload in list(self._staged.values()):
            if upload.touched_s < limit:
                self._drop(upload)

    def _sweep(self) -> None:
        self._sweep_timer = None
        self._discard_idle()
        if self._staged:
            self._sweep_timer = self._loop.call_later(UPLOAD_SWEEP_S, self._sweep)
