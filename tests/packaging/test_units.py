"""The service files: sound for their manager, and in step with the program."""

from __future__ import annotations

import configparser
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.cli.options import parse
from supervisor.cli.registry import named
from tests.arrows.rules import ROOT

UNITS = ROOT / "systemd"


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNITS / name)
    return parser


def agent() -> dict[str, object]:
    with open(UNITS / "org.shoal.kernel.plist", "rb") as file:
        loaded: dict[str, object] = plistlib.load(file)
    return loaded


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for name in ("shoal.socket", "shoal.service"):
        text = (UNITS / name).read_text()
        # verify wants the program to exist.
        text = text.replace("%h/.local/bin/shoal", f"{sys.executable} -m shoal")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--user",
            "--man=no",
            tmp_path / "shoal.socket",
            tmp_path / "shoal.service",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_service_says_when_it_is_ready_and_is_watched() -> None:
    service = unit("shoal.service")["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0
    assert set(service["Delegate"].split()) == {"cpu", "memory", "pids"}
    assert service["NoNewPrivileges"] == "yes"
    # Processes of workers are the router's to end, in order.
    assert service["KillMode"] == "mixed"


def test_socket_is_private_and_where_clients_look() -> None:
    section = unit("shoal.socket")["Socket"]
    assert section["ListenStream"] == "%t/shoal/default.sock"
    assert (section["SocketMode"], section["DirectoryMode"]) == ("0600", "0700")


def test_commands_in_the_files_are_commands_of_the_program() -> None:
    kernel = named("kernel")
    assert kernel is not None
    words = unit("shoal.service")["Service"]["ExecStart"].split()
    assert Path(words[0]).name == "shoal"
    assert words[1] == "kernel"
    parse(kernel, words[2:])
    arguments = agent()["ProgramArguments"]
    assert isinstance(arguments, list)
    assert arguments[1:] == words[1:]


def test_launchd_agent_restarts_after_failures_only() -> None:
    values = agent()
    assert values["KeepAlive"] == {"SuccessfulExit": False}
    assert values["RunAtLoad"] is True
    assert values["Umask"] == 0o077
    assert values["SoftResourceLimits"] == {"NumberOfFiles": 16384}
