"""Decisions of an agent's turn: plans that need a person, files, and who may answer (chapter 70
§11).

A tool call whose verdict is `approval_required` gets a stored plan, a request on the back channel,
and, when it is allowed, an approval that the run then uses up. An approval given elsewhere counts
as the answer.

Failure: RpcError; a plan that the policy denies is never asked about.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from ipc.jsonrpc import RpcError
from journal.errors import StoreError
from journal.plans import Plan, PlanByKey
from journal.records import ApprovePlan, PlanKey
from leash.verdict import APPROVAL, DENY, path_granted
from supervisor.agent.approvals import Decision
from supervisor.agent.identity import not_owned
from supervisor.agent.sessions import LiveSession
from supervisor.plan_methods import planned
from supervisor.submissions import Submission

if TYPE_CHECKING:
    from supervisor.agent.call import AgentCall
    from supervisor.agent.identity import Binding
    from supervisor.agent.turns import Turn
    from supervisor.agent_endpoint import AgentEndpoint

_NS_PER_S: Final = 1_000_000_000


class Authority:
    # `_waiting` maps stored plans to the live sessions that wait for their approval.

    def __init__(self, endpoint: AgentEndpoint) -> None:
        self._endpoint = endpoint
        self._waiting: dict[PlanKey, LiveSession] = {}
        endpoint.kernel.plan_approved = self._approved_elsewhere

    # -- plans -------------------------------------------------------------------------------------

    async def decide(self, turn: Turn, src: str, tool: str) -> dict[str, Any]:
        """Plan the source and have it decided: `{decision, plan_ref?, reason?, replacement?}`."""
        live = turn.live
        assert live is not None
        made = await self.plan(turn, src)
        ref = made["plan_ref"]
        if made["verdict"] == DENY:
            return {"decision": "deny", "reason": made.get("hint") or "policy denies this"}
        if made["verdict"] != APPROVAL:
            return {"decision": "allow_once", "plan_ref": None}
        kernel, principal = self._endpoint.kernel, self._endpoint.evaluation_principal(live)
        kinds = frozenset(str(effect["kind"]) for effect in made["effects"])
        generation = kernel.policies.generation
        key = PlanKey(principal, live.session.owner, live.session.name, ref)
        if self._is_remembered(live, principal, tool, kinds, generation):
            live.approvals.record_remembered(tool, ref)
            await self._grant(key, principal)
            return {"decision": "allow_always", "plan_ref": ref}
        decision = await self._ask(turn, live, tool, src, made, key)
        if not decision.allowed:
            return {
                "decision": decision.word,
                "reason": _REASONS.get(decision.source, "the person said no"),
                "replacement": decision.replacement,
            }
        if decision.word == "allow_always":
            live.approvals.remember(principal, tool, kinds, generation)
        if decision.source != "elsewhere":
            await self._grant(key, decision.principal)
        return {"decision": decision.word, "plan_ref": ref}

    async def plan(self, turn: Turn, src: str) -> dict[str, Any]:
        """Derive and store a plan of the source. Raises RpcError."""
        from supervisor.agent.tools import caller

        live, kernel = turn.live, self._endpoint.kernel
        assert live is not None
        answered: asyncio.Future[tuple[bool, bytes]] = kernel.loop.create_future()

        def answer(ok: bool, body: bytes) -> None:
            if not answered.done():
                answered.set_result((ok, body))

        params = msgspec.json.encode({"src": src, "mode": "plan"})
        Submission(
            kernel,
            live.session,
            caller(self._endpoint, live, turn),
            params,
            src,
            answer,
            method="plan",
            on_reply=planned(kernel),
        ).submit()
        ok, body = await answered
        found: dict[str, Any] = msgspec.json.decode(body)
        if not ok:
            raise RpcError(found["code"], found["message"], found["data"]["kind"])
        return found

    def _is_remembered(
        self, live: LiveSession, principal: str, tool: str, kinds: frozenset[str], generation: int
    ) -> bool:
        policy = self._endpoint.kernel.policies.of(principal)
        if "opaque" in kinds and (policy is None or policy.opaque == "ask"):
            return False
        return live.approvals.covers(principal, tool, kinds, generation)

    async def _ask(
        self,
        turn: Turn,
        live: LiveSession,
        tool: str,
        src: str,
        made: dict[str, Any],
        key: PlanKey,
    ) -> Decision:
        self._waiting[key] = live
        try:
            return await live.approvals.ask(
                turn,
                tool,
                f"{src} — {described(made['effects'])}, {made['reversibility']}",
                seconds=turn.agent.approval_timeout_secs,
                plan={
                    "ref": key.ref,
                    "effects": made["effects"],
                    "reversibility": made["reversibility"],
                },
                plan_owner=key.owner,
            )
        finally:
            self._waiting.pop(key, None)

    def _approved_elsewhere(self, key: PlanKey, approver: str) -> None:
        """`cap.request` approved a plan: a turn that waits for it goes on."""
        live = self._waiting.get(key)
        if live is None:
            return
        for request in live.approvals.pending.values():
            if request.plan_ref == key.ref and not request.answer.done():
                request.answer.set_result(
                    Decision("allow_once", principal=approver, source="elsewhere")
                )

    async def _grant(self, key: PlanKey, approver: str) -> None:
        """Approve the stored plan, for one run. Raises RpcError."""
        kernel = self._endpoint.kernel
        now_ns = kernel.now_ns()
        expires_ns = now_ns + int(kernel.config.plans.approval_ttl_s * _NS_PER_S)
        try:
            await kernel.store.commit(ApprovePlan(key, approver, now_ns, expires_ns))
            plan: Plan | None = await kernel.store.load(PlanByKey(key))
        except StoreError as error:
            raise agent_error(
                AgentCode.INTERNAL_ERROR, f"Store failed: {error}", "store_failed"
            ) from None
        if plan is not None:
            kernel.events.plan_approved(plan, approver, expires_ns)

    # -- who may answer ----------------------------------------------------------------------------

    def check_approver(self, call: AgentCall, live: LiveSession, plan_owner: str) -> None:
        """Whether the caller may answer a request of this session now. Raises RpcError."""
        identity, policies = call.binding.identity, self._endpoint.kernel.policies
        if identity.operator:
            return
        principal = identity.principal
        caps = identity.token.caps if identity.token is not None else ()
        if principal != plan_owner and policies.may_approve(principal, caps, plan_owner):
            return
        if call.access.admin and principal != plan_owner:
            return
        if (
            call.owns(live.owner)
            and principal != plan_owner
            and not principal.startswith("agent:")
            and self._leash_approves(live, plan_owner)
        ):
            return
        raise not_owned(live.id)

    def _leash_approves(self, live: LiveSession, plan_owner: str) -> bool:
        """A narrowing policy of the owner must let it approve as well."""
        leash = self._endpoint.leash_of(live.owner)
        return leash is None or self._endpoint.kernel.policies.may_approve(leash, (), plan_owner)

    # -- files -------------------------------------------------------------------------------------

    async def file(self, turn: Turn, params: bytes) -> dict[str, Any]:
        """The verdict about one file an external agent reads or writes."""
        order = msgspec.json.decode(params, type=_FileOrder)
        live = turn.live
        assert live is not None
        member = "read_text" if order.read else "write_text"
        allowed = self.may(live, "fs_read" if order.read else "fs_write", order.path)
        if allowed:
            return {"decision": "allow_once"}
        policy = self._endpoint.kernel.policies.of(self._endpoint.evaluation_principal(live))
        if policy is None or policy.opaque != "ask":
            return {"decision": "deny"}
        decision = await live.approvals.ask(
            turn, member, f"{member} {order.path}", seconds=turn.agent.approval_timeout_secs,
            plan_owner=self._endpoint.evaluation_principal(live),
        )  # fmt: skip
        return {"decision": decision.word}

    def may(self, live: LiveSession, kind: str, path: str) -> bool:
        """Whether the evaluation principal and the owner's narrowing policy grant a file."""
        principals = [self._endpoint.evaluation_principal(live)]
        leash = self._endpoint.leash_of(live.owner)
        if leash is not None:
            principals.append(leash)
        return all(self.grants(principal, kind, path) for principal in principals)

    def grants(self, principal: str, kind: str, path: str) -> bool:
        policy = self._endpoint.kernel.policies.of(principal)
        if policy is None:
            return False
        return path_granted(getattr(policy, kind), path, read=kind == "fs_read")

    def may_list(self, binding: Binding, path: Path) -> bool:
        """Whether a scoped caller may read a directory."""
        principal = binding.identity.leash or binding.identity.principal
        return self.grants(principal, "fs_read", str(path))


class _FileOrder(msgspec.Struct):
    path: str
    read: bool


_REASONS: Final = {
    "timed_out": "nobody answered in time",
    "unreachable": "nobody can be asked",
}


def described(effects: list[dict[str, Any]]) -> str:
    """Effects in a few words: kinds with the paths or names they touch."""
    parts: list[str] = []
    for effect in effects:
        objects = effect.get("paths") or effect.get("names") or []
        shown = ", ".join(str(_shown(item)) for item in objects[:3])
        more = f" and {len(objects) - 3} more" if len(objects) > 3 else ""
        parts.append(f"{effect['kind']}{f' {shown}{more}' if shown else ''}")
    return "; ".join(parts) or "no effects"


def _shown(item: Any) -> Any:
    return item.get("display", item) if isinstance(item, dict) else item
