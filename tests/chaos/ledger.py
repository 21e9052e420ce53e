"""What the clients of a chaos run were promised, and what may have happened beyond that.

Every session runs the same kind of program: it counts `n` up, and `twin` with it in the same
submission. So the state a session comes back with says how much of its history it remembers.

Failure: `problems` names every promise that was broken.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass
class SessionLedger:
    """`declared` says that `n` and `twin` are there for sure. `acknowledged` maps refs to the wire
    values that came with them. `counted` is the last `n` that was acknowledged, `open` how many
    submissions since then may or may not have counted."""

    name: str
    declared: bool = False
    acknowledged: dict[str, Any] = field(default_factory=dict)
    counted: int = 0
    open: int = 0
    large: dict[str, int] = field(default_factory=dict)


class Ledger:
    # `_sessions` is filled once; each of them belongs to the thread of its client until the round
    # is over. `notes` are the answers that are no promise, by kind, under `_lock`.

    def __init__(self, names: list[str]) -> None:
        self._lock = threading.Lock()
        self.sessions = {name: SessionLedger(name) for name in names}
        self.notes: dict[str, int] = {}

    def note(self, kind: str) -> None:
        with self._lock:
            self.notes[kind] = self.notes.get(kind, 0) + 1

    @property
    def promises(self) -> int:
        return sum(len(session.acknowledged) for session in self.sessions.values())
