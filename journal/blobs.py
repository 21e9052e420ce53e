"""Reading stored content, and who may (chapter 60 §4.3, §5.11, chapter 61 §5.3).

Failure: `BlobMissing` and `BlobDamaged` as the content store raises them; a foreign blob is simply
not visible, exactly like one that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass

from journal.cas import BlobPiece, digest_of
from journal.errors import BlobMissing
from journal.query import Visibility, visible_clause
from journal.source import Source


@dataclass(frozen=True, slots=True)
class ReadBlob:
    """A verified range of content; `length` None is all the rest.

    With `visibility` only what the caller may see is found: content linked by an entry visible to
    it, or backing a value of the session it is attached to.
    """

    name: str
    offset: int = 0
    length: int | None = None
    visibility: Visibility | None = None
    session_id: int | None = None

    def run(self, source: Source) -> BlobPiece:
        if self.visibility is not None:
            seen = BlobVisible(self.name, self.visibility, self.session_id)
            if not seen.run(source):
                raise BlobMissing(self.name)
        piece = source.content.read(self.name, self.offset, self.length)
        source.touched(digest_of(self.name))
        return piece


@dataclass(frozen=True, slots=True)
class BlobVisible:
    """Whether a caller may know that there is such content."""

    name: str
    visibility: Visibility
    session_id: int | None = None

    def run(self, source: Source) -> bool:
        try:
            digest = digest_of(self.name)
        except BlobMissing:
            return False
        connection = source.connection
        if self.session_id is not None:
            pinned = connection.execute(
                "SELECT 1 FROM pin WHERE hash = ? AND reason = 'value' AND holder = ?",
                (digest, str(self.session_id)),
            ).fetchone()
            if pinned is not None:
                return True
        clause, parameters = visible_clause(self.visibility)
        linked = connection.execute(
            "SELECT 1 FROM output o INDEXED BY idx_output_hash"
            " CROSS JOIN entry e ON e.id = o.entry_id"
            f" WHERE o.hash = ? AND {clause} ORDER BY o.rowid DESC LIMIT 1",
            (digest, *parameters),
        ).fetchone()
        return linked is not None


@dataclass(frozen=True, slots=True)
class BlobsPresent:
    """Which of these hashes still have content; the others are aged out."""

    hashes: frozenset[bytes]

    def run(self, source: Source) -> frozenset[bytes]:
        return frozenset(digest for digest in self.hashes if source.content.exists(digest))
