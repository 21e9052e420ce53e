"""A local HTTP server that plays the streaming chat completions API, byte for byte as told.

Failure: a request when no reply is left is answered with 500 and noted in `surplus`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Reply:
    """One answer: status, body pieces (each flushed on its own), content type."""

    pieces: Iterable[bytes]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    before: Callable[[], object] | None = None


def chunk(delta: dict[str, Any], finish: str | None = None, **top: Any) -> bytes:
    """One streamed chunk."""
    body = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **top,
    }  # fmt: skip
    return b"data: " + json.dumps(body).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":5,"total_tokens":16}}\n\n'
)


def said(text: str) -> list[bytes]:
    """A plain answer."""
    return [
        b": keep-alive\n\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": text}),
        chunk({}, "stop"),
        USAGE,
        DONE,
    ]


def called(name: str, arguments: str, call_id: str = "call_1") -> list[bytes]:
    """A tool call, its arguments in pieces of three characters."""
    first = {"index": 0, "id": call_id, "type": "function",
             "function": {"name": name, "arguments": ""}}  # fmt: skip
    pieces = [chunk({"role": "assistant", "content": None, "tool_calls": [first]})]
    pieces += [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + 3]}}]})
        for at in range(0, len(arguments), 3)
    ]
    return [*pieces, chunk({}, "tool_calls"), DONE]


class ChatServer:
    """Use as a context manager. `replies` are taken in order; `requests` are bodies received."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.surplus = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                outer.requests.append(json.loads(self.rfile.read(length)))
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                if not outer.replies:
                    outer.surplus += 1
                    self.send_error(500)
                    return
                outer._play(self, outer.replies.pop(0))

            def log_message(self, *_args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @staticmethod
    def _play(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.before is not None:
            reply.before()
        handler.send_response(reply.status)
        handler.send_header("Content-Type", reply.content_type)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("Connection", "close")
        handler.end_headers()
        try:
            for piece in reply.pieces:
                handler.wfile.write(piece)
                handler.wfile.flush()
        except OSError:
            return
        handler.close_connection = True

    def say(self, pieces: Iterable[bytes], **more: Any) -> None:
        self.replies.append(Reply(pieces, **more))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
