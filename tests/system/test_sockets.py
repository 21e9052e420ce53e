"""Where the socket is, who may make it, what stops a start (chapter 60 §1, 81 §8.1)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.daemon import ROOT, Daemon


def _start(directory: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a start that is expected to fail."""
    base = {
        name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "XDG_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "shoal", "kernel", "--state-dir", str(directory / "state"),
        *options], env=base | {"HOME": str(directory), "PYTHONPATH": str(ROOT), **environ},
        cwd=directory, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_modes_of_what_the_daemon_makes() -> None:
    with Daemon() as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        wire.result("exec", {"src": "1"})
        assert _mode(daemon.socket) == 0o600
        assert _mode(daemon.socket.parent) == 0o700
        assert _mode(daemon.state) == 0o700
        for path in daemon.state.rglob("*"):
            assert _mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_the_ready_line_is_the_only_one_of_its_kind() -> None:
    with Daemon() as daemon:
        ready = [line for line in daemon.read_log().splitlines() if "ready" in line]
        assert ready[0] == f"shoal-kernel: ready {daemon.socket}"


def test_the_socket_is_gone_after_a_stop() -> None:
    with Daemon() as daemon:
        assert daemon.socket.exists()
        assert daemon.stop() == 0
        assert not daemon.socket.exists()


def test_a_stale_socket_is_replaced() -> None:
    with Daemon() as daemon:
        daemon.kill()
        assert daemon.socket.exists()
        daemon.start()
        with daemon.wire() as wire:
            assert wire.result("session.attach")["session"] == "default"


def test_a_second_daemon_on_the_socket_is_refused() -> None:
    with Daemon() as daemon:
        failed = _start(daemon.directory, "--socket", str(daemon.socket), "--in-memory")
        assert (failed.returncode, failed.stderr) == (1, "shoal-kernel: kernel already listening\n")
        with daemon.wire() as wire:
            wire.result("session.attach")


def test_a_second_daemon_on_the_state_directory_is_refused(tmp_path: Path) -> None:
    with Daemon() as daemon:
        failed = _start(
            tmp_path, "--socket", str(tmp_path / "s" / "k.sock"), "--state-dir", str(daemon.state)
        )
        assert failed.returncode == 1
        assert failed.stderr == f"shoal-kernel: state directory in use by pid {daemon.pid}\n"


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


def test_a_live_listener_of_anybody_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.sock"
    with _listening(path):
        failed = _start(tmp_path, "--socket", str(path))
        assert failed.stderr == "shoal-kernel: kernel already listening\n"
        assert path.exists()


def test_what_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "k.sock"
    path.write_text("precious")
    failed = _start(tmp_path, "--socket", str(path))
    assert (failed.returncode, failed.stderr) == (
        1,
        "shoal-kernel: refusing to remove unowned non-socket path\n",
    )
    assert path.read_text() == "precious"


def test_a_symbolic_link_is_never_followed(tmp_path: Path) -> None:
    with _listening(tmp_path / "real.sock"):
        pass
    link = tmp_path / "k.sock"
    link.symlink_to(tmp_path / "real.sock")
    failed = _start(tmp_path, "--socket", str(link))
    assert "refusing to remove unowned non-socket path" in failed.stderr
    assert link.is_symlink()


def test_a_path_without_a_parent_is_refused(tmp_path: Path) -> None:
    assert _start(tmp_path, "--socket", "k.sock").stderr == "shoal-kernel: socket needs parent\n"


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    failed = _start(tmp_path, "--socket", f"/tmp/{'x' * 120}/k.sock")
    assert failed.stderr == "shoal-kernel: socket path too long\n"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = _start(tmp_path, "--socket", str(tmp_path / "file" / "k.sock"))
    assert failed.returncode == 1
    assert f"cannot secure socket dir {tmp_path / 'file'}" in failed.stderr
    assert "use a socket path inside a directory you own" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_directory_of_somebody_else_is_not_changed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        return
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    os.chown(shared, 12345, 12345)
    daemon = Daemon(directory=tmp_path)
    daemon.socket = shared / "k.sock"
    try:
        daemon.start()
        assert _mode(shared) == 0o777
        assert shared.stat().st_uid == 12345
        assert _mode(daemon.socket) == 0o600
    finally:
        daemon.stop()


@pytest.mark.parametrize(
    ("environ", "below"),
    [
        ({"XDG_RUNTIME_DIR": "{tmp}/xdg"}, "xdg/shoal/default.sock"),
        ({"TMPDIR": "{tmp}/t"}, f"t/shoal-{os.geteuid()}/shoal/default.sock"),
        (
            {"XDG_RUNTIME_DIR": "", "TMPDIR": "{tmp}/t"},
            f"t/shoal-{os.geteuid()}/shoal/default.sock",
        ),
        ({"SHOAL_SOCKET": "{tmp}/named.sock", "XDG_RUNTIME_DIR": "{tmp}/xdg"}, "named.sock"),
    ],
)
def test_the_socket_is_found_in_order(tmp_path: Path, environ: dict[str, str], below: str) -> None:
    wanted = tmp_path / below
    settings = {name: value.format(tmp=tmp_path) for name, value in environ.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "kernel", "--in-memory"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
        **settings}, stderr=subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == f"shoal-kernel: ready {wanted}\n".encode()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def test_a_peer_of_another_user_gets_one_error_and_the_end() -> None:
    if os.geteuid() != 0:
        return
    with Daemon() as daemon:
        for directory in (daemon.directory, daemon.socket.parent):
            directory.chmod(0o755)
        daemon.socket.chmod(0o666)
        assert _read_as(65534, daemon.socket) == (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32030,'
            b'"message":"peer user is not the kernel\'s user","data":{"kind":"peer_refused"}}}\n'
        )


def _read_as(uid: int, path: Path) -> bytes:
    """What a connection of another user is told."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(str(path))
                os.write(sending, connection.makefile("rb").read())
        finally:
            os._exit(0)
    os.close(sending)
    os.waitpid(child, 0)
    with os.fdopen(receiving, "rb") as pipe:
        return pipe.read()


def test_connections_have_a_quota() -> None:
    with (
        Daemon("--max-connections", "2") as daemon,
        daemon.wire() as first,
        daemon.wire() as second,
    ):
        first.result("session.attach")
        second.result("session.attach")
        with daemon.wire() as third:
            answer = third.json()
            assert (answer["id"], answer["error"]["code"]) == (None, -32603)
            assert answer["error"]["data"]["quota"] == "quotas.connections"
            assert third.line() == b""


def test_connections_of_a_principal_have_a_quota() -> None:
    with Daemon(config="[quotas]\nconnections_per_principal = 2\n") as daemon:  # noqa: SIM117
        with daemon.wire() as first, daemon.wire() as second, daemon.wire() as third:
            first.result("session.attach")
            second.result("session.attach")
            error = third.error("session.attach")
            assert error["data"]["quota"] == "quotas.connections_per_principal"
            second.close()
            while third.error_or_result("session.attach") is None:
                continue


def test_a_socket_passed_by_the_service_manager_is_served(tmp_path: Path) -> None:
    path = tmp_path / "passed.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(20)
    launcher = (
        "import os,sys\n"
        "os.dup2(int(sys.argv[1]), 3)\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'shoal', 'kernel', '--in-memory'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, str(server.fileno())],
        env={
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
            "LISTEN_FDS": "1", "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "SHOAL_SOCKET": str(path),
        },
        pass_fds=[server.fileno()], cwd=tmp_path, stderr=subprocess.PIPE,
    )  # fmt: skip
    server.close()
    try:
        assert notify.recv(4096).decode().startswith("READY=1\nSTATUS=")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"session.attach"}\n')
            assert client.makefile("rb").readline().startswith(b'{"jsonrpc":"2.0","id":1,"result"')
        process.send_signal(signal.SIGTERM)
        assert notify.recv(4096) == b"STOPPING=1"
    finally:
        process.terminate()
        process.communicate(timeout=20)
        notify.close()
    # The file belongs to the service manager and stays.
    assert path.exists()
