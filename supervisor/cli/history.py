"""Where `shoal journal` reads: the store in the state directory, or the running kernel.

Both give entries in the form of `journal.query` (chapter 61, section 7), so that everything above
is written once.

Failure: Failure when the store cannot be read; RpcError and NotReachable from the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final, Protocol

import orjson

from ipc.client import Client, Code, RpcError
from journal.blobs import BlobsPresent, ReadBlob
from journal.cas import BlobPiece
from journal.errors import BlobMissing, StoreError
from journal.query import EVERYTHING, EntryById, EntryFilter, QueryEntriesJson, entry_json
from journal.readers import BesideReader
from journal.undo import UndoOfEntry, UndoStep
from supervisor.cli.call import Call
from supervisor.cli.failure import Failure

# A command prints what was asked for, however much that is.
UNBOUNDED: Final = sys.maxsize
BLOB_PIECE_BYTES: Final = 1024 * 1024

Entry = dict[str, Any]
Filters = dict[str, Any]


class History(Protocol):
    """Something that knows entries and blobs."""

    def query(self, filters: Filters) -> list[Entry]: ...

    def entry(self, number: int) -> Entry | None: ...

    def present(self, hashes: Iterable[str]) -> set[str]:
        """Those whose content is still there."""

    def close(self) -> None: ...


class StoredHistory:
    """The state directory, read beside whatever runs on it."""

    def __init__(self, call: Call) -> None:
        try:
            self._reader = BesideReader(call.paths.state_dir)
        except StoreError as error:
            raise Failure(str(error)) from error

    def query(self, filters: Filters) -> list[Entry]:
        known = {**filters, "effects": tuple(filters.get("effects", ()))}
        entries: list[Entry] = orjson.loads(
            self._fetch(QueryEntriesJson(EntryFilter(**known), EVERYTHING, UNBOUNDED))
        )
        return entries

    def entry(self, number: int) -> Entry | None:
        row = self._fetch(EntryById(number, EVERYTHING))
        return None if row is None else orjson.loads(entry_json(row))

    def present(self, hashes: Iterable[str]) -> set[str]:
        digests = frozenset(map(bytes.fromhex, hashes))
        return {digest.hex() for digest in self._fetch(BlobsPresent(digests))}

    def blob(self, name: str, offset: int, length: int) -> tuple[bytes, int]:
        """A piece of content and the length of the whole."""
        try:
            piece = self._fetch(ReadBlob(name, offset, length))
        except BlobMissing as error:
            raise Failure(f"unknown value hash: {name}") from error
        return piece.data, piece.total

    def content(self, name: str) -> bytes:
        """All of a blob. Raises BlobMissing or BlobDamaged."""
        piece: BlobPiece = self._reader.fetch(ReadBlob(name))
        return piece.data

    def undo_steps(self, number: int) -> list[UndoStep]:
        """The inverses of an entry in recording order, whoever sent it."""
        steps: list[UndoStep] = self._fetch(UndoOfEntry(number, None))
        return steps

    def close(self) -> None:
        self._reader.close()

    def _fetch(self, read: Any) -> Any:
        try:
            return self._reader.fetch(read)
        except BlobMissing:
            raise
        except StoreError as error:
            raise Failure(str(error)) from error


class RemoteHistory:
    """The running kernel, under the rules for the attached principal."""

    def __init__(self, call: Call) -> None:
        self._client: Client = call.connect(autostart=False)
        try:
            call.attached(self._client)
        except BaseException:
            self._client.close()
            raise

    def query(self, filters: Filters) -> list[Entry]:
        entries: list[Entry] = self._client.call("journal.query", filters)
        return entries

    def entry(self, number: int) -> Entry | None:
        # The newest one below the next number is the one, or there is none of it.
        params = {"kind": "all", "before_id": number + 1, "limit": 1}
        found = [each for each in self.query(params) if each["id"] == number]
        return found[0] if found else None

    def present(self, hashes: Iterable[str]) -> set[str]:
        asked = {
            name: self._client.start("blob.get", {"hash": name, "offset": 0, "length": 0})
            for name in set(hashes)
        }
        found = set()
        for name, answer in asked.items():
            try:
                answer.result()
            except RpcError as error:
                if error.code != Code.UNKNOWN_REF:
                    raise
            else:
                found.add(name)
        return found

    def close(self) -> None:
        self._client.close()
