"""The launcher as a program of its own: what its command may do, and every way it refuses."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from leash import landlock
from leash.confinement import Confinement, Ports
from leash.sandbox_exec import PORT_MAX, Refused, parse
from tests.arrows.rules import ROOT

LAUNCHER = [sys.executable, "-m", "leash.sandbox_exec"]
needs_landlock = pytest.mark.skipif(landlock.abi() < 4, reason="needs Landlock with TCP ports")


def launch(*words: object, close_fds: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAUNCHER, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        close_fds=close_fds,
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "missing command"),
        (["--"], "missing command"),
        (["--read", "/"], "missing command"),
        (["--read"], "sandbox option requires path"),
        (["--write", "--", "true"], "sandbox option requires path"),
        (["--delete", ""], "sandbox option requires path"),
        (["--connect"], "sandbox option requires port"),
        (["--connect", "https", "--", "true"], "sandbox option requires port"),
        (["--listen", str(PORT_MAX + 1), "--", "true"], "sandbox option requires port"),
        (["true"], "unknown sandbox option true"),
        (["--read=/", "--", "true"], "unknown sandbox option --read=/"),
    ],
)
def test_usage_fault_is_one_line_and_126(words: list[str], text: str) -> None:
    ran = launch(*words)
    assert (ran.returncode, ran.stdout) == (126, "")
    assert ran.stderr == f"shoal-sandbox-exec: {text}\n"


@needs_landlock
@pytest.mark.parametrize("command", ["/none/program", "no-such-program", "/etc"])
def test_command_that_cannot_be_executed_is_126(command: str) -> None:
    ran = launch("--", command)
    assert (ran.returncode, ran.stdout) == (126, "")
    assert ran.stderr.startswith(f"shoal-sandbox-exec: exec failed: {command}: ")


def test_words_of_the_command_are_not_options(tmp_path: Path) -> None:
    order = parse(["--read", str(tmp_path), "--", "ls", "--write", "/"])
    assert order.command == ("ls", "--write", "/")
    assert (order.confined.read, order.confined.write) == ((str(tmp_path),), ())


def test_roots_that_do_not_exist_are_dropped_and_the_rest_sorted(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    words = [word for name in ("b", "a", "b", "none") for word in ("--write", f"{tmp_path}/{name}")]
    assert parse([*words, "--", "true"]).confined.write == (f"{tmp_path}/a", f"{tmp_path}/b")


def test_naming_neither_port_option_leaves_the_network_alone() -> None:
    confined = parse(["--", "true"]).confined
    assert confined == Confinement(filesystem=True)
    both = parse(["--connect", "443", "--connect", "80", "--", "true"]).confined
    assert (both.connect, both.listen) == (Ports(True, False, (80, 443)), Ports(True))


def test_largest_port_is_one() -> None:
    assert parse(["--listen", str(PORT_MAX), "--", "x"]).confined.listen.numbers == (PORT_MAX,)
    with pytest.raises(Refused):
        parse(["--listen", str(PORT_MAX + 1), "--", "x"])


@needs_landlock
def test_command_has_the_named_roots_and_the_base_only(tmp_path: Path) -> None:
    readable, writable, deletable, hidden = (tmp_path / name for name in "rwdh")
    for place in (readable, writable, deletable, hidden):
        place.mkdir()
        (place / "file").write_text("text")
    words = ["--read", readable, "--write", writable, "--delete", deletable, "--", "sh", "-c"]
    script = (
        f"cat {readable}/file; echo > {readable}/new; echo x > {writable}/new; rm {writable}/file; "
        f"cat {deletable}/file; rm {deletable}/file; cat {hidden}/file; rm {hidden}/file"
    )
    ran = launch(*words, script)
    assert ran.stdout == "text"
    assert ran.stderr.count("Permission denied") == 4, ran.stderr
    assert not (readable / "new").exists()
    assert (writable / "new").exists()
    assert not (writable / "file").exists()
    assert not (deletable / "file").exists()
    assert (hidden / "file").exists()


@needs_landlock
def test_ports_are_held_when_one_is_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as granted,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        ports = [server.getsockname()[1] for server in (granted, other)]
        program = (
            "import socket, sys\n"
            "for port in map(int, sys.argv[1:]):\n"
            "    try: socket.create_connection(('127.0.0.1', port)); print('open')\n"
            "    except PermissionError: print('refused')\n"
            "try: socket.create_server(('127.0.0.1', 0)); print('bound')\n"
            "except PermissionError: print('refused')\n"
        )
        python = [f"{sys.base_prefix}/bin/python3", "-I", "-c", program, *map(str, ports)]
        read = ["--read", sys.base_prefix]
        held = launch(*read, "--connect", str(ports[0]), "--", *python)
        assert held.stdout.split() == ["open", "refused", "refused"], held.stderr
        free = launch(*read, "--", *python)
        assert free.stdout.split() == ["open", "open", "bound"], free.stderr


@needs_landlock
def test_command_gains_no_privileges_signals_nobody_and_inherits_nothing(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        script = f"grep NoNewPrivs /proc/self/status; kill -0 {os.getpid()} || echo out of reach"
        ran = launch("--", "sh", "-c", f"{script}; ls /proc/self/fd", close_fds=False)
    assert ran.stdout.split() == ["NoNewPrivs:", "1", "out", "of", "reach", "0", "1", "2", "3"]


@needs_landlock
def test_status_of_the_command_is_the_status() -> None:
    assert launch("--", "sh", "-c", "exit 7").returncode == 7
