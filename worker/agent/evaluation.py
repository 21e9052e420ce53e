"""Running source for a turn: through the router, observed, with a person asked when policy says so.

Failure: `Refused` for what ends the turn (a revoked credential, a worker that goes away);
everything else is a result with `is_error`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ipc.jsonrpc import Code
from worker.agent.observer import Observer
from worker.agent.turn import Refused, Turn, TurnCancelled

APPROVAL_ROUNDS_MAX: Final = 3
# Refusals of the router that are the end of the turn, not the result of a call.
_FATAL: Final = frozenset(
    {"credential_rejected", "credential_expired", "not_granted", "shutting_down", "worker_lost",
     "journal_unavailable", "internal_error"}
)  # fmt: skip


@dataclass(slots=True)
class Evaluated:
    """`text` for model and client; `began` is False when the source did not parse; `shown` when the
    client has seen the value already."""

    text: str
    is_error: bool = False
    began: bool = True
    shown: bool = False


def evaluate(
    turn: Turn,
    call_id: str,
    tool: str,
    src: str,
    *,
    announce: Callable[[], None],
    output: Callable[[str], None] | None,
    mode: str = "run",
    timeout_ms: int | None = None,
) -> Evaluated:
    """Evaluate once. `announce` is called when the source is accepted, before any output."""
    announced = False

    def begin() -> None:
        nonlocal announced
        if not announced:
            announced = True
            announce()

    order: dict[str, Any] = {"src": src, "tool_call": call_id, "mode": mode}
    if timeout_ms is not None:
        order["timeout_ms"] = timeout_ms
    for _round in range(APPROVAL_ROUNDS_MAX):
        turn.check()
        observer = Observer(begin, output, turn.order.attachments)
        turn.observers[call_id] = observer
        try:
            answer = turn.ask("agent.exec", order)
        finally:
            turn.observers.pop(call_id, None)
        if observer.ended:
            if turn.cancelled.is_set() and observer.is_error:
                # What was cut off ends in whatever error; the cancellation is why.
                raise TurnCancelled
            return Evaluated(observer.text, observer.is_error, shown=observer.shown)
        body = answer["body"]
        if answer["ok"]:
            begin()
            return Evaluated(planned_text(body))
        code, kind = body["code"], body["data"]["kind"]
        if code == Code.PARSE_ERROR:
            return Evaluated(diagnostic(src, body), is_error=True, began=False)
        if code == Code.APPROVAL_REQUIRED:
            begin()
            refusal = _approved(turn, tool, src, order)
            if refusal is not None:
                return refusal
            continue
        if code == Code.LEASH_DENIED:
            begin()
            reason = body["data"].get("hint") or body["message"]
            return Evaluated(f"denied: {reason}", is_error=True)
        if kind in _FATAL:
            raise Refused(body)
        turn.check()
        begin()
        return Evaluated(str(body["message"]), is_error=True)
    return Evaluated("denied: the plan changed again and again", is_error=True)


def _approved(turn: Turn, tool: str, src: str, order: dict[str, Any]) -> Evaluated | None:
    """Have a person decide; None when the call may run now as `order` says."""
    decision = turn.ask("agent.approval", {"src": src, "tool": tool})
    word = decision["decision"]
    if word in ("allow_once", "allow_always"):
        if decision["plan_ref"] is None:
            order["mode"] = "run"
            order.pop("plan_ref", None)
        else:
            order["mode"] = "approved"
            order["plan_ref"] = decision["plan_ref"]
        return None
    turn.check()
    if word == "reject_with_edit":
        wish = decision.get("replacement") or ""
        return Evaluated(f"denied: the person wants instead: {wish}", is_error=True)
    return Evaluated(f"denied: {decision.get('reason') or 'the person said no'}", is_error=True)


def planned_text(body: dict[str, Any]) -> str:
    """The plan of a call that ran nothing."""
    effects = body.get("effects", [])
    lines = [f"verdict: {body.get('verdict')}", f"reversibility: {body.get('reversibility')}"]
    lines += [f"effect: {_effect(effect)}" for effect in effects] or ["effects: none"]
    return "\n".join(lines)


def _effect(effect: dict[str, Any]) -> str:
    rest = {name: value for name, value in effect.items() if name != "kind"}
    return f"{effect['kind']} {rest}" if rest else str(effect["kind"])


def diagnostic(src: str, error: dict[str, Any]) -> str:
    """A syntax error with its place."""
    data = src.encode("utf-8", "surrogatepass")
    start = min(int(error["data"]["span"]["start"]), len(data))
    before = data[:start].decode("utf-8", "ignore")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    text = src.split("\n")[line - 1]
    lines = [f"{line}:{column}: parse_error: {error['message']}", f"  {text}"]
    lines.append("  " + " " * (column - 1) + "^")
    if error["data"].get("hint"):
        lines.append(f"  hint: {error['data']['hint']}")
    return "\n".join(lines)
