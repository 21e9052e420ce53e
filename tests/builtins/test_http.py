"""`http` against a server on the loopback interface (chapter 31 §10.5)."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.builtins.support import Shell, shell_in
from worker.errors import Cancelled, Raised, raised


class Handler(BaseHTTPRequestHandler):
    """Answers by path; `server.seen` holds (method, path, headers, body) of every request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        server: Any = self.server
        server.seen.append((self.command, self.path, dict(self.headers.items()), body))
        head, _, rest = self.path[1:].partition("/")
        if head == "status":
            self.answer(int(rest), b"oops")
        elif head == "json":
            self.answer(200, b'{"b": [1], "a": null}', Content_Type="application/json")
        elif head == "raw":
            self.answer(200, b"\xff\xfe")
        elif head == "gzip":
            self.answer(200, gzip.compress(b"packed " * 3), Content_Encoding="gzip")
        elif head == "big":
            self.answer(200, b"x" * 5000)
        elif head == "twice":
            self.send_response(200)
            self.send_header("X-Twice", "first")
            self.send_header("X-Twice", "last")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif head == "goto":
            status, _, target = rest.partition("/")
            self.answer(int(status), b"", Location=target if "//" in target else f"/{target}")
        elif head == "loop":
            self.answer(302, b"", Location="/loop")
        elif head == "hang":
            server.hung.set()
            server.release.wait(30)
            self.answer(200, b"late")
        else:
            self.answer(200, body or b"plain")

    do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is part of some tests."""


@pytest.fixture
def server() -> Iterator[Any]:
    running: Any = Server(("127.0.0.1", 0), Handler)
    running.seen, running.hung, running.release = [], threading.Event(), threading.Event()
    running.url = f"http://127.0.0.1:{running.server_port}"
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.release.set()
    running.shutdown()
    thread.join()
    running.server_close()


def test_the_result_is_a_record(shell: Shell, server: Any) -> None:
    record = shell.run(f'http.get("{server.url}/json")')
    assert list(record) == ["status", "ok", "body", "json", "headers"]
    assert (record["status"], record["ok"]) == (200, True)
    assert record["body"] == '{"b": [1], "a": null}'
    assert record["json"] == {"a": None, "b": [1]}
    assert list(record["json"]) == ["a", "b"]
    assert record["headers"]["content-type"] == "application/json"


def test_a_body_that_is_no_json_has_none(shell: Shell, server: Any) -> None:
    assert shell.inline(f'http.get("{server.url}/text").json') == "null"


@pytest.mark.parametrize(
    ("status", "ok"), [(200, "true"), (299, "true"), (404, "false"), (500, "false")]
)
def test_an_error_status_does_not_raise(shell: Shell, server: Any, status: int, ok: str) -> None:
    source = f'let r = http.get("{server.url}/status/{status}")\n[r.status, r.ok, r.body]'
    assert shell.inline(source) == f'[{status}, {ok}, "oops"]'


@pytest.mark.parametrize(
    ("call", "method", "body"),
    [
        ('http.get("{}/x")', "GET", b""),
        ('http.delete("{}/x")', "DELETE", b""),
        ('http.post("{}/x")', "POST", b""),
        ('http.post("{}/x", "text")', "POST", b"text"),
        ('http.put("{}/x", [1, null])', "PUT", b"[1,null]"),
        ('http.post("{}/x", ["a", "b"])', "POST", b"a\nb\n"),
        ('http.get(path("{}/x"))', "GET", b""),
    ],
)
def test_what_is_sent(shell: Shell, server: Any, call: str, method: str, body: bytes) -> None:
    shell.run(call.replace("{}", server.url))
    ((seen_method, path, headers, seen_body),) = server.seen
    assert (seen_method, path, seen_body) == (method, "/x", body)
    if method in ("POST", "PUT"):
        assert headers["Content-Length"] == str(len(body))


@pytest.mark.parametrize(
    "call",
    [
        'http.get("{}/x", headers: {X_A: 1, "x-b": "é", "x-c": 2kb})',
        'http.get("{}/x", {X_A: 1, "x-b": "é", "x-c": 2kb})',
        'http.post("{}/x", "body", {X_A: 1, "x-b": "é", "x-c": 2kb})',
    ],
)
def test_headers_by_name_and_by_position(shell: Shell, server: Any, call: str) -> None:
    shell.run(call.replace("{}", server.url, 1))
    headers = {name.lower(): value for name, value in server.seen[0][2].items()}
    assert headers["x_a"] == "1"
    assert headers["x-b"].encode("latin-1").decode() == "é"
    assert headers["x-c"] == "2kb"


def test_the_last_of_a_repeated_header_counts(shell: Shell, server: Any) -> None:
    assert shell.inline(f'http.get("{server.url}/twice").headers.get("x-twice")') == '"last"'


def test_a_compressed_body_is_unpacked(shell: Shell, server: Any) -> None:
    assert shell.inline(f'http.get("{server.url}/gzip").body') == '"packed packed packed "'


class Secrets:
    def read(self, name: str) -> bytes | None:
        return b"hush-hush"


def test_a_secret_is_sent_in_clear_and_shown_nowhere(tmp_path: Path, server: Any) -> None:
    shell = shell_in(tmp_path, secrets=Secrets())
    shown = shell.inline(f'http.get("{server.url}/x", headers: {{authorization: secret.get("t")}})')
    assert server.seen[0][2]["authorization"] == "hush-hush"
    assert "hush" not in shown


def test_a_secret_stays_out_of_errors(tmp_path: Path) -> None:
    class Broken:
        def read(self, name: str) -> bytes:
            return b"hush\r\nhush"

    error = shell_in(tmp_path, secrets=Broken()).fails(
        'http.get("http://127.0.0.1:1/", headers: {a: secret.get("t")})'
    )
    assert error.code == "arg_error"
    assert "hush" not in error.msg


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [
        (301, "GET", b""),
        (302, "GET", b""),
        (303, "GET", b""),
        (307, "POST", b"b"),
        (308, "POST", b"b"),
    ],
)
def test_redirects_are_followed(
    shell: Shell, server: Any, status: int, method: str, body: bytes
) -> None:
    shell.run(f'http.post("{server.url}/goto/{status}/end", "b")')
    assert [(seen[0], seen[1]) for seen in server.seen] == [
        ("POST", f"/goto/{status}/end"),
        (method, "/end"),
    ]
    assert server.seen[1][3] == body


def test_headers_are_not_carried_to_another_origin(shell: Shell, server: Any) -> None:
    other = server.url.replace("127.0.0.1", "localhost")
    shell.run(f'http.get("{server.url}/goto/302/{other}/end", headers: {{"x-token": "t"}})')
    shell.run(f'http.get("{server.url}/goto/302/end", headers: {{"x-token": "t"}})')
    sent = [(seen[1], seen[2].get("x-token")) for seen in server.seen if seen[1] == "/end"]
    assert sent == [("/end", None), ("/end", "t")]


def test_a_circle_of_redirects_ends(shell: Shell, server: Any) -> None:
    error = shell.fails(f'http.get("{server.url}/loop")')
    assert (error.code, error.msg) == ("net_error", "http.get: more than 10 redirects")


class Gate:
    """Lets only one host be connected."""

    restricted = False

    def __init__(self, allowed: str) -> None:
        self.allowed = allowed
        self.asked: list[tuple[str, int]] = []

    def check(self, effect: dict[str, Any]) -> None:
        if effect["kind"] == "net_connect":
            self.asked.append((effect["host"], effect["port"]))
            if effect["host"] != self.allowed:
                raise raised("leash_denied", "leash: net_connect denied")


def test_every_hop_is_checked_before_it_is_connected(tmp_path: Path, server: Any) -> None:
    gate = Gate("127.0.0.1")
    other = server.url.replace("127.0.0.1", "localhost")
    shell = shell_in(tmp_path, authority=gate)
    assert shell.code(f'http.get("{server.url}/goto/302/{other}/end")') == "leash_denied"
    assert gate.asked == [("127.0.0.1", server.server_port), ("localhost", server.server_port)]
    assert [seen[1] for seen in server.seen] == [f"/goto/302/{other}/end"]


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://a.test/x", "a.test", 80),
        ("https://a.test", "a.test", 443),
        ("http://u:p@a.test:81/?q#f", "a.test", 81),
        ("http://[::1]:9/", "::1", 9),
    ],
)
def test_the_check_names_host_and_port(tmp_path: Path, url: str, host: str, port: int) -> None:
    gate = Gate("nobody")
    assert shell_in(tmp_path, authority=gate).code(f'http.get("{url}")') == "leash_denied"
    assert gate.asked == [(host, port)]


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("http.get()", "arg_error", "http.get expects a url string"),
        ("http.get(5)", "arg_error", "http.get expects a url string"),
        ("http.put(null)", "arg_error", "http.put expects a url string"),
        ('http.get("{}", 5)', "arg_error", "http.get expects headers as a record"),
        ('http.get("{}", {"a b": 1})', "arg_error", "http.get: invalid header name"),
        ('http.get("{}", {a: "x\\ny"})', "arg_error", "http.get: the value of header `a`"),
        ('http.post("{}", path("x"))', "arg_error", "http.post: "),
        ('http.post("{}", x => x)', "arg_error", "http.post: "),
        ('http.get("nonsense")', "net_error", "http.get: invalid URL"),
        ('http.get("ftp://a.test/")', "net_error", "http.get: invalid URL"),
        ('http.get("http://a.test:99999/")', "net_error", "http.get: invalid URL"),
        ('http.get("http://127.0.0.1:1/")', "net_error", "http.get: "),
        ('http.get("{}/raw")', "net_error", "http.get: response body is not UTF-8"),
    ],
)
def test_http_refuses(shell: Shell, server: Any, source: str, code: str, message: str) -> None:
    error = shell.fails(source.replace("{}", server.url))
    assert error.code == code
    assert error.msg.startswith(message)


def test_a_body_above_the_limit_is_refused(
    shell: Shell, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.builtins.namespaces.http.BODY_BYTES_MAX", 4999)
    assert shell.code(f'http.get("{server.url}/big")') == "net_error"
    monkeypatch.setattr("worker.builtins.namespaces.http.BODY_BYTES_MAX", 5000)
    assert shell.inline(f'http.get("{server.url}/big").body.len()') == "5000"


def test_the_time_limit_covers_the_whole_request(
    shell: Shell, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.builtins.namespaces.http.TOTAL_S", 0.2)
    error = shell.fails(f'http.get("{server.url}/hang")')
    assert (error.code, error.msg) == ("net_error", "http.get: no complete answer within 0.2 s")


def test_a_request_ends_when_cancelled(shell: Shell, server: Any) -> None:
    def cancel() -> None:
        server.hung.wait()
        shell.evaluator.cancel.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        shell.run(f'http.get("{server.url}/hang")')
    canceller.join()


def test_the_environment_names_no_proxy(
    shell: Shell, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert shell.inline(f'http.get("{server.url}/x").status') == "200"


def test_requests_of_several_tasks_do_not_disturb_each_other(shell: Shell, server: Any) -> None:
    thunks = ", ".join([f'() => http.get("{server.url}/x").status'] * 5)
    try:
        assert shell.inline(f"parallel({thunks})") == "[200, 200, 200, 200, 200]"
    except Raised as error:
        raise AssertionError(str(error)) from None
