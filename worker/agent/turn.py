"""One turn in the worker: what providers and tools share while it runs.

Failure: `TurnFailed` ends the turn as failed with its text; `TurnCancelled` ends it quietly, since
the router knows why.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_events import Event, ToolCall, ToolResult, TurnOrder, encode_event
from worker.agent.observer import Observer
from worker.agent.reporter import Reporter
from worker.link import LinkClosed

if TYPE_CHECKING:
    from worker.session import Session


class TurnFailed(Exception):
    """The turn cannot go on; the text is for the client."""


class TurnCancelled(Exception):
    """The turn was cancelled."""


# Questions that may end with a person.
ASKS_PEOPLE: Final = frozenset({"agent.approval", "agent.permission", "agent.file", "agent.elicit"})


class Refused(Exception):
    """The router refused a question: its error object."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message")))
        self.error = error

    @property
    def code(self) -> int:
        return int(self.error.get("code", 0))

    @property
    def kind(self) -> str:
        return str(self.error.get("data", {}).get("kind", ""))


class Turn:
    # `observers` by tool call id are looked up by the session when an evaluation of this turn
    # arrives. `cancelled` is set once; `_on_cancel` runs then, on the I/O thread.

    def __init__(self, session: Session, call_id: int, order: TurnOrder) -> None:
        self.session = session
        self.call_id = call_id
        self.order = order
        self.reporter = Reporter(self._send_batch)
        self.observers: dict[str, Observer] = {}
        self.cancelled = threading.Event()
        self._on_cancel: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    # -- the router --------------------------------------------------------------------------------

    def ask(self, op: str, body: Any) -> Any:
        """Ask the router. Raises Refused, or TurnCancelled once the turn is."""
        if op in ASKS_PEOPLE:
            # They see the call that a question is about before the question.
            self.reporter.flush()
        ok, data, _fd = self.session.ask(self.call_id, op, msgspec.json.encode(body))
        found = msgspec.json.decode(data)
        if not ok:
            raise Refused(found)
        return found

    def ask_descriptor(self, op: str, body: Any) -> int:
        """Ask the router for a stream. Raises Refused."""
        ok, data, fd = self.session.ask(self.call_id, op, msgspec.json.encode(body))
        if not ok or fd < 0:
            raise Refused(msgspec.json.decode(data) if data else {"message": "no stream"})
        return fd

    def _send_batch(self, batch: bytes) -> bool:
        try:
            ok, _data, _fd = self.session.ask(self.call_id, "agent.events", batch)
        except LinkClosed:
            return False
        if not ok:
            self.cancel()
        return ok

    def commit(self, event: Event) -> bool:
        """Have one event committed apart from the others; whether it was. The turn goes on."""
        ok, _data, _fd = self.session.ask(self.call_id, "agent.events", encode_event([event]))
        return ok

    # -- cancelling --------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Signal the end: what waits is woken."""
        with self._lock:
            if self.cancelled.is_set():
                return
            self.cancelled.set()
            callbacks, self._on_cancel = self._on_cancel, []
        for callback in callbacks:
            with contextlib.suppress(OSError):
                callback()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Run the callback at the cancellation, at once when it was before."""
        with self._lock:
            if not self.cancelled.is_set():
                self._on_cancel.append(callback)
                return
        callback()

    def check(self) -> None:
        if self.cancelled.is_set():
            raise TurnCancelled

    # -- tool calls --------------------------------------------------------------------------------

    def call(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        self.reporter.add(ToolCall(call_id, name, arguments))

    def result(self, call_id: str, name: str, text: str, *, is_error: bool = False) -> None:
        self.reporter.add(ToolResult(call_id, name, text, is_error))
