"""What a session worker may ask the router while it serves a call: operations and their parameters.

An `Ask` names the operation and the call it is asked in; parameters are JSON of the struct below.
Answers are JSON of the result struct, or raw content where there is none. Every question is
bounded: content is read in pieces of at most PIECE_BYTES_MAX, rows by their number and one frame.

| Operation | Parameters | Answer |
|---|---|---|
| `rows` | `RowsQuestion` | JSON array of entries (chapter 61 §7) |
| `inverses` | `InversesQuestion` | `Inverses`, or null |
| `lookup` | `ContentName` | `ContentInfo`, or null when there is no such content for the caller |
| `content` | `ContentPiece` | the bytes; error `unknown_hash` or `corrupt_blob` |
| `cell` | `CellName` | the stored form of a result of this session; empty when there is none |
| `spill.open` | none | a descriptor to write to |
| `spill.adopt` | `SpilledContent` | `ContentInfo` |
| `spill.drop` | `Spill` | empty |
| `places` | none | the text of the user's visited directories; error for other principals |
| `places.keep` | `Places` | empty |
| `secret` | `SecretName` | the material; error `no_secret`, `secret_store` or `policy_denied` |

Failure: an answer that is not ok carries an error object of chapter 60 §9.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

PIECE_BYTES_MAX: Final = 8 * 1024 * 1024
SPILLS_OPEN_MAX: Final = 64
PLACES_BYTES_MAX: Final = 1024 * 1024


class RowsQuestion(msgspec.Struct):
    """Filters of `journal` and `history` (chapter 31 §6.2)."""

    kind: str
    head: str | None
    principal: str | None
    limit: int


class InversesQuestion(msgspec.Struct):
    """The entry whose inverses are wanted; None for the newest that has some."""

    entry: int | None


class Inverses(msgspec.Struct):
    """Inverses in recording order, as stored (chapter 50 §13.1)."""

    entry: int
    inverses: list[dict[str, Any]]


class SecretName(msgspec.Struct):
    name: str


class ContentName(msgspec.Struct):
    """Stored content by the 64 hex digits of its hash."""

    hash: str


class ContentPiece(msgspec.Struct):
    hash: str
    offset: int
    length: int


class ContentInfo(msgspec.Struct):
    hash: str
    length: int


class CellName(msgspec.Struct):
    name: str


class Places(msgspec.Struct):
    """The memory of visited directories, as text (chapter 31 §4.1)."""

    text: str


class Spill(msgspec.Struct):
    """A spill by the number of the question that opened it."""

    number: int


class SpilledContent(msgspec.Struct):
    """The first `length` bytes of a spill are its content."""

    number: int
    length: int
