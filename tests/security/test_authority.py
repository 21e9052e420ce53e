"""Other people's plans, refs and sessions; pins; policies that change under running work."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ipc.methods import METHODS, Gate
from tests.security.attacker import (
    GENUINE,
    LEAD,
    NEIGHBOUR,
    PINNED,
    PLANNER,
    SHIELDED,
    TWIN,
    Fortress,
    run,
)
from tests.security.conftest import HUMAN
from tests.system.daemon import Wire

NOT_ATTACHED = -32000
LEASH_DENIED = -32010
APPROVAL_REQUIRED = -32011
AUTH_FAILED = -32030
METHOD_NOT_FOUND = -32601


# -- before attaching -----------------------------------------------------------------------------

PUBLIC = {"session.attach", "parse", "complete"}


def test_only_three_methods_are_public() -> None:
    assert {name for name, method in METHODS.items() if method.gate is Gate.PUBLIC} == PUBLIC


@pytest.mark.parametrize("method", sorted(set(METHODS) - PUBLIC))
def test_nothing_is_served_before_attaching(fortress: Fortress, method: str) -> None:
    with fortress.wire() as wire:
        assert wire.error(method, {})["code"] in (NOT_ATTACHED, METHOD_NOT_FOUND)


# -- names of others ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def owned(fortress: Fortress) -> dict[str, Any]:
    """What one principal has: a result, a task, a terminal, a plan, stored content."""
    wire = fortress.attached(SHIELDED, "owned")
    wire.result("exec", {"src": f'cd "{fortress.home}/shielded"'})
    blob = wire.result("exec", {"src": "sh { head -c 300000 /dev/zero | tr '\\\\0' x }"})
    wire.result("exec", {"src": '"a-secret-result"'})
    plan = wire.result("exec", {"src": "touch planned", "mode": "plan"})["plan_ref"]
    return {
        "plan": plan,
        "out": blob["ref"],
        "task": wire.result("exec", {"src": "sleep 60s", "async": True})["task"],
        "pty": wire.result("pty.open", {"cmd": "/bin/sleep", "args": ["60"]})["pty_id"],
    }


@pytest.mark.parametrize("session", ["owned", "other"])
@pytest.mark.parametrize(
    ("method", "member", "kind"),
    [
        ("value.get", "ref", "out"),
        ("task.get", "task", "task"),
        ("task.await", "task", "task"),
        ("task.cancel", "task", "task"),
        ("task.suspend", "task", "task"),
        ("task.resume", "task", "task"),
        ("pty.read", "pty_id", "pty"),
        ("pty.send", "pty_id", "pty"),
        ("pty.resize", "pty_id", "pty"),
        ("pty.close", "pty_id", "pty"),
        ("plan.get", "plan_ref", "plan"),
        ("plan.apply", "plan_ref", "plan"),
        ("cap.request", "plan_ref", "plan"),
    ],
)
def test_knowing_a_name_is_no_authority(
    fortress: Fortress,
    owned: dict[str, Any],
    session: str,
    method: str,
    member: str,
    kind: str,
) -> None:
    stranger = fortress.attached(NEIGHBOUR, session)
    params: dict[str, Any] = {member: owned[kind]}
    if method == "pty.send":
        params["input"] = "x"
    if method == "pty.resize":
        params |= {"cols": 10, "rows": 10}
    answer = stranger.request(method, params)
    assert "error" in answer, answer


def test_events_and_history_of_others_are_not_seen(fortress: Fortress, owned: Any) -> None:
    stranger = fortress.attached(NEIGHBOUR, "owned")
    task = owned["task"].replace(":", ".")
    rows = stranger.result("journal.query", {"limit": 1000})
    assert SHIELDED not in str(rows)
    for channel in (task, f"{task}.output", "journal", "transcript", "approval"):
        answer = stranger.request("events.read", {"channel": channel})
        assert "a-secret-result" not in str(answer)


def test_a_session_that_is_not_shared_cannot_be_entered(fortress: Fortress, owned: Any) -> None:
    bearer, _ = fortress.bearer(NEIGHBOUR)
    with fortress.wire() as wire:
        error = wire.error("session.attach", {"session": f"{SHIELDED}/owned", "token": bearer})
        assert error["code"] == LEASH_DENIED


# -- guests ---------------------------------------------------------------------------------------


@pytest.fixture
def shared(fortress: Fortress) -> tuple[Wire, Wire]:
    """A session of the local human, who is not confined, and a guest who is."""
    owner = fortress.attached(None, "shared")
    owner.result("session.share", {"session": "shared", "principals": [SHIELDED], "mode": "full"})
    return owner, fortress.attached(SHIELDED, f"{HUMAN}/shared")


@pytest.mark.parametrize("inside", [True, False])
def test_a_guest_is_held_to_its_own_grants(
    fortress: Fortress, shared: tuple[Wire, Wire], inside: bool
) -> None:
    owner, guest = shared
    place = fortress.home / ("shielded" if inside else "human") / "note"
    place.write_text("note")
    assert "note" in str(run(owner, f"sh {{ cat {place} }}"))
    answer = run(guest, f"sh {{ cat {place} }}")
    assert ("result" in answer) is inside, answer
    builtin = run(guest, f'path("{place}").read')
    assert ("result" in builtin) is inside, builtin


def test_what_the_owner_defined_runs_with_the_guests_grants(
    fortress: Fortress, shared: tuple[Wire, Wire]
) -> None:
    owner, guest = shared
    place = fortress.home / "human" / "defined"
    place.write_text("of-the-owner")
    owner.result("exec", {"src": f"fn peek() {{ sh {{ cat {place} }} }}"})
    owner.result("exec", {"src": f'let f = () => path("{place}").read'})
    assert "of-the-owner" in str(run(owner, "peek()"))
    assert "of-the-owner" not in str(run(guest, "peek()"))
    assert "of-the-owner" not in str(run(guest, "f()"))


def test_the_threads_of_a_guest_leave_the_owner_unconfined(shared: tuple[Wire, Wire]) -> None:
    owner, guest = shared
    for _ in range(3):
        run(guest, "sh { true }")
        assert "NoNewPrivs:1" in str(
            run(guest, "sh { grep NoNewPrivs /proc/self/status }")
        ).replace("\\\\t", "").replace("\\t", "")
        assert "NoNewPrivs:0" in str(
            run(owner, "sh { grep NoNewPrivs /proc/self/status }")
        ).replace("\\\\t", "").replace("\\t", "")


def test_a_reading_guest_changes_nothing_and_a_removed_one_sees_nothing(
    fortress: Fortress,
) -> None:
    owner = fortress.attached(None, "read-only")
    share = {"session": "read-only", "principals": [SHIELDED], "mode": "read"}
    owner.result("session.share", share)
    ref = owner.result("exec", {"src": "42"})["ref"]
    guest = fortress.attached(SHIELDED, f"{HUMAN}/read-only")
    assert guest.error("exec", {"src": "1"})["code"] == LEASH_DENIED
    assert guest.result("value.get", {"ref": ref})
    owner.result("session.share", share | {"principals": []})
    assert guest.error("value.get", {"ref": ref})["code"] == NOT_ATTACHED


# -- plans ----------------------------------------------------------------------------------------


def _planned(wire: Wire, src: str) -> str:
    return str(wire.result("exec", {"src": src, "mode": "plan"})["plan_ref"])


def _code(answer: dict[str, Any]) -> int:
    return int(answer["error"]["code"]) if "error" in answer else 0


def test_the_same_source_of_two_principals_is_two_plans(fortress: Fortress) -> None:
    first, second = fortress.attached(PLANNER, "twins"), fortress.attached(TWIN, "twins")
    src = f'touch "{fortress.home}/planner/t"'
    ours, theirs = _planned(first, src), _planned(second, src)
    assert ours != theirs
    fortress.attached(None, "approver").result("cap.request", {"plan_ref": ours})
    assert _code(second.request("plan.apply", {"plan_ref": theirs})) == APPROVAL_REQUIRED
    assert _code(second.request("plan.apply", {"plan_ref": ours})) != 0
    assert "result" in first.request("plan.apply", {"plan_ref": ours})


def test_nobody_approves_their_own_plan(fortress: Fortress) -> None:
    planner = fortress.attached(PLANNER, "own-plan")
    ref = _planned(planner, "1 + 1")
    # Its policy even says it may approve itself; that counts for nothing.
    assert planner.result("cap.request", {"plan_ref": ref})["grant"] == "pending"
    assert _code(planner.request("plan.apply", {"plan_ref": ref})) == APPROVAL_REQUIRED
    shielded = fortress.attached(SHIELDED, "own-plan")
    assert _code(shielded.request("cap.request", {"plan_ref": ref})) != 0


def test_an_approval_is_for_one_source_session_and_principal(fortress: Fortress) -> None:
    planner = fortress.attached(PLANNER, "exact")
    src = f'touch "{fortress.home}/planner/exact"'
    ref = _planned(planner, src)
    fortress.attached(LEAD, "lead").result("cap.request", {"plan_ref": ref})
    approved = {"mode": "approved", "plan_ref": ref}
    other = src.replace("exact", "other")
    assert _code(planner.request("exec", {"src": other, **approved})) == LEASH_DENIED
    assert _code(planner.request("exec", {"src": src + " ", **approved})) == LEASH_DENIED
    elsewhere = fortress.attached(PLANNER, "elsewhere")
    assert _code(elsewhere.request("exec", {"src": src, **approved})) == LEASH_DENIED
    twin = fortress.attached(TWIN, "exact")
    assert _code(twin.request("exec", {"src": src, **approved})) == LEASH_DENIED
    assert "result" in planner.request("exec", {"src": src, **approved})
    # It is used up.
    assert _code(planner.request("exec", {"src": src, **approved})) == LEASH_DENIED
    assert _code(planner.request("plan.apply", {"plan_ref": ref})) == APPROVAL_REQUIRED


def test_one_approval_lets_one_of_many_racing_runs_through(fortress: Fortress) -> None:
    planner = fortress.attached(PLANNER, "race")
    place = fortress.home / "planner" / "raced"
    ref = _planned(planner, f'"x".append("{place}")')
    fortress.attached(None, "approver").result("cap.request", {"plan_ref": ref})
    racers = [fortress.attached(PLANNER, "race") for _ in range(8)]
    answers: list[dict[str, Any]] = []
    start = threading.Barrier(len(racers))

    def race(wire: Wire) -> None:
        start.wait()
        answers.append(wire.request("plan.apply", {"plan_ref": ref}))

    threads = [threading.Thread(target=race, args=(wire,)) for wire in racers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("result" in answer for answer in answers) == 1, answers
    assert place.read_text() == "x"


def test_a_plan_of_a_revoked_token_is_not_applied(fortress: Fortress) -> None:
    bearer, token_id = fortress.bearer(PLANNER)
    with fortress.wire() as wire:
        wire.result("session.attach", {"session": "revoked-plan", "token": bearer})
        ref = _planned(wire, f'touch "{fortress.home}/planner/revoked"')
        fortress.attached(None, "approver").result("cap.request", {"plan_ref": ref})
        fortress.revoke(token_id)
        assert _code(wire.request("plan.apply", {"plan_ref": ref})) == AUTH_FAILED
    assert not (fortress.home / "planner" / "revoked").exists()


def test_runs_never_outnumber_approvals_whatever_races(fortress: Fortress) -> None:
    """The owner plans again and applies while an approver approves: planning takes approvals
    back, and each that is given lets one run through at most."""
    place = fortress.home / "planner" / "counted"
    src = f'"x".append("{place}")'
    ref = _planned(fortress.attached(PLANNER, "counted"), src)
    granted: list[dict[str, Any]] = []
    ran: list[dict[str, Any]] = []
    start = threading.Barrier(4)

    def approve() -> None:
        wire = fortress.attached(LEAD, "approving")
        start.wait()
        granted.extend(wire.request("cap.request", {"plan_ref": ref}) for _ in range(30))

    def apply() -> None:
        wire = fortress.attached(PLANNER, "counted")
        start.wait()
        ran.extend(wire.request("plan.apply", {"plan_ref": ref}) for _ in range(30))

    def plan() -> None:
        wire = fortress.attached(PLANNER, "counted")
        start.wait()
        for _ in range(30):
            assert _planned(wire, src) == ref

    threads = [threading.Thread(target=work) for work in (approve, apply, apply, plan)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    approvals = sum(answer["result"]["grant"] == "approved" for answer in granted)
    runs = sum("result" in answer for answer in ran)
    assert approvals == 30
    assert 0 < runs <= approvals
    assert len(place.read_text()) == runs
    # What is left of the last approval is one run, or none.
    wire = fortress.attached(PLANNER, "counted")
    left = [_code(wire.request("plan.apply", {"plan_ref": ref})) for _ in range(3)]
    assert left[1:] == [APPROVAL_REQUIRED] * 2


def test_an_attachment_that_changes_its_principal_takes_nothing_along(fortress: Fortress) -> None:
    wire = fortress.attached(PLANNER, "changing")
    ref = _planned(wire, f'touch "{fortress.home}/planner/changed"')
    fortress.attached(None, "approver").result("cap.request", {"plan_ref": ref})
    bearer, _ = fortress.bearer(TWIN)
    wire.result("session.attach", {"session": "changing", "token": bearer})
    assert _code(wire.request("plan.apply", {"plan_ref": ref})) == LEASH_DENIED
    assert ref not in str(wire.result("plan.list"))
    assert not (fortress.home / "planner" / "changed").exists()


# -- pinned programs ------------------------------------------------------------------------------


@pytest.fixture
def pinned(fortress: Fortress) -> Wire:
    tools = fortress.home / "tools"
    for name, text in (("tool", "#!/bin/sh\necho genuine $A\n"), ("other", "#!/bin/sh\necho x\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    bearer, _ = fortress.bearer(PINNED)
    wire = fortress.wire()
    # What is pinned is resolved when the worker starts.
    wire.result("session.attach", {"session": f"pinned-{time.time_ns()}", "token": bearer})
    wire.result("exec", {"src": f'cd "{fortress.home}/pinned"'})
    return wire


def test_only_listed_programs_start(fortress: Fortress, pinned: Wire) -> None:
    tools = fortress.home / "tools"
    assert "genuine" in str(run(pinned, f"^{tools}/tool"))
    assert run(pinned, f"^{tools}/other")["error"]["data"]["code"] == "spawn_denied"
    assert run(pinned, "sh { echo x }")["error"]["data"]["code"] == "spawn_denied"


def test_a_bare_name_does_not_admit_a_file_the_principal_wrote(
    fortress: Fortress, pinned: Wire
) -> None:
    fake = fortress.home / "pinned" / "cat"
    fake.write_text("#!/bin/sh\necho fake\n")
    fake.chmod(0o755)
    for src in ("^./cat /dev/null", f"^{fake} /dev/null"):
        assert "fake" not in str(run(pinned, src).get("result"))


def test_no_library_is_loaded_into_a_pinned_program(fortress: Fortress, pinned: Wire) -> None:
    answer = run(pinned, 'with env: {LD_PRELOAD: "/tmp/evil.so", A: "kept"} { ^env }')
    assert "evil.so" not in str(answer), answer


def test_a_program_that_is_swapped_all_the_time_is_never_run_as_another(
    fortress: Fortress, pinned: Wire
) -> None:
    """The list admits a content; the attacker swaps the file under it as fast as it can."""
    place = fortress.home / "pinned"
    program, new = place / "hashed", place / "new"
    evil = b"#!/bin/sh\necho swapped in\n"

    def put(data: bytes) -> None:
        new.write_bytes(data)
        new.chmod(0o755)
        new.replace(program)

    put(GENUINE)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            put(evil)
            put(GENUINE)
            program.write_bytes(evil)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        answers = [run(pinned, f"^{program}") for _ in range(60)]
    finally:
        stop.set()
        swapping.join()
    assert "swapped in" not in str([answer.get("result") for answer in answers])
    put(evil)
    assert run(pinned, f"^{program}")["error"]["data"]["code"] == "spawn_denied"
    put(GENUINE)
    assert "genuine" in run(pinned, f"^{program}")["result"]["render"]


def test_an_own_script_does_not_start_through_a_listed_interpreter(
    fortress: Fortress, pinned: Wire
) -> None:
    script = fortress.home / "pinned" / "own"
    script.write_text("#!/usr/bin/env sh\necho through an interpreter\n")
    script.chmod(0o755)
    for src in (f"^{script}", "^./own", f'run("{script}")', "run ./own", f"spawn {{ ^{script} }}"):
        answer = run(pinned, src + (".await()" if src.startswith("spawn") else ""))
        assert "through an interpreter" not in str(answer), (src, answer)


def test_a_program_that_changes_while_it_is_judged_does_not_start(tmp_path: Path) -> None:
    from leash.pins import open_pinned

    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    file = open_pinned(str(program))
    try:
        assert file.unchanged()
        program.write_text("#!/bin/sh\necho evil\n")
        assert not file.unchanged()
    finally:
        os.close(file.fd)


def test_a_replaced_program_is_not_what_runs(tmp_path: Path) -> None:
    from leash.pins import open_pinned

    program, evil = tmp_path / "program", tmp_path / "evil"
    program.write_text("genuine")
    evil.write_text("evil")
    file = open_pinned(str(program))
    try:
        evil.replace(program)
        assert os.pread(file.fd, 100, 0) == b"genuine"
        # Losing its name touches the file, so it counts as changed, which is the safe side.
        assert not file.unchanged()
    finally:
        os.close(file.fd)


# -- policies that change -------------------------------------------------------------------------


def _reload(fortress: Fortress, old: str, new: str) -> str:
    """Change the policy file and wait until it is in force; the text as it was."""
    before = fortress.policy_file.read_text()
    assert old in before
    fortress.policy_file.write_text(before.replace(old, new))
    fortress.attached(None, "operator").result("kernel.reload", {})
    return before


def test_a_narrower_policy_holds_for_the_next_statement_and_for_tasks(fortress: Fortress) -> None:
    wire = fortress.attached(NEIGHBOUR, "narrowed")
    place = fortress.home / "neighbour"
    wire.result("exec", {"src": f'cd "{place}"'})
    wire.result("exec", {"src": "touch before"})
    assert "result" in run(wire, "sh { echo x > program }")
    line = f'fs.write = ["{place}/**"]'
    before = _reload(fortress, line, "fs.write = []")
    try:
        assert run(wire, "touch after")["error"]["code"] == LEASH_DENIED
        assert "error" in run(wire, "sh { echo x > program2 }")
        assert not (place / "after").exists()
        assert not (place / "program2").exists()
    finally:
        fortress.policy_file.write_text(before)
        fortress.attached(None, "operator").result("kernel.reload", {})
    assert "result" in run(wire, "touch after")
    assert "result" in run(wire, "sh { echo x > program2 }")


def test_a_broken_policy_keeps_the_one_in_force(fortress: Fortress) -> None:
    before = fortress.policy_file.read_text()
    operator = fortress.attached(None, "operator")
    try:
        fortress.policy_file.write_text("[[[")
        assert operator.result("kernel.reload", {})["reloaded"] is False
        wire = fortress.attached(NEIGHBOUR, "kept-policy")
        assert run(wire, f'ls "{fortress.home}/human"')["error"]["code"] == LEASH_DENIED
    finally:
        fortress.policy_file.write_text(before)
        operator.result("kernel.reload", {})
