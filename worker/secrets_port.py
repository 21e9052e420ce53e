"""The secrets of a session: read by the router, for the call that asks (chapter 50 §12.3).

Failure: `leash_denied` when the router does not grant it, `permission` for a fault of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipc.questions import SecretName
from worker.errors import Raised, raised
from worker.journal_port import Refused

if TYPE_CHECKING:
    from worker.journal_port import JournalPort

_CODES: Final = {"policy_denied": "leash_denied", "secret_store": "permission"}


class SecretsPort:
    """See `worker.builtins.ports.SecretsPort`."""

    def __init__(self, journal: JournalPort) -> None:
        self._journal = journal

    def read(self, name: str) -> bytes | None:
        try:
            material, _ = self._journal.ask("secret", SecretName(name))
        except Refused as refusal:
            if refusal.kind == "no_secret":
                return None
            raise _language_error(refusal) from None
        return material


def _language_error(refusal: Refused) -> Raised:
    return raised(_CODES.get(refusal.kind, "permission"), str(refusal))
