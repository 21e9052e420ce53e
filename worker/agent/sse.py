"""Server-sent events of a streaming chat API, and the message their pieces add up to.

Pure: bytes in, events out, at any split. Lines that start with `data:` count, `[DONE]` ends the
stream, everything else is skipped (chapter 70 §18.2).

Failure: `Stream.feed` raises MalformedStream for data that is no JSON object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

DONE: Final = b"[DONE]"
STOP_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal"}


class MalformedStream(Exception):
    """What the server sent is not what it promised."""


class Events:
    """Cuts the `data` payloads out of a byte stream."""

    # `_held` is the unfinished line. `done` is set by `[DONE]`; nothing after it counts.

    def __init__(self) -> None:
        self._held = b""
        self.done = False

    def feed(self, data: bytes) -> list[bytes]:
        # A line may end in CR LF; a lone CR at the end of a piece waits for what follows.
        held = self._held + data
        lines = held.split(b"\n")
        self._held = lines.pop()
        return self._payloads(lines)

    def end(self) -> list[bytes]:
        """The stream is over: a last line without an end counts."""
        last, self._held = self._held, b""
        return self._payloads([last])

    def _payloads(self, lines: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for line in lines:
            if self.done or not line.startswith(b"data:"):
                continue
            payload = line[len(b"data:") :].strip()
            if payload == DONE:
                self.done = True
            elif payload:
                found.append(payload)
        return found


@dataclass(slots=True)
class Call:
    """A tool call put together from pieces; `arguments` is still text."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Delta:
    """What one chunk adds for the client."""

    text: str = ""
    thought: str = ""


@dataclass(slots=True)
class Reply:
    """One answer of the model so far."""

    text: str = ""
    calls: dict[int, Call] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: dict[str, int] | None = None

    @property
    def stop_reason(self) -> str:
        return STOP_REASONS.get(self.finish_reason or "", "end_turn")

    def tool_calls(self) -> list[Call]:
        return [self.calls[index] for index in sorted(self.calls)]

    def add(self, payload: bytes) -> Delta:
        """Take one chunk. Raises MalformedStream."""
        try:
            chunk = msgspec.json.decode(payload)
        except msgspec.DecodeError as error:
            raise MalformedStream(f"malformed chunk: {error}") from None
        if type(chunk) is not dict:
            raise MalformedStream("a chunk that is no object")
        failure = chunk.get("error")
        if failure is not None:
            raise MalformedStream(error_text(failure))
        self._note_usage(chunk)
        choice = _first_choice(chunk)
        reason = choice.get("finish_reason")
        if type(reason) is str:
            self.finish_reason = reason
        part = choice.get("delta")
        return self._part(part) if type(part) is dict else Delta()

    def add_whole(self, body: bytes) -> Delta:
        """Take a complete message, of a server that does not stream. Raises MalformedStream."""
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise MalformedStream(f"malformed answer: {error}") from None
        if type(answer) is not dict or answer.get("error") is not None:
            raise MalformedStream(error_text(answer.get("error") if answer else None))
        self._note_usage(answer)
        choice = _first_choice(answer)
        reason = choice.get("finish_reason")
        self.finish_reason = reason if type(reason) is str else None
        message = choice.get("message")
        if type(message) is not dict:
            raise MalformedStream("an answer without a message")
        for index, call in enumerate(message.get("tool_calls") or ()):
            if type(call) is dict:
                call.setdefault("index", index)
        return self._part(message)

    def _note_usage(self, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage")
        if type(usage) is dict:
            self.usage = {name: value for name, value in usage.items() if type(value) is int}

    def _part(self, part: dict[str, Any]) -> Delta:
        content = part.get("content")
        thought = part.get("reasoning_content") or part.get("reasoning")
        delta = Delta(
            content if type(content) is str else "", thought if type(thought) is str else ""
        )
        self.text += delta.text
        for piece in part.get("tool_calls") or ():
            if type(piece) is dict:
                self._add_call(piece)
        return delta

    def _add_call(self, piece: dict[str, Any]) -> None:
        index = piece.get("index")
        call = self.calls.setdefault(index if type(index) is int else len(self.calls), Call())
        function = piece.get("function")
        function = function if type(function) is dict else {}
        # Some servers repeat id and name in every piece; the first counts.
        call.id = call.id or _text(piece.get("id"))
        call.name = call.name or _text(function.get("name"))
        call.arguments += _text(function.get("arguments"))


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _first_choice(chunk: dict[str, Any]) -> dict[str, Any]:
    choices = chunk.get("choices")
    if type(choices) is list and choices and type(choices[0]) is dict:
        return choices[0]
    return {}


def error_text(error: Any) -> str:
    """The message of an error body, whatever its shape."""
    if type(error) is dict:
        message = error.get("message")
        if type(message) is str:
            return message
    return error if type(error) is str and error else "the provider reported an error"
