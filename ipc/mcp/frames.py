"""One line in, one request, notification or error out; answers as lines (chapter 80, 5 and 6).

Pure. Ids are kept as the bytes the client sent.

Failure: `read_line` raises BadFrame with the answer that the line gets.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipc.framing import LINE_BYTES_MAX

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
OVERSIZE: Final = "frame exceeds 16 MiB"
_NULL: Final = b"null"
_NOT_RPC: Final = "invalid JSON-RPC request"


class McpError(Exception):
    """An error answer of the facade itself; `data` is null when there is nothing to say."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class BadFrame(Exception):
    """A line that is no request: the error, and the id (raw JSON) it is answered under."""

    def __init__(self, error: McpError, request_id: bytes = _NULL) -> None:
        super().__init__(error.message)
        self.error = error
        self.id = request_id


class Request(msgspec.Struct, frozen=True):
    """`id` is raw JSON, None for a notification."""

    method: str
    params: Any
    id: bytes | None


class _Envelope(msgspec.Struct):
    jsonrpc: msgspec.Raw = msgspec.Raw(b"")
    method: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")


_envelopes: Final = msgspec.json.Decoder(_Envelope)
_anything: Final = msgspec.json.Decoder(Any)


def parse_error(detail: str) -> McpError:
    return McpError(PARSE_ERROR, "parse error", {"detail": detail})


def read_line(line: bytes) -> Request | None:
    """The request or notification of a line; None for a notification that says nothing usable."""
    try:
        line.decode("utf-8")
        # Everything once, so that a mistake inside a member is a mistake of the line.
        whole = _anything.decode(line)
        if not isinstance(whole, dict):
            raise BadFrame(McpError(INVALID_REQUEST, _NOT_RPC))
        envelope = _envelopes.decode(line)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as error:
        raise BadFrame(parse_error(str(error))) from None
    method = whole.get("method")
    params = whole.get("params")
    request_id = bytes(envelope.id)
    if not request_id:
        return Request(method, params, None) if isinstance(method, str) else None
    if whole.get("jsonrpc") != "2.0":
        raise BadFrame(McpError(INVALID_REQUEST, _NOT_RPC), request_id)
    if not isinstance(method, str):
        failure = McpError(INVALID_REQUEST, "request method must be a string")
        raise BadFrame(failure, request_id)
    return Request(method, params, request_id)


def result_line(request_id: bytes, result: Any) -> bytes:
    """The answer of a request that succeeded, within the limit of an output line."""
    line = b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request_id, msgspec.json.encode(result))
    if len(line) > LINE_BYTES_MAX:
        return error_line(request_id, McpError(INTERNAL_ERROR, "result too large"))
    return line


def error_line(request_id: bytes, error: McpError) -> bytes:
    content = {"code": error.code, "message": error.message, "data": error.data}
    line = b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (request_id, msgspec.json.encode(content))
    if len(line) > LINE_BYTES_MAX:
        return error_line(request_id, McpError(INTERNAL_ERROR, "result too large"))
    return line


def notification_line(method: str, params: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"


def same_id(one: bytes, other: Any) -> bool:
    """Whether a raw id is the value `other`, in type and value."""
    value = _anything.decode(one)
    return type(value) is type(other) and value == other
