"""Stored plans with their requests and approvals (chapter 50 §3.6, chapter 61 §2.2).

A plan is keyed by (owner, session owner, session, reference); nothing another owner does touches
it. An approval is valid until it expires and is used once; what is left of it says why it is gone.

Failure: changes of a plan that is gone raise `OperationRefused`, use of an approval that is not
there `ApprovalUnavailable`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from journal.errors import ApprovalUnavailable, OperationRefused
from journal.jsontext import checked_json
from journal.records import (
    ApprovePlan,
    DropPlan,
    ExpirePlans,
    Operation,
    PlanKey,
    PutPlan,
    RequestedPlan,
    RequestPlan,
    UseApproval,
)
from journal.source import Source

KEY: Final = "owner = ? AND session_owner = ? AND session = ? AND ref = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A stored plan as it stands; whether its approval is still valid depends on the time."""

    key: PlanKey
    src: str
    ast_json: bytes
    effects_json: bytes
    reversibility: str
    estimates_json: bytes
    created_ns: int
    expires_ns: int | None
    requested_ns: int | None
    requested_effects_json: bytes | None
    approved_by: str | None
    approved_ns: int | None
    approval_expires_ns: int | None
    applied_ns: int | None
    allowed: bool

    def alive(self, now_ns: int) -> bool:
        return self.expires_ns is None or self.expires_ns > now_ns

    def holds_approval(self, now_ns: int) -> bool:
        """Whether an approver's approval is there, unused and not expired."""
        return self.approved_ns is not None and (
            self.approval_expires_ns is None or self.approval_expires_ns > now_ns
        )

    def approval_cause(self, now_ns: int) -> Literal["approval_used", "approval_expired"] | None:
        """Why no approval is held although one was given, None when none was."""
        if self.holds_approval(now_ns):
            return None
        if self.approved_ns is not None:
            return "approval_expired"
        return "approval_used" if self.applied_ns is not None else None


COLUMNS: Final = (
    "owner, session_owner, session, ref, src, ast, effects, reversibility, estimates, created_ns,"
    " expires_ns, requested_ns, requested_effects, approved_by, approved_ns, approval_expires_ns,"
    " applied_ns, allowed"
)


def _plan(row: tuple[Any, ...]) -> Plan:
    requested = row[12]
    return Plan(
        key=PlanKey(*row[0:4]),
        src=row[4],
        ast_json=checked_json(row[5]) or b"null",
        effects_json=checked_json(row[6]) or b"[]",
        reversibility=row[7],
        estimates_json=checked_json(row[8]) or b"null",
        created_ns=row[9],
        expires_ns=row[10],
        requested_ns=row[11],
        requested_effects_json=None if requested is None else checked_json(requested) or b"[]",
        approved_by=row[13],
        approved_ns=row[14],
        approval_expires_ns=row[15],
        applied_ns=row[16],
        allowed=bool(row[17]),
    )


def _fields(key: PlanKey) -> tuple[str, str, str, str]:
    return key.owner, key.session_owner, key.session, key.ref


# --- changes -------------------------------------------------------------------------------------


def put(connection: sqlite3.Connection, plan: PutPlan) -> tuple[PlanKey, ...]:
    connection.execute(
        """
        INSERT INTO plan (owner, session_owner, session, ref, src, ast, effects, reversibility,
                          estimates, created_ns, expires_ns, allowed)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (owner, session_owner, session, ref) DO UPDATE SET
            src = excluded.src, ast = excluded.ast, effects = excluded.effects,
            reversibility = excluded.reversibility, estimates = excluded.estimates,
            created_ns = iif(plan.expires_ns <= excluded.created_ns,
                             excluded.created_ns, plan.created_ns),
            expires_ns = excluded.expires_ns, allowed = excluded.allowed, requested_ns = NULL,
            requested_effects = NULL, approved_by = NULL, approved_ns = NULL,
            approval_expires_ns = NULL, applied_ns = NULL
        """,
        (
            *_fields(plan.key),
            plan.src,
            plan.ast,
            plan.effects.decode(),
            plan.reversibility,
            plan.estimates.decode(),
            plan.created_ns,
            plan.expires_ns,
            plan.allowed,
        ),
    )
    return _drop_surplus(connection, plan) if plan.owner_quota else ()


def _drop_surplus(connection: sqlite3.Connection, plan: PutPlan) -> tuple[PlanKey, ...]:
    (held,) = connection.execute(
        "SELECT count(*) FROM plan WHERE owner = ?", (plan.key.owner,)
    ).fetchone()
    if held <= plan.owner_quota:
        return ()
    rows = connection.execute(
        f"""
        SELECT owner, session_owner, session, ref FROM plan WHERE owner = ? AND NOT ({KEY})
        ORDER BY allowed OR (approved_ns IS NOT NULL AND ifnull(approval_expires_ns > ?, 1)),
                 created_ns, rowid
        LIMIT ?
        """,
        (plan.key.owner, *_fields(plan.key), plan.created_ns, held - plan.owner_quota),
    ).fetchall()
    connection.executemany(f"DELETE FROM plan WHERE {KEY}", rows)
    return tuple(PlanKey(*row) for row in rows)


def request(connection: sqlite3.Connection, request: RequestPlan) -> RequestedPlan:
    first = connection.execute(
        "UPDATE plan SET requested_ns = ?, requested_effects = ?"
        f" WHERE {KEY} AND requested_ns IS NULL",
        (request.requested_ns, request.requested_effects.decode(), *_fields(request.key)),
    ).rowcount
    row = connection.execute(
        f"SELECT requested_ns, requested_effects FROM plan WHERE {KEY}", _fields(request.key)
    ).fetchone()
    if row is None:
        raise OperationRefused("unknown plan_ref")
    return RequestedPlan(row[0], checked_json(row[1]) or b"[]", bool(first))


def approve(connection: sqlite3.Connection, approval: ApprovePlan) -> None:
    changed = connection.execute(
        f"""
        UPDATE plan SET approved_by = ?, approved_ns = ?, approval_expires_ns = ?, applied_ns = NULL
        WHERE {KEY} AND ifnull(expires_ns > ?, 1)
        """,
        (
            approval.approved_by,
            approval.approved_ns,
            approval.approval_expires_ns,
            *_fields(approval.key),
            approval.approved_ns,
        ),
    ).rowcount
    if not changed:
        raise OperationRefused("unknown plan_ref")


def use_approval(connection: sqlite3.Connection, use: UseApproval) -> None:
    changed = connection.execute(
        f"""
        UPDATE plan SET approved_by = NULL, approved_ns = NULL, approval_expires_ns = NULL,
                        applied_ns = ?
        WHERE {KEY} AND approved_ns IS NOT NULL AND ifnull(approval_expires_ns > ?, 1)
        """,
        (use.now_ns, *_fields(use.key), use.now_ns),
    ).rowcount
    if changed:
        return
    row = connection.execute(f"SELECT {COLUMNS} FROM plan WHERE {KEY}", _fields(use.key)).fetchone()
    if row is None:
        raise OperationRefused("unknown plan_ref")
    raise ApprovalUnavailable(_plan(row).approval_cause(use.now_ns))


def expire(connection: sqlite3.Connection, expiry: ExpirePlans) -> tuple[PlanKey, ...]:
    rows = connection.execute(
        "SELECT owner, session_owner, session, ref FROM plan WHERE expires_ns <= ?",
        (expiry.now_ns,),
    ).fetchall()
    connection.executemany(f"DELETE FROM plan WHERE {KEY}", rows)
    return tuple(PlanKey(*row) for row in rows)


def drop(connection: sqlite3.Connection, dropped: DropPlan) -> bool:
    return connection.execute(f"DELETE FROM plan WHERE {KEY}", _fields(dropped.key)).rowcount > 0


WRITES: Final[Mapping[type[Operation[Any]], Callable[[sqlite3.Connection, Any], Any]]] = {
    PutPlan: put,
    RequestPlan: request,
    ApprovePlan: approve,
    UseApproval: use_approval,
    ExpirePlans: expire,
    DropPlan: drop,
}


# --- reads ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanByKey:
    """One plan, also an expired one; None when there is none."""

    key: PlanKey

    def run(self, source: Source) -> Plan | None:
        row = source.connection.execute(
            f"SELECT {COLUMNS} FROM plan WHERE {KEY}", _fields(self.key)
        ).fetchone()
        return None if row is None else _plan(row)


@dataclass(frozen=True, slots=True)
class PlansByRef:
    """Every plan with this reference, whoever owns it (for approvers)."""

    ref: str

    def run(self, source: Source) -> list[Plan]:
        rows = source.connection.execute(f"SELECT {COLUMNS} FROM plan WHERE ref = ?", (self.ref,))
        return [_plan(row) for row in rows]


@dataclass(frozen=True, slots=True)
class PlansOfSession:
    """The unexpired plans of one owner in one session, oldest first."""

    owner: str
    session_owner: str
    session: str
    now_ns: int

    def run(self, source: Source) -> list[Plan]:
        rows = source.connection.execute(
            f"""
            SELECT {COLUMNS} FROM plan
            WHERE owner = ? AND session_owner = ? AND session = ? AND ifnull(expires_ns > ?, 1)
            ORDER BY created_ns, rowid
            """,
            (self.owner, self.session_owner, self.session, self.now_ns),
        )
        return [_plan(row) for row in rows]


@dataclass(frozen=True, slots=True)
class PlansOfOthers:
    """The unexpired plans of everybody but one principal: requested ones first, then oldest
    first.
    """

    principal: str
    now_ns: int

    def run(self, source: Source) -> list[Plan]:
        rows = source.connection.execute(
            f"""
            SELECT {COLUMNS} FROM plan WHERE owner <> ? AND ifnull(expires_ns > ?, 1)
            ORDER BY requested_ns IS NULL, requested_ns, created_ns, rowid
            """,
            (self.principal, self.now_ns),
        )
        return [_plan(row) for row in rows]


@dataclass(frozen=True, slots=True)
class AllPlans:
    """Every unexpired plan, oldest first."""

    now_ns: int

    def run(self, source: Source) -> list[Plan]:
        rows = source.connection.execute(
            f"SELECT {COLUMNS} FROM plan WHERE ifnull(expires_ns > ?, 1)"
            " ORDER BY created_ns, rowid",
            (self.now_ns,),
        )
        return [_plan(row) for row in rows]
