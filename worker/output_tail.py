"""The newest output of a running task, for whoever watches it live (chapter 61 §10.7).

Every program of a task passes what it prints here as well. Bytes are always counted; text is kept
and published only while somebody watches: at most once per INTERVAL_S, one stream at a time, with
the newest TAIL_BYTES_MAX bytes of what came since.

Failure: none; undecodable bytes are replaced, a tail that cannot be sent is nobody's loss.
"""

from __future__ import annotations

import codecs
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from worker.commands.capture import StreamName
from worker.commands.processes import TABLE
from worker.values.render import strip_terminal

# Stream, bytes so far, tail.
Publish = Callable[[StreamName, int, str], None]

TAIL_BYTES_MAX: Final = 4096
# Twenty events a second are allowed; the last ones of a task come without waiting.
INTERVAL_S: Final = 0.06
# Raw text kept per stream: enough for a full tail behind terminal sequences.
_KEPT_CHARS_MAX: Final = 4 * TAIL_BYTES_MAX
_OPEN_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,200})?\Z")


class _Stream:
    __slots__ = ("bytes", "decoder", "fresh", "text")

    def __init__(self) -> None:
        self.bytes = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""
        self.fresh = False

    def add(self, chunk: bytes) -> None:
        self.text = (self.text + self.decoder.decode(chunk))[-_KEPT_CHARS_MAX:]
        self.fresh = True

    def take(self, final: bool) -> str:
        """The text since the last time, without terminal sequences; an open one is kept back."""
        if final:
            self.text += self.decoder.decode(b"", final=True)
        text, rest = self.text, ""
        if not final:
            found = _OPEN_SEQUENCE.search(text)
            if found is not None:
                text, rest = text[: found.start()], text[found.start() :]
        self.text = rest
        self.fresh = False
        encoded = strip_terminal(text).encode("utf-8", "replace")
        return encoded[-TAIL_BYTES_MAX:].decode("utf-8", "ignore")


class OutputTail:
    # Everything changes under `_lock`, since the programs of a task may run side by side.
    # `_timer` says that a publication is due by itself; `_next_at` is when the next one may be.

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._streams: dict[StreamName, _Stream] = {"stdout": _Stream(), "stderr": _Stream()}
        self._watched = False
        self._timer = False
        self._next_at = 0.0
        self._over = False

    def watch(self, on: bool) -> None:
        with self._lock:
            self._watched = on

    def add(self, name: StreamName, chunk: bytes) -> None:
        """What a program printed, as it came."""
        with self._lock:
            stream = self._streams[name]
            stream.bytes += len(chunk)
            if not self._watched or self._over:
                return
            stream.add(chunk)
            if not self._timer:
                self._publish_due()

    def finish(self) -> None:
        """The task has ended: what is left is published now, and nothing after it."""
        with self._lock:
            self._over = True
            for name, stream in self._streams.items():
                if stream.fresh:
                    self._send(name, stream, final=True)

    def _due(self) -> None:
        with self._lock:
            self._timer = False
            if not self._over:
                self._publish_due()

    def _publish_due(self) -> None:
        """Publish one stream when the time has come, and see to the rest later."""
        now = time.monotonic()
        fresh = [(name, stream) for name, stream in self._streams.items() if stream.fresh]
        if fresh and now >= self._next_at:
            name, stream = fresh.pop(0)
            self._send(name, stream, final=False)
            self._next_at = now + INTERVAL_S
        if fresh:
            self._timer = True
            TABLE.later(self._next_at - now, self._due)

    def _send(self, name: StreamName, stream: _Stream, *, final: bool) -> None:
        tail = stream.take(final)
        if tail:
            self._publish(name, stream.bytes, tail)
