"""Words in, exit codes and streams out: what needs no kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipc.client.autostart import PROGRAM
from supervisor.cli.registry import COMMANDS
from supervisor.version import VERSION
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.parametrize("word", ["-V", "--version"])
def test_version(program: Program, word: str) -> None:
    ran = program.run(word)
    assert (ran.code, ran.out, ran.err) == (0, f"shoal {VERSION}\n", "")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_lists_every_command_and_nothing_else(program: Program, word: str) -> None:
    ran = program.run(word)
    assert ran.code == 0
    listed = ran.out.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == [each.name for each in COMMANDS]


@pytest.mark.parametrize("word", ["-h", "-V"])
def test_help_and_version_take_no_operand(program: Program, word: str) -> None:
    ran = program.run(word, "x")
    assert (ran.code, ran.out) == (2, "")
    assert "usage: shoal" in ran.err


@pytest.mark.parametrize("command", [each.name for each in COMMANDS])
def test_every_command_has_help_on_stdout(program: Program, command: str) -> None:
    ran = program.run(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: shoal {command}")


@pytest.mark.parametrize("command", [each.name for each in COMMANDS])
def test_unknown_option_prints_message_and_usage_and_exits_2(
    program: Program, command: str
) -> None:
    ran = program.run(command, "--no-such-option")
    assert (ran.code, ran.out) == (2, "")
    message, usage = ran.err.split("\n", 1)
    assert "--no-such-option" in message
    assert usage.startswith("usage: shoal")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-c"], "-c/--command requires source"),
        (["--"], "-- must be followed by a script path"),
        (["--frob"], "unknown option --frob"),
    ],
)
def test_usage_errors_of_the_program_itself(
    program: Program, words: list[str], message: str
) -> None:
    ran = program.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_link_named_after_a_command_is_that_command(program: Program, tmp_path: Path) -> None:
    link = tmp_path / "shoal-history"
    link.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "from supervisor.cli.main import main\nsys.exit(main())\n"
    )
    link.chmod(0o755)
    done = subprocess.run(
        [link, "--help"], env=program.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: shoal journal query")


def test_python_m_shoal_is_the_same_program_and_ignores_folders_of_the_caller(
    program: Program, tmp_path: Path
) -> None:
    for name in ("supervisor", "ipc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    done = subprocess.run(
        [sys.executable, "-m", "shoal", "--version"],
        env={**program.environ, "PYTHONPATH": str(PROGRAM.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"shoal {VERSION}\n")


def test_no_kernel_exits_69_and_says_where_it_looked(program: Program) -> None:
    ran = program.run("exec", "1")
    assert (ran.code, ran.out) == (69, "")
    assert str(program.socket) in ran.err


def test_json_mode_puts_the_error_on_stdout(program: Program) -> None:
    ran = program.run("exec", "--json", "1")
    assert (ran.code, ran.err) == (69, "")
    error = ran.document["error"]
    assert error["data"] == {"kind": "not_reachable", "path": str(program.socket)}
    assert str(program.socket) in error["message"]


def test_session_that_can_name_no_socket_is_a_usage_error(program: Program) -> None:
    ran = program.run("exec", "--session", "uid:0/..", "1")
    assert ran.code == 2
    assert "invalid session name" in ran.err


def test_default_session_names_the_socket(program: Program) -> None:
    ran = program.run("exec", "1", environ={"SHOAL_SESSION": "uid:0/build"})
    assert "/run/shoal/build.sock" in ran.err


def test_token_file_of_another_mode_is_refused(program: Program, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    import socket as sockets

    program.socket.parent.mkdir(mode=0o700)
    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(program.socket))
        listener.listen()
        ran = program.run("exec", "--token-file", str(token), "1")
    assert ran.code == 1
    assert "0600" in ran.err
    assert "secret" not in ran.err


def test_broken_configuration_exits_1_with_file_and_key(program: Program) -> None:
    program.configure("[kernel]\nautostart = 1\n")
    ran = program.run("exec", "1")
    assert ran.code == 1
    assert ran.err == (
        f"shoal exec: {program.user_file}: kernel.autostart: expected a boolean, found integer\n"
    )


def test_broken_configuration_is_json_too(program: Program) -> None:
    program.configure("[kernel]\nautostart = 1\n")
    ran = program.run("status", "--json")
    assert (ran.code, ran.err) == (1, "")
    assert "kernel.autostart" in ran.document["error"]["message"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["exec"], "one of SOURCE, -f FILE and - is needed"),
        (["exec", "-f", "x", "1"], "one of SOURCE, -f FILE and - is needed"),
        (["exec", "--json", "--raw", "1"], "--json and --raw cannot be combined"),
        (["exec", "--plan", "--background", "1"], "--plan and --background cannot be combined"),
        (["exec", "--position", "x", "1"], "--position: must be stmt or value, got `x`"),
        (["journal", "--limit"], "--limit requires value"),
        (["journal", "--limit", "x"], "invalid limit"),
        (["journal", "--status", "x"], "status must be ok|failed"),
        (["journal", "query", "--x"], "unknown query option --x"),
        (["journal", "x"], "unknown command x"),
        (["task", "show", "x"], "not a task: `x`"),
        (["completions", "tcsh"], "unsupported shell `tcsh`; expected bash, zsh, or fish"),
    ],
)
def test_usage_errors_exit_2(program: Program, words: list[str], message: str) -> None:
    ran = program.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err.splitlines()[0]


def test_closed_stdout_ends_quietly_with_141(program: Program) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        program.command("completions", "bash"),
        stdout=writer,
        stderr=subprocess.PIPE,
        env=program.environ,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
