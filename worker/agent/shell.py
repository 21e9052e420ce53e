"""The provider kind `shell`: the prompt is source text, evaluated in the session (chapter 70
§18.1).

Failure: language errors, denials and syntax errors are what the turn says; only what the router
refuses for good makes it fail.
"""

from __future__ import annotations

from ipc.agent_events import TurnEnd
from worker.agent.evaluation import evaluate
from worker.agent.turn import Turn

TOOL = "shoal"


def run(turn: Turn) -> TurnEnd:
    order = turn.order
    if not order.prompt.strip():
        # Attachments alone evaluate nothing.
        turn.reporter.text(order.visible_prompt.strip())
        return TurnEnd()
    call_id = f"sh-{order.next_tool}"
    found = evaluate(
        turn,
        call_id,
        TOOL,
        order.prompt,
        announce=lambda: turn.call(call_id, TOOL, {"src": order.prompt}),
        output=turn.reporter.text,
    )
    if not found.began:
        turn.reporter.text(found.text)
        return TurnEnd()
    turn.result(call_id, TOOL, found.text, is_error=found.is_error)
    if not found.shown:
        turn.reporter.text(found.text)
    return TurnEnd()
