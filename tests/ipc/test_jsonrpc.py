"""Envelopes: what is a request, what ends the connection, what is repeated byte for byte."""

from __future__ import annotations

import msgspec
import pytest

from ipc.jsonrpc import (
    JSON_DEPTH_MAX,
    MalformedFrame,
    RpcError,
    decode_params,
    decode_request,
    error_line,
    quota,
    result_line,
)
from ipc.methods import METHODS


def _request(**members: str) -> bytes:
    text = ",".join(f'"{name}":{value}' for name, value in members.items())
    return ("{" + text + "}").encode()


@pytest.mark.parametrize(
    "id_text",
    [
        "1",
        "1.0",
        '"a\\u0041"',
        "[1,{}]",
        "null",
        "123456789012345678901234567890",
        "-0.0",
        '{"a":[ ]}',
    ],
)
def test_an_id_is_kept_as_it_was_sent(id_text: str) -> None:
    request = decode_request(_request(jsonrpc='"2.0"', method='"parse"', id=id_text))
    assert bytes(request.id) == id_text.encode()
    assert result_line(bytes(request.id), b"{}").startswith(
        b'{"jsonrpc":"2.0","id":' + id_text.encode()
    )


def test_a_request_without_id_is_told_from_one_with_a_null_id() -> None:
    assert not bytes(decode_request(_request(jsonrpc='"2.0"', method='"x"')).id)
    assert bytes(decode_request(_request(jsonrpc='"2.0"', method='"x"', id="null")).id) == b"null"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"jsonrpc":"2.0","method":"\xff"}', "utf8"),
        (b"", "json"),
        (b"  ", "json"),
        (b"nonsense", "json"),
        (b'{"jsonrpc":"2.0","method":"x"', "json"),
        (b'{"jsonrpc":"2.0","method":"x","params":NaN}', "json"),
        (b"[]", "envelope"),
        (b"42", "envelope"),
        (b"{}", "envelope"),
        (b'{"jsonrpc":"2.0"}', "envelope"),
        (b'{"jsonrpc":"2.0","method":7}', "envelope"),
        (b'{"method":"x"}', "envelope"),
        (b'{"jsonrpc":2,"method":"x"}', "envelope"),
    ],
)
def test_malformed_lines_have_their_reason(line: bytes, reason: str) -> None:
    with pytest.raises(MalformedFrame) as caught:
        decode_request(line)
    assert caught.value.reason == reason


def _nested(depth: int, opening: bytes, closing: bytes) -> bytes:
    return (
        b'{"jsonrpc":"2.0","method":"x","params":' + opening * depth + b"1" + closing * depth + b"}"
    )


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_allowed_to_the_limit_and_not_one_level_more(
    opening: bytes, closing: bytes
) -> None:
    decode_request(_nested(JSON_DEPTH_MAX - 1, opening, closing))
    with pytest.raises(MalformedFrame, match="json"):
        decode_request(_nested(JSON_DEPTH_MAX, opening, closing))


def test_brackets_in_strings_are_no_nesting() -> None:
    text = msgspec.json.encode({"jsonrpc": "2.0", "method": "x", "params": {"src": '[{"' * 5000}})
    assert decode_request(text).method == "x"


def test_many_flat_brackets_are_no_nesting() -> None:
    body = b"[" + b",".join([b"[]"] * 5000) + b"]"
    assert decode_request(b'{"jsonrpc":"2.0","method":"x","params":' + body + b"}").method == "x"


def test_blanks_around_the_object_are_allowed() -> None:
    assert decode_request(b' \t{"jsonrpc":"2.0","method":"x"} \r').method == "x"


@pytest.mark.parametrize("raw", [b"", b"null", b"{}"])
def test_absent_and_null_params_are_an_empty_object(raw: bytes) -> None:
    assert decode_params(raw, METHODS["session.list"].decoder).all is False


@pytest.mark.parametrize(
    ("method", "raw", "names"),
    [
        ("parse", b"[]", "object"),
        ("parse", b"{}", "src"),
        ("parse", b'{"src":null}', "src"),
        ("parse", b'{"src":5}', "src"),
        ("complete", b'{"src":"","cursor":-1}', "cursor"),
        ("complete", b'{"src":"","cursor":1.5}', "cursor"),
        ("complete", b'{"src":"","cursor":"1"}', "cursor"),
        ("value.get", b'{"ref":"out:1","slice":[1]}', "slice"),
    ],
)
def test_wrong_params_are_refused_with_the_name_of_the_member(
    method: str, raw: bytes, names: str
) -> None:
    with pytest.raises(RpcError, match=names) as caught:
        decode_params(raw, METHODS[method].decoder)
    assert caught.value.code == -32602
    assert caught.value.kind == "invalid_params"


def test_unknown_members_and_null_optionals_are_ignored() -> None:
    params = decode_params(b'{"src":"x","cursor":null,"more":[1]}', METHODS["complete"].decoder)
    assert (params.src, params.cursor) == ("x", None)


def test_a_quota_error_names_limit_and_use() -> None:
    error = msgspec.json.decode(quota("quotas.sessions", 4, 4).encode())
    assert error["code"] == -32603
    assert error["data"] == {
        "kind": "quota",
        "reason": "quota",
        "quota": "quotas.sessions",
        "limit": 4,
        "used": 4,
    }


def test_an_error_line_is_one_line() -> None:
    line = error_line(b"7", RpcError(-32000, "attach\nfirst", "not_attached").encode())
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
