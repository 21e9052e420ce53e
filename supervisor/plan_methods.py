"""`explain`, plan and approved `exec`, `plan.*` and `cap.request` (chapter 50 §10, 60 §5.8, §5.14).

Failure: RpcErrors in the order of checks that the chapters give; a store that cannot commit answers
`journal_unavailable` and nothing has changed then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ipc.jsonrpc import Code, RpcError, decode_params, invalid_params
from ipc.messages import Caller
from ipc.methods import (
    METHODS,
    CapGranted,
    CapPending,
    CapRequestParams,
    CapUncovered,
    ExplainParams,
    PlanListParams,
    PlanRefParams,
)
from journal.errors import OperationRefused, StoreError
from journal.plans import Plan, PlanByKey, PlansByRef, PlansOfOthers, PlansOfSession
from journal.records import AppendAudit, ApprovePlan, AuditRow, PlanKey, RequestPlan, Together
from leash.effects import kinds_of, request_kind
from leash.verdict import ALLOW, APPROVAL, DENY, Standing, judge
from supervisor.approvals import StoredApproval, effects_of, pending, unknown_plan
from supervisor.connection import RouterCall
from supervisor.plans import derivation, explained, full, summary, word_of
from supervisor.submissions import Submission, check_accepting, journal_unavailable

if TYPE_CHECKING:
    from supervisor.attachments import Attachment
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session

log = structlog.get_logger()

FOREIGN: Final = "plan belongs to another principal/session"
NOT_APPROVED: Final = (
    'mode "approved" requires an approved plan_ref: plan → cap.request → plan.apply'
)
_NS_PER_S: Final = 1_000_000_000
_encode_json = msgspec.json.Encoder().encode


def _attached(call: RouterCall) -> Attachment:
    assert call.attachment is not None
    return call.attachment


class _ErrorCode(msgspec.Struct):
    code: int


_error_code = msgspec.json.Decoder(_ErrorCode)


def _give(call: RouterCall, ok: bool, body: bytes) -> None:
    if ok:
        call.answer(body)
    else:
        call.fail_raw(_error_code.decode(body).code, body)


# --- deriving ------------------------------------------------------------------------------------


def explain(kernel: Kernel, call: RouterCall) -> None:
    params: ExplainParams = decode_params(call.params, METHODS["explain"].decoder)
    if params.src is None and params.tree is None:
        invalid_params("explain requires src or ast")
    attachment = _attached(call)
    check_accepting(kernel, attachment.session)

    def reply(submission: Submission, data: bytes) -> None:
        try:
            submission.conclude(
                explained(derivation(data), attachment.principal, attachment.session)
            )
        except RpcError as error:
            submission.refuse(error)

    Submission(
        kernel,
        attachment.session,
        attachment.caller,
        call.params,
        "",
        lambda ok, body: _give(call, ok, body),
        method="explain",
        on_reply=reply,
    ).submit()


def planned(kernel: Kernel) -> Any:
    """What happens with the worker's answer in plan mode: store it, then answer."""

    def reply(submission: Submission, data: bytes) -> None:
        def stored(answer: bytes | None, error: RpcError | None) -> None:
            if answer is not None:
                submission.conclude(answer)
            elif error is not None:
                submission.refuse(error)

        try:
            derived = derivation(data)
        except RpcError as error:
            submission.refuse(error)
            return
        kernel.plans.store(submission.session, submission.caller, derived, stored)

    return reply


# --- approved runs -------------------------------------------------------------------------------


def _key(caller: Caller, session: Session, ref: str) -> PlanKey:
    return PlanKey(caller.principal, session.owner, session.name, ref)


def _standing(kernel: Kernel, caller: Caller) -> Standing:
    return kernel.policies.standing(caller.principal, caller.caps)


def _may_run(kernel: Kernel, caller: Caller, plan: Plan) -> bool:
    """Whether a stored plan is approved, or allowed by the policy of now."""
    return plan.holds_approval(kernel.now_ns()) or word_of(_standing(kernel, caller), plan) == ALLOW


def approved_run(kernel: Kernel, src: str, plan_ref: str | None) -> Any:
    """Finds the plan that `exec` in approved mode names, and holds the run to it."""

    def prepare(submission: Submission) -> None:
        refusal = RpcError(Code.LEASH_DENIED, NOT_APPROVED, "not_approved", plan_ref=plan_ref)
        if plan_ref is None:
            submission.refuse(refusal)
            return

        def found(plan: Plan | None, error: StoreError | None) -> None:
            if error is not None:
                submission.refuse(journal_unavailable(error))
            elif (
                plan is None
                or not plan.alive(kernel.now_ns())
                or plan.src != src
                or not _may_run(kernel, submission.caller, plan)
            ):
                submission.refuse(refusal)
            else:
                submission.hold_to(StoredApproval(plan))
                submission.proceed()

        key = _key(submission.caller, submission.session, plan_ref)
        kernel.store.read(PlanByKey(key), found)

    return prepare


def apply(kernel: Kernel, call: RouterCall) -> None:
    """Serve `plan.apply`: the stored source, held to its plan."""
    params: PlanRefParams = decode_params(call.params, METHODS["plan.apply"].decoder)
    attachment = _attached(call)
    check_accepting(kernel, attachment.session)
    caller, ref = attachment.caller, params.plan_ref

    def prepare(submission: Submission) -> None:
        def found(plans: list[Plan], error: StoreError | None) -> None:
            if error is not None:
                submission.refuse(journal_unavailable(error))
                return
            refusal = _not_applicable(kernel, caller, attachment.session, ref, plans)
            if isinstance(refusal, RpcError):
                submission.refuse(refusal)
                return
            body = _encode_json({"src": refusal.src, "mode": "approved", "plan_ref": ref})
            submission.hold_to(StoredApproval(refusal))
            submission.set_source(body, refusal.src)
            submission.proceed()

        kernel.store.read(PlansByRef(ref), found)

    Submission(
        kernel,
        attachment.session,
        caller,
        call.params,
        "",
        lambda ok, body: _give(call, ok, body),
        prepare=prepare,
    ).submit()


def _not_applicable(
    kernel: Kernel, caller: Caller, session: Session, ref: str, plans: list[Plan]
) -> Plan | RpcError:
    """The plan to apply, or why there is none."""
    now_ns = kernel.now_ns()
    alive = [plan for plan in plans if plan.alive(now_ns)]
    if not alive:
        return unknown_plan(ref)
    key = _key(caller, session, ref)
    plan = next((plan for plan in alive if plan.key == key), None)
    if plan is None:
        return RpcError(Code.LEASH_DENIED, FOREIGN, "not_owner", plan_ref=ref)
    if not _may_run(kernel, caller, plan):
        return pending(plan, plan.approval_cause(now_ns))
    return plan


# --- reading -------------------------------------------------------------------------------------


def _owner_standing(kernel: Kernel, caller: Caller, plan: Plan) -> Standing:
    """The standing a plan is judged for: its owner's, with the caps of the asking owner."""
    if plan.key.owner == caller.principal:
        return _standing(kernel, caller)
    return kernel.policies.standing(plan.key.owner)


def _is_owner(caller: Caller, session: Session, plan: Plan) -> bool:
    return plan.key == _key(caller, session, plan.key.ref)


def _may_approve(kernel: Kernel, caller: Caller, plan: Plan) -> bool:
    return kernel.policies.may_approve(caller.principal, caller.caps, plan.key.owner)


async def get_plan(kernel: Kernel, call: RouterCall) -> bytes:
    params: PlanRefParams = decode_params(call.params, METHODS["plan.get"].decoder)
    attachment = _attached(call)
    caller, session, now_ns = attachment.caller, attachment.session, kernel.now_ns()
    plans = await kernel.store.load(PlansByRef(params.plan_ref))
    alive = [plan for plan in plans if plan.alive(now_ns)]
    if not alive:
        raise unknown_plan(params.plan_ref, "unknown or expired plan_ref")
    visible = [plan for plan in alive if _is_owner(caller, session, plan)] or [
        plan for plan in alive if _may_approve(kernel, caller, plan)
    ]
    if not visible:
        raise RpcError(Code.LEASH_DENIED, FOREIGN, "not_owner", plan_ref=params.plan_ref)
    plan = visible[0]
    return _encode_json(full(_owner_standing(kernel, caller, plan), plan, now_ns))


async def list_plans(kernel: Kernel, call: RouterCall) -> bytes:
    params: PlanListParams = decode_params(call.params, METHODS["plan.list"].decoder)
    attachment = _attached(call)
    caller, session, now_ns = attachment.caller, attachment.session, kernel.now_ns()
    if params.approvable:
        return await _approvable(kernel, caller, now_ns)
    plans = await kernel.store.load(
        PlansOfSession(caller.principal, session.owner, session.name, now_ns)
    )
    standing = _standing(kernel, caller)
    return _encode_json([summary(standing, plan, now_ns) for plan in plans])


async def _approvable(kernel: Kernel, caller: Caller, now_ns: int) -> bytes:
    """Pending plans of others that the caller may approve, requested ones first."""
    found = []
    for plan in await kernel.store.load(PlansOfOthers(caller.principal, now_ns)):
        if not _may_approve(kernel, caller, plan) or plan.holds_approval(now_ns):
            continue
        row = summary(_owner_standing(kernel, caller, plan), plan, now_ns)
        if row.approval_pending and not row.approved:
            found.append(row)
    return _encode_json(found)


# --- approving -----------------------------------------------------------------------------------


async def request_caps(kernel: Kernel, call: RouterCall) -> bytes:
    """Serve `cap.request`: approve a plan, or ask for its approval."""
    params: CapRequestParams = decode_params(call.params, METHODS["cap.request"].decoder)
    if params.plan_ref is None:
        invalid_params("plan_ref is required")
    attachment = _attached(call)
    caller, ref, now_ns = attachment.caller, params.plan_ref, kernel.now_ns()
    plans = [plan for plan in await kernel.store.load(PlansByRef(ref)) if plan.alive(now_ns)]
    if not plans:
        raise unknown_plan(ref)
    plan = next((plan for plan in plans if _is_owner(caller, attachment.session, plan)), plans[0])
    approver = _may_approve(kernel, caller, plan)
    if not approver and plan.key.owner != caller.principal:
        await _record_refusal(kernel, caller, plan, "not_approver")
        raise RpcError(Code.LEASH_DENIED, FOREIGN, "not_approver", plan_ref=ref)
    standing = _owner_standing(kernel, caller, plan)
    effects = effects_of(plan.effects_json)
    judgement = judge(standing, effects, plan.reversibility)
    if judgement.word == DENY:
        await _record_refusal(kernel, caller, plan, "policy_denied")
        raise RpcError(
            Code.LEASH_DENIED,
            "policy denies requested effects",
            "policy_denied",
            plan_ref=ref,
            effects=effects,
            denied=list(judgement.denied),
        )
    asked = list(_kinds(params.effects or ()))
    missing = [kind for kind in kinds_of(effects) if kind not in asked]
    if params.effects and missing:
        return _encode_json(
            CapUncovered(
                grant="approval_pending",
                plan_ref=ref,
                why="requested effect scope does not cover the plan",
                uncovered_effects=missing,
            )
        )
    if not approver and judgement.word == APPROVAL:
        return await _request(kernel, caller, plan, asked)
    return await _approve(kernel, caller, plan, asked, judgement.word)


def _kinds(entries: Iterable[Any]) -> Iterable[str]:
    """The kinds a client names; entries of other forms are skipped, each kind counts once."""
    seen: set[str] = set()
    for entry in entries:
        named = entry.get("kind") if isinstance(entry, dict) else entry
        if isinstance(named, str) and (kind := request_kind(named)) not in seen:
            seen.add(kind)
            yield kind


def _audit(kind: str, caller: Caller, plan: Plan, ts: int, **detail: Any) -> AuditRow:
    return AuditRow(
        ts=ts,
        kind=kind,
        principal=caller.principal,
        detail=_encode_json(
            {**detail, "owner": plan.key.owner, "effects": msgspec.Raw(plan.effects_json)}
        ),
        owner=plan.key.session_owner,
        session=plan.key.session,
        plan_ref=plan.key.ref,
    )


async def _record_refusal(kernel: Kernel, caller: Caller, plan: Plan, reason: str) -> None:
    row = _audit("approval_refused", caller, plan, kernel.now_ns(), reason=reason)
    try:
        await kernel.store.commit(AppendAudit((row,)))
    except StoreError as error:
        raise journal_unavailable(error) from None


async def _request(kernel: Kernel, caller: Caller, plan: Plan, asked: list[str]) -> bytes:
    """Record that the owner asks; the first time counts."""
    now_ns = kernel.now_ns()
    request = RequestPlan(plan.key, now_ns, _encode_json(asked))
    audit = _audit("requested", caller, plan, now_ns, requested_effects=asked)
    try:
        if plan.requested_ns is None:
            recorded, _ = await kernel.store.commit(Together((request, AppendAudit((audit,)))))
        else:
            recorded = await kernel.store.commit(request)
    except OperationRefused:
        raise unknown_plan(plan.key.ref) from None
    except StoreError as error:
        raise journal_unavailable(error) from None
    first: Any = recorded
    requested = msgspec.json.decode(first.requested_effects, type=list[str])
    if first.first:
        kernel.events.plan_requested(plan, requested)
        log.info("approval.requested", plan=plan.key.ref, principal=caller.principal)
    return _encode_json(
        CapPending(
            grant="pending",
            plan_ref=plan.key.ref,
            approval_pending=True,
            approver_required=True,
            requested_effects=requested,
            requested_ns=first.requested_ns,
        )
    )


async def _approve(
    kernel: Kernel, caller: Caller, plan: Plan, asked: list[str], word: str
) -> bytes:
    now_ns = kernel.now_ns()
    enforced = kernel.policies.caps_enforced(plan.key.owner)
    granted = CapGranted("approved", plan.key.ref, enforced, asked, None, None, None)
    if word == ALLOW:
        return _encode_json(granted)
    expires_ns = now_ns + int(kernel.config.plans.approval_ttl_s * _NS_PER_S)
    audit = _audit(
        "approved", caller, plan, now_ns, approver=caller.principal, expires_ns=expires_ns
    )
    approval = ApprovePlan(plan.key, caller.principal, now_ns, expires_ns)
    try:
        await kernel.store.commit(Together((approval, AppendAudit((audit,)))))
    except OperationRefused:
        raise unknown_plan(plan.key.ref) from None
    except StoreError as error:
        raise journal_unavailable(error) from None
    kernel.events.plan_approved(plan, caller.principal, expires_ns)
    log.info("approval.granted", plan=plan.key.ref, approver=caller.principal)
    granted.approver, granted.approved_ns = caller.principal, now_ns
    granted.expires_ns = expires_ns
    return _encode_json(granted)
