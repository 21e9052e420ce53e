"""Where the socket is, who owns it, what may be removed (chapter 70 §2)."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from supervisor.agent.socket import bind
from supervisor.listeners import StartFailure
from tests.agent.client import Agent
from tests.system.daemon import Daemon


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "d"
    directory.mkdir(mode=0o700)
    return directory / "daemon.sock"


def test_socket_and_lock_are_private_and_the_lock_stays(path: Path) -> None:
    lock, listener = bind(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.close()
    lock.release()
    assert not path.exists()
    assert stat.S_IMODE(path.with_name("daemon.sock.lock").stat().st_mode) == 0o600


def test_a_second_owner_is_refused(path: Path) -> None:
    lock, listener = bind(path)

    with pytest.raises(StartFailure, match="already owned"):
        bind(path)

    listener.close()
    lock.release()


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    lock, listener = bind(path)
    listener.close()
    lock.release()
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(path))
        live.listen()
        with pytest.raises(StartFailure, match="already serving"):
            bind(path)
        assert path.exists()


def test_something_else_at_the_path_stays(path: Path) -> None:
    path.write_text("mine")

    with pytest.raises(StartFailure, match="something else"):
        bind(path)

    assert path.read_text() == "mine"


def test_a_lock_that_is_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    path.with_name("daemon.sock.lock").symlink_to(tmp_path / "target")

    with pytest.raises(StartFailure):
        bind(path)

    assert not (tmp_path / "target").exists()


def test_our_directory_is_tightened(path: Path) -> None:
    path.parent.chmod(0o755)

    lock, listener = bind(path)

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    listener.close()
    lock.release()


def test_a_path_that_is_too_long_names_length_and_limit(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120) / "daemon.sock"

    with pytest.raises(StartFailure, match=str(len(os.fsencode(path)))):
        bind(path)

    assert not path.parent.exists()


@pytest.mark.parametrize("variable", ["SHOAL_AGENT_SOCKET", "ZEROCLAW_SOCKET"])
def test_a_variable_moves_the_socket_and_nothing_else(tmp_path: Path, variable: str) -> None:
    path = tmp_path / "elsewhere.sock"
    with Daemon(environ={variable: f" {path} "}) as daemon, Agent(path) as client:
        client.initialize()
        status = client.result("status")
        assert status["local_ipc_endpoint"] == str(path)
        assert status["config_dir"] == str(daemon.state)
        assert not (daemon.state / "daemon.sock").exists()


def test_the_endpoint_can_be_left_out() -> None:
    with Daemon("--no-agent-endpoint") as daemon:
        assert not (daemon.state / "daemon.sock").exists()
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})


def test_a_session_cannot_be_attached_on_the_kernel_endpoint(agent: Agent, session: str,
                                                             daemon: Daemon) -> None:  # fmt: skip
    agent.prompt(session, "let hidden = 1")
    with daemon.wire() as wire:
        error = wire.error("session.attach", {"session": f"agent/{session}"})
        assert error["code"] in (-32010, -32602)
        wire.result("session.attach", {"session": "s"})
        names = [row["session"] for row in wire.result("session.list", {})["sessions"]]
    assert f"agent/{session}" in names
