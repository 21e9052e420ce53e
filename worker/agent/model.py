"""One call of a model through the broker: the request out, frames of the answer in.

The broker's end of the socket sends frames: a MessagePack array whose first element is `head`
(status, content type), `data` (bytes), `end` or `error` (text). Closing our end cancels the call.

Failure: ModelFailed with a text for the client; TurnCancelled when the turn was.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from worker.agent.sse import Delta, Events, MalformedStream, Reply, error_text
from worker.agent.turn import Turn, TurnCancelled

RESPONSE_BYTES_MAX: Final = 8 * 1024 * 1024
MESSAGE_CHARS_MAX: Final = 500
_LENGTH: Final = struct.Struct("<I")
_TOO_LONG: Final = (
    "context_length_exceeded",
    "context length",
    "maximum context",
    "too many tokens",
    "prompt is too long",
    "context window",
)


class ModelFailed(Exception):
    """The call failed; `too_long` says that the context did not fit."""

    def __init__(self, text: str, *, too_long: bool = False) -> None:
        super().__init__(text)
        self.too_long = too_long


class ModelCall:
    """Iterate over the deltas; `reply` is complete afterwards."""

    def __init__(self, turn: Turn, body: dict[str, Any]) -> None:
        self._turn = turn
        self._body = body
        self.reply = Reply()

    def __iter__(self) -> Iterator[Delta]:
        fd = self._turn.ask_descriptor("agent.model", {"body": self._body})
        with socket.socket(fileno=fd) as stream:
            self._turn.on_cancel(lambda: stream.shutdown(socket.SHUT_RDWR))
            try:
                yield from self._read(stream)
            except OSError as error:
                self._check()
                raise ModelFailed(f"the model broker ended: {error.strerror}") from None
            except MalformedStream as error:
                raise ModelFailed(
                    f"provider {self._turn.order.provider.name}: {error}",
                    too_long=is_too_long(str(error)),
                ) from None

    def _check(self) -> None:
        if self._turn.cancelled.is_set():
            raise TurnCancelled

    def _read(self, stream: socket.socket) -> Iterator[Delta]:
        name = self._turn.order.provider.name
        events, received = Events(), 0
        whole = bytearray()
        status, streaming = 0, True
        while True:
            frame = _frame(stream)
            self._check()
            if frame is None:
                raise ModelFailed("the model broker ended")
            kind, *rest = frame
            if kind == "head":
                status = int(rest[0])
                streaming = status < 300 and "json" not in str(rest[1])
                continue
            if kind == "error":
                raise ModelFailed(f"provider {name}: {rest[0]}")
            if kind == "data":
                received += len(rest[0])
                if received > RESPONSE_BYTES_MAX:
                    raise ModelFailed(
                        f"provider {name} answered more than {RESPONSE_BYTES_MAX} bytes"
                    )
                if streaming:
                    for payload in events.feed(rest[0]):
                        yield self.reply.add(payload)
                else:
                    whole += rest[0]
                continue
            break
        if status >= 300:
            raise _refusal(name, status, bytes(whole))
        if not streaming:
            yield self.reply.add_whole(bytes(whole))
            return
        for payload in events.end():
            yield self.reply.add(payload)
        if not events.done and self.reply.finish_reason is None:
            raise ModelFailed(f"provider {name}: the stream broke off")


def _refusal(name: str, status: int, body: bytes) -> ModelFailed:
    message = body.decode("utf-8", "replace")
    code = ""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        found = None
    if type(found) is dict:
        error = found.get("error", found.get("message"))
        message = error_text(error)
        code = str(error.get("code")) if type(error) is dict else ""
    text = f"provider {name} answered {status}: {message[:MESSAGE_CHARS_MAX]}"
    return ModelFailed(
        text, too_long=status in (400, 413, 422) and is_too_long(f"{code} {message}")
    )


def is_too_long(text: str) -> bool:
    """Whether an error says that the context does not fit."""
    lowered = text.lower()
    return any(word in lowered for word in _TOO_LONG)


def _frame(stream: socket.socket) -> list[Any] | None:
    head = _exactly(stream, _LENGTH.size)
    if head is None:
        return None
    payload = _exactly(stream, _LENGTH.unpack(head)[0])
    if payload is None:
        return None
    found: list[Any] = msgspec.msgpack.decode(payload)
    return found


def _exactly(stream: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)
