"""What a daemon does while its store cannot commit (chapter 61 §8.2)."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.system.daemon import Daemon, Wire, wait_gone

BUSY = 'version = 1\n[journal]\nbusy_timeout_ms = 50\nsync = "full"\non_failure = "{}"\n'


@contextmanager
def locked(daemon: Daemon) -> Iterator[None]:
    """Somebody else holds the database. With `sync` full every commit goes there directly."""
    with closing(sqlite3.connect(daemon.state / "journal.db", isolation_level=None)) as other:
        other.execute("PRAGMA busy_timeout = 10000")
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def working(wire: Wire) -> None:
    """Until a submission is committed again."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answer = wire.request("exec", {"src": "0"})
        if "result" in answer and "committed" not in answer["result"]:
            return
    raise AssertionError("the store does not recover")


def test_refusing_runs_nothing_and_reads_go_on() -> None:
    with Daemon(config=BUSY.format("refuse")) as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        wire.result("exec", {"src": "var n = 1"})
        with locked(daemon):
            # The first one may have run before the failure is known; it is not acknowledged.
            wire.error("exec", {"src": "1"})
            error = wire.error("exec", {"src": "rm nothing; n = 5"})
            assert (error["code"], error["data"]["kind"]) == (-32603, "journal_unavailable")
            assert error["data"]["cause"] == "locked"
            assert wire.result("value.get", {"ref": "out:1"})["value"] == {"$": "null"}
        working(wire)
        assert wire.result("exec", {"src": "n"})["render"] == "1"


def test_continuing_answers_uncommitted_and_saves_the_state_later() -> None:
    with Daemon(config=BUSY.format("continue")) as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            wire.result("exec", {"src": "var n = 1"})
            with locked(daemon):
                for number in (2, 3):
                    answer = wire.result("exec", {"src": "n = n + 1"})
                    assert answer["committed"] is False
                    assert answer["render"] == str(number)
                answer = wire.result("exec", {"src": "echo hi; fn f() { n }; n"})
                assert answer["committed"] is False
            working(wire)
            rows = wire.result("journal.query", {"session": "s"})
            sources = [row["src"] for row in rows]
            assert "echo hi; fn f() { n }; n" not in sources, "rows are never made up"
            assert all(row["state"] != "running" for row in rows[1:])
        daemon.kill()
        daemon.start()
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            assert wire.result("exec", {"src": "f()"})["render"] == "3"


def test_nothing_uncommitted_survives_the_worker() -> None:
    with Daemon(config=BUSY.format("continue")) as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        wire.result("exec", {"src": "var n = 1"})
        with locked(daemon):
            assert wire.result("exec", {"src": "n = 2"})["committed"] is False
            (row,) = wire.result("session.list")["sessions"]
            os.kill(row["pid"], signal.SIGKILL)
            assert wait_gone([row["pid"]]) == []
        working(wire)
        assert wire.result("exec", {"src": "n"})["render"] == "1"


@pytest.mark.parametrize("sync", ["normal", "full"])
def test_acknowledged_results_survive_a_kill_with_either_sync(sync: str) -> None:
    with Daemon(config=f'version = 1\n[journal]\nsync = "{sync}"\n') as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            wire.result("exec", {"src": "var n = 0"})
            for _ in range(50):
                wire.result("exec", {"src": "n = n + 1"})
        daemon.kill()
        daemon.start()
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            assert wire.result("exec", {"src": "n"})["render"] == "50"
