"""What can go wrong in the durable store, as exceptions with everything a program needs to react.

The store raises these; turning them into wire errors is the router's business. `StoreUnavailable`
is about the world (disk, lock) and may pass; `OperationRefused` is about one operation and
repeating it changes nothing; the others are found at open or while reading one blob.

Failure: nothing here fails.
"""

from __future__ import annotations

from typing import Literal

FailureCause = Literal["disk_full", "io_error", "locked"]


class StoreError(Exception):
    """Any failure of the store; `str(error)` is a short text for people, without source or
    content.
    """


class StoreUnavailable(StoreError):
    """The store cannot commit now: the operation was not done, other work may go on (chapter 61
    §8.2).
    """

    def __init__(self, cause: FailureCause, text: str) -> None:
        super().__init__(text)
        self.cause: FailureCause = cause
        self.text = text


class StoreClosed(StoreError):
    """The store was closed before this operation; it was not done."""


class StoreInUse(StoreError):
    """Another process holds the state directory; `pid` is its number when the lock file tells
    it.
    """

    def __init__(self, pid: int | None) -> None:
        super().__init__(f"state directory in use by pid {'?' if pid is None else pid}")
        self.pid = pid


class StoreDamaged(StoreError):
    """The database file is not usable; the text starts with `journal.db is damaged`."""


class SchemaTooNew(StoreError):
    """A newer program wrote the database; the file was not touched (chapter 61 §8.3)."""

    def __init__(self, version: int, understood: int) -> None:
        super().__init__(
            f"journal.db schema version {version} is newer than this program understands"
            f" (max {understood})"
        )
        self.version = version
        self.understood = understood


class MigrationFailed(StoreError):
    """The step to the current schema was rolled back; the database is as it was before."""


class OperationRefused(StoreError):
    """One operation does not fit the stored state (an unknown row, a broken record); nothing was
    done.
    """


class ApprovalUnavailable(OperationRefused):
    """The plan of an approved run holds no valid approval: none given, used up, or expired."""

    def __init__(self, cause: Literal["approval_used", "approval_expired"] | None) -> None:
        super().__init__("plan approval pending")
        self.cause = cause


class BlobMissing(StoreError):
    """No stored content has this name: never stored, not a hash at all, or collected."""

    def __init__(self, name: str) -> None:
        super().__init__(f"missing CAS blob {name}")
        self.name = name


class BlobDamaged(StoreError):
    """The stored file does not decode to content with this hash; the file is kept for
    inspection.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"CAS blob {name} failed integrity check: content hash mismatch")
        self.name = name
