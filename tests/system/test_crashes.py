"""Processes that die: workers, the zygote, the router (design, section 1)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from tests.system.daemon import Daemon, Wire, alive, wait_gone


def _pid_of(wire: Wire, session: str) -> int:
    rows = wire.result("session.list")["sessions"]
    return int(next(row["pid"] for row in rows if row["session"] == session))


def _send_exec(wire: Wire, source: str) -> None:
    request = {"jsonrpc": "2.0", "id": 5, "method": "exec", "params": {"src": source}}
    wire.send(msgspec.json.encode(request) + b"\n")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _descendants(pid: int) -> list[int]:
    found = _children(pid)
    for child in list(found):
        found += _descendants(child)
    return found


def test_a_killed_worker_fails_its_call_within_a_second_and_nothing_else(daemon: Daemon) -> None:
    with daemon.wire() as victim, daemon.wire() as neighbour:
        victim.result("session.attach", {"session": "victim"})
        neighbour.result("session.attach", {"session": "neighbour"})
        victim.result("exec", {"src": "40 + 1"})
        worker = _pid_of(neighbour, "victim")
        _send_exec(victim, "sh -c 'sleep 60 & sleep 60'")
        while "sleep" not in "".join(_names(worker)):
            os.sched_yield()
        orphans = _descendants(worker)
        killed = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        error = victim.json()["error"]
        assert time.monotonic() - killed < 1
        assert (error["code"], error["data"]["kind"]) == (-32603, "worker_lost")
        assert error["message"] == "session worker ended"
        assert (error["data"]["session"], error["data"]["signal"]) == ("victim", "SIGKILL")
        assert neighbour.result("exec", {"src": "1"})["render"] == "1"
        assert wait_gone(orphans) == []
        # The next call starts a new worker; numbers go on, and stored results are there.
        assert victim.result("exec", {"src": "2"})["ref"] == "out:2"
        assert victim.result("value.get", {"ref": "out:1"})["value"] == {"$": "int", "v": 41}
        entries = victim.result("journal.query", {"session": "victim"})
        assert [entry["state"] for entry in entries] == ["finished", "interrupted", "finished"]
        assert entries[1]["ok"] is None and entries[1]["status"] is None


def _names(pid: int) -> list[str]:
    names = []
    for child in _descendants(pid):
        try:
            names.append(Path(f"/proc/{child}/comm").read_text())
        except OSError:
            continue
    return names


def test_the_attach_result_says_that_a_session_was_restored(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "back"})
        wire.result("exec", {"src": "[1].stream()"})
        os.kill(_pid_of(wire, "back"), signal.SIGKILL)
        while wire.error_or_result("exec", {"src": "3"}) is None:
            continue
        result = wire.result("session.attach", {"session": "back"})
        assert result["restored"] is True
        assert result["lost"] == ["out:1"]
        error = wire.error("value.get", {"ref": "out:1"})
        assert (error["code"], error["data"]["kind"]) == (-32004, "lost_value")


def test_an_interrupted_submission_publishes_its_journal_event(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "interrupted"})
        wire.result("events.subscribe", {"channel": "journal", "since": 2**60})
        _send_exec(wire, "sleep 60s")
        worker = _pid_when_busy(daemon, "interrupted")
        os.kill(worker, signal.SIGKILL)
        lines = [wire.json(), wire.json()]
        event = next(line for line in lines if line.get("method") == "event")
        assert event["params"]["payload"]["v"]["ok"] == {"$": "bool", "v": False}


def _pid_when_busy(daemon: Daemon, session: str) -> int:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "watcher"})
        while True:
            entries = wire.result("journal.query", {"session": session, "limit": 1})
            if entries and entries[0]["state"] == "running":
                return _pid_of(wire, session)


def test_a_worker_that_keeps_ending_is_held_back() -> None:
    with Daemon() as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "crashing"})
        for _ in range(5):
            wire.result("exec", {"src": "1"})
            os.kill(_pid_of(wire, "crashing"), signal.SIGKILL)
            assert wait_gone([_pid for _pid in [_last_pid(wire)] if _pid]) == []
            while _state(wire, "crashing") in ("ready", "busy"):
                continue
        error = wire.error("exec", {"src": "1"})
        assert (error["code"], error["data"]["kind"]) == (-32603, "worker_backoff")
        assert error["message"] == "session worker ended repeatedly"
        assert 0 < error["data"]["retry_after_ms"] <= 60_000
        assert _state(wire, "crashing") == "backoff"
        with daemon.wire() as other:
            other.result("session.attach", {"session": "healthy"})
            assert other.result("exec", {"src": "1"})["render"] == "1"


def _state(wire: Wire, session: str) -> str:
    rows = wire.result("session.list")["sessions"]
    return str(next(row["state"] for row in rows if row["session"] == session))


def _last_pid(wire: Wire) -> int | None:
    rows = wire.result("session.list")["sessions"]
    return rows[0]["pid"] if rows else None


def test_a_dead_zygote_is_replaced_and_live_sessions_go_on() -> None:
    with Daemon() as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "before"})
        wire.result("exec", {"src": "let kept = 5"})
        zygotes = [pid for pid in _children(daemon.pid) if _comm(pid) == "shoal:zygote"]
        os.kill(zygotes[0], signal.SIGKILL)
        assert wait_gone(zygotes) == []
        assert wire.result("exec", {"src": "kept"})["render"] == "5"
        with daemon.wire() as other:
            other.result("session.attach", {"session": "after"})
            assert other.result("exec", {"src": "1"})["render"] == "1"


def test_what_a_dead_zygote_forked_outlives_the_search_for_orphans() -> None:
    """Its processes become children of the router, beside the orphans of a dead worker."""
    with Daemon() as daemon, daemon.wire() as wire, daemon.wire() as victim:
        wire.result("session.attach", {"session": "kept"})
        victim.result("session.attach", {"session": "victim"})
        wire.result("parse", {"src": "1"})
        kept = [pid for pid in _descendants(daemon.pid) if _comm(pid) == "shoal:syntax"]
        zygotes = [pid for pid in _children(daemon.pid) if _comm(pid) == "shoal:zygote"]
        os.kill(zygotes[0], signal.SIGKILL)
        assert wait_gone(zygotes) == []
        worker = _pid_of(wire, "victim")
        _send_exec(victim, "sh -c 'sleep 60 & sleep 60'")
        while "sleep" not in "".join(_names(worker)):
            os.sched_yield()
        orphans = _descendants(worker)
        os.kill(worker, signal.SIGKILL)
        assert wait_gone(orphans) == []
        assert kept and [pid for pid in kept if not alive(pid)] == []


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_processes_are_named_after_what_they_do(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "named"})
        wire.result("parse", {"src": "1"})
        assert _comm(_pid_of(wire, "named")) == "shoal:named"
        names = {_comm(pid) for pid in _descendants(daemon.pid)}
        assert {"shoal:zygote", "shoal:syntax"} <= names
        assert _comm(daemon.pid) == "shoal:router"


def test_a_killed_router_leaves_no_process_behind() -> None:
    daemon = Daemon().start()
    wire = daemon.wire()
    wire.result("session.attach", {"session": "a"})
    wire.result("parse", {"src": "1"})
    _send_exec(wire, "sh -c 'sleep 60 & sleep 60'")
    worker = _descendants(daemon.pid)
    while "sleep" not in "".join(_names(daemon.pid)):
        os.sched_yield()
    processes = _descendants(daemon.pid)
    assert len(processes) > len(worker) or processes
    daemon.kill()
    assert wait_gone(processes) == []
    wire.close()
    assert not [pid for pid in processes if alive(pid)]


def test_acknowledged_results_survive_a_kill_of_the_router() -> None:
    daemon = Daemon().start()
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "a"})
        assert wire.result("exec", {"src": "6 * 7"})["ref"] == "out:1"
        _send_exec(wire, "sleep 60s")
        _pid_when_busy(daemon, "a")
        daemon.kill()
    daemon.start()
    with daemon.wire() as wire:
        result = wire.result("session.attach", {"session": "a"})
        assert (result["restored"], result["lost"]) == (True, [])
        assert wire.result("value.get", {"ref": "out:1"})["value"] == {"$": "int", "v": 42}
        assert wire.result("exec", {"src": "1"})["ref"] == "out:2"
        entries = wire.result("journal.query", {"session": "a"})
        assert [entry["state"] for entry in entries] == ["finished", "interrupted", "finished"]
    assert daemon.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_drains_and_leaves_nothing(number: signal.Signals) -> None:
    daemon = Daemon().start()
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "a"})
        _send_exec(wire, "sleep 300ms; 9")
        processes = _descendants(daemon.pid)
        os.kill(daemon.pid, number)
        messages = [wire.json(), wire.json()]
        notice = next(message for message in messages if message.get("method") == "kernel")
        assert notice["params"]["state"] == "draining"
        answer = next(message for message in messages if "id" in message)
        assert answer["result"]["render"] == "9"
        assert wire.line() == b""
    assert daemon.process is not None
    assert daemon.process.wait(20) == 0
    assert wait_gone(processes) == []
    assert not daemon.socket.exists()


def test_new_work_is_refused_during_a_drain() -> None:
    daemon = Daemon().start()
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "a"})
        _send_exec(wire, "sleep 1s; 9")
        os.kill(daemon.pid, signal.SIGTERM)
        assert wire.json()["method"] == "kernel"
        error = wire.error("exec", {"src": "1"})
        assert (error["code"], error["data"]["kind"]) == (-32603, "shutting_down")
        assert error["message"] == "kernel is shutting down"
        assert wire.result("server.info")["kernel_protocol"] == 1
    daemon.stop()


def test_nothing_is_imported_from_the_directory_a_daemon_starts_in() -> None:
    daemon = Daemon()
    for package in ("worker", "ipc", "msgspec"):
        (daemon.work / package).mkdir()
        (daemon.work / package / "__init__.py").write_text("raise SystemExit('foreign code ran')")
    daemon.start()
    with daemon.wire() as wire:
        wire.result("session.attach")
        assert wire.result("exec", {"src": "6 * 7"})["render"] == "42"
    assert "foreign code" not in daemon.read_log()
    daemon.stop()


def test_a_worker_finds_everything_loaded_when_it_is_forked() -> None:
    """What is imported after the fork costs every session time and memory of its own."""
    with Daemon(environ={"PYTHONPROFILEIMPORTTIME": "1"}) as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "first"})
            wire.result("exec", {"src": "1"})
        seen = len(daemon.read_log())
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "second"})
            wire.result("exec", {"src": "6 * 7"})
        late = [
            line.rpartition("|")[2].strip()
            for line in daemon.read_log()[seen:].splitlines()
            if line.startswith("import time:")
        ]
        assert [name for name in late if name.startswith(("worker", "leash", "asyncio"))] == []
