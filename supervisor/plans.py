"""Stored plans: made from what a worker derived, judged as of now, announced to who may approve.

The router alone makes the reference, the verdict and the row; of the worker it takes effects,
reversibility, estimates and the tree, each checked for form. What a client sees of a plan is judged
when it asks (chapter 50 §10).

Failure: a derivation of a wrong form, and a store that cannot commit, are RpcErrors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ipc.jsonrpc import RpcError, internal
from ipc.messages import Caller
from ipc.methods import AST_VERSION, ExplainResult, PlanFull, PlanMade, PlanSummary
from journal.errors import StoreError
from journal.plans import Plan
from journal.records import ExpirePlans, PlanKey, PutPlan
from leash.effects import Effect, MalformedEffect, checked
from leash.plan import WEIGHTS, reference
from leash.plan import Plan as LeashPlan
from leash.verdict import ALLOW, APPROVAL, Standing, judge
from supervisor.approvals import effects_of
from supervisor.submissions import journal_unavailable

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session

log = structlog.get_logger()

CHANNEL: Final = "approval"
_NS_PER_S: Final = 1_000_000_000
_SWEEP_EVERY_NS: Final = 60 * _NS_PER_S
_encode_json = msgspec.json.Encoder().encode


class _Reply(msgspec.Struct):
    """What a worker answers to `plan` and `explain`."""

    src: str
    ast: msgspec.Raw
    effects: list[Any]
    reversibility: str
    estimates: dict[str, int | None]


_reply = msgspec.json.Decoder(_Reply)


@dataclass(frozen=True, slots=True)
class Derivation:
    """A program's plan as a worker derived it, checked for form."""

    src: str
    ast_json: bytes
    plan: LeashPlan

    def reference(self, owner: str, session: Session) -> str:
        return reference(
            self.plan,
            src=self.src,
            owner=owner,
            session_owner=session.owner,
            session=session.name,
        )


def derivation(data: bytes) -> Derivation:
    """Read a worker's answer. Raises RpcError `internal_error`."""
    try:
        reply = _reply.decode(data)
        effects = tuple(checked(effect) for effect in reply.effects)
    except (msgspec.DecodeError, MalformedEffect) as error:
        log.error("worker.effects", err=str(error))
        raise internal("internal_error", "unexpected plan of the session worker") from None
    if reply.reversibility not in WEIGHTS or set(reply.estimates) != {"bytes", "items"}:
        raise internal("internal_error", "unexpected plan of the session worker")
    return Derivation(
        reply.src, bytes(reply.ast), LeashPlan(effects, reply.reversibility, reply.estimates)
    )


def explained(derived: Derivation, owner: str, session: Session) -> bytes:
    """The answer of `explain`."""
    return _encode_json(
        ExplainResult(
            ast_version=AST_VERSION,
            ast=msgspec.Raw(derived.ast_json),
            effects=list(derived.plan.effects),
            reversibility=derived.plan.reversibility,
            estimates=dict(derived.plan.estimates),
            plan_ref=derived.reference(owner, session),
        )
    )


class PlanKeeper:
    """Stores plans and sweeps expired ones."""

    # `_swept_ns` is when expired plans were dropped last; the loop's thread only.

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._swept_ns = 0

    def store(
        self,
        session: Session,
        caller: Caller,
        derived: Derivation,
        done: Callable[[bytes | None, RpcError | None], None],
    ) -> None:
        """Store a plan of the caller; `done` gets the answer of plan mode, or why there is none."""
        kernel, now_ns = self._kernel, self._kernel.now_ns()
        standing = kernel.policies.standing(caller.principal, caller.caps)
        plan = derived.plan
        judgement = judge(standing, list(plan.effects), plan.reversibility)
        ref = derived.reference(caller.principal, session)
        ttl_s = kernel.config.plans.ttl_s
        expires_ns = now_ns + int(ttl_s * _NS_PER_S) if ttl_s else None
        estimates = _encode_json(dict(plan.estimates))
        put = PutPlan(
            key=PlanKey(caller.principal, session.owner, session.name, ref),
            src=derived.src,
            ast=derived.ast_json,
            effects=_encode_json(list(plan.effects)),
            reversibility=plan.reversibility,
            estimates=estimates,
            created_ns=now_ns,
            expires_ns=expires_ns,
            allowed=judgement.word == ALLOW,
            owner_quota=kernel.config.quotas.plans_per_owner,
        )
        made = PlanMade(
            plan_ref=ref,
            effects=list(plan.effects),
            reversibility=plan.reversibility,
            verdict=judgement.word,
            approval_pending=judgement.word == APPROVAL,
            approved=judgement.word == ALLOW,
            estimates=msgspec.Raw(estimates),
            cause="no_policy" if judgement.no_policy else None,
            hint=kernel.policies.hint(caller.principal) if judgement.no_policy else None,
        )

        def stored(_dropped: object, error: StoreError | None) -> None:
            if error is not None:
                done(None, journal_unavailable(error))
                return
            if made.approval_pending:
                kernel.events.plan_pending(put.key, made.effects, expires_ns)
            done(_encode_json(made), None)

        self._sweep(now_ns)
        kernel.store.post(put, stored)

    def _sweep(self, now_ns: int) -> None:
        if now_ns - self._swept_ns > _SWEEP_EVERY_NS:
            self._swept_ns = now_ns
            self._kernel.store.post(ExpirePlans(now_ns), _ignore)


def _ignore(_result: object, _error: object) -> None:
    return None


# --- what clients see ----------------------------------------------------------------------------


def word_of(standing: Standing, plan: Plan) -> str:
    """The verdict on a stored plan now."""
    return judge(standing, _effects(plan), plan.reversibility).word


def _effects(plan: Plan) -> list[Effect]:
    try:
        return effects_of(plan.effects_json)
    except MalformedEffect:
        # A row nobody of this version wrote: nothing may be granted on it.
        return [{"kind": "opaque"}]


def _summary_fields(standing: Standing, plan: Plan, now_ns: int) -> dict[str, Any]:
    word = word_of(standing, plan)
    return {
        "plan_ref": plan.key.ref,
        "effects": msgspec.Raw(plan.effects_json),
        "reversibility": plan.reversibility,
        "verdict": word,
        "approval_pending": word == APPROVAL,
        "approved": plan.allowed or plan.holds_approval(now_ns),
        "estimates": msgspec.Raw(plan.estimates_json),
        "principal": plan.key.owner,
        "session": plan.key.session,
        "created_ns": plan.created_ns,
        "expires_ns": plan.expires_ns,
        "requested_ns": plan.requested_ns,
    }


def summary(standing: Standing, plan: Plan, now_ns: int) -> PlanSummary:
    """A plan in a list; `standing` is its owner's."""
    return PlanSummary(**_summary_fields(standing, plan, now_ns))


def full(standing: Standing, plan: Plan, now_ns: int) -> PlanFull:
    held = plan.holds_approval(now_ns)
    return PlanFull(
        **_summary_fields(standing, plan, now_ns),
        ast_version=AST_VERSION,
        ast=msgspec.Raw(plan.ast_json),
        src=plan.src,
        approved_by=plan.approved_by if held else None,
        approved_ns=plan.approved_ns if held else None,
        approval_expires_ns=plan.approval_expires_ns if held else None,
    )
