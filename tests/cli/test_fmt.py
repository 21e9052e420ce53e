"""`shoal fmt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Program

CANONICAL = "let a = (1 + (2 * 3))\n"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_stdin_is_formatted_to_stdout_and_formatting_twice_changes_nothing(
    program: Program,
) -> None:
    ran = program.run("fmt", stdin="let  a=1+2*3")
    assert (ran.code, ran.out) == (0, CANONICAL)
    assert program.run("fmt", stdin=CANONICAL).out == CANONICAL
    assert program.run("fmt", stdin="").out == ""


def test_files_that_change_are_replaced_with_their_mode_kept(program: Program) -> None:
    odd, canonical = program.root / "odd.shl", program.root / "canonical.shl"
    odd.write_text("let  a=1+2*3")
    odd.chmod(0o750)
    canonical.write_text(CANONICAL)
    before = canonical.stat()
    assert program.run("fmt", "odd.shl", "canonical.shl").code == 0
    assert odd.read_text() == CANONICAL
    assert odd.stat().st_mode & 0o777 == 0o750
    assert canonical.stat().st_ino == before.st_ino
    assert sorted(each.name for each in program.root.glob("*.shl")) == ["canonical.shl", "odd.shl"]


def test_check_writes_nothing_and_says_by_its_exit_code(program: Program) -> None:
    odd = program.root / "odd.shl"
    odd.write_text("let  a=1")
    ran = program.run("fmt", "--check", "odd.shl")
    assert (ran.code, ran.out) == (1, "")
    assert odd.read_text() == "let  a=1"
    assert program.run("fmt", "--check", stdin=CANONICAL).code == 0
    assert program.run("fmt", "--check", stdin="let  a=1").code == 1


def test_source_that_does_not_parse_exits_1_and_stays(program: Program) -> None:
    bad = program.root / "bad.shl"
    bad.write_text("1 +")
    ran = program.run("fmt", "bad.shl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("shoal fmt: bad.shl: ")
    assert bad.read_text() == "1 +"


def test_unknown_option_has_its_own_text(program: Program) -> None:
    ran = program.run("fmt", "--frob")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "shoal fmt: unknown fmt option `--frob`")
