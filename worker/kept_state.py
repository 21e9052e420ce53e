"""What a session keeps between submissions and lives: results, cells, places, client results.

The evaluator thread changes it, submission by submission; what changed travels with the end of each
to the store, and comes back from there when the session gets a new worker (chapter 60 §10, 61
§2.2).

Failure: a cell or result that has no stored form is lost by name, never an error here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ipc.jsonrpc import RpcError
from ipc.messages import (
    RESULT_CELL,
    Caller,
    Cell,
    Init,
    StateChanges,
    decode_cells,
    encode_changes,
)
from worker import reads
from worker.evaluate.state import StateKeeper
from worker.transcript import ON_DEMAND, Transcript, out_number

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator
    from worker.journal_port import JournalPort
    from worker.values.types import Value

_NO_PLACE: Final = ("", b"")


class KeptState:
    # `transcript` and `_results` (results of terminal clients, by connection) grow with every
    # value; `_cwd` and `_env_pairs` with `_env_hash` are what was seen last. All of it belongs to
    # the evaluator thread; the I/O thread looks results up.

    def __init__(self, init: Init, journal: JournalPort) -> None:
        self._init = init
        self._journal = journal
        self._results: dict[int, list[int]] = init.client_results
        self._cwd = _NO_PLACE
        self._env_pairs: tuple[tuple[bytes, bytes], ...] = ()
        self._env_hash = ""
        self._places_noted = True
        self.transcript = Transcript(
            init.next_out, init.transcript_values, init.transcript_bytes, self._load_result
        )
        self.lost: list[str] = []

    def attach(self, evaluator: Evaluator, cells: bytes) -> None:
        """Watch an evaluator from now on, with the stored state brought back into it."""
        self._evaluator = evaluator
        self._keeper = StateKeeper(
            evaluator, load_content=self._journal.load, read_secret=self._read_secret
        )
        self.lost = self._restore(cells)
        self.note_places()

    # -- places ------------------------------------------------------------------------------------

    def cwd_bytes(self) -> bytes:
        """The current directory as it is now."""
        cwd = self._evaluator.cwd
        if self._cwd[0] != cwd:
            self._cwd = (cwd, os.fsencode(cwd))
        return self._cwd[1]

    def note_places(self) -> None:
        """Look again at what a program with effects may have changed outside its bindings."""
        self._places_noted = True
        pairs = tuple(self._evaluator.env.items())
        if self._env_pairs != pairs:
            self._env_pairs = pairs
            self._env_hash = reads.env_hash(self._evaluator.env)

    def env_hash(self) -> str:
        """The hash of the environment after the last program that could change it."""
        return self._env_hash

    # -- results -----------------------------------------------------------------------------------

    def repl_names(self, caller: Caller) -> dict[str, Value] | None:
        """What `it` and `out` name for a terminal attachment (chapter 60 §5.9)."""
        if not caller.repl:
            return None
        results = [self._stored(number) for number in self._results.get(caller.connection, [])]
        return {"it": results[-1] if results else None, "out": results}

    def _stored(self, number: int) -> Value:
        try:
            return self.transcript.get(f"out:{number}")
        except RpcError:
            return None

    def remember_result(self, caller: Caller, number: int) -> None:
        if caller.repl:
            self._results.setdefault(caller.connection, []).append(number)

    # -- to the store and back ---------------------------------------------------------------------

    def held(self, digest: str) -> None:
        """Content that the session got hold of; it is let go unless a saved cell refers to it."""
        self._keeper.held(digest)

    def changes(self, number: int, stored: Value, expired: list[int]) -> bytes:
        """The state a submission changed, encoded for the store."""
        keeper = self._keeper
        cells = keeper.changed(places=self._places_noted)
        self._places_noted = False
        cells.append(keeper.result(f"{RESULT_CELL}{number}", stored))
        cells += [keeper.forget(f"{RESULT_CELL}{gone}") for gone in expired]
        pinned, unpinned = keeper.content_changes()
        return encode_changes(
            StateChanges(
                [Cell(cell.name, cell.data) for cell in cells if cell.kept],
                [cell.name for cell in cells if not cell.kept],
                [bytes.fromhex(digest) for digest in pinned],
                [bytes.fromhex(digest) for digest in unpinned],
            )
        )

    def _restore(self, data: bytes) -> list[str]:
        """Bring stored state back; returns the names that are lost, sorted."""
        cells = [(cell.name, cell.value) for cell in decode_cells(data)] if data else []
        lost = self._keeper.restore(cells)
        results = [(name, value, len(value or b"")) for name, value in cells]
        results += [(name, ON_DEMAND, size) for name, size in self._init.results]
        numbered = [(out_number(name), value, size) for name, value, size in results]
        for number, value, size in sorted((n, v, s) for n, v, s in numbered if n is not None):
            if value is None:
                lost.append(f"{RESULT_CELL}{number}")
            self.transcript.restore(number, value, size)
        return sorted(lost)

    def _load_result(self, number: int, data: bytes) -> Value:
        """A stored result when somebody wants it; MISSING when it cannot be brought back."""
        if data is ON_DEMAND:
            data = self._journal.stored_cell(f"{RESULT_CELL}{number}") or b""
        return self._keeper.read_result(data)

    def _read_secret(self, name: str) -> bytes | None:
        secrets = self._evaluator.host.secrets
        return None if secrets is None else secrets.read(name)
