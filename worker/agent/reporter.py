"""Events of one turn on their way to the router: in order, in batches, acknowledged.

Text is joined while a batch is under way and at most every INTERVAL_S; anything else goes as soon
as the router took what was before it. The router commits a batch before it answers, so what was
acknowledged survives this process.

Failure: a batch that the router refuses ends reporting; `failed` says so and the turn ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ipc.agent_events import Event, Text, Thought, encode_event

INTERVAL_S: Final = 0.02
TEXT_BYTES_MAX: Final = 64 * 1024
PENDING_EVENTS_MAX: Final = 64

# Sends one encoded batch and waits for the router; whether it took it.
SendBatch = Callable[[bytes], bool]


def pieces(text: str, limit: int = TEXT_BYTES_MAX) -> list[str]:
    """The text in pieces of at most `limit` UTF-8 bytes, never inside a code point."""
    data = text.encode("utf-8", "replace")
    found: list[str] = []
    start = 0
    while start < len(data):
        end = min(start + limit, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        found.append(data[start:end].decode("utf-8"))
        start = end
    return found


class Reporter:
    # `_pending` holds events not sent yet, `_sending` whether a batch is under way; both change
    # under `_changed`. `failed` goes from False to True once.

    def __init__(self, send: SendBatch) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._pending: list[Event] = []
        self._sending = False
        self._closed = False
        self._hurry = False
        self.failed = False
        threading.Thread(target=self._run, name="agent events", daemon=True).start()

    def add(self, event: Event) -> None:
        """Queue an event; waits while too many are queued, so a producer cannot run ahead."""
        with self._changed:
            while len(self._pending) >= PENDING_EVENTS_MAX and not (self.failed or self._closed):
                self._changed.wait()
            if isinstance(event, Text | Thought):
                self._add_text(event)
            else:
                self._pending.append(event)
            self._changed.notify_all()

    def text(self, text: str) -> None:
        if text:
            self.add(Text(text))

    def _add_text(self, event: Text | Thought) -> None:
        last = self._pending[-1] if self._pending else None
        joined = event.text
        if isinstance(last, Text | Thought) and type(last) is type(event):
            self._pending.pop()
            joined = last.text + joined
        self._pending += [type(event)(piece) for piece in pieces(joined)]

    def flush(self) -> bool:
        """Wait until everything was taken; whether it was."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            while (self._pending or self._sending) and not self.failed:
                self._changed.wait()
            self._hurry = False
            return not self.failed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _only_text(self) -> bool:
        return all(isinstance(event, Text | Thought) for event in self._pending)

    def _run(self) -> None:
        last_text_at = 0.0
        while True:
            with self._changed:
                while not self._pending:
                    if self._closed or self.failed:
                        return
                    self._changed.wait()
                due = last_text_at + INTERVAL_S - time.monotonic()
                if due > 0 and self._only_text() and not (self._closed or self._hurry):
                    # More text may come meanwhile; anything else goes at once.
                    self._changed.wait(due)
                    continue
                batch, self._pending = self._pending, []
                self._sending = True
                self._changed.notify_all()
            if any(isinstance(event, Text) for event in batch):
                last_text_at = time.monotonic()
            taken = self._send(encode_event(batch))
            with self._changed:
                self._sending = False
                self.failed = self.failed or not taken
                self._changed.notify_all()
