"""The README is true: every line of its tour, its Python example, its links."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arrows.rules import ROOT
from tests.cli.program import WAIT_S, Program
from tests.docs.tour import blocks, fits, steps

README = ROOT / "README.md"


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Program]:
    """Somebody who has installed the program and uses it for the first time."""
    program = Program(tmp_path)
    del program.environ["SHOAL_NO_AUTOSTART"]
    commands = tmp_path / "bin"
    commands.mkdir()
    shoal = commands / "shoal"
    words = " ".join(program.command())
    shoal.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    shoal.chmod(0o755)
    program.environ["PATH"] = f"{commands}:{program.environ['PATH']}"
    yield program
    for state in tmp_path.glob(".local/state/shoal/lock"):
        end_kernel(json.loads(state.read_text())["pid"])


def end_kernel(pid: int) -> None:
    """End a kernel that was started by itself, and wait until it is gone."""
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + WAIT_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        # It is nobody's child here once its starter is gone, so there is nothing to wait on.
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            time.sleep(0.01)


def test_every_line_of_the_tour_is_true(newcomer: Program) -> None:
    work = newcomer.root / "work"
    work.mkdir()
    (work / "fruit.txt").write_text("apple 3\npear 55\n")
    (work / "info.json").write_text('{"name":"shoal","tags":["a","b"]}')
    wrong = []
    for step in steps(README):
        done = subprocess.run(
            ["bash", "-c", step.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=newcomer.environ,
            cwd=work,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        if not fits(step.expected, done.stdout):
            wrong.append(f"$ {step.command}\n{done.stdout}--- the page says:\n{step.expected}")
    assert not wrong, "\n\n".join(wrong)


def test_python_example_prints_the_answer(newcomer: Program) -> None:
    [example] = blocks(README, "python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        env={**newcomer.environ, "PYTHONPATH": str(ROOT)},
        cwd=newcomer.root,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("42\n", "")


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_targets_of_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in (README, ROOT / "CONTRIBUTING.md"):
        assert set(re.findall(r"`?make ([a-z]+)\b`?", page.read_text())) - {"up"} <= targets


@pytest.mark.parametrize(
    ("expected", "printed", "verdict"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a", True),
        ("a  \n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\n", "a\nb\n", False),
        ("", "", True),
        ("", "x\n", False),
        ("a … c\n", "a b c\n", True),
        ("a … c\n", "a b\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", "a\nd\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_output_fits_only_what_the_page_says(expected: str, printed: str, verdict: bool) -> None:
    assert fits(expected, printed) is verdict
