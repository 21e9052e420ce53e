"""`http`: one request, one record (chapter 31 §10.5).

Each hop of a request is checked against the policy with its real host and port before anything is
connected. Redirects are followed here for that reason, and so that headers a user wrote, which may
hold secrets, are not carried to another origin. Proxies of the process environment are not used:
what was checked must be what is connected.

A request runs on an event loop of its own, because only there do the time limit and the cancel
token hold for every step, name resolution included.

Failure: `arg_error` for arguments, `leash_denied` from the authority, `net_error` `http.f: ...` for
everything between connecting and the last byte of the body. An HTTP error status is no error.
No message ever contains a header value.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from worker.builtins.authority import check_connect, check_secret
from worker.builtins.effects import Operands, Rule
from worker.builtins.namespaces.model import MemberCall, Namespace
from worker.errors import Cancelled, Raised, arg_error, raised
from worker.values.convert import stdin_bytes
from worker.values.inline import inline
from worker.values.json_codec import from_json
from worker.values.types import MISSING, Path, Record, Secret, Value

if TYPE_CHECKING:
    import httpx

TOTAL_S: Final = 30.0
BODY_BYTES_MAX: Final = 64 << 20
REDIRECTS_MAX: Final = 10

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_KEEPS_METHOD: Final = frozenset((307, 308))
# Headers about a body that is not sent again.
_BODY_HEADERS: Final = frozenset((b"content-type", b"content-length", b"content-encoding"))

HTTP: Final = Namespace("http")
_CONNECTS: Final = (Rule("net_connect", Operands.URL),)


@dataclass(slots=True)
class Request:
    """One hop. `headers` are the user's, names in lower case."""

    method: str
    url: str
    headers: list[tuple[bytes, bytes]]
    body: bytes | None


class NetError(Exception):
    """The request failed; the text is safe to show."""


@HTTP.function("get", usage="http.get(url, headers) -> record", effects=_CONNECTS)
def http_get(call: MemberCall) -> Record:
    """Fetch a URL."""
    return _request(call, "GET", body=None, headers_at=1)


@HTTP.function("delete", usage="http.delete(url, headers) -> record", effects=_CONNECTS)
def http_delete(call: MemberCall) -> Record:
    """Send a DELETE request."""
    return _request(call, "DELETE", body=None, headers_at=1)


@HTTP.function("post", usage="http.post(url, body, headers) -> record", effects=_CONNECTS)
def http_post(call: MemberCall) -> Record:
    """Send a value in a POST request."""
    return _request(call, "POST", body=_body(call), headers_at=2)


@HTTP.function("put", usage="http.put(url, body, headers) -> record", effects=_CONNECTS)
def http_put(call: MemberCall) -> Record:
    """Send a value in a PUT request."""
    return _request(call, "PUT", body=_body(call), headers_at=2)


# --- arguments ------------------------------------------------------------------------------------


def _url(call: MemberCall) -> str:
    value = call.pos[0] if call.pos else None
    if type(value) is Path:
        return value.display
    if type(value) is not str:
        raise arg_error(f"{call.name} expects a url string")
    return value


def _body(call: MemberCall) -> bytes:
    value = call.option("body", 1)
    if value is MISSING:
        return b""
    try:
        return stdin_bytes(value)
    except Raised as error:
        raise arg_error(f"{call.name}: {error.error.msg}", hint=error.error.hint) from None


def _headers(call: MemberCall, position: int) -> list[tuple[bytes, bytes]]:
    given = call.option("headers", position)
    if given is MISSING or given is None:
        return []
    if type(given) is not dict:
        raise arg_error(f"{call.name} expects headers as a record")
    return [(_header_name(call, name), _header_value(call, name, given[name])) for name in given]


_TOKEN: Final = frozenset(
    "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)


def _header_name(call: MemberCall, name: str) -> bytes:
    if not name or not _TOKEN.issuperset(name):
        raise arg_error(f"{call.name}: invalid header name {inline(name)}")
    return name.lower().encode("ascii")


def _header_value(call: MemberCall, name: str, value: Value) -> bytes:
    if type(value) is Secret:
        # Whoever has the value need not be who may use it: in a shared session they differ.
        check_secret(call.ev, value.name)
        text = value.reveal()
    else:
        text = value if type(value) is str else inline(value)
    # Checked here, since the library's own message would quote the value.
    if any(char in text for char in "\r\n\0"):
        raise arg_error(f"{call.name}: the value of header `{name}` holds a line break")
    return text.strip(" \t").encode("utf-8", "replace")


# --- the request ----------------------------------------------------------------------------------


def _request(call: MemberCall, method: str, *, body: bytes | None, headers_at: int) -> Record:
    request = Request(method, _url(call), _headers(call, headers_at), body)
    loop = asyncio.new_event_loop()
    try:
        return _run(call, request, loop)
    except NetError as error:
        raise raised("net_error", f"{call.name}: {error}") from None
    finally:
        # Not asyncio.run: it would wait for a name resolution that the time limit gave up on.
        loop.close()


def _run(call: MemberCall, request: Request, loop: asyncio.AbstractEventLoop) -> Record:
    task = loop.create_task(_follow(call, request))

    def cancel() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    with call.ev.cancel.on_cancel(cancel):
        try:
            return loop.run_until_complete(asyncio.wait_for(task, TOTAL_S))
        except TimeoutError:
            raise NetError(f"no complete answer within {TOTAL_S:g} s") from None
        except asyncio.CancelledError:
            raise Cancelled from None


async def _follow(call: MemberCall, request: Request) -> Record:
    """The answer at the end of the redirects."""
    import httpx

    for _ in range(REDIRECTS_MAX + 1):
        scheme = _checked(call, request.url)
        transport = httpx.AsyncHTTPTransport(
            verify=_tls() if scheme == "https" else False, trust_env=False
        )
        async with httpx.AsyncClient(transport=transport, timeout=None, trust_env=False) as client:
            try:
                answer = await _exchange(client, request)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
                raise NetError(_reason(error)) from None
        if not isinstance(answer, Request):
            return answer
        request = answer
    raise NetError(f"more than {REDIRECTS_MAX} redirects")


def _checked(call: MemberCall, url: str) -> str:
    """The scheme of a URL whose host and port the policy lets be connected."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise NetError(f"invalid URL: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise NetError(f"invalid URL: {_without_userinfo(url)}")
    check_connect(call.ev, parts.hostname, _DEFAULT_PORTS[parts.scheme] if port is None else port)
    return parts.scheme


def _without_userinfo(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2] if mark else url


@functools.cache
def _tls() -> ssl.SSLContext:
    """One context for all requests: reading the certificate store takes tens of milliseconds."""
    import httpx

    context: ssl.SSLContext = httpx.create_ssl_context(trust_env=False)
    return context


async def _exchange(client: httpx.AsyncClient, request: Request) -> Record | Request:
    """Send one hop; the record, or the request the answer redirects to."""
    outgoing = client.build_request(
        request.method, request.url, headers=_outgoing(request.headers), content=request.body
    )
    response = await client.send(outgoing, stream=True)
    try:
        location = response.headers.get("location")
        if response.status_code in _REDIRECTS and location:
            return _redirected(request, str(response.url.join(location)), response.status_code)
        parts: list[bytes] = []
        total = 0
        async for chunk in response.aiter_bytes():
            total += len(chunk)
            if total > BODY_BYTES_MAX:
                raise NetError("response body is larger than 64 MiB")
            parts.append(chunk)
    finally:
        await response.aclose()
    return _record(response, b"".join(parts))


def _outgoing(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    if any(name == b"user-agent" for name, _ in headers):
        return headers
    return [(b"user-agent", b"shoal"), *headers]


def _redirected(request: Request, url: str, status: int) -> Request:
    headers = request.headers
    method, body = request.method, request.body
    if status not in _KEEPS_METHOD and method not in ("GET", "HEAD"):
        method, body = "GET", None
        headers = [pair for pair in headers if pair[0] not in _BODY_HEADERS]
    if _origin(request.url) != _origin(url):
        headers = []
    return Request(method, url, headers, body)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return (parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme))
    except ValueError:
        return ("", None, None)


def _record(response: httpx.Response, data: bytes) -> Record:
    try:
        body = data.decode()
    except UnicodeDecodeError:
        raise NetError("response body is not UTF-8") from None
    return {
        "status": response.status_code,
        "ok": 200 <= response.status_code <= 299,
        "body": body,
        "json": _json(body),
        "headers": {
            name.decode("latin-1").lower(): value.decode("utf-8", "replace")
            for name, value in response.headers.raw
        },
    }


def _json(body: str) -> Value:
    try:
        return from_json(body, "http")
    except Raised:
        return None


def _reason(error: Any) -> str:
    """The words of a transport failure; some of the library's exceptions have none."""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause)
        if text:
            return text
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
