"""The memory of visited directories of a session, which the router keeps in the user's file.

Sessions of other principals have no such file: theirs is kept in memory, as long as the worker.

Failure: none; what the router refuses stays in memory, see worker.builtins.frecency.
"""

from __future__ import annotations

from ipc.questions import Places
from worker.builtins.frecency import NavigationStore
from worker.journal_port import JournalPort, Refused, WouldBlock


def kept_by_router(port: JournalPort) -> NavigationStore:
    """The navigation port of a session."""
    own = _Places(port)
    return NavigationStore(own.load, own.store)


class _Places:
    # `_text` is what the router would not keep.

    def __init__(self, port: JournalPort) -> None:
        self._port = port
        self._text = ""

    def load(self) -> str:
        try:
            data, _ = self._port.ask("places")
        except (Refused, WouldBlock):
            return self._text
        return data.decode("utf-8", "surrogateescape")

    def store(self, text: str) -> None:
        # Names that are no text travel as their bytes do in the file.
        readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        try:
            self._port.ask("places.keep", Places(readable))
        except (Refused, WouldBlock):
            self._text = text
