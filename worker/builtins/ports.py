"""What the builtins ask of the services around a session: the ports of `Host`.

A session worker fills them in with questions to the router; tests with plain objects. A port that
is None does not exist in this embedding, and the builtins say so or do without it.

Failure: implementations raise language errors for what a user should see (`leash_denied`,
`permission`), OSError for a service that cannot do its work now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Inverse = dict[str, Any]


class JournalPort(Protocol):
    """`host.journal`: the history as the principal of the running request may see it."""

    def rows(
        self, *, kind: str, head: str | None, principal: str | None, limit: int
    ) -> Sequence[dict[str, Any]]:
        """Entries in the JSON shape of chapter 61 §7, newest first, filtered before the limit."""
        ...

    def inverses(self, entry_id: int | None) -> tuple[int, Sequence[Inverse]] | None:
        """The undo records of an entry and everything below it, in recording order.

        For None those of the newest entry of this principal in this session that has some. None
        when there is no such entry, or it has none, or it belongs to somebody else.
        """
        ...

    def snapshot_bytes(self, content_hash: str) -> bytes | None:
        """Stored content by its BLAKE3 hex; None when the store does not have it."""
        ...

    def snapshot(self, entry: Any, content: bytes) -> str | None:
        """Keep the prior content of a file for an entry; its hash, None when it was not kept."""
        ...

    def record_undo(self, entry: Any, inverse: Inverse) -> None:
        """Record one inverse for an entry, in the stored shape of chapter 50 §13.1."""
        ...


class SecretsPort(Protocol):
    """`host.secrets`: the router's store."""

    def read(self, name: str) -> bytes | None:
        """The material of a secret, None when there is none of that name."""
        ...


class NavigationPort(Protocol):
    """`host.navigation`: see `worker.builtins.frecency.NavigationStore`, which implements it."""

    def visit(self, path: str, now_s: int) -> None: ...

    def ranked(self, query: str | None, now_s: int) -> list[str]: ...
