"""Questions to people in a turn: approval requests, and what was remembered of their answers.

A request lives as long as somebody can answer it: it ends with an answer, its timeout, the end of
the back channel, the cancellation of its turn or the end of the live session. Every decision is one
audit row (chapter 70 §11).

Failure: none; an unanswered request is a no.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from journal.records import AppendAudit, AuditRow
from supervisor.agent.limits import SUMMARY_CHARS_MAX

if TYPE_CHECKING:
    from supervisor.agent.sessions import LiveSession
    from supervisor.agent.turns import Turn

DECISIONS: Final = frozenset(
    {"allow_once", "allow_always", "reject", "reject_once", "reject_with_edit"}
)


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer: the word, the wish of the person, who decided, and by which way."""

    word: str
    replacement: str = ""
    principal: str = ""
    peer: str = ""
    source: str = "operator"

    @property
    def allowed(self) -> bool:
        return self.word in ("allow_once", "allow_always")


@dataclass(slots=True)
class Request:
    id: str
    tool: str
    plan_ref: str | None
    plan_owner: str
    answer: asyncio.Future[Decision]


class Approvals:
    # `pending` by request id; `remembered` holds (principal, tool, effect kinds) of `allow_always`
    # answers, and is emptied when the policy in force changes.

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self.pending: dict[str, Request] = {}
        self.remembered: set[tuple[str, str, frozenset[str]]] = set()
        self._policy_generation = -1

    async def ask(
        self,
        turn: Turn,
        tool: str,
        summary: str,
        *,
        seconds: int,
        plan: dict[str, Any] | None = None,
        plan_owner: str = "",
    ) -> Decision:
        """Raise a request on the back channel and wait for the decision."""
        live, endpoint = self._live, self._live.endpoint
        channel = live.back_channel
        plan_ref = None if plan is None else str(plan.get("ref"))
        request = Request(
            str(uuid.uuid4()), tool, plan_ref, plan_owner, endpoint.kernel.loop.create_future()
        )
        if channel is None or not channel.open:
            decision = Decision("reject", source="unreachable")
        else:
            self.pending[request.id] = request
            update: dict[str, Any] = {
                "request_id": request.id,
                "tool_name": tool,
                "arguments_summary": summarized(summary),
                "timeout_secs": seconds,
            }
            if plan is not None:
                update["plan"] = plan
            turn.notify("approval_request", update, channel)
            try:
                decision = await asyncio.wait_for(request.answer, seconds)
            except TimeoutError:
                decision = Decision("reject", source="timed_out")
            finally:
                self.pending.pop(request.id, None)
        self._audit(request, decision)
        return decision

    def answer(self, request_id: str, decision: Decision) -> bool:
        """Whether the request was waiting for an answer."""
        request = self.pending.get(request_id)
        if request is None or request.answer.done():
            return False
        request.answer.set_result(decision)
        return True

    def fail_all(self, source: str) -> None:
        """Nobody can answer any more."""
        for request in self.pending.values():
            if not request.answer.done():
                request.answer.set_result(Decision("reject", source=source))

    # -- remembered answers ------------------------------------------------------------------------

    def remember(self, principal: str, tool: str, kinds: frozenset[str], generation: int) -> None:
        self._forget_on_change(generation)
        self.remembered.add((principal, tool, kinds))

    def covers(self, principal: str, tool: str, kinds: frozenset[str], generation: int) -> bool:
        """Whether an earlier answer covers a plan with these effect kinds."""
        self._forget_on_change(generation)
        return any(
            who == principal and what == tool and kinds <= covered
            for who, what, covered in self.remembered
        )

    def record_remembered(self, tool: str, plan_ref: str | None) -> None:
        """Audit that a plan ran by an earlier answer."""
        future: asyncio.Future[Decision] = self._live.endpoint.kernel.loop.create_future()
        request = Request(str(uuid.uuid4()), tool, plan_ref, "", future)
        self._audit(request, Decision("allow_always", source="remembered"))

    def _forget_on_change(self, generation: int) -> None:
        if generation != self._policy_generation:
            self.remembered.clear()
            self._policy_generation = generation

    def _audit(self, request: Request, decision: Decision) -> None:
        kernel = self._live.endpoint.kernel
        detail = {
            "request_id": request.id,
            "tool": request.tool,
            "decision": decision.word,
            "peer": decision.peer,
            "source": decision.source,
        }
        row = AuditRow(
            ts=kernel.now_ns(),
            kind="agent_decision",
            principal=decision.principal or "none",
            detail=msgspec.json.encode(detail),
            owner=self._live.session.owner,
            session=self._live.session.name,
            plan_ref=request.plan_ref,
        )
        kernel.store.post(AppendAudit((row,)), _ignore)


def summarized(text: str) -> str:
    """At most 500 characters on one line, control characters escaped."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    return shown if len(shown) <= SUMMARY_CHARS_MAX else shown[: SUMMARY_CHARS_MAX - 1] + "…"


def check_decision(word: str) -> None:
    """Raises RpcError for a word that is no decision."""
    if word not in DECISIONS:
        raise agent_error(
            AgentCode.INVALID_PARAMS,
            f"unknown decision: {word}",
            "invalid_params",
            field="decision",
        )


def _ignore(_result: object, _error: Exception | None) -> None:
    return None
