"""A session that eats everything: it suffers, its neighbours and the daemon do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.attacker import SHIELDED, Fortress, run
from tests.system.daemon import Wire, wait_gone

PROCESSES = 300

GREED = {
    "descriptors": (
        "import os\nfds = []\n"
        "try:\n    while True: fds.append(os.open('/dev/null', 0))\n"
        "except OSError as error: print('stopped', len(fds) < 1 << 17)"
    ),
    "files": (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 22, 1 << 22))\n"
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n    with open('big', 'wb') as file:\n"
        "        while True: file.write(bytes(1 << 20))\n"
        "except OSError: print('stopped True')\n"
    ),
    "output": "import sys\nfor _ in range(3000): sys.stdout.write('y' * 32767 + '\\n')",
    "threads": (
        "import threading, time\nmade = 0\n"
        "try:\n    for _ in range(2000):\n"
        "        threading.Thread(target=time.sleep, args=(1,), daemon=True).start(); made += 1\n"
        "except RuntimeError: pass\n"
        "import os; print('stopped True'); os._exit(0)"
    ),
}


@pytest.fixture
def greedy(fortress: Fortress) -> Wire:
    wire = fortress.attached(SHIELDED, "greedy")
    wire.result("exec", {"src": f'cd "{fortress.home}/shielded"'})
    return wire


@pytest.mark.parametrize("what", GREED)
def test_neighbours_are_served_while_a_session_is_greedy(
    fortress: Fortress, greedy: Wire, what: str
) -> None:
    (fortress.home / "shielded" / "greed.py").write_text(GREED[what])
    task = greedy.result("exec", {"src": "sh { /usr/bin/python3 greed.py }", "async": True})["task"]
    neighbour = fortress.attached(None, "quiet")
    for _ in range(20):
        assert run(neighbour, "6 * 7")["result"]["render"] == "42"
    ended = greedy.result("task.await", {"task": task, "timeout_ms": 15000})
    assert ended["state"] in ("completed", "failed"), ended


def test_a_forest_of_processes_goes_with_its_session(fortress: Fortress) -> None:
    wire = fortress.attached(SHIELDED, "forest")
    place = fortress.home / "shielded"
    (place / "forest.py").write_text(
        "import os, time\n"
        f"pids = []\nfor _ in range({PROCESSES}):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n        os.setsid(); time.sleep(300); os._exit(0)\n"
        "    pids.append(pid)\n"
        "open('forest', 'w').write(' '.join(map(str, pids)))\n"
    )
    run(wire, f"sh {{ cd {place}; /usr/bin/python3 forest.py >/dev/null 2>&1 }}")
    pids = [int(pid) for pid in (place / "forest").read_text().split()]
    assert len(pids) == PROCESSES
    assert run(fortress.attached(None, "quiet"), "6 * 7")["result"]["render"] == "42"
    wire.result("session.close", {"force": True})
    assert wait_gone(pids, 10.0) == []


def test_sessions_go_before_the_daemon_when_memory_runs_out(fortress: Fortress) -> None:
    wire = fortress.attached(SHIELDED, "score")
    sessions = wire.result("session.list")["sessions"]
    pid = next(entry["pid"] for entry in sessions if entry["session"] == "score")
    worker = int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    assert worker > int(Path(f"/proc/{fortress.pid}/oom_score_adj").read_text())


def test_a_program_cannot_raise_its_open_files_above_the_workers(
    fortress: Fortress, greedy: Wire
) -> None:
    limit = int(run(greedy, "sh { ulimit -H -n }")["result"]["render"].replace("_", ""))
    answer = run(greedy, f"sh {{ ulimit -n {limit + 1} 2>/dev/null || echo refused }}")
    assert "refused" in answer["result"]["render"]
