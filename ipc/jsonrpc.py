"""JSON-RPC 2.0 envelopes of the kernel endpoint: decoding requests, building answers and errors.

`decode_request` takes one line and leaves `params` and `id` as the raw bytes the client sent, so
that an id is repeated byte for byte and parameters can be forwarded without re-encoding
(chapter 60 §2.2). Answers are built by concatenation around raw result bytes.

Failure: `decode_request` raises MalformedFrame with the reason words of chapter 60 §2.3; everything
a client did wrong inside a well-formed request is an `RpcError`.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

JSON_DEPTH_MAX: Final = 128


class MalformedFrame(Exception):
    """A line that is no request; `reason` is `utf8`, `json`, `envelope` or `oversize`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Code:
    """Numeric error codes of the kernel endpoint (chapter 60 §9.2)."""

    INVALID_REQUEST: Final = -32600
    METHOD_NOT_FOUND: Final = -32601
    INVALID_PARAMS: Final = -32602
    INTERNAL_ERROR: Final = -32603
    NOT_ATTACHED: Final = -32000
    PARSE_ERROR: Final = -32001
    RAISED: Final = -32002
    UNKNOWN_REF: Final = -32004
    BAD_PATH_OR_SLICE: Final = -32005
    LEASH_DENIED: Final = -32010
    APPROVAL_REQUIRED: Final = -32011
    UNKNOWN_PLAN: Final = -32012
    TASK_CONTROL_UNAVAILABLE: Final = -32020
    UNKNOWN_TASK: Final = -32021
    UNKNOWN_PTY: Final = -32022
    PTY_SPAWN_FAILED: Final = -32023
    AUTH_FAILED: Final = -32030


class RpcError(Exception):
    """An error answer: numeric code, message for people, `kind` and further data for programs."""

    def __init__(self, code: int, message: str, kind: str, /, **data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data: dict[str, Any] = {"kind": kind, **data}

    @property
    def kind(self) -> str:
        return str(self.data["kind"])

    def encode(self) -> bytes:
        """The error object as JSON bytes."""
        return msgspec.json.encode({"code": self.code, "message": self.message, "data": self.data})


class Request(msgspec.Struct, gc=False):
    """One decoded envelope. `id` and `params` are raw JSON, empty when the member is absent."""

    jsonrpc: str
    method: str
    params: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")


_decoder = msgspec.json.Decoder(Request)
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")


def decode_request(line: bytes) -> Request:
    """Decode one line. Raises MalformedFrame."""
    if not line.isascii():
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame("utf8") from None
    if nests_too_deep(line):
        raise MalformedFrame("json")
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        raise MalformedFrame("envelope") from None
    except (msgspec.DecodeError, RecursionError):
        raise MalformedFrame("json") from None


def nests_too_deep(line: bytes) -> bool:
    """Whether brackets outside strings nest above JSON_DEPTH_MAX levels.

    Every pass removes the innermost level at C speed; brackets that never pair up keep the text
    from shrinking, and such a line is no JSON either way. The two kinds of brackets count as one:
    the decoder finds the pairs that do not match.
    """
    # Few brackets cannot nest deeply. They are counted up to the last one: what comes behind it may
    # be megabytes of text.
    end = max(line.rfind(b"["), line.rfind(b"{")) + 1
    if line.count(b"[", 0, end) + line.count(b"{", 0, end) <= JSON_DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", line).translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        if not brackets:
            return False
        shorter = brackets.replace(b"[]", b"")
        if len(shorter) == len(brackets):
            return True
        brackets = shorter
    return bool(brackets)


def decode_params(raw: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode raw `params` (empty or `null` is `{}`). Raises RpcError `invalid_params`."""
    text = bytes(raw)
    if not text or text == b"null":
        text = b"{}"
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        invalid_params(str(error))


def invalid_params(message: str, **data: Any) -> NoReturn:
    """Raise the -32602 error."""
    raise RpcError(Code.INVALID_PARAMS, message, "invalid_params", **data)


def result_line(request_id: bytes, result: bytes) -> bytes:
    """The answer line of a request that succeeded."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request_id, result)


def error_line(request_id: bytes, error: bytes) -> bytes:
    """The answer line of a request that failed; `error` is an encoded error object."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (request_id, error)


def notification_line(method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params)


def quota(name: str, limit: int, used: int, message: str | None = None) -> RpcError:
    """The answer when a client reaches a limit (chapter 60 §2.6)."""
    return RpcError(
        Code.INTERNAL_ERROR,
        message or f"{name} is limited to {limit}",
        "quota",
        reason="quota",
        quota=name,
        limit=limit,
        used=used,
    )


def internal(kind: str, message: str, /, **data: Any) -> RpcError:
    """A -32603 error; `reason` repeats the kind (chapter 60 §9.3)."""
    return RpcError(Code.INTERNAL_ERROR, message, kind, reason=kind, **data)
