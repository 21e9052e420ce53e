"""Sessions, cells, shares, tasks, plans, audit (chapter 61 §2.2, chapter 50 §3.6, chapter 60
§5.12).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journal import (
    AllPlans,
    AllSessions,
    AppendAudit,
    ApprovalUnavailable,
    ApprovePlan,
    AuditRow,
    CellChanges,
    DeleteSession,
    DropPlan,
    EnsureSession,
    ExpirePlans,
    FailTasks,
    FinishTask,
    OperationRefused,
    Plan,
    PlanByKey,
    PlanKey,
    PlansByRef,
    PlansOfOthers,
    PlansOfSession,
    PruneTasks,
    PutPlan,
    PutTask,
    RequestPlan,
    SaveCells,
    SessionByName,
    SessionCells,
    SessionShares,
    SetShares,
    Shares,
    Store,
    TaskByNumber,
    TaskEnd,
    TasksOfSession,
    Together,
    TouchSession,
    UseApproval,
)
from tests.journal.support import OWNER, SESSION, open_store, rows, run, session_id

FAR = 10**18


# --- sessions ------------------------------------------------------------------------------------


def test_session_keeps_id_and_creation_time(any_store: Store) -> None:
    first = any_store.apply(EnsureSession(OWNER, "a", 100))
    assert any_store.apply(EnsureSession(OWNER, "a", 200)) == first
    assert any_store.apply(EnsureSession("agent:b", "a", 300)) != first
    found = any_store.fetch(SessionByName(OWNER, "a"))
    assert found is not None
    assert (found.created_ns, found.last_used_ns, found.next_out) == (100, 200, 1)
    any_store.apply(TouchSession(first, 400))
    found = any_store.fetch(SessionByName(OWNER, "a"))
    assert found is not None and found.last_used_ns == 400
    assert any_store.fetch(SessionByName(OWNER, "b")) is None


def test_closed_session_leaves_nothing_and_its_id_is_not_used_again(any_store: Store) -> None:
    old = session_id(any_store)
    run(any_store, cells=CellChanges(session_id=old, changed=(("x", b"1"),), next_out=9))
    any_store.apply(SetShares(old, ("agent:b",), "full"))
    any_store.apply(PutTask(any_store.reserve_task(), old, OWNER, 1))
    any_store.apply(plan())

    assert any_store.apply(DeleteSession(old))
    assert not any_store.apply(DeleteSession(old))

    assert any_store.fetch(SessionCells(old)) == []
    assert any_store.fetch(TasksOfSession(old)) == []
    assert any_store.fetch(PlansOfSession(OWNER, OWNER, SESSION, 0)) == []
    new = session_id(any_store)
    assert new > old
    found = any_store.fetch(SessionByName(OWNER, SESSION))
    assert found is not None and found.next_out == 1
    assert any_store.fetch(SessionShares(new)) == Shares((), None)


def test_session_id_is_not_used_again_after_a_restart(state: Path) -> None:
    with open_store(state) as store:
        old = session_id(store)
        store.apply(DeleteSession(old))
    with open_store(state) as store:
        assert session_id(store) > old


def test_cells_of_a_closed_session_are_dropped_and_the_entry_still_finishes(
    any_store: Store,
) -> None:
    session = session_id(any_store)
    any_store.apply(DeleteSession(session))
    run(any_store, cells=CellChanges(session_id=session, changed=(("x", b"1"),), next_out=5))
    assert any_store.fetch(SessionCells(session)) == []


def test_cells_change_one_by_one_or_all_at_once(any_store: Store) -> None:
    session = session_id(any_store)

    def save(**changes: Any) -> list[tuple[str, bytes | None]]:
        any_store.apply(SaveCells(CellChanges(session_id=session, **changes)))
        return any_store.fetch(SessionCells(session))

    assert save(changed=(("a", b"1"), ("b", None))) == [("a", b"1"), ("b", None)]
    assert save(changed=(("b", b"2"),), removed=("a", "never")) == [("b", b"2")]
    assert save(changed=(("c", b"3"),), replace=True) == [("c", b"3")]
    assert save(changed=(("big", b"x" * 3_000_000),))[0][1] == b"x" * 3_000_000


def test_out_numbers_never_go_back(any_store: Store) -> None:
    session = session_id(any_store)
    for number in (5, 3):
        any_store.apply(SaveCells(CellChanges(session_id=session, next_out=number)))
    found = any_store.fetch(SessionByName(OWNER, SESSION))
    assert found is not None and found.next_out == 5


def test_shares_are_the_complete_list_and_survive_a_restart(state: Path) -> None:
    with open_store(state) as store:
        session = session_id(store)
        store.apply(SetShares(session, ("agent:z", "agent:a", "agent:z"), "read"))
        assert store.fetch(SessionShares(session)) == Shares(("agent:a", "agent:z"), "read")
        store.apply(SetShares(session, ("agent:b",), "full"))
    with open_store(state) as store:
        ((found, shares),) = store.fetch(AllSessions())
        assert (found.owner, found.name) == (OWNER, SESSION)
        assert shares == Shares(("agent:b",), "full")
        store.apply(SetShares(session, (), "full"))
        assert store.fetch(SessionShares(session)) == Shares((), None)
        with pytest.raises(OperationRefused):
            store.apply(SetShares(session + 1, ("x",), "full"))


# --- tasks ---------------------------------------------------------------------------------------


def test_task_ends_once(any_store: Store) -> None:
    session = session_id(any_store)
    number = any_store.reserve_task()
    any_store.apply(PutTask(number, session, "agent:g", 5))
    running = any_store.fetch(TaskByNumber(number))
    assert running is not None
    assert (running.state, running.principal, running.finished_ns) == ("running", "agent:g", None)

    assert any_store.apply(FinishTask(TaskEnd(number, "failed", 9, None, b'{"code":-32002}')))
    assert not any_store.apply(FinishTask(TaskEnd(number, "completed", 10, "out:1")))
    ended = any_store.fetch(TaskByNumber(number))
    assert ended is not None
    assert (ended.state, ended.finished_ns, ended.error_json) == ("failed", 9, b'{"code":-32002}')


def test_task_of_no_session_is_refused(any_store: Store) -> None:
    with pytest.raises(OperationRefused):
        any_store.apply(PutTask(any_store.reserve_task(), 42, OWNER, 1))


def test_lost_worker_fails_the_running_tasks_of_its_session_only(any_store: Store) -> None:
    session, other = session_id(any_store), session_id(any_store, name="other")
    numbers = [any_store.reserve_task() for _ in range(4)]
    for number, owner in zip(numbers, (session, other, session, session), strict=True):
        any_store.apply(PutTask(number, owner, OWNER, 1))
    any_store.apply(FinishTask(TaskEnd(numbers[3], "completed", 2)))
    assert any_store.apply(FailTasks(session, 7, b'{"kind":"worker_lost"}')) == (
        numbers[0],
        numbers[2],
    )
    states = [task.state for task in any_store.fetch(TasksOfSession(session))]
    assert states == ["failed", "failed", "completed"]
    assert [task.state for task in any_store.fetch(TasksOfSession(other))] == ["running"]


def test_newest_finished_records_are_kept_and_running_ones_always(any_store: Store) -> None:
    session = session_id(any_store)
    numbers = [any_store.reserve_task() for _ in range(6)]
    for number in numbers:
        any_store.apply(PutTask(number, session, OWNER, 1))
    for number in numbers[1:]:
        any_store.apply(FinishTask(TaskEnd(number, "completed", 2)))
    assert any_store.apply(PruneTasks(session, 2)) == tuple(numbers[1:4])
    assert [task.number for task in any_store.fetch(TasksOfSession(session))] == [
        numbers[0],
        *numbers[4:],
    ]
    assert any_store.apply(PruneTasks(session, 2)) == ()


def test_task_numbers_go_on_after_the_records_are_gone(state: Path) -> None:
    with open_store(state) as store:
        session = session_id(store)
        for _ in range(3):
            store.apply(PutTask(store.reserve_task(), session, OWNER, 1))
        store.apply(DeleteSession(session))
    with open_store(state) as store:
        assert store.reserve_task() == 4


# --- plans ---------------------------------------------------------------------------------------


def key(number: int = 0, owner: str = OWNER, session: str = SESSION) -> PlanKey:
    return PlanKey(owner, OWNER, session, f"plan:{number:032x}")


def plan(number: int = 0, **options: Any) -> PutPlan:
    made = options.pop("key", None) or key(number)
    fields: dict[str, Any] = {
        "src": "rm x",
        "ast": b'{"stmts":[]}',
        "effects": b'[{"kind":"fs_delete"}]',
        "reversibility": "reversible",
        "estimates": b'{"bytes":null,"items":1}',
        "created_ns": 1000 + number,
        "expires_ns": FAR,
        "allowed": False,
        "owner_quota": 0,
    }
    return PutPlan(key=made, **(fields | options))


def fetched(store: Store, number: int = 0) -> Plan:
    found = store.fetch(PlanByKey(key(number)))
    assert found is not None
    return found


def test_plan_comes_back_as_it_was_stored(state: Path) -> None:
    with open_store(state) as store:
        store.apply(plan(src="rm 'ü'"))
        store.apply(RequestPlan(key(), 1500, b'["fs_delete"]'))
        store.apply(ApprovePlan(key(), "uid:0", 1600, 9000))
    with open_store(state) as store:
        found = fetched(store)
        assert (found.src, found.reversibility) == ("rm 'ü'", "reversible")
        assert found.effects_json == b'[{"kind":"fs_delete"}]'
        assert found.estimates_json == b'{"bytes":null,"items":1}'
        assert (found.requested_ns, found.requested_effects_json) == (1500, b'["fs_delete"]')
        assert (found.approved_by, found.approved_ns, found.approval_expires_ns) == (
            "uid:0",
            1600,
            9000,
        )
        assert found.holds_approval(8999) and not found.holds_approval(9000)


def test_planning_again_renews_and_forgets_requests_and_approvals(any_store: Store) -> None:
    any_store.apply(plan(created_ns=100, expires_ns=500))
    any_store.apply(RequestPlan(key(), 150))
    any_store.apply(ApprovePlan(key(), "uid:0", 200, 400))

    any_store.apply(plan(created_ns=300, expires_ns=700, allowed=True))

    found = fetched(any_store)
    assert (found.created_ns, found.expires_ns, found.allowed) == (100, 700, True)
    assert found.requested_ns is None and found.approved_by is None
    assert not found.holds_approval(300)


def test_expired_plan_planned_again_is_a_new_one(any_store: Store) -> None:
    any_store.apply(plan(created_ns=100, expires_ns=500))
    any_store.apply(plan(created_ns=600, expires_ns=900))
    assert fetched(any_store).created_ns == 600


def test_only_the_first_request_counts(any_store: Store) -> None:
    any_store.apply(plan())
    first = any_store.apply(RequestPlan(key(), 1500, b'["fs_delete"]'))
    again = any_store.apply(RequestPlan(key(), 1700, b"[]"))
    assert (first.first, first.requested_ns) == (True, 1500)
    assert (again.first, again.requested_ns, again.requested_effects) == (
        False,
        1500,
        b'["fs_delete"]',
    )


def test_changes_of_an_unknown_or_expired_plan_are_refused(any_store: Store) -> None:
    with pytest.raises(OperationRefused):
        any_store.apply(RequestPlan(key(), 1))
    with pytest.raises(OperationRefused):
        any_store.apply(UseApproval(key(), 1))
    any_store.apply(plan(expires_ns=2000))
    with pytest.raises(OperationRefused):
        any_store.apply(ApprovePlan(key(), "uid:0", 2000, 3000))


def test_approval_is_used_once_and_can_be_given_again(any_store: Store) -> None:
    any_store.apply(plan())
    with pytest.raises(ApprovalUnavailable) as never:
        any_store.apply(UseApproval(key(), 1500))
    assert never.value.cause is None

    any_store.apply(ApprovePlan(key(), "uid:0", 1600, 1700))
    any_store.apply(UseApproval(key(), 1650))
    found = fetched(any_store)
    assert (found.approved_by, found.applied_ns) == (None, 1650)
    assert found.approval_cause(1650) == "approval_used"

    any_store.apply(ApprovePlan(key(), "uid:0", 1800, 1900))
    with pytest.raises(ApprovalUnavailable) as late:
        any_store.apply(UseApproval(key(), 1900))
    assert late.value.cause == "approval_expired"


def test_oldest_unapproved_plan_of_the_owner_is_dropped_over_the_quota(any_store: Store) -> None:
    for number in range(3):
        any_store.apply(plan(number, allowed=number == 0))
    any_store.apply(ApprovePlan(key(1), "uid:0", 1100, FAR))
    any_store.apply(plan(7, key=key(7, "agent:b")))

    dropped = any_store.apply(plan(3, owner_quota=3))
    assert dropped == (key(2),)
    dropped = any_store.apply(plan(4, owner_quota=3))
    assert dropped == (key(3),)
    any_store.apply(ApprovePlan(key(4), "uid:0", 1100, FAR))
    assert any_store.apply(plan(5, owner_quota=3)) == (key(0),)
    assert any_store.fetch(PlanByKey(key(7, "agent:b"))) is not None


def test_renewing_a_plan_at_the_quota_drops_nothing(any_store: Store) -> None:
    for number in range(3):
        assert any_store.apply(plan(number, owner_quota=3)) == ()
    assert any_store.apply(plan(0, owner_quota=3)) == ()


def test_expired_plans_are_dropped_and_named(any_store: Store) -> None:
    any_store.apply(plan(0, expires_ns=100))
    any_store.apply(plan(1, expires_ns=101))
    any_store.apply(plan(2, expires_ns=None))
    assert any_store.apply(ExpirePlans(100)) == (key(0),)
    assert [found.key for found in any_store.fetch(AllPlans(0))] == [key(1), key(2)]
    assert any_store.apply(DropPlan(key(1)))
    assert not any_store.apply(DropPlan(key(1)))


def test_lists_are_oldest_first_and_requested_ones_come_first_for_approvers(
    any_store: Store,
) -> None:
    for number in (2, 0, 1):
        any_store.apply(plan(number))
    any_store.apply(plan(3, key=key(3, session="other")))
    any_store.apply(plan(4, key=key(4, "agent:b")))
    any_store.apply(plan(5, expires_ns=1500))
    any_store.apply(RequestPlan(key(2), 1600))
    mine = any_store.fetch(PlansOfSession(OWNER, OWNER, SESSION, 1500))
    assert [found.key for found in mine] == [key(0), key(1), key(2)]
    others = any_store.fetch(PlansOfOthers("agent:b", 1500))
    assert [found.key.ref[-1] for found in others] == ["2", "0", "1", "3"]
    (same,) = any_store.fetch(PlansByRef(key(4).ref))
    assert same.key.owner == "agent:b"


def test_nothing_another_owner_does_touches_a_plan(any_store: Store) -> None:
    any_store.apply(plan())
    any_store.apply(plan(key=key(0, "agent:b"), src="other", owner_quota=1))
    assert fetched(any_store).src == "rm x"


# --- audit ---------------------------------------------------------------------------------------


def test_audit_rows_belong_to_the_change_they_tell_of(store: Store, state: Path) -> None:
    row = AuditRow(5, "approved", "uid:0", b'{"approver":"uid:0"}', OWNER, SESSION, key().ref)
    with pytest.raises(OperationRefused):
        store.apply(Together((AppendAudit((row,)), RequestPlan(key(), 1))))
    assert rows(state, "SELECT count(*) FROM audit") == [(0,)]

    store.apply(plan())
    store.apply(Together((RequestPlan(key(), 1), AppendAudit((row,)))))
    assert rows(
        state, "SELECT ts, kind, principal, owner, session, plan_ref, detail FROM audit"
    ) == [(5, "approved", "uid:0", OWNER, SESSION, key().ref, '{"approver":"uid:0"}')]
