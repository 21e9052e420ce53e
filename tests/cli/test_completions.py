"""Completion scripts: sound for their shell, and complete."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.cli.registry import COMMANDS
from tests.cli.program import Program

INSTALLED = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_every_command_and_option(tmp_path: Path, shell: str) -> None:
    script = Program(tmp_path).run("completions", shell).out
    for command in COMMANDS:
        assert command.name in script
        for part in (command, *command.commands):
            for option in part.options:
                assert option.name.lstrip("-") in script


@pytest.mark.parametrize("shell", INSTALLED)
def test_script_parses(tmp_path: Path, shell: str) -> None:
    script = Program(tmp_path).run("completions", shell).out
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def complete(script: str, where: Path, *words: str) -> list[str]:
    line = " ".join(f"'{word}'" for word in words)
    driver = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shoal\n"
    driver += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", driver], cwd=where, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_subcommands_and_options(tmp_path: Path) -> None:
    script = Program(tmp_path).run("completions", "bash").out
    assert "exec" in complete(script, tmp_path, "shoal", "ex")
    assert complete(script, tmp_path, "shoal", "journal", "sho") == ["show"]
    assert complete(script, tmp_path, "shoal", "exec", "--max-r") == ["--max-rows"]
    assert "--limit" in complete(script, tmp_path, "shoal", "journal", "query", "--l")
