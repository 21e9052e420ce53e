"""`shoal doctor`: every check once, levels and exit codes that belong together, and `--fix`."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.doctor import CHECKS
from supervisor.version import VERSION
from tests.cli.program import Program, Ran

NAMES = [name for name, _ in CHECKS]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def findings(ran: Ran) -> dict[str, Any]:
    return {check["name"]: (check["level"], check["detail"]) for check in ran.document["checks"]}


def test_checks_are_those_of_the_page_in_its_order(program: Program) -> None:
    assert [
        *("leash", "tty", "pty", "runtime dir", "state dir", "config dir", "kernel socket"),
        *("kernel version", "kernel lock", "tool sh", "tool git", "tool rg", "tool python3"),
        *("journal", "journal schema", "tokens", "secrets", "config", "policy", "python"),
        *("sqlite", "cgroup", "nofile", "disk", "service"),
    ] == NAMES
    ran = program.run("doctor", "--json")
    assert [check["name"] for check in ran.document["checks"]] == NAMES
    assert {check["level"] for check in ran.document["checks"]} <= {"ok", "warn", "fail"}


def test_human_form_is_aligned_and_ends_with_the_exit_code(program: Program) -> None:
    ran = program.run("doctor")
    *lines, last = ran.out.splitlines()
    assert last == f"exit: {ran.code}"
    assert [line[5:25].rstrip() for line in lines] == NAMES
    for line in lines:
        assert re.fullmatch(r"(ok  |warn|FAIL) .{20} \S.*", line), line


def test_exit_code_follows_the_worst_level(program: Program) -> None:
    ran = program.run("doctor", "--json")
    assert findings(ran)["state dir"][0] == "fail"
    assert ran.code == 2
    program.run("doctor", "--fix")
    ran = program.run("doctor", "--json")
    levels = {level for level, _ in findings(ran).values()}
    assert (
        ran.code == {"ok": 0, "warn": 1, "fail": 2}[max(levels, key=["ok", "warn", "fail"].index)]
    )
    assert "fail" not in levels


def test_fix_makes_directories_tightens_modes_and_removes_a_stale_socket(
    program: Program,
) -> None:
    state = program.root / ".local" / "state" / "shoal"
    state.mkdir(parents=True, mode=0o755)
    state.chmod(0o755)
    program.run("token", "create", "a")
    store = state / "tokens.json"
    store.chmod(0o644)
    program.socket.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(program.socket))
    assert findings(program.run("doctor", "--json"))["tokens"][0] == "fail"
    ran = program.run("doctor", "--fix", "--json")
    assert f"fixed: removed stale socket {program.socket}\n" in ran.err
    assert not program.socket.exists()
    assert store.stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    assert (program.root / ".config" / "shoal").is_dir()
    assert findings(ran)["tokens"] == ("ok", "1 tokens, 1 active")
    assert program.run("doctor", "--fix").err == ""


def test_running_kernel_is_seen(program: Program) -> None:
    assert findings(program.run("doctor", "--json"))["kernel socket"] == (
        "warn",
        f"not reachable: {program.socket}",
    )
    with program.kernel():
        found = findings(program.run("doctor", "--json"))
    assert found["kernel socket"] == ("ok", f"reachable: {program.socket}")
    assert found["kernel version"] == ("ok", VERSION)
    assert found["kernel lock"][0] == "ok"
    assert found["kernel lock"][1].startswith("held: ")
    after = findings(program.run("doctor", "--json"))
    assert after["journal schema"][0] == "ok"
    assert after["kernel lock"][1].startswith("free: ")


def test_bad_files_are_named(program: Program) -> None:
    program.configure("[kernel]\nsesion = 'x'\n")
    policy = program.root / ".config" / "shoal" / "leash.toml"
    policy.write_text("principal = 1\n")
    found = findings(program.run("doctor", "--json"))
    assert found["config"][0] == "warn"
    assert "kernel.session" in found["config"][1]
    assert found["policy"][0] == "fail"
    assert str(policy) in found["policy"][1]


def test_broken_configuration_is_a_finding_like_any_other(program: Program) -> None:
    program.configure("[kernel]\nsession = 1\n")
    ran = program.run("doctor", "--json")
    assert ran.code == 2
    level, detail = findings(ran)["config"]
    assert level == "fail"
    assert "kernel.session: expected a string" in detail


def test_other_options_are_refused(program: Program) -> None:
    ran = program.run("doctor", "--socket", "/x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("shoal doctor: doctor accepts only ")
