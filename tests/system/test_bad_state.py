"""State that cannot be used, disks that are full, workers that answer garbage."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.daemon import ROOT, Daemon, Wire

_PIDFD_GETFD = 438


def _failed_start(directory: Path) -> str:
    failed = subprocess.run(
        [sys.executable, "-m", "shoal", "kernel", "--socket", str(directory / "run" / "k.sock"),
         "--state-dir", str(directory / "state")],
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(ROOT)},
        cwd=directory, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert not (directory / "run" / "k.sock").exists()
    return failed.stderr


def test_a_journal_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.db").write_bytes(b"not a database at all " * 500)
    assert _failed_start(tmp_path).startswith("shoal-kernel: journal.db is damaged")


def test_a_journal_of_a_newer_program_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
        connection.execute("CREATE TABLE future (x)")
    connection.close()
    before = path.read_bytes()
    assert _failed_start(tmp_path) == (
        "shoal-kernel: journal.db schema version 9 is newer than this program understands (max 2)\n"
    )
    assert path.read_bytes() == before


def test_a_state_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    assert _failed_start(tmp_path).startswith("shoal-kernel: state directory")


def test_a_token_store_that_is_broken(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tokens.json").write_text("{")
    assert "token store" in _failed_start(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little; skipped where the test may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting needs privileges")
    yield disk
    # Lazily, so that a test that failed with something still running leaves no mount behind.
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_refuses_new_work_and_keeps_what_was_acknowledged(small_disk: Path) -> None:
    daemon = Daemon("--state-dir", str(small_disk / "state"))
    daemon.start()
    try:
        with daemon.wire() as wire:
            wire.result("session.attach")
            wire.result("exec", {"src": "6 * 7"})
            filler = small_disk / "filler"
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 65536)
                except OSError:
                    pass
            error = _until_refused(wire)
            assert (error["code"], error["data"]["kind"]) == (-32603, "journal_unavailable")
            assert error["data"]["cause"] == "disk_full"
            assert wire.result("value.get", {"ref": "out:1"})["value"] == {"$": "int", "v": 42}
            assert wire.result("journal.query", {"limit": 5})
            refused = wire.error("exec", {"src": "env.TOUCHED = 1"})
            assert refused["data"]["kind"] == "journal_unavailable"
            assert "TOUCHED" not in wire.result("session.env")["names"]
            filler.unlink()
            assert wire.result("exec", {"src": "1 + 1"})["render"] == "2"
    finally:
        daemon.stop()


def _until_refused(wire: Wire) -> dict[str, Any]:
    """Run programs until the store has no page left for the next row."""
    for number in range(2000):
        answer = wire.request("exec", {"src": f'"{number}" + "{"y" * 3000}"'})
        if "error" in answer:
            error: dict[str, Any] = answer["error"]
            return error
    raise AssertionError("the disk never filled")


def _channel_of(pid: int) -> int:
    """A duplicate of a worker's control channel, taken from outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if not os.readlink(entry).startswith("socket:"):
                continue
            fd = libc.syscall(_PIDFD_GETFD, pidfd, int(entry.name), 0)
            if fd < 0:
                pytest.skip("taking a descriptor of another process is not permitted here")
            return int(fd)
    finally:
        os.close(pidfd)
    raise AssertionError("the worker has no channel")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x05\x00\x00\x00\x00nonsense!",
        b"\xff\xff\xff\xff\x00",
        b"\x01\x00\x00\x00\x03\xc0",
        b"\x06\x00\x00\x00\x00\x93\xa4pong",
    ],
)
def test_a_worker_that_answers_garbage_is_killed_and_replaced(garbage: bytes) -> None:
    with Daemon() as daemon, daemon.wire() as wire, daemon.wire() as other:
        wire.result("session.attach", {"session": "garbage"})
        other.result("session.attach", {"session": "sound"})
        (pid,) = [
            row["pid"]
            for row in wire.result("session.list")["sessions"]
            if row["session"] == "garbage"
        ]
        channel = _channel_of(pid)
        wire.send(b'{"jsonrpc":"2.0","id":7,"method":"exec","params":{"src":"sleep 60s"}}\n')
        while not other.result("journal.query", {"session": "garbage"}):
            continue
        os.write(channel, garbage)
        os.close(channel)
        error = wire.json()["error"]
        assert (error["code"], error["data"]["kind"]) == (-32603, "worker_lost")
        assert other.result("exec", {"src": "1"})["render"] == "1"
        assert wire.result("exec", {"src": "2"})["render"] == "2"
