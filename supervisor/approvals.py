"""Runs held to a stored plan, and runs that policy stops: the router's own look at both.

A worker derives effects and judges them before it runs anything. The router judges what it is told
once more before the row of a run is opened, with the policy that is in force by then, and uses up
an approval in the commit that opens it.

Failure: none of its own; refusals are RpcErrors to answer with.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ipc.jsonrpc import Code, RpcError, internal
from ipc.messages import Approval, Caller, Started
from journal.errors import ApprovalUnavailable, OperationRefused
from journal.plans import Plan
from journal.records import AuditRow, PlanKey
from leash.effects import Effect, MalformedEffect, checked
from leash.plan import WEIGHTS, no_worse, uncovered
from leash.verdict import ALLOW, DENY, denial, judge

if TYPE_CHECKING:
    from supervisor.policies import Policies
    from supervisor.sessions import Session

log = structlog.get_logger()

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
_STOPPED: Final = (Code.LEASH_DENIED, Code.APPROVAL_REQUIRED)


def effects_of(data: bytes) -> list[Effect]:
    """Effects that came as JSON. Raises MalformedEffect."""
    try:
        listed = _decode_json(data)
    except msgspec.DecodeError as error:
        raise MalformedEffect(str(error)) from None
    if not isinstance(listed, list):
        raise MalformedEffect("no list of effects")
    return [checked(effect) for effect in listed]


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """The stored plan that a run is held to, as it was when the run was accepted."""

    plan: Plan

    @property
    def key(self) -> PlanKey:
        return self.plan.key

    def message(self, now_ns: int) -> bytes:
        """The plan for the worker that derives it again."""
        return _encode_json(
            Approval(
                plan_ref=self.key.ref,
                effects=effects_of(self.plan.effects_json),
                reversibility=self.plan.reversibility,
                approved=self.plan.holds_approval(now_ns),
            )
        )

    def covers(self, effects: list[Effect], reversibility: str) -> bool:
        return not uncovered(effects, effects_of(self.plan.effects_json)) and no_worse(
            reversibility, self.plan.reversibility
        )

    def lost(self, error: OperationRefused) -> RpcError:
        """The answer when the approval was gone by the time it was to be used up."""
        if isinstance(error, ApprovalUnavailable):
            return pending(self.plan, error.cause)
        return unknown_plan(self.key.ref)


def pending(plan: Plan, cause: str | None) -> RpcError:
    """The answer to a run whose plan holds no approval; `cause` says why it holds none any more."""
    data: dict[str, Any] = {"plan_ref": plan.key.ref, "effects": _decode_json(plan.effects_json)}
    if cause is not None:
        data["cause"] = cause
    return RpcError(Code.APPROVAL_REQUIRED, "plan approval pending", "approval_required", **data)


def unknown_plan(ref: str, message: str = "unknown plan_ref") -> RpcError:
    return RpcError(Code.UNKNOWN_PLAN, message, "unknown_plan", plan_ref=ref)


def refusal_of(
    policies: Policies, caller: Caller, started: Started, approval: StoredApproval | None
) -> RpcError | None:
    """Why a run must not begin, judged here; None when it may."""
    try:
        effects = effects_of(started.effects)
    except MalformedEffect as error:
        log.error("worker.effects", err=str(error))
        return internal("internal_error", "unexpected effects of the session worker")
    reversibility = started.reversibility
    if reversibility not in WEIGHTS:
        return internal("internal_error", "unexpected effects of the session worker")
    standing = policies.standing(caller.principal, caller.caps)
    judgement = judge(standing, effects, reversibility)
    if judgement.word == ALLOW:
        return None
    if judgement.word == DENY:
        data = denial(standing, effects, judgement, policies.hint(caller.principal))
        return RpcError(Code.LEASH_DENIED, "leash denied execution", "policy_denied", **data)
    if approval is not None and started.uses_approval and approval.covers(effects, reversibility):
        return None
    return RpcError(
        Code.APPROVAL_REQUIRED,
        "approval required; plan first",
        "approval_required",
        effects=effects,
        principal=caller.principal,
    )


# --- audit ---------------------------------------------------------------------------------------


def used_row(approval: StoredApproval, caller: Caller, entry: int, ts: int) -> AuditRow:
    """The record of an approval that a run uses up."""
    return AuditRow(
        ts=ts,
        kind="approval_used",
        principal=caller.principal,
        detail=_encode_json(
            {
                "approver": approval.plan.approved_by,
                "effects": _decode_json(approval.plan.effects_json),
            }
        ),
        owner=approval.key.session_owner,
        session=approval.key.session,
        plan_ref=approval.key.ref,
        entry_id=entry,
    )


class _Error(msgspec.Struct):
    code: int
    data: dict[str, Any]


_error = msgspec.json.Decoder(_Error)


def refusal_row(
    policies: Policies, session: Session, caller: Caller, error: bytes
) -> AuditRow | None:
    """The record of a run stopped by policy; None for any other error."""
    found = _error.decode(error)
    if found.code not in _STOPPED:
        return None
    kernel = session.kernel
    denied = found.data.get("denied") or found.data.get("effects") or []
    kinds = list(dict.fromkeys(effect["kind"] for effect in denied))
    for kind in kinds:
        kernel.metrics.count("shoal_policy_denials_total", kind)
    log.info(
        "policy.denied",
        principal=caller.principal,
        session=session.name,
        owner=session.owner,
        effects=kinds,
    )
    return AuditRow(
        ts=time.time_ns(),
        kind="denied",
        principal=caller.principal,
        detail=_encode_json({"code": found.code, **found.data}),
        owner=session.owner,
        session=session.name,
        plan_ref=found.data.get("plan_ref"),
    )
