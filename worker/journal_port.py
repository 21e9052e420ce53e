"""The store as a session worker reaches it: questions to the router (`host.journal`).

Everything is asked in the name of the call that is being served on this thread (or that started the
task running on it), and the router answers as for the principal of that call. The I/O thread never
asks, since it is the one that receives the answers: there WouldBlock is raised before anything was
asked, and whoever serves the call starts again on a thread of its own.

Undo records and snapshots stay here until they travel with the statement they belong to.

Failure: language errors for refusals a user should see; OSError for content that cannot be loaded;
`snapshot` and `record_undo` never fail the operation they belong to. LinkClosed when the router is
gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec
from blake3 import blake3

from ipc.questions import (
    PIECE_BYTES_MAX,
    CellName,
    ContentInfo,
    ContentName,
    ContentPiece,
    Inverses,
    InversesQuestion,
    RowsQuestion,
    Spill,
    SpilledContent,
)
from worker.errors import Raised, raised
from worker.recording import StatementRow
from worker.values.types import LazyBytes

if TYPE_CHECKING:
    from worker.session import Session

# The call that is served on this thread; tasks inherit that of the submission that started them.
CURRENT_CALL: Final[ContextVar[int]] = ContextVar("current_call", default=0)

PREVIEW_BYTES: Final = 64 * 1024
_encode = msgspec.json.Encoder().encode
_info = msgspec.json.Decoder(ContentInfo | None)
_inverses = msgspec.json.Decoder(Inverses | None)


class WouldBlock(BaseException):
    """A question on the thread that receives the answers. No Exception: nothing may swallow it."""


class Refused(Exception):
    """The router's error object, as an answer."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "refused")))
        data = error.get("data")
        self.kind = str(data.get("kind", "")) if isinstance(data, dict) else ""


class JournalPort:
    """See `worker.builtins.ports.JournalPort`, `worker.commands.capture.SpillStore` and the content
    references of worker.values.methods.blobs: this is all of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._io_thread = threading.get_ident()

    # -- asking ------------------------------------------------------------------------------------

    def ask(self, op: str, params: msgspec.Struct | None = None) -> tuple[bytes, int]:
        """The answer and the descriptor that came with it, -1 for none. Raises Refused."""
        if threading.get_ident() == self._io_thread:
            raise WouldBlock
        question = b"" if params is None else _encode(params)
        ok, body, fd = self._session.ask(CURRENT_CALL.get(), op, question)
        if not ok:
            raise Refused(msgspec.json.decode(body))
        return body, fd

    # -- rows and undo -----------------------------------------------------------------------------

    def rows(
        self, *, kind: str, head: str | None, principal: str | None, limit: int
    ) -> Sequence[dict[str, Any]]:
        self._session.report_progress()
        try:
            body, _ = self.ask("rows", RowsQuestion(kind, head, principal, limit))
        except Refused as refusal:
            raise _language_error(refusal) from None
        rows: list[dict[str, Any]] = msgspec.json.decode(body)
        return rows

    def inverses(self, entry_id: int | None) -> tuple[int, Sequence[dict[str, Any]]] | None:
        self._session.report_progress()
        try:
            body, _ = self.ask("inverses", InversesQuestion(entry_id))
        except Refused as refusal:
            raise _language_error(refusal) from None
        found = _inverses.decode(body)
        return None if found is None else (found.entry, found.inverses)

    def snapshot_bytes(self, content_hash: str) -> bytes | None:
        try:
            return self.load(content_hash, 0, None)
        except OSError:
            return None

    def snapshot(self, entry: Any, content: bytes) -> str | None:
        """Keep a prior content for the inverse that will name it."""
        if not isinstance(entry, StatementRow):
            return None
        name = str(blake3(content).hexdigest())
        entry.snapshots[name] = content
        return name

    def record_undo(self, entry: Any, inverse: dict[str, Any]) -> None:
        if isinstance(entry, StatementRow):
            entry.recorder.record_undo(entry, inverse)

    # -- content -----------------------------------------------------------------------------------

    def load(self, digest: str, offset: int, length: int | None) -> bytes:
        """Stored content that the session or the caller may see; OSError when it cannot be had."""
        pieces = []
        left = length
        while left is None or left > 0:
            wanted = PIECE_BYTES_MAX if left is None else min(left, PIECE_BYTES_MAX)
            try:
                piece, _ = self.ask("content", ContentPiece(digest, offset, wanted))
            except Refused as refusal:
                raise _content_error(digest, refusal) from None
            pieces.append(piece)
            offset += len(piece)
            left = None if left is None else left - len(piece)
            if len(piece) < wanted:
                break
        return b"".join(pieces)

    def lookup(self, digest: str) -> LazyBytes | None:
        """The bytes of that hash; None when there are none for this caller."""
        try:
            body, _ = self.ask("lookup", ContentName(digest))
        except Refused:
            return None
        info = _info.decode(body)
        if info is None:
            return None
        preview = self.load(digest, 0, min(info.length, PREVIEW_BYTES))
        self.holds(digest)
        return self.lazy(digest, info.length, preview, truncated=False)

    def lazy(self, digest: str, length: int, preview: bytes, *, truncated: bool) -> LazyBytes:
        load = self.load
        return LazyBytes(
            digest, length, preview, truncated, lambda offset, count: load(digest, offset, count)
        )

    def holds(self, digest: str) -> None:
        """Content the session got hold of; it is let go when no saved value refers to it."""
        self._session.kept.held(digest)

    def stored_cell(self, name: str) -> bytes | None:
        """The stored form of a result that did not come along at the start."""
        try:
            return self.ask("cell", CellName(name))[0]
        except Refused:
            return None

    def open_spill(self) -> SpillFile | None:
        """A place for one large capture; None when the router gives none."""
        try:
            body, fd = self.ask("spill.open")
        except Refused:
            return None
        return SpillFile(self, msgspec.json.decode(body, type=Spill).number, fd)


class SpillFile:
    """A capture in progress in a file of the store; see `worker.commands.capture.Spill`."""

    # `_fd` is -1 once the spill was adopted or dropped.

    def __init__(self, port: JournalPort, number: int, fd: int) -> None:
        self._port = port
        self._number = number
        self._fd = fd
        self._length = 0

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self._length += written
            view = view[written:]

    def adopt(self, preview: bytes, *, truncated: bool) -> LazyBytes | None:
        self._close()
        try:
            body, _ = self._port.ask("spill.adopt", SpilledContent(self._number, self._length))
        except Refused as refusal:
            raise OSError(errno.EIO, str(refusal)) from None
        info = _info.decode(body)
        if info is None:
            return None
        self._port.holds(info.hash)
        return self._port.lazy(info.hash, info.length, preview, truncated=truncated)

    def drop(self) -> None:
        if self._fd >= 0:
            self._close()
            with contextlib.suppress(Refused):
                self._port.ask("spill.drop", Spill(self._number))

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _content_error(digest: str, refusal: Refused) -> OSError:
    if refusal.kind == "unknown_hash":
        return OSError(errno.ENOENT, f"no CAS blob {digest}")
    return OSError(errno.EIO, str(refusal))


def _language_error(refusal: Refused) -> Raised:
    if refusal.kind == "policy_denied":
        return raised("leash_denied", str(refusal))
    return raised("io_error", str(refusal))
