"""JSON-RPC 2.0 envelopes of the agent endpoint: what a line is, and the lines that go back.

A line is classified by its shape first, because both directions send requests: a malformed response
must never be answered, since its id might complete an unrelated request of the other side (chapter
70 §4). `params` and `id` stay the raw bytes of the client, so an id is repeated verbatim.

Pure. Failure: `classify` never raises; what is wrong comes back as `Refused` (to be answered) or
`Dropped` (to be logged).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ipc.jsonrpc import JSON_DEPTH_MAX, RpcError, nests_too_deep

NULL_ID: Final = b"null"


class AgentCode:
    """Numeric error codes of the agent endpoint (chapter 70 §5)."""

    PARSE_ERROR: Final = -32700
    INVALID_REQUEST: Final = -32600
    METHOD_NOT_FOUND: Final = -32601
    INVALID_PARAMS: Final = -32602
    INTERNAL_ERROR: Final = -32603
    SESSION_NOT_FOUND: Final = -32000
    SESSION_LIMIT_REACHED: Final = -32001
    SESSION_BUSY: Final = -32002
    SESSION_NOT_OWNED: Final = -32003
    CONNECTION_LIMIT_REACHED: Final = -32004
    PRECONDITION_FAILED: Final = -32005
    AUTH_REQUIRED: Final = -32010
    VERSION_MISMATCH: Final = -32011
    FORBIDDEN: Final = -32012
    FS_NOT_FOUND: Final = 4001
    FS_PERMISSION_DENIED: Final = 4002
    FS_INVALID_PATH: Final = 4003


def agent_error(code: int, message: str, kind: str, /, **data: Any) -> RpcError:
    """An error of this endpoint: `data.reason` repeats `data.kind`."""
    return RpcError(code, message, kind, reason=kind, **data)


@dataclass(frozen=True, slots=True)
class Request:
    """A valid request; `id` is empty for a notification, `params` when the member is absent.

    `params` is a view of the frame: what carries a file is not copied once more.
    """

    method: str
    params: bytes | memoryview
    id: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A valid response; `key` is the text of its id, None for null. `error` or `result` is set."""

    key: str | None
    result: bytes | None
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A frame that is answered with an error."""

    error: RpcError
    id: bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """A malformed response: logged without its contents, never answered."""

    reason: str


Frame = Request | Response | Refused | Dropped
# Of a frame, without `params`.
_Members = dict[str, bytes]

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_anything: Final = msgspec.json.Decoder()
_text: Final = msgspec.json.Decoder(str)
_NUMBER_STARTS: Final = b"-0123456789"


def classify(line: bytes) -> Frame:
    """What one line is. Bytes that are not UTF-8 count as replacement characters."""
    if not line.isascii():
        line = line.decode("utf-8", "replace").encode()
    if nests_too_deep(line):
        return _parse_error(f"nesting exceeds {JSON_DEPTH_MAX} levels")
    try:
        found = _members.decode(line)
    except msgspec.ValidationError:
        return _no_object(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return _parse_error(str(error))
    params = found.pop("params", None)
    members: _Members = {name: bytes(raw) for name, raw in found.items()}
    answers = "result" in members or "error" in members
    method = members.get("method")
    if method is not None and _is_text(method) and not answers:
        return _request(
            members, _text.decode(method), b"" if params is None else memoryview(params)
        )
    if method is None and answers:
        return Dropped("malformed response") if params is not None else _response(members)
    return _ambiguous(members)


def _no_object(line: bytes) -> Frame:
    """JSON that is no object, or no JSON at all."""
    try:
        _anything.decode(line)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, RecursionError) as error:
        return _parse_error(str(error))
    return _refused("frame must be a JSON object", NULL_ID)


def _request(members: _Members, method: str, params: bytes | memoryview) -> Frame:
    raw_id = members.get("id", b"")
    echoed = raw_id if raw_id and _valid_id(raw_id) else NULL_ID
    wrong = _wrong_version(members)
    if wrong is not None:
        return _refused(wrong, echoed)
    if raw_id and not _valid_id(raw_id):
        return _refused("id must be a string, number, or null", NULL_ID)
    if params and params[:1] not in (b"{", b"["):
        return _refused("params must be an object or array when present", echoed)
    return Request(method, params, raw_id)


def _response(members: _Members) -> Frame:
    raw_id = members.get("id", b"")
    if (
        _wrong_version(members) is not None
        or not _valid_id(raw_id)
        or ("result" in members and "error" in members)
    ):
        return Dropped("malformed response")
    key = _key(raw_id)
    if "result" in members:
        return Response(key, members["result"], None)
    try:
        error = _anything.decode(members["error"])
    except msgspec.ValidationError:
        return Dropped("malformed response")
    if (
        not isinstance(error, dict)
        or type(error.get("code")) is not int
        or not isinstance(error.get("message"), str)
    ):
        return Dropped("malformed response")
    return Response(key, None, error)


def _ambiguous(members: _Members) -> Frame:
    reason = _wrong_version(members)
    if reason is None:
        method = members.get("method")
        if method is None:
            reason = "frame is neither a request nor a response"
        elif not _is_text(method):
            reason = "method field must be a string"
        else:
            reason = "request frames cannot contain result or error"
    return _refused(reason, NULL_ID)


def _wrong_version(members: _Members) -> str | None:
    version = members.get("jsonrpc")
    if version is None:
        return "missing field jsonrpc"
    if not _is_text(version):
        return "jsonrpc field must be a string"
    if _text.decode(version) != "2.0":
        return "jsonrpc field must equal 2.0"
    return None


def _is_text(raw: bytes) -> bool:
    return raw[:1] == b'"'


def _valid_id(raw: bytes) -> bool:
    return bool(raw) and (raw == b"null" or raw[:1] == b'"' or raw[0] in _NUMBER_STARTS)


def _key(raw_id: bytes) -> str | None:
    """Ids are matched by their text: the number 4 and the string "4" are the same."""
    if raw_id == NULL_ID:
        return None
    return _text.decode(raw_id) if raw_id[:1] == b'"' else raw_id.decode()


def _parse_error(detail: str) -> Refused:
    error = agent_error(AgentCode.PARSE_ERROR, f"Parse error: {detail}", "rpc_parse_error")
    return Refused(error, NULL_ID)


def _refused(reason: str, raw_id: bytes) -> Refused:
    error = agent_error(AgentCode.INVALID_REQUEST, f"Invalid request: {reason}", "invalid_request")
    return Refused(error, raw_id)
