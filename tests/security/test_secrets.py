"""Secrets: who may use them, and that their text never leaves (chapter 50 §12)."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from supervisor.secret_store import SecretStore, SecretStoreError
from tests.security.attacker import SHIELDED, Fortress, run
from tests.system.daemon import ROOT

CANARY = "c4nary-5f1d-never-leaves"
CANARY_BYTES = CANARY.encode()

# Everything a session can do with a secret; none may show its text, most of them fail.
USES = (
    'let s = secret.get("canary")\ns',
    "s",
    "[s, {a: s}]",
    "s.json()",
    "json.stringify(s)",
    "yaml.stringify(s)",
    's.save("secret.txt")',
    '[s].save("list.json")',
    "echo s",
    "echo (s) > echoed.txt",
    '"text {s}"',
    "^cat (s)",
    "sh { echo $SECRET }",
    "with env: {K: s} { ^env }",
    "env.K = s",
    "s.feed(^cat)",
    "s == s",
    's == "x"',
    "s + s",
    "s.len()",
    "let r = {s: s}\nr.s",
    "fn f(x) { x }\nf(s)",
    "throw s",
    "assert s == 1",
    'assert(false, "{s}")',
    'try { "{s}" } catch e { e }',
    "spawn { s }",
    'let c = channel("user.leak")\nc.emit(s)',
    "[s, s].sort()",
    "[s].map(x => x)",
    "history",
    "journal",
    "names = s",
    "explain { s }",
    'http.get("http://127.0.0.1:{port}/", headers: {{Authorization: s}})',
    "undo",
)


class _Server(BaseHTTPRequestHandler):
    seen: list[str] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def _shoal(
    fortress: Fortress, *words: str, data: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "XDG_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "shoal", "secret", *words],
        input=data,
        capture_output=True,
        check=False,
        cwd=fortress.work,
        env=environ | {"HOME": str(fortress.directory), "PYTHONPATH": str(ROOT)},
    )


def _holding(directory: Path) -> list[Path]:
    """The files below a directory in which the canary stands, plain or in an obvious encoding."""
    needles = (CANARY_BYTES, base64.b64encode(CANARY_BYTES)[:-2], CANARY_BYTES.hex().encode())
    found = []
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if any(needle in data for needle in needles):
                found.append(path)
    return found


def test_the_canary_is_in_no_frame_file_log_or_event(fortress: Fortress, port: int) -> None:
    assert _shoal(fortress, "set", "canary", data=CANARY_BYTES).returncode == 0
    frames: list[bytes] = []
    with fortress.wire() as listener, fortress.wire() as wire:
        for connection in (listener, wire):
            connection.result("session.attach", {"session": "canary"})
        for channel in ("user.leak", "journal", "transcript", "render"):
            listener.request("events.subscribe", {"channel": channel})
        wire.result("exec", {"src": f'cd "{fortress.home}/human"'})
        shown = 0
        for src in USES:
            wire.send(
                b'{"jsonrpc":"2.0","id":5,"method":"exec","params":'
                + _json(
                    {"src": src.replace("{port}", str(port)).replace("{{", "{").replace("}}", "}")}
                )
                + b"}\n"
            )
            line = wire.line()
            frames.append(line)
            shown += b"secret(canary)" in line
        for method, params in (
            ("session.env", {}),
            ("journal.query", {"limit": 500}),
            ("value.get", {"ref": "out:2"}),
            ("value.get", {"ref": "out:2", "format": "raw"}),
            ("events.read", {"channel": "user.leak"}),
            ("complete", {"src": "s", "cursor": 1}),
        ):
            wire.send(
                b'{"jsonrpc":"2.0","id":6,"method":"'
                + method.encode()
                + b'","params":'
                + _json(params)
                + b"}\n"
            )
            frames.append(wire.line())
        assert shown >= 3
        assert CANARY in _Server.seen
        listener.socket.settimeout(0.3)
        try:
            while line := listener.line():
                frames.append(line)
        except TimeoutError:
            pass
    assert [frame for frame in frames if CANARY_BYTES in frame] == []
    assert _holding(fortress.directory) == []
    assert CANARY not in fortress.read_log()


def _json(value: object) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def test_a_secret_comes_back_by_name_after_the_worker_was_killed(fortress: Fortress) -> None:
    assert _shoal(fortress, "set", "kept", data=b"material").returncode == 0
    wire = fortress.attached(None, "kept")
    wire.result("exec", {"src": 'let s = secret.get("kept")'})
    session = next(
        entry for entry in wire.result("session.list")["sessions"] if entry["session"] == "kept"
    )
    os.kill(session["pid"], 9)
    answer = run(wire, "s")
    if "error" in answer:
        answer = run(wire, "s")
    assert "material" not in str(answer)


def test_a_principal_without_the_grant_is_refused(fortress: Fortress) -> None:
    assert _shoal(fortress, "set", "mine", data=b"x").returncode == 0
    wire = fortress.attached(SHIELDED, "wants-secret")
    assert run(wire, 'secret.get("mine")')["error"]["code"] == -32010


@pytest.mark.parametrize(
    ("src", "code"),
    [
        ('secret.get("never-set")', "not_found"),
        ('secret.get("b/ad")', "permission"),
        ("secret.get(1)", "arg_error"),
        ('secret.get("raw")', "utf8_error"),
    ],
)
def test_the_errors_of_a_lookup(fortress: Fortress, src: str, code: str) -> None:
    assert _shoal(fortress, "set", "raw", data=b"\xff\xfe").returncode == 0
    wire = fortress.attached(None, "lookups")
    assert run(wire, src)["error"]["data"]["code"] == code


def test_the_command_line_lists_names_and_never_values(fortress: Fortress) -> None:
    assert _shoal(fortress, "set", "listed", data=b"value-of-listed").returncode == 0
    listed = _shoal(fortress, "list")
    assert b"listed" in listed.stdout.split()
    assert b"value-of-listed" not in listed.stdout + listed.stderr
    assert _shoal(fortress, "delete", "listed").returncode == 0
    assert _shoal(fortress, "delete", "listed").returncode == 0
    assert b"listed" not in _shoal(fortress, "list").stdout.split()
    assert _shoal(fortress, "set", "no/name", data=b"x").returncode == 1
    assert _shoal(fortress, "show", "listed").returncode == 2
    assert _shoal(fortress).returncode == 2


# -- the store ------------------------------------------------------------------------------------


def test_a_store_round_trips_bytes(tmp_path: Path) -> None:
    store = SecretStore(tmp_path / "secrets")
    assert store.names() == []
    assert store.read("a") is None
    store.set("b", b"\x00\xff")
    store.set("a", b"text")
    assert SecretStore(tmp_path / "secrets").read("b") == b"\x00\xff"
    assert store.names() == ["a", "b"]
    store.delete("a")
    assert store.read("a") is None
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()}
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("master.key", lambda path: path.chmod(0o640), "permissions must be 0600"),
        ("secrets.json", lambda path: path.chmod(0o604), "permissions must be 0600"),
        ("master.key", lambda path: path.write_bytes(b"short"), "invalid secret key length"),
        ("master.key", lambda path: path.write_bytes(b"k" * 32), "authentication failed"),
        (
            "secrets.json",
            lambda path: path.write_bytes(
                path.read_bytes().replace(b'"version":1', b'"version":2')
            ),
            "unsupported secret store version",
        ),
        (
            "secrets.json",
            lambda path: path.write_bytes(b'{"version":1,"nonce":"AAAA","ciphertext":"AAAA"}'),
            "invalid secret store nonce length",
        ),
        (
            "secrets.json",
            lambda path: path.write_bytes(
                b'{"version":1,"nonce":"AAAAAAAAAAAAAAAA","ciphertext":"'
                + base64.b64encode(b"x" * 40)
                + b'"}'
            ),
            "authentication failed",
        ),
    ],
)
def test_a_store_that_was_tampered_with_gives_nothing(
    tmp_path: Path, file: str, change: object, message: str
) -> None:
    store = SecretStore(tmp_path)
    store.set("a", b"material")
    assert callable(change)
    change(tmp_path / file)
    with pytest.raises(SecretStoreError, match=message):
        store.read("a")
