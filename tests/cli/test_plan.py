"""`shoal plan`, with an agent, its approver and strangers against a real kernel."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import WAIT_S, Program
from tests.system.principals import LOCAL, Realm, bearer_of

AGENT, STRANGER = "agent:build", "agent:other"
COLUMNS = ["REF", "VERDICT", "STATE", "REVERSIBILITY", "OWNER", "SESSION", "EFFECTS"]


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    realm = Realm({AGENT: "", STRANGER: ""})
    body = f'fs.write = ["{realm.work}/**"]\nfs.read = ["{realm.work}/**"]\nauto_apply = "never"'
    realm.write_policy({AGENT: body, STRANGER: body})
    with realm:
        yield realm


@pytest.fixture
def human(realm: Realm, tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    program = Program(tmp_path)
    program.environ |= {
        "SHOAL_SOCKET": str(realm.daemon.socket),
        "SHOAL_SESSION": request.node.name[:100],
    }
    return program


def by_token(human: Program, principal: str) -> Program:
    other = Program(human.root)
    other.environ |= human.environ | {"SHOAL_TOKEN": bearer_of(principal)}
    return other


@pytest.fixture
def agent(human: Program) -> Program:
    return by_token(human, AGENT)


@pytest.fixture
def target(realm: Realm, request: pytest.FixtureRequest) -> Path:
    return Path(realm.work) / str(request.node.name)


def made(program: Program, source: str) -> str:
    ran = program.run("plan", "make", source, "--json")
    assert (ran.code, ran.err) == (0, "")
    return str(ran.document["plan_ref"])


def test_plan_goes_from_pending_over_approved_to_used(
    human: Program, agent: Program, target: Path
) -> None:
    ref = made(agent, f"mkdir {target}")
    assert [plan["plan_ref"] for plan in agent.run("plan", "list", "--json").document] == [ref]
    header, row = (line.split() for line in agent.run("plan", "list").out.splitlines())
    assert header == COLUMNS
    assert row[:3] == [ref, "approval_required", "pending"]
    assert row[4:6] == [AGENT, agent.environ["SHOAL_SESSION"]]
    assert "fs_write" in row[6].split(",")

    ran = agent.run("plan", "apply", ref)
    assert (ran.code, ran.out) == (75, "")
    assert ran.err.startswith("shoal plan: plan approval pending\n")
    assert not target.exists()

    ran = agent.run("plan", "approve", ref, "--yes")
    assert ran.code == 75
    assert ran.err == "shoal plan: approval requested, an approver is needed\n"
    assert agent.run("plan", "list", "--no-header").out.split()[2] == "requested"

    ran = human.run("plan", "approve", ref, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert re.search(rf"^approved {ref} \(sandbox (not )?enforced\)$", ran.out, re.MULTILINE)
    assert agent.run("plan", "list", "--no-header").out.split()[2] == "approved"

    assert agent.run("plan", "apply", ref).code == 0
    assert target.is_dir()
    assert agent.run("plan", "apply", ref).code == 75


def test_show_names_plan_effects_and_indented_source(agent: Program, target: Path) -> None:
    source = f"mkdir {target}"
    ref = made(agent, source)
    lines = agent.run("plan", "show", ref).out.splitlines()
    assert lines[0].split() == ["plan:", ref]
    assert lines[1].split() == ["owner:", AGENT]
    assert any(line.startswith("  fs_write") for line in lines)
    assert lines[-2:] == ["source:", f"  {source}"]
    assert agent.run("plan", "show", ref, "--json").document["src"] == source


def test_reference_may_be_its_first_eight_digits_with_or_without_plan(
    human: Program, agent: Program, target: Path
) -> None:
    ref = made(agent, f"mkdir {target}")
    digits = ref.removeprefix("plan:")
    for text in (digits, digits[:8], f"plan:{digits[:8]}"):
        for program in (agent, human):
            assert program.run("plan", "show", text, "--json").document["plan_ref"] == ref
    assert agent.run("plan", "show", digits[:7]).code == 2
    assert agent.run("plan", "show", ref + "0").code == 2
    assert agent.run("plan", "show", "z" * 8).code == 2


def test_unknown_plan_is_1_and_foreign_plan_77(
    human: Program, agent: Program, target: Path
) -> None:
    ref = made(agent, f"mkdir {target}")
    stranger = by_token(human, STRANGER)
    for command in (["show"], ["apply"], ["approve", "--yes"]):
        assert agent.run("plan", *command, "0" * 32).code == 1
        assert stranger.run("plan", *command, ref).code == 77
    ran = stranger.run("plan", "approve", ref, "--yes", "--json")
    assert (ran.code, ran.document["error"]["code"]) == (77, -32010)


def test_effects_that_miss_a_kind_leave_the_plan_pending(
    human: Program, agent: Program, target: Path
) -> None:
    ref = made(agent, f"mkdir {target}")
    ran = human.run("plan", "approve", ref, "--yes", "--effects", "net_connect")
    assert ran.code == 75
    assert "requested effect scope does not cover the plan" in ran.err
    assert "fs_write" in ran.err
    ran = human.run("plan", "approve", ref, "--yes", "--effects", "net_connect", "--json")
    assert (ran.code, ran.document["grant"]) == (75, "approval_pending")


def test_pending_also_lists_plans_of_others_to_approve(
    human: Program, agent: Program, target: Path
) -> None:
    own = made(human, "1")
    ref = made(agent, f"mkdir {target}")
    assert [plan["plan_ref"] for plan in human.run("plan", "list", "--json").document] == [own]
    listed = human.run("plan", "list", "--pending", "--json").document
    assert {own, ref} <= {plan["plan_ref"] for plan in listed}
    assert [plan["principal"] for plan in listed if plan["plan_ref"] == own] == [LOCAL]


def test_without_terminal_approval_needs_yes(human: Program, agent: Program, target: Path) -> None:
    ref = made(agent, f"mkdir {target}")
    ran = human.run("plan", "approve", ref)
    assert ran.code == 2
    assert "--yes" in ran.err
    assert agent.run("plan", "apply", ref).code == 75


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"\n", 1), (b"n\n", 1)])
def test_on_a_terminal_only_yes_approves(
    human: Program, agent: Program, target: Path, typed: bytes, code: int
) -> None:
    ref = made(agent, f"mkdir '{target}'")
    master, slave = pty.openpty()
    with closing(os.fdopen(master, "wb", buffering=0)) as keyboard:
        keyboard.write(typed)
        done = subprocess.run(
            human.command("plan", "approve", ref),
            stdin=slave,
            capture_output=True,
            env=human.environ,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        os.close(slave)
    assert done.returncode == code
    assert "approve? [y/N] " in done.stderr
    assert agent.run("plan", "apply", ref).code == (0 if code == 0 else 75)


def test_apply_prints_like_exec(human: Program) -> None:
    ref = made(human, "6 * 7")
    assert human.run("plan", "list", "--no-header").out.split()[2] == "ready"
    assert human.run("plan", "apply", ref).out == "42\n"
    document = json.loads(human.run("plan", "apply", ref, "--json").out)
    assert set(document) == {"ref", "value", "render"}
    assert document["value"] == {"$": "int", "v": 42}


def test_source_that_does_not_parse_is_2(human: Program) -> None:
    ran = human.run("plan", "make", "1 +")
    assert ran.code == 2
    assert ran.err.startswith("<repl>:1:")
