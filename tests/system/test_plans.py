"""Plans, approvals and policy through a real daemon, with several principals."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.system.daemon import Daemon, Wire
from tests.system.principals import LOCAL, LOCAL_POLICY, Realm, bearer_of

LEASH_DENIED = -32010
APPROVAL_REQUIRED = -32011
UNKNOWN_PLAN = -32012
RAISED = -32002

AGENT = "agent:builder"
OTHER = "agent:other"
LEAD = "agent:lead"
STRANGER = "agent:stranger"
NARROW = ("fs.*",)


def policies(work: str) -> dict[str, str]:
    return {
        AGENT: f"""
            fs.read = ["{work}/**"]
            fs.write = ["{work}/**"]
            fs.delete = ["{work}/**"]
            env.read = ["PATH"]
            session_write = true
            opaque = "ask"
            auto_apply = "reversible"
        """,
        OTHER: f"""
            fs.read = ["{work}/**"]
            fs.write = ["{work}/**"]
            opaque = "ask"
            auto_apply = "never"
        """,
        LEAD: """
            auto_apply = "in-grant"
            approve = ["agent:build*"]
        """,
    }


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    realm = Realm({AGENT: "", OTHER: "", LEAD: ""}, [(STRANGER, ()), (AGENT, NARROW)])
    realm.write_policy(policies(str(realm.work)))
    with realm:
        yield realm


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("/", "|")[:100]


@pytest.fixture
def agent(realm: Realm, name: str) -> Wire:
    return realm.attach(AGENT, name)


@pytest.fixture
def human(realm: Realm, name: str) -> Wire:
    return realm.attach(LOCAL, name)


def plan(wire: Wire, src: str) -> dict[str, Any]:
    result: dict[str, Any] = wire.result("exec", {"src": src, "mode": "plan"})
    return result


def paths(realm: Realm, *names: str) -> list[str]:
    return [str(realm.work / name) for name in names]


def audit(realm: Realm, ref: str) -> list[tuple[str, str]]:
    """Kind and principal of every audit row about a plan."""
    with sqlite3.connect(f"file:{realm.daemon.state}/journal.db?mode=ro", uri=True) as journal:
        rows = journal.execute(
            "SELECT kind, principal FROM audit WHERE plan_ref = ? ORDER BY id", (ref,)
        )
        return rows.fetchall()


# --- verdicts before running ---------------------------------------------------------------------


def test_a_granted_reversible_program_runs_unattended(realm: Realm, agent: Wire) -> None:
    agent.result("exec", {"src": "touch granted.txt"})
    assert (realm.work / "granted.txt").exists()


def test_a_deletion_needs_approval_and_nothing_is_recorded(realm: Realm, agent: Wire) -> None:
    (realm.work / "keep.txt").touch()
    error = agent.error("exec", {"src": "rm keep.txt"})
    assert (error["code"], error["message"]) == (
        APPROVAL_REQUIRED,
        "approval required; plan first",
    )
    effects = [{"kind": "fs_delete", "paths": paths(realm, "keep.txt")}]
    assert error["data"] == {
        "kind": "approval_required",
        "effects": effects,
        "principal": AGENT,
    }
    assert (realm.work / "keep.txt").exists()
    assert agent.result("exec", {"src": "1 + 1"})["ref"] == "out:1"


def test_an_effect_outside_the_grants_denies_the_run(agent: Wire) -> None:
    error = agent.error("exec", {"src": "cat /etc/hostname\ntouch ok"})
    assert (error["code"], error["message"]) == (LEASH_DENIED, "leash denied execution")
    assert error["data"]["kind"] == "policy_denied"
    assert error["data"]["denied"] == [{"kind": "fs_read", "paths": ["/etc/hostname"]}]
    assert [effect["kind"] for effect in error["data"]["effects"]] == ["fs_read", "fs_write"]
    assert error["data"]["principal"] == AGENT


def test_a_syntax_error_comes_before_the_verdict(realm: Realm, name: str) -> None:
    stranger = realm.attach(STRANGER, name)
    assert stranger.error("exec", {"src": "let = "})["code"] == -32001


def test_a_principal_without_a_section_is_denied_even_computation(realm: Realm, name: str) -> None:
    stranger = realm.attach(STRANGER, name)
    error = stranger.error("exec", {"src": "1 + 1"})
    assert error["code"] == LEASH_DENIED
    assert error["data"]["cause"] == "no_policy"
    assert error["data"]["hint"] == (
        f'no policy section for {STRANGER}: add [principal."{STRANGER}"] to {realm.policy}'
    )
    made = plan(stranger, "1 + 1")
    assert (made["verdict"], made["cause"], made["approved"]) == ("deny", "no_policy", False)
    assert made["hint"] == error["data"]["hint"]


def test_caps_of_a_token_narrow_its_policy(realm: Realm, name: str) -> None:
    narrow = realm.attach(AGENT, name, NARROW)
    narrow.result("exec", {"src": "touch narrowed.txt"})
    error = narrow.error("exec", {"src": "env.PATH"})
    assert error["data"]["denied"] == [{"kind": "env_read", "names": ["PATH"]}]


def test_an_async_denial_is_the_end_of_its_task(agent: Wire) -> None:
    task = agent.result("exec", {"src": "cat /etc/hostname", "async": True})["task"]
    record = agent.result("task.await", {"task": task, "timeout_ms": 10000})
    assert record["state"] == "failed"
    assert record["error"]["code"] == LEASH_DENIED


# --- the check at the moment of the effect -------------------------------------------------------


def test_an_effect_that_was_not_foreseen_is_refused_when_it_happens(
    realm: Realm, agent: Wire
) -> None:
    (realm.work / "link").symlink_to("/etc")
    error = agent.error("exec", {"src": "cat link/hostname"})
    assert error["code"] == RAISED
    assert error["data"]["code"] == "leash_denied"
    assert error["message"] == (
        f"leash: fs_read of {realm.work}/link/hostname denied for principal {AGENT}"
    )


def test_a_refusal_can_be_caught(agent: Wire) -> None:
    src = 'try { path("/etc/hostname").exists } catch e { e.code }'
    error = agent.error("exec", {"src": src})
    assert error["code"] == LEASH_DENIED
    hidden = 'let p = [path("/etc/hostname")]\ntry { p[0].lines } catch e { e.code }'
    assert agent.result("exec", {"src": hidden})["render"] == "leash_denied"


def test_one_variable_can_be_readable_while_the_environment_is_not(agent: Wire) -> None:
    assert agent.result("exec", {"src": "env.PATH"})["value"]["$"] == "str"
    assert agent.error("exec", {"src": "env.HOME"})["code"] == LEASH_DENIED
    answer = agent.result("session.env")
    assert (answer["granted"], "env" in answer) == (False, False)
    assert "HOME" in answer["names"]


def test_a_background_task_is_held_to_the_policy_of_now() -> None:
    realm = Realm({AGENT: ""})
    realm.write_policy(policies(str(realm.work)))
    with realm:
        agent, human = realm.attach(AGENT, "work"), realm.attach(LOCAL, "work")
        agent.result("exec", {"src": "let t = spawn { sleep 2s\ntouch late.txt }"})
        generation = _generation(human)
        realm.write_policy({AGENT: 'auto_apply = "in-grant"'})
        _await_policy(human, generation)
        error = agent.error("exec", {"src": "t.await"})
        assert error["data"]["code"] == "leash_denied"
        assert not (realm.work / "late.txt").exists()


# --- plans ---------------------------------------------------------------------------------------


def test_planning_again_gives_the_same_reference_and_owners_never_share_one(
    realm: Realm, agent: Wire, name: str
) -> None:
    first, again = plan(agent, "rm a b"), plan(agent, "rm a b")
    assert first == again
    assert first["plan_ref"].startswith("plan:")
    other = realm.attach(OTHER, name)
    assert plan(other, "touch a")["plan_ref"] != plan(agent, "touch a")["plan_ref"]


def test_plan_mode_answers_with_verdict_and_estimates(realm: Realm, agent: Wire) -> None:
    (realm.work / "five").write_text("12345")
    made = plan(agent, "rm five")
    assert made["verdict"] == "approval_required"
    assert (made["approval_pending"], made["approved"]) == (True, False)
    assert made["estimates"] == {"bytes": 5, "items": 1}
    assert made["reversibility"] == "reversible"
    assert (realm.work / "five").exists()


def test_explain_stores_nothing_and_names_the_plan(agent: Wire) -> None:
    explained = agent.result("explain", {"src": "rm x"})
    assert explained["ast_version"] == 2
    assert agent.result("plan.list") == []
    assert explained["plan_ref"] == plan(agent, "rm x")["plan_ref"]
    by_tree = agent.result("explain", {"ast": explained["ast"]})
    assert by_tree["effects"] == explained["effects"]
    assert agent.error("explain", {})["message"] == "explain requires src or ast"
    assert agent.error("explain", {"ast": {"x": 1}})["message"].startswith("invalid ast:")


def test_plan_get_has_the_source_and_plan_list_has_not(agent: Wire) -> None:
    ref = plan(agent, "rm x")["plan_ref"]
    full = agent.result("plan.get", {"plan_ref": ref})
    assert full["src"] == "rm x"
    assert full["ast"]["stmts"]
    assert (full["approved_by"], full["approval_expires_ns"]) == (None, None)
    (row,) = agent.result("plan.list")
    assert row["plan_ref"] == ref
    assert not {"src", "ast"} & set(row)
    assert row["expires_ns"] - row["created_ns"] == 86_400 * 10**9


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("plan.get", "unknown or expired plan_ref"),
        ("plan.apply", "unknown plan_ref"),
        ("cap.request", "unknown plan_ref"),
    ],
)
def test_an_unknown_reference_is_unknown(agent: Wire, method: str, message: str) -> None:
    ref = "plan:" + "0" * 32
    error = agent.error(method, {"plan_ref": ref})
    assert (error["code"], error["message"]) == (UNKNOWN_PLAN, message)
    assert error["data"] == {"kind": "unknown_plan", "plan_ref": ref}


def test_another_principals_plan_is_nobody_elses(realm: Realm, agent: Wire, name: str) -> None:
    ref = plan(agent, "rm x")["plan_ref"]
    other = realm.attach(OTHER, name)
    for method in ("plan.get", "plan.apply", "cap.request"):
        error = other.error(method, {"plan_ref": ref})
        assert error["code"] == LEASH_DENIED
        assert error["message"] == "plan belongs to another principal/session"
        assert error["data"]["kind"] == ("not_approver" if method == "cap.request" else "not_owner")
    assert other.result("plan.list", {"approvable": True}) == []


def test_the_same_plan_in_another_session_is_not_there(realm: Realm, agent: Wire) -> None:
    ref = plan(agent, "rm x")["plan_ref"]
    elsewhere = realm.attach(AGENT, "elsewhere")
    error = elsewhere.error("plan.apply", {"plan_ref": ref})
    assert error["data"]["kind"] == "not_owner"


def test_a_bad_mode_is_refused(agent: Wire) -> None:
    error = agent.error("exec", {"src": "1", "mode": "dry"})
    assert (error["code"], error["message"]) == (-32602, "mode must be run or plan")


def test_a_plan_mode_task_completes_without_a_result(agent: Wire) -> None:
    started = agent.result("exec", {"src": "rm x", "mode": "plan", "async": True})
    record = agent.result("task.await", {"task": started["task"], "timeout_ms": 10000})
    assert (record["state"], record["result_ref"]) == ("completed", None)
    timed = agent.result("exec", {"src": "rm x", "mode": "plan", "timeout_ms": 10000})
    assert set(timed) == {"task", "events"}


# --- approvals -----------------------------------------------------------------------------------


def test_an_approval_admits_one_run(realm: Realm, agent: Wire, human: Wire) -> None:
    target = realm.work / "once.txt"
    target.touch()
    ref = plan(agent, "rm once.txt")["plan_ref"]
    pending = agent.error("plan.apply", {"plan_ref": ref})
    assert (pending["code"], pending["message"]) == (APPROVAL_REQUIRED, "plan approval pending")
    assert "cause" not in pending["data"]

    granted = human.result("cap.request", {"plan_ref": ref})
    assert granted["grant"] == "approved"
    assert granted["approver"] == LOCAL
    assert granted["expires_ns"] - granted["approved_ns"] == 900 * 10**9
    assert granted["granted_effects"] == []
    full = agent.result("plan.get", {"plan_ref": ref})
    assert (full["approved"], full["approved_by"]) == (True, LOCAL)
    assert full["approval_pending"] is True

    assert agent.result("plan.apply", {"plan_ref": ref})["ref"] == "out:1"
    assert not target.exists()
    target.touch()
    again = agent.error("plan.apply", {"plan_ref": ref})
    assert (again["code"], again["data"]["cause"]) == (APPROVAL_REQUIRED, "approval_used")
    assert target.exists()
    assert agent.result("plan.get", {"plan_ref": ref})["approved"] is False
    # Rows about refusals are written beside the answer; a plan is committed after them.
    plan(agent, "rm afterwards")
    kinds = [kind for kind, _principal in audit(realm, ref)]
    assert kinds == ["denied", "approved", "approval_used", "denied"]


def test_approved_mode_wants_exactly_the_planned_source(agent: Wire, human: Wire) -> None:
    ref = plan(agent, "rm gone")["plan_ref"]
    missing = agent.error("exec", {"src": "rm gone", "mode": "approved", "plan_ref": ref})
    assert missing["code"] == LEASH_DENIED
    assert missing["message"].startswith('mode "approved" requires an approved plan_ref')
    assert missing["data"] == {"kind": "not_approved", "plan_ref": ref}
    human.result("cap.request", {"plan_ref": ref})
    other = agent.error("exec", {"src": "rm gone ", "mode": "approved", "plan_ref": ref})
    assert other["data"]["kind"] == "not_approved"
    assert agent.error("exec", {"src": "rm gone", "mode": "approved"})["data"] == {
        "kind": "not_approved",
        "plan_ref": None,
    }
    ran = agent.error("exec", {"src": "rm gone", "mode": "approved", "plan_ref": ref})
    assert ran["code"] == RAISED


def test_a_failed_attempt_does_not_use_the_approval(realm: Realm, agent: Wire, human: Wire) -> None:
    (realm.work / "first").mkdir()
    ref = plan(agent, "rm *.tmp")["plan_ref"]
    human.result("cap.request", {"plan_ref": ref})
    (realm.work / "new.tmp").touch()
    changed = agent.error("plan.apply", {"plan_ref": ref})
    assert changed["code"] == APPROVAL_REQUIRED
    assert changed["message"] == "plan changed since it was derived; plan again"
    assert changed["data"]["cause"] == "plan_changed"
    assert changed["data"]["added"] == [{"kind": "fs_delete", "paths": paths(realm, "new.tmp")}]
    assert (realm.work / "new.tmp").exists()
    (realm.work / "new.tmp").unlink()
    assert agent.error("plan.apply", {"plan_ref": ref})["code"] == RAISED


def test_an_allowed_plan_can_be_applied_any_number_of_times(agent: Wire) -> None:
    ref = plan(agent, "touch again.txt")["plan_ref"]
    granted = agent.result("cap.request", {"plan_ref": ref})
    assert (granted["grant"], granted["approver"]) == ("approved", None)
    for number in (1, 2):
        assert agent.result("plan.apply", {"plan_ref": ref})["ref"] == f"out:{number}"


def test_an_owner_without_authority_only_asks_and_is_heard_once(
    realm: Realm, agent: Wire, human: Wire
) -> None:
    made = plan(agent, "rm asked")
    ref = made["plan_ref"]
    first = agent.result("cap.request", {"plan_ref": ref, "effects": ["fs.delete"]})
    assert first["grant"] == "pending"
    assert (first["approval_pending"], first["approver_required"]) == (True, True)
    assert first["requested_effects"] == ["fs_delete"]
    assert agent.result("cap.request", {"plan_ref": ref}) == first
    events = _events(human, ref, 2)
    assert [event["v"]["type"]["v"] for event in events] == ["pending", "requested"]
    assert events[0]["v"]["effects"]["v"] == made["effects"]
    assert events[0]["v"]["principal"]["v"] == AGENT
    assert events[1]["v"]["requested_effects"]["v"] == [{"$": "str", "v": "fs_delete"}]
    assert audit(realm, ref) == [("requested", AGENT)]
    assert agent.error("plan.apply", {"plan_ref": ref})["code"] == APPROVAL_REQUIRED


def _events(wire: Wire, ref: str, count: int) -> list[dict[str, Any]]:
    """The approval events about a plan, from the channel's ring."""
    listed = wire.result("events.read", {"channel": "approval"})
    found = [
        event["payload"]
        for event in listed["events"]
        if event["payload"]["v"]["plan_ref"]["v"] == ref
    ]
    assert len(found) == count
    return found


def test_a_scope_that_misses_a_kind_approves_nothing(agent: Wire, human: Wire) -> None:
    ref = plan(agent, "rm x\nsh { true }")["plan_ref"]
    answer = human.result("cap.request", {"plan_ref": ref, "effects": [{"kind": "fs.delete"}, 1]})
    assert answer == {
        "grant": "approval_pending",
        "plan_ref": ref,
        "why": "requested effect scope does not cover the plan",
        "uncovered_effects": ["opaque"],
    }
    assert agent.error("plan.apply", {"plan_ref": ref})["code"] == APPROVAL_REQUIRED


def test_an_approver_by_pattern_sees_and_approves(realm: Realm, agent: Wire, name: str) -> None:
    ref = plan(agent, "rm patterned")["plan_ref"]
    lead = realm.attach(LEAD, name)
    assert ref in [row["plan_ref"] for row in lead.result("plan.list", {"approvable": True})]
    assert lead.result("plan.get", {"plan_ref": ref})["src"] == "rm patterned"
    assert lead.error("plan.apply", {"plan_ref": ref})["data"]["kind"] == "not_owner"
    assert lead.result("cap.request", {"plan_ref": ref})["approver"] == LEAD
    approved = _events(lead, ref, 2)[1]["v"]
    assert (approved["type"]["v"], approved["approver"]["v"]) == ("approved", LEAD)
    assert _events(agent, ref, 2)[1]["v"] == approved
    assert ref not in [row["plan_ref"] for row in lead.result("plan.list", {"approvable": True})]


def test_a_denied_plan_can_be_read_but_not_approved(agent: Wire, human: Wire) -> None:
    made = plan(agent, "cat /etc/hostname")
    assert made["verdict"] == "deny"
    ref = made["plan_ref"]
    assert agent.result("plan.get", {"plan_ref": ref})["verdict"] == "deny"
    error = human.error("cap.request", {"plan_ref": ref})
    assert (error["code"], error["message"]) == (LEASH_DENIED, "policy denies requested effects")
    assert error["data"]["denied"] == made["effects"]
    assert agent.error("plan.apply", {"plan_ref": ref})["code"] == APPROVAL_REQUIRED


def test_a_missing_reference_is_a_parameter_error(agent: Wire) -> None:
    error = agent.error("cap.request", {})
    assert (error["code"], error["message"]) == (-32602, "plan_ref is required")


def test_planning_anew_forgets_the_approval(agent: Wire, human: Wire) -> None:
    ref = plan(agent, "rm renewed")["plan_ref"]
    human.result("cap.request", {"plan_ref": ref})
    plan(agent, "rm renewed")
    error = agent.error("plan.apply", {"plan_ref": ref})
    assert error["message"] == "plan approval pending"


def test_opaque_work_runs_under_its_approval(agent: Wire, human: Wire) -> None:
    assert agent.error("exec", {"src": "sh { echo hi }"})["code"] == APPROVAL_REQUIRED
    ref = plan(agent, "(sh { echo hi }).out")["plan_ref"]
    human.result("cap.request", {"plan_ref": ref})
    assert agent.result("plan.apply", {"plan_ref": ref})["render"] == "hi"


def test_a_caller_with_never_needs_approval_even_to_compute(
    realm: Realm, human: Wire, name: str
) -> None:
    other = realm.attach(OTHER, name)
    assert other.error("exec", {"src": "1 + 1"})["code"] == APPROVAL_REQUIRED
    ref = plan(other, "1 + 1")["plan_ref"]
    human.result("cap.request", {"plan_ref": ref})
    assert other.result("plan.apply", {"plan_ref": ref})["render"] == "2"
    assert other.error("plan.apply", {"plan_ref": ref})["data"]["cause"] == "approval_used"


def test_submissions_keep_their_order_around_an_approved_run(agent: Wire, human: Wire) -> None:
    ref = plan(agent, "rm ordered")["plan_ref"]
    human.result("cap.request", {"plan_ref": ref})
    requests = [
        ("plan.apply", {"plan_ref": ref}),
        ("exec", {"src": "1"}),
        ("exec", {"src": "2"}),
    ]
    for number, (method, params) in enumerate(requests):
        line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        agent.send(msgspec.json.encode(line) + b"\n")
    answers = {answer["id"]: answer for answer in (agent.json() for _ in requests)}
    assert answers[0]["error"]["data"]["ref"] == "out:1"
    assert [answers[n]["result"]["ref"] for n in (1, 2)] == ["out:2", "out:3"]


# --- survival ------------------------------------------------------------------------------------


def test_plans_and_approvals_survive_a_restart(tmp_path: Path) -> None:
    realm = Realm({AGENT: ""})
    realm.write_policy(policies(str(realm.work)))
    with realm:
        (realm.work / "old").touch()
        agent = realm.attach(AGENT, "work")
        approved, waiting = plan(agent, "rm old")["plan_ref"], plan(agent, "rm x")["plan_ref"]
        realm.attach(LOCAL, "work").result("cap.request", {"plan_ref": approved})
        realm.daemon.kill()
        realm.daemon.start()
        agent = realm.attach(AGENT, "work")
        assert [row["plan_ref"] for row in agent.result("plan.list")] == [approved, waiting]
        agent.result("plan.apply", {"plan_ref": approved})
        assert not (realm.work / "old").exists()
        assert agent.error("plan.apply", {"plan_ref": waiting})["code"] == APPROVAL_REQUIRED
        agent.result("session.close")
        again = realm.attach(AGENT, "work")
        assert again.result("plan.list") == []


def test_plans_and_approvals_expire() -> None:
    realm = Realm({AGENT: ""}, config="[plans]\nttl_s = 2\napproval_ttl_s = 1\n")
    realm.write_policy(policies(str(realm.work)))
    with realm:
        agent, human = realm.attach(AGENT, "work"), realm.attach(LOCAL, "work")
        ref = plan(agent, "rm x")["plan_ref"]
        human.result("cap.request", {"plan_ref": ref})
        agent.result("exec", {"src": "sleep 1100ms"})
        error = agent.error("plan.apply", {"plan_ref": ref})
        assert error["data"]["cause"] == "approval_expired"
        agent.result("exec", {"src": "sleep 1100ms"})
        assert agent.error("plan.get", {"plan_ref": ref})["code"] == UNKNOWN_PLAN
        assert agent.result("plan.list") == []


def test_beyond_the_quota_the_oldest_unapproved_plan_goes() -> None:
    realm = Realm({AGENT: ""}, config="[quotas]\nplans_per_owner = 2\n")
    realm.write_policy(policies(str(realm.work)))
    with realm:
        agent = realm.attach(AGENT, "work")
        first, second, third = (plan(agent, f"rm {n}")["plan_ref"] for n in "abc")
        assert [row["plan_ref"] for row in agent.result("plan.list")] == [second, third]
        assert agent.error("plan.get", {"plan_ref": first})["code"] == UNKNOWN_PLAN


# --- the policy file -----------------------------------------------------------------------------


def _await_policy(wire: Wire, generation: int) -> None:
    """Wait until the daemon has another policy: its log and status say so, the file does not."""
    while wire.result("kernel.status", {})["policy"]["generation"] <= generation:
        continue


def _generation(wire: Wire) -> int:
    found: int = wire.result("kernel.status", {})["policy"]["generation"]
    return found


def test_a_changed_file_counts_at_once_and_a_bad_one_never(tmp_path: Path) -> None:
    realm = Realm({AGENT: ""})
    realm.write_policy(policies(str(realm.work)))
    with realm:
        agent, human = realm.attach(AGENT, "work"), realm.attach(LOCAL, "work")
        agent.result("exec", {"src": "touch before"})
        generation = _generation(human)
        realm.write_policy({AGENT: 'auto_apply = "in-grant"'})
        _await_policy(human, generation)
        assert agent.error("exec", {"src": "touch after"})["code"] == LEASH_DENIED
        assert agent.result("exec", {"src": "1"})["render"] == "1"

        generation = _generation(human)
        realm.policy.write_text("[principal")
        assert human.result("kernel.reload", {})["reloaded"] is False
        assert _generation(human) == generation
        assert agent.result("exec", {"src": "2"})["render"] == "2"
        assert "reload.failed" in realm.daemon.read_log()

        realm.policy.unlink()
        assert human.result("kernel.reload", {})["reloaded"] is False
        assert agent.error("exec", {"src": "touch after"})["code"] == LEASH_DENIED

        realm.write_policy({})
        _await_policy(human, generation)
        assert agent.error("exec", {"src": "3"})["data"]["cause"] == "no_policy"


def test_sighup_reads_the_policy_again(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "policy.toml"
    file.parent.mkdir()
    file.write_text(LOCAL_POLICY)
    with Daemon("--policy", str(file)) as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "work"})
        wire.result("exec", {"src": "1"})
        generation = _generation(wire)
        file.write_text("")
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        _await_policy(wire, generation)
        assert wire.error("exec", {"src": "1"})["data"]["cause"] == "no_policy"
        assert wire.result("kernel.status", {})["policy"]["path"] == str(file)


@pytest.mark.parametrize("content", [None, "[principal", '[principal."x"]\nopaque = 1\n'])
def test_a_policy_that_cannot_be_used_is_fatal_at_start(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "policy.toml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(AssertionError, match=r"policy\.toml"):
        Daemon("--policy", str(file)).start()


def test_warnings_about_the_policy_go_to_standard_error(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(LOCAL_POLICY + "colour = 1\n")
    with Daemon("--policy", str(file)) as daemon:
        assert f'warning: policy {file}: principal "{LOCAL}": unknown key `colour`' in (
            daemon.read_log()
        )


def test_attaching_tells_what_the_policy_says(realm: Realm, name: str) -> None:
    wire = realm.daemon.wire()
    caps = wire.result("session.attach", {"session": name, "token": bearer_of(AGENT, NARROW)})[
        "caps"
    ]
    assert caps["opaque"] == "deny"
    assert caps["token_caps"] == ["fs.*"]
    assert caps["approve"] == []
    wire.close()
    wire = realm.daemon.wire()
    caps = wire.result("session.attach", {"session": name, "token": bearer_of(LEAD)})["caps"]
    assert caps["approve"] == ["agent:build*"]
    wire.close()


def test_history_needs_its_grant(realm: Realm, agent: Wire, human: Wire) -> None:
    error = agent.error("journal.query", {})
    assert (error["code"], error["data"]["effects"]) == (
        LEASH_DENIED,
        [{"kind": "journal_read"}],
    )
    human.result("journal.query", {})


# --- shared sessions -----------------------------------------------------------------------------


def test_a_guest_is_judged_as_itself_and_held_to_the_owner_as_well(
    realm: Realm, agent: Wire, name: str
) -> None:
    agent.result("session.share", {"principals": [LOCAL]})
    guest = realm.attach(LOCAL, f"{AGENT}/{name}")
    assert guest.result("exec", {"src": "touch by-guest\n1"})["render"] == "1"
    error = guest.error("exec", {"src": "cat /etc/hostname"})
    assert error["code"] == RAISED
    assert error["data"]["code"] == "leash_denied"
    assert error["message"].endswith(f"denied for principal {AGENT}")
    owned = plan(agent, "rm by-guest")["plan_ref"]
    assert guest.result("plan.list") == []
    assert guest.error("plan.apply", {"plan_ref": owned})["data"]["kind"] == "not_owner"


def test_a_terminal_is_judged_as_one_program(realm: Realm, agent: Wire, name: str) -> None:
    error = agent.error("pty.open", {"cmd": "sh"})
    assert (error["code"], error["message"]) == (
        APPROVAL_REQUIRED,
        "approval required to spawn this program on a pty",
    )
    assert error["data"] == {"kind": "approval_required", "cmd": "sh"}
    lead = realm.attach(LEAD, name)
    denied = lead.error("pty.open", {"cmd": "sh"})
    assert denied["code"] == LEASH_DENIED
    assert denied["message"] == (
        f"leash: spawn of `sh` on a pty denied — opaque work is not granted to principal `{LEAD}`"
    )


def test_local_plans_of_the_language_follow_the_same_derivation(human: Wire) -> None:
    planned = "let p = (plan { rm (d); sh { true } })"
    src = f'let d = "x"\n{planned}\n[p.effects, p.reversible, p.spawns]'
    effects, reversible, spawns = human.result("exec", {"src": src})["value"]["v"]
    assert [line["v"].split(" ")[0] for line in effects["v"]] == ["delete", "opaque"]
    assert (reversible["v"], spawns["v"]) == (False, True)
    dynamic = human.error("exec", {"src": "plan { rm (cat d) }"})
    assert dynamic["message"] == "planning requires a literal argument"


def test_statement_rows_have_the_effects_of_their_statement(human: Wire) -> None:
    human.result("exec", {"src": "mkdir rows\ncd rows\ntouch made"})
    rows = human.result("journal.query", {"kind": "statement", "limit": 3})
    assert [[effect["kind"] for effect in row["effects"]] for row in reversed(rows)] == [
        ["fs_write"],
        ["session_write"],
        ["fs_write"],
    ]
    assert rows[0]["effects"][0]["paths"][0].endswith("/rows/made")


def test_an_adapted_program_runs_under_an_approval_of_its_spawn(agent: Wire, human: Wire) -> None:
    made = plan(agent, "git status")
    assert [effect["kind"] for effect in made["effects"]] == ["fs_read", "proc_spawn"]
    assert (made["verdict"], made["reversibility"]) == ("approval_required", "conditional")
    human.result("cap.request", {"plan_ref": made["plan_ref"]})
    # There is no repository: the program itself says so, nothing else stops it.
    error = agent.error("plan.apply", {"plan_ref": made["plan_ref"]})
    assert error["data"]["code"] == "cmd_failed"
