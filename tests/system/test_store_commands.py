"""The command line on the store of a running daemon, and backups restored into another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.daemon import ROOT, Daemon, Wire


def shoal(daemon: Daemon, *words: str, code: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "shoal", *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(daemon.directory),
            "PYTHONPATH": str(ROOT),
            "SHOAL_SOCKET": str(daemon.socket),
            "SHOAL_NO_AUTOSTART": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == code, (ran.stdout, ran.stderr)
    return ran.stdout if code == 0 else ran.stderr


def journal(daemon: Daemon, *words: str) -> str:
    return shoal(daemon, "journal", "--state-dir", str(daemon.state), *words)


def value_hash(wire: Wire) -> str:
    (entry,) = wire.result("journal.query", {"limit": 1})
    return str(next(o["hash"] for o in entry["outputs"] if o["kind"] == "value"))


@pytest.mark.parametrize("running", [True, False], ids=["beside a daemon", "without one"])
def test_pins_hold_content_against_collection(running: bool) -> None:
    with Daemon() as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            wire.result("exec", {"src": '"kept" + "!"'})
            kept = value_hash(wire)
            wire.result("exec", {"src": '"gone" + "!"'})
            gone = value_hash(wire)
        if not running:
            daemon.stop()
        journal(daemon, "pin", kept)
        journal(daemon, "pin", kept)
        assert kept in journal(daemon, "pins")
        plan = json.loads(journal(daemon, "gc", "--ttl", "0"))
        assert plan["dry_run"] is True
        assert gone in [blob["hash"] for blob in plan["candidates"]]
        assert plan["deleted"] == []
        done = json.loads(journal(daemon, "gc", "--ttl", "0", "--apply"))
        deleted = [blob["hash"] for blob in done["deleted"]]
        assert gone in deleted
        assert kept not in deleted
        journal(daemon, "unpin", kept)
        journal(daemon, "unpin", kept)
        assert kept not in journal(daemon, "pins")
        if not running:
            daemon.start()
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            assert wire.result("blob.get", {"hash": kept})["value"]
            error = wire.error("blob.get", {"hash": gone})
            assert (error["code"], error["message"]) == (-32004, "unknown value hash")


def test_undo_from_outside_replays_below_a_root() -> None:
    with Daemon() as daemon:
        file = daemon.work / "f.txt"
        file.write_text("first")
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            wire.result("exec", {"src": '"second".save("f.txt")'})
            (entry,) = wire.result("journal.query", {"limit": 1})
        number, work = str(entry["id"]), str(daemon.work)
        command = ("journal", "--state-dir", str(daemon.state), "undo", number)
        assert "escapes scope" in shoal(daemon, *command, "--root", "/usr", code=1)
        assert file.read_text() == "second"
        assert (
            journal(daemon, "undo", number, "--root", work) == f"undid entry {number} (1 steps)\n"
        )
        assert file.read_text() == "first"
        steps = json.loads(journal(daemon, "--json", "undo", number, "--root", work))["steps"]
        assert [step["status"] for step in steps] == ["already_applied"]
        file.write_text("changed by somebody")
        assert "was modified since" in shoal(daemon, *command, "--root", work, code=1)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"op": "melt"}, -32602),
        ({"op": "pin"}, -32602),
        ({"op": "pin", "hash": "zz"}, -32602),
        ({"op": "pin", "hash": "ab" * 32}, -32004),
    ],
)
def test_store_operations_that_make_no_sense(daemon: Daemon, params: Any, code: int) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        assert wire.error("kernel.store", params)["code"] == code


def test_releasing_what_is_not_pinned_changes_nothing(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        released = wire.result("kernel.store", {"op": "unpin", "hash": "ab" * 32})
        assert released == {"changed": False}


def test_a_backup_of_a_running_daemon_restores_into_a_new_one(tmp_path: Path) -> None:
    archive = tmp_path / "state.tar"
    with Daemon() as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        wire.result("exec", {"src": "let kept = [1, 2, 3]"})
        wire.result("exec", {"src": "fn twice(x) { x * 2 }"})
        state = ("--state-dir", str(daemon.state))
        shoal(daemon, "backup", *state, "create", str(archive))
        wire.result("exec", {"src": "let later = 1"})
        assert archive.stat().st_mode & 0o777 == 0o600
        shoal(daemon, "backup", "verify", str(archive))
        in_use = ("backup", "restore", str(archive), "--into", str(daemon.state), "--force")
        assert "in use" in shoal(daemon, *in_use, code=1)
    other = Daemon()
    shoal(other, "backup", "restore", str(archive), "--into", str(other.state))
    with other, other.wire() as wire:
        attached = wire.result("session.attach", {"session": "s"})
        assert attached["restored"] is True
        assert wire.result("exec", {"src": "twice(kept[2])"})["render"] == "6"
        assert wire.error("exec", {"src": "later"})["data"]["code"] == "not_found"
        rows = wire.result("journal.query", {"limit": 10})
        assert [row["src"] for row in rows][-2:] == [
            "fn twice(x) { x * 2 }",
            "let kept = [1, 2, 3]",
        ]


def test_a_damaged_archive_is_found_and_not_restored(tmp_path: Path) -> None:
    archive = tmp_path / "state.tar"
    with Daemon() as daemon:
        state = ("--state-dir", str(daemon.state))
        shoal(daemon, "backup", *state, "create", str(archive))
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    archive.write_bytes(bytes(data))
    other = Daemon()
    assert shoal(other, "backup", "verify", str(archive), code=1)
    shoal(other, "backup", "restore", str(archive), "--into", str(other.state), code=1)
    assert not (other.state / "journal.db").exists()


def test_retention_collects_by_itself() -> None:
    config = "version = 1\n[retention]\ninterval_s = 1\nblob_max_bytes = 1000\n"
    with Daemon(config=config) as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        wire.result("exec", {"src": '(1..=5000).map(i => "x").join("")'})
        gone = value_hash(wire)
        while "result" in wire.request("blob.get", {"hash": gone}):
            continue
        (entry,) = wire.result("journal.query", {"limit": 1})
        assert gone in [output["hash"] for output in entry["outputs"]]
        assert (
            wire.result("value.get", {"ref": "out:1", "format": "raw", "length": 3})["raw"] == "xxx"
        )
