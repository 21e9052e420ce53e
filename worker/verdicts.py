"""The verdict on a run before it begins (chapter 50 §10.2, §10.3), and plans as answers.

Failure: none; a run that must not begin is an RpcError to answer with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params, invalid_params
from ipc.messages import Approval, Call, Failure
from ipc.methods import METHODS, ExecParams, ExplainParams
from leash.plan import Plan as LeashPlan
from leash.plan import no_worse, uncovered
from leash.verdict import ALLOW, DENY, Judgement, Standing, denial, judge
from worker.language import InvalidAst, ParseContext, ParseError, ast, decode_ast, parse
from worker.language.format import format_program
from worker.planning import Derived, derive

if TYPE_CHECKING:
    from worker.session import Session

_encode_json = msgspec.json.Encoder().encode
_approval = msgspec.json.Decoder(Approval)


def verdict_of(session: Session, call: Call, plan: LeashPlan) -> tuple[RpcError | None, bool]:
    """Why a run must not begin, if so; and whether it runs only by its approval."""
    standing = session.policies.standing(call.caller.principal, call.caller.caps)
    judgement = judge(standing, list(plan.effects), plan.reversibility)
    if judgement.word == ALLOW:
        return None, False
    if judgement.word == DENY:
        return denied(session, standing, plan, judgement), False
    if not call.approval:
        return (
            RpcError(
                Code.APPROVAL_REQUIRED,
                "approval required; plan first",
                "approval_required",
                effects=list(plan.effects),
                principal=standing.principal,
            ),
            False,
        )
    error = _held_to(_approval.decode(call.approval), plan)
    return error, error is None


def denied(session: Session, standing: Standing, plan: LeashPlan, judgement: Judgement) -> RpcError:
    hint = session.policies.hint(standing.principal)
    data = denial(standing, plan.effects, judgement, hint)
    return RpcError(Code.LEASH_DENIED, "leash denied execution", "policy_denied", **data)


def _held_to(approval: Approval, plan: LeashPlan) -> RpcError | None:
    """Whether a stored plan covers what would run now."""
    added = uncovered(plan.effects, approval.effects)
    if added or not no_worse(plan.reversibility, approval.reversibility):
        return RpcError(
            Code.APPROVAL_REQUIRED,
            "plan changed since it was derived; plan again",
            "approval_required",
            plan_ref=approval.plan_ref,
            effects=list(plan.effects),
            added=added,
            cause="plan_changed",
        )
    if not approval.approved:
        return RpcError(
            Code.APPROVAL_REQUIRED,
            "plan approval pending",
            "approval_required",
            plan_ref=approval.plan_ref,
            effects=list(plan.effects),
        )
    return None


# --- plans as answers ----------------------------------------------------------------------------


def answer_plan(session: Session, call: Call) -> None:
    """Serve `explain` and plan mode: derive, and leave everything else to the router."""
    try:
        program, src = _program(session, call)
    except RpcError as error:
        session.link.send(Failure(call.id, error.encode()))
        return
    session.evaluator.host = session.hosts.of(call.caller.principal, call.caller.caps)
    derived = derive(session.evaluator, program)
    session.reply(call.id, _encode_json(plan_json(program, src, derived)))


def _program(session: Session, call: Call) -> tuple[ast.Program, str]:
    """The program to plan and the source it is known by."""
    if call.method == "plan":
        exec_params: ExecParams = decode_params(call.params, METHODS["exec"].decoder)
        return _parsed(session, call, exec_params.src), exec_params.src
    params: ExplainParams = decode_params(call.params, METHODS["explain"].decoder)
    if params.src is not None:
        return _parsed(session, call, params.src), params.src
    try:
        program = decode_ast(params.tree or b"null")
    except InvalidAst as error:
        invalid_params(str(error))
    return program, format_program(program)


def _parsed(session: Session, call: Call, src: str) -> ast.Program:
    from worker.submission import parse_error

    values, commands = session.evaluator.bound_names()
    context = ParseContext(
        repl=call.caller.repl, values=frozenset(values), commands=frozenset(commands)
    )
    try:
        return parse(src, context)
    except ParseError as error:
        raise parse_error(error) from None


def plan_json(program: ast.Program, src: str, derived: Derived) -> dict[str, Any]:
    """A derived plan for the router, which makes the reference and the verdict."""
    return {
        "src": src,
        "ast": msgspec.Raw(_encode_json(program)),
        "effects": list(derived.plan.effects),
        "reversibility": derived.leash.reversibility,
        "estimates": dict(derived.leash.estimates),
    }
