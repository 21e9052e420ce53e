"""The service manager's side: readiness, signs of life, idle ends (chapter 81 §8)."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from tests.system.daemon import Daemon, wait_gone


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    """A notify socket as a service manager has one."""
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "notify"))
    receiver.settimeout(20)
    return receiver


def test_signs_of_life_come_while_the_loop_is_on_time(
    manager: socket.socket, tmp_path: Path
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    with Daemon(environ=environ) as daemon:
        assert manager.recv(4096).startswith(b"READY=1\nSTATUS=0 sessions, 0 connections")
        assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        daemon.stop()
        assert b"STOPPING=1" in _rest(manager)


def _rest(receiver: socket.socket) -> list[bytes]:
    receiver.setblocking(False)
    messages = []
    while True:
        try:
            messages.append(receiver.recv(4096))
        except BlockingIOError:
            return messages


def test_a_reload_is_told(manager: socket.socket, tmp_path: Path) -> None:
    with Daemon(environ={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as daemon:
        assert manager.recv(4096).startswith(b"READY=1")
        with daemon.wire() as wire:
            wire.result("session.attach")
            wire.result("kernel.reload")
        assert manager.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert manager.recv(4096) == b"READY=1"


def test_children_do_not_inherit_what_speaks_for_the_daemon(
    manager: socket.socket, tmp_path: Path
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}
    with Daemon(environ=environ) as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        names = wire.result("session.env")["names"]
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(names)


def test_an_idle_daemon_ends_when_it_is_told_to() -> None:
    daemon = Daemon("--idle-exit", "1").start()
    with daemon.wire() as wire:
        wire.result("session.attach")
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            wire.result("server.info")
    assert daemon.process is not None
    assert daemon.process.wait(20) == 0
    daemon.stop()


def test_an_idle_worker_ends_and_comes_back_with_the_next_call() -> None:
    with Daemon(config="[quotas]\nsession_idle_s = 1\n") as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "idle"})
            wire.result("exec", {"src": "6 * 7"})
            (row,) = wire.result("session.list")["sessions"]
        pid = int(row["pid"])
        assert wait_gone([pid], 20) == []
        with daemon.wire() as wire:
            assert wire.result("session.attach", {"session": "idle"})["restored"] is True
            assert wire.result("value.get", {"ref": "out:1"})["value"] == {"$": "int", "v": 42}
            assert os.getpid() != pid
