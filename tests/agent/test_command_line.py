"""`shoal agent`, the agents' part of `shoal config`, and the reference client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.system.daemon import ROOT, Daemon

EXAMPLE = ROOT / "examples" / "agent_client.py"


def shoal(daemon: Daemon, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    environ |= {"HOME": str(daemon.directory), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "shoal", *words],
        capture_output=True, text=True, env=environ, input=stdin, timeout=60, check=False,
    )  # fmt: skip


def state(daemon: Daemon) -> tuple[str, str]:
    return "--state-dir", str(daemon.state)


def test_chat_says_what_the_agent_says(daemon: Daemon) -> None:
    done = shoal(daemon, "agent", "chat", *state(daemon), "shell", "6 * 7")

    assert (done.returncode, done.stdout) == (0, "42\n")
    assert "» shoal" in done.stderr


def test_chat_takes_a_prompt_from_every_line(daemon: Daemon) -> None:
    done = shoal(
        daemon, "agent", "chat", *state(daemon), "--session", "lines", "shell",
        stdin="let n = 20\nn + 1\n",
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "21\n")


def test_agents_and_sessions_are_listed(daemon: Daemon) -> None:
    shoal(daemon, "agent", "chat", *state(daemon), "--session", "listed", "shell", "1")

    agents = shoal(daemon, "agent", "list", *state(daemon))
    sessions = shoal(daemon, "agent", "status", *state(daemon))

    assert agents.stdout.splitlines()[1].split()[:2] == ["shell", "yes"]
    assert "listed" in sessions.stdout


def test_the_agents_configuration_is_read_and_changed(daemon: Daemon) -> None:
    done = shoal(
        daemon, "config", "set", *state(daemon), "agents.helper.model=m1",
        "agents.helper.max_turns=7",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    assert shoal(daemon, "config", "get", *state(daemon), "agents.helper.max_turns").stdout == "7\n"
    listed = shoal(daemon, "config", "list", *state(daemon), "agents.helper.")
    assert "agents.helper.model" in listed.stdout
    assert shoal(daemon, "config", "validate", *state(daemon)).returncode == 0
    wrong = shoal(daemon, "config", "set", *state(daemon), "agents.helper.max_turns=x")
    assert wrong.returncode == 1 and "max_turns" in wrong.stderr


def test_without_a_router_the_exit_says_so(daemon: Daemon, tmp_path: Path) -> None:
    done = shoal(daemon, "agent", "list", "--state-dir", str(tmp_path))

    assert done.returncode == 69


def test_the_reference_client_is_short_and_works(daemon: Daemon) -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 100

    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(daemon.state / "daemon.sock"), "6 * 7"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert done.stdout == '» shoal {"src": "6 * 7"}\n42\n[completed]\n'
