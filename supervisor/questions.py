"""What workers may ask of the router: journal rows, stored content, spills (see ipc.questions).

A worker is not trusted. Every question is answered as for the principal of the call it was asked
in, within the session it belongs to: rows and inverses by that principal's visibility, content that
principal or the session may see, results of that session alone. Files are opened off the loop.

Failure: anything unknown, malformed or not allowed answers an error object; the worker turns it
into a language error. A question of a worker that has ended is answered to nobody.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import structlog

from ipc.jsonrpc import Code, RpcError, internal, quota
from ipc.messages import RESULT_CELL, Answer, Ask, Caller, Content
from ipc.questions import (
    PIECE_BYTES_MAX,
    PLACES_BYTES_MAX,
    SPILLS_OPEN_MAX,
    CellName,
    ContentInfo,
    ContentName,
    ContentPiece,
    Inverses,
    InversesQuestion,
    Places,
    RowsQuestion,
    SecretName,
    Spill,
    SpilledContent,
)
from journal.blobs import BlobVisible, ReadBlob
from journal.errors import BlobDamaged, BlobMissing, StoreError
from journal.query import EntryFilter, QueryEntriesJson, Visibility
from journal.records import Barrier, FileContent, LinkBlob
from journal.session_state import SessionCell
from journal.undo import NewestUndo, UndoOfEntry
from leash.verdict import ALLOW
from supervisor.contents import as_content
from supervisor.secret_store import SecretStoreError

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session
    from supervisor.worker_process import Worker

log = structlog.get_logger()

ROWS_BYTES_MAX: Final = 15 * 1024 * 1024
ROWS_MAX: Final = 100_000
PLACES_NAME: Final = "jump.frecency"
_KINDS: Final = ("statement", "submission", "all")
_encode = msgspec.json.Encoder().encode
P = TypeVar("P", bound=msgspec.Struct)


class Questions:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._answering: set[asyncio.Task[None]] = set()

    def answer(self, session: Session, worker: Worker, ask: Ask) -> None:
        """Answer one question, later."""
        task = self._kernel.loop.create_task(self._answer(session, worker, ask))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, session: Session, worker: Worker, ask: Ask) -> None:
        try:
            serve = _SERVED.get(ask.op)
            if serve is None:
                raise internal("internal_error", f"unknown question {ask.op}")
            body, fds = await serve(self, session, ask)
        except RpcError as error:
            worker.send(Answer(ask.id, False, Content(error.encode())))
        except (StoreError, OSError, msgspec.DecodeError) as error:
            log.warning("worker.question", session=session.name, op=ask.op, err=str(error))
            refusal = internal("journal_unavailable", str(error))
            worker.send(Answer(ask.id, False, Content(refusal.encode())))
        else:
            if not worker.alive or session.worker is not worker:
                for fd in fds:
                    os.close(fd)
                return
            worker.send(Answer(ask.id, True, body), fds)

    # -- who asks ----------------------------------------------------------------------------------

    def _visibility(self, session: Session, ask: Ask) -> Visibility | None:
        """What the asking call may see of the journal; None when the call is not known."""
        asker = session.askers.get(ask.call)
        return None if asker is None else visibility_of(asker.caller)

    def _journal_reader(self, session: Session, ask: Ask) -> Visibility:
        asker = session.askers.get(ask.call)
        if asker is None or not self._may_read(asker.caller):
            raise RpcError(
                Code.LEASH_DENIED,
                "journal_read is not allowed",
                "policy_denied",
                effects=[{"kind": "journal_read"}],
            )
        return visibility_of(asker.caller)

    def _may_read(self, caller: Caller) -> bool:
        """The gate of `journal.query`; the local human is exempt (chapter 60 §5.16)."""
        standing = self._kernel.policies.standing(caller.principal, caller.caps)
        return caller.local_human or standing.word({"kind": "journal_read"}) == ALLOW

    # -- rows --------------------------------------------------------------------------------------

    async def rows(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        question = _decode(ask, RowsQuestion)
        seen = self._journal_reader(session, ask)
        kind = question.kind if question.kind in _KINDS else "statement"
        wanted = EntryFilter(
            principal=question.principal,
            head=question.head,
            kind=kind,  # type: ignore[arg-type]
            limit=min(max(question.limit, 1), ROWS_MAX),
        )
        await self._settled(session)
        return await as_content(
            await self._kernel.store.load(QueryEntriesJson(wanted, seen, ROWS_BYTES_MAX))
        )

    async def inverses(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        question = _decode(ask, InversesQuestion)
        self._journal_reader(session, ask)
        principal = session.askers[ask.call].caller.principal
        store = self._kernel.store
        await self._settled(session)
        entry = question.entry
        if entry is None:
            entry = await store.load(NewestUndo(session.owner, session.name, principal))
        if entry is None or not 0 <= entry < 1 << 63:
            return Content(b"null"), []
        steps = await store.load(UndoOfEntry(entry, principal))
        if not steps:
            return Content(b"null"), []
        inverses = [msgspec.json.decode(step.inverse_json) for step in steps]
        return await as_content(_encode(Inverses(entry, inverses)))

    async def _settled(self, session: Session) -> None:
        """What the session recorded so far can be read, although nobody waited for it."""
        await session.posts.settled()
        await self._kernel.store.commit(Barrier())

    # -- content -----------------------------------------------------------------------------------

    async def _visible(self, session: Session, ask: Ask, name: str) -> bool:
        if _digest(name) in session.held:
            return True
        seen = self._visibility(session, ask)
        if seen is None:
            seen = Visibility(everything=False, principal="", owners=())
        return await self._kernel.store.load(BlobVisible(name, seen, session.row_id))

    async def lookup(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        name = _decode(ask, ContentName).hash
        if not await self._visible(session, ask, name):
            return Content(b"null"), []
        try:
            piece = await self._kernel.store.load(ReadBlob(name, 0, 0))
        except (BlobMissing, BlobDamaged):
            return Content(b"null"), []
        session.held[bytes.fromhex(name)] = piece.total
        return Content(_encode(ContentInfo(name, piece.total))), []

    async def content(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        wanted = _decode(ask, ContentPiece)
        unknown = RpcError(Code.UNKNOWN_REF, "unknown value hash", "unknown_hash")
        if wanted.offset < 0 or wanted.length < 0:
            raise unknown
        if not await self._visible(session, ask, wanted.hash):
            # It may be about to be linked by a row that is on its way.
            await self._settled(session)
            if not await self._visible(session, ask, wanted.hash):
                raise unknown
        length = min(wanted.length, PIECE_BYTES_MAX)
        try:
            piece = await self._kernel.store.load(ReadBlob(wanted.hash, wanted.offset, length))
        except BlobMissing:
            raise unknown from None
        except BlobDamaged as error:
            raise internal("corrupt_blob", str(error)) from None
        return await as_content(piece.data)

    async def cell(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        name = _decode(ask, CellName).name
        if not name.startswith(RESULT_CELL):
            raise internal("internal_error", "only results are read one by one")
        data = await self._kernel.store.load(SessionCell(session.row_id, name))
        return await as_content(data or b"")

    # -- visited directories -----------------------------------------------------------------------

    async def places(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        path = self._places_file(session)
        return await as_content(await asyncio.to_thread(_read_places, path))

    async def keep_places(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        path = self._places_file(session)
        data = _decode(ask, Places).text.encode("utf-8", "surrogatepass")
        if len(data) > PLACES_BYTES_MAX:
            raise quota("places_bytes", PLACES_BYTES_MAX, len(data))
        await asyncio.to_thread(_write_places, path, data)
        return Content(), []

    def _places_file(self, session: Session) -> Path:
        """The file belongs to the user: sessions of other principals do not share it."""
        kernel = self._kernel
        if kernel.state_dir is None or session.owner != kernel.local_human:
            raise internal("internal_error", "no store of visited directories")
        return Path(kernel.state_dir) / PLACES_NAME

    # -- secrets -----------------------------------------------------------------------------------

    async def secret(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        """Material, for a call whose caller and whose session may both use it."""
        name = _decode(ask, SecretName).name
        asker, kernel = session.askers.get(ask.call), self._kernel
        effect = {"kind": "secret_use", "names": [name]}
        standings = [kernel.policies.standing(session.policy_owner)]
        if asker is not None:
            caller = asker.caller
            standings.append(kernel.policies.standing(caller.principal, caller.caps))
        for standing in standings:
            if asker is None or standing.word(effect) != ALLOW:
                raise RpcError(
                    Code.LEASH_DENIED,
                    f"leash: secret_use of {name} denied for principal {standing.principal}",
                    "policy_denied",
                    effects=[effect],
                )
        if kernel.secrets is None:
            raise internal("secret_store", "this session has no secret store")
        try:
            material = await asyncio.to_thread(kernel.secrets.read, name)
        except SecretStoreError as error:
            raise internal("secret_store", str(error)) from None
        except OSError as error:
            raise internal("secret_store", f"secret store: {error.strerror}") from None
        if material is None:
            raise internal("no_secret", f"secret `{name}` not found")
        return await as_content(material)

    # -- spills ------------------------------------------------------------------------------------

    async def open_spill(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        if len(session.spills) >= SPILLS_OPEN_MAX:
            raise quota("spills_open", SPILLS_OPEN_MAX, len(session.spills))
        ours = await asyncio.to_thread(self._kernel.store.open_spill)
        theirs = os.dup(ours)
        session.spills[ask.id] = ours
        return Content(_encode(Spill(ask.id))), [theirs]

    async def adopt_spill(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        wanted = _decode(ask, SpilledContent)
        fd = session.spills.pop(wanted.number, -1)
        if fd < 0:
            raise internal("internal_error", "no such spill")
        limit = self._kernel.config.limits.spill_bytes
        length = min(wanted.length, os.fstat(fd).st_size, limit)
        store = self._kernel.store
        stored = await store.ingested(FileContent(fd, length), capped=False)
        await store.commit(LinkBlob(stored, session.row_id, self._kernel.now_ns()))
        session.held[stored.hash] = stored.length
        return Content(_encode(ContentInfo(stored.hash.hex(), stored.length))), []

    async def drop_spill(self, session: Session, ask: Ask) -> tuple[Content, list[int]]:
        fd = session.spills.pop(_decode(ask, Spill).number, -1)
        if fd >= 0:
            os.close(fd)
        return Content(), []


def visibility_of(caller: Caller) -> Visibility:
    """Whose journal rows and blobs a caller may see (chapter 60 §5.16)."""
    return Visibility(
        everything=caller.local_human, principal=caller.principal, owners=(caller.principal,)
    )


def _decode(ask: Ask, kind: type[P]) -> P:
    return msgspec.json.decode(ask.params, type=kind)


def _read_places(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(PLACES_BYTES_MAX)
    except FileNotFoundError:
        return b""


def _write_places(path: Path, data: bytes) -> None:
    """Replace the file as a whole: a reader sees the old or the new text."""
    fd, temporary = tempfile.mkstemp(prefix=f".{PLACES_NAME}-", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _digest(name: str) -> bytes:
    try:
        return bytes.fromhex(name)
    except ValueError:
        return b""


_Served = Callable[[Questions, Any, Ask], Awaitable[tuple[Content, list[int]]]]
_SERVED: Final[dict[str, _Served]] = {
    "rows": Questions.rows,
    "inverses": Questions.inverses,
    "lookup": Questions.lookup,
    "content": Questions.content,
    "cell": Questions.cell,
    "places": Questions.places,
    "places.keep": Questions.keep_places,
    "secret": Questions.secret,
    "spill.open": Questions.open_spill,
    "spill.adopt": Questions.adopt_spill,
    "spill.drop": Questions.drop_spill,
}
