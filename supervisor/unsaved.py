"""State of a session that its worker has and the store has not: what failed commits left behind.

While the store cannot commit, submissions may still change a session (`journal.on_failure =
"continue"`, or a failure at the very end). What they changed is kept here and goes along with the
first commit that works, so that a committed result never depends on state that is missing. It ends
with the worker that has it (chapter 61 §8.2).

Failure: none.
"""

from __future__ import annotations

import msgspec

from journal.records import CellChanges


class UnsavedState:
    # `_cells`: (name, kept) to value by name, a value None with kept True is a lost one. `_pins`:
    # whether stored content is to be pinned or let go, by hash. Both hold the newest word only.

    def __init__(self) -> None:
        self._cells: dict[str, tuple[bool, bytes | None]] = {}
        self._pins: dict[bytes, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._cells or self._pins)

    def clear(self) -> None:
        self._cells.clear()
        self._pins.clear()

    def add(self, failed: CellChanges) -> None:
        """Keep what a commit that failed would have changed."""
        self._cells.update((name, (False, None)) for name in failed.removed)
        self._cells.update((name, (True, value)) for name, value in failed.changed)
        self._pins.update(dict.fromkeys(failed.unpinned, False))
        self._pins.update(dict.fromkeys(failed.pinned, True))

    def take(self, newer: CellChanges) -> CellChanges:
        """Newer changes together with everything kept here, which they go before."""
        if not self:
            return newer
        self.drop(newer)
        cells, self._cells = self._cells, {}
        pins, self._pins = self._pins, {}
        kept = [(name, value) for name, (is_kept, value) in cells.items() if is_kept]
        removed = [name for name, (is_kept, _value) in cells.items() if not is_kept]
        return msgspec.structs.replace(
            newer,
            changed=(*kept, *newer.changed),
            removed=(*removed, *newer.removed),
            pinned=(*[digest for digest, wanted in pins.items() if wanted], *newer.pinned),
            unpinned=(*[digest for digest, wanted in pins.items() if not wanted], *newer.unpinned),
        )

    def drop(self, saved: CellChanges) -> None:
        """Forget what a commit that worked has overtaken."""
        for name, _value in saved.changed:
            self._cells.pop(name, None)
        for name in saved.removed:
            self._cells.pop(name, None)
        for digest in (*saved.pinned, *saved.unpinned):
            self._pins.pop(digest, None)
