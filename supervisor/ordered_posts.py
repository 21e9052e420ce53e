"""Operations of one session for the store, in order, with large contents stored ahead of them.

Most operations are posted at once. One that carries large contents waits until these are in the
content store, off the loop, and everything of the session that comes later waits for it.

Failure: contents that cannot be stored fail their operation and no other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from journal.blobs import ReadBlob
from journal.errors import StoreError
from journal.records import (
    INGEST_BYTES_MIN,
    Content,
    FileContent,
    FinishSubmission,
    Operation,
    Output,
    UndoRow,
    WriteStatements,
)
from supervisor.contents import Excerpt

if TYPE_CHECKING:
    from journal.store import Store

R = TypeVar("R")
Done = Callable[[Any, StoreError | None], None]
_COPY_BYTES: Final = 4 * 1024 * 1024


class OrderedPosts:
    # `_last` is the task of the last operation that waits for its contents; None when all that came
    # was posted.

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._last: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        return self._last is not None

    def post(self, operation: Operation[R], done: Done, *, large: bool = False) -> None:
        if not large and self._last is None:
            self._store.post(operation, done)
            return
        following = self._loop.create_task(self._prepare(operation, done, self._last))
        self._last = following
        following.add_done_callback(self._posted)

    def _posted(self, following: asyncio.Task[None]) -> None:
        if self._last is following:
            self._last = None

    async def settled(self) -> None:
        """When everything that came so far was posted."""
        while self._last is not None:
            await asyncio.wait([self._last])

    async def _prepare(
        self, operation: Operation[Any], done: Done, previous: asyncio.Task[None] | None
    ) -> None:
        try:
            ready = await self._with_stored_contents(operation)
        except (StoreError, OSError) as error:
            if previous is not None:
                await asyncio.wait([previous])
            done(None, error if isinstance(error, StoreError) else StoreError(str(error)))
            return
        if previous is not None:
            await asyncio.wait([previous])
        self._store.post(ready, done)

    async def _with_stored_contents(self, operation: Operation[Any]) -> Operation[Any]:
        if isinstance(operation, FinishSubmission):
            operation = msgspec.structs.replace(
                operation, outputs=await self._outputs(operation.outputs)
            )
        if isinstance(operation, FinishSubmission | WriteStatements):
            statements = [
                msgspec.structs.replace(row, outputs=await self._outputs(row.outputs))
                for row in operation.statements
            ]
            undo = [await self._undo(row) for row in operation.undo]
            operation = msgspec.structs.replace(
                operation, statements=tuple(statements), undo=tuple(undo)
            )
        return operation

    async def _outputs(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        return tuple([Output(o.kind, await self._stored(o.content)) for o in outputs])

    async def _undo(self, row: UndoRow) -> UndoRow:
        if row.snapshot is None:
            return row
        return msgspec.structs.replace(row, snapshot=await self._stored(row.snapshot))

    async def _stored(self, content: Content | Excerpt) -> Content:
        if isinstance(content, Excerpt):
            content = await self._excerpt(content)
        large = isinstance(content, bytes) and len(content) >= INGEST_BYTES_MIN
        if large or isinstance(content, FileContent):
            return await self._store.ingested(content)
        return content

    async def _excerpt(self, excerpt: Excerpt) -> FileContent:
        """The part of stored content that an output may hold, as a file; the store marks the
        cut."""
        fd = await asyncio.to_thread(self._store.open_spill)
        try:
            for offset in range(0, excerpt.kept, _COPY_BYTES):
                length = min(_COPY_BYTES, excerpt.kept - offset)
                piece = await self._store.load(ReadBlob(excerpt.hash.hex(), offset, length))
                await asyncio.to_thread(_append, fd, piece.data)
        except BaseException:
            os.close(fd)
            raise
        return FileContent(fd, excerpt.length)


def _append(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
