"""What the worker of a turn asks the router for: evaluation, approvals, answers of people, models.

Every question is checked as for the connection that prompted, with live facts: a credential that
was revoked, or a profile that was narrowed, stops the next tool call and the next model call of a
turn that runs (chapter 70 §7.1, §7.5).

Failure: RpcError, which the worker turns into the result of the tool call or the end of the turn.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from ipc.jsonrpc import internal
from ipc.messages import Answer, Ask, Caller, Content
from journal.agent_store import set_external
from supervisor.agent.connection import AnsweredError, NoAnswer
from supervisor.agent.identity import check_alive, not_granted
from supervisor.submissions import check_accepting

if TYPE_CHECKING:
    from supervisor.agent.sessions import LiveSession
    from supervisor.agent.turns import Turn
    from supervisor.agent_endpoint import AgentEndpoint
    from supervisor.worker_process import Worker

ELICIT_S: Final = 300
ELICIT_S_MAX: Final = 3600
_SECRET_WORDS: Final = re.compile(
    r"\b(password|passphrase|passcode|passwd|secret|credential|private[ _-]?key|"
    r"(api|access|auth|bearer|session|refresh|security)?[ _-]?token|api[ _-]?key|access[ _-]?key|"
    r"pin code)s?\b",
    re.IGNORECASE,
)


class ExecOrder(msgspec.Struct):
    src: str
    tool_call: str
    mode: str = "run"
    timeout_ms: int | None = None
    plan_ref: str | None = None


class ApprovalOrder(msgspec.Struct):
    src: str
    tool: str


class PermissionOrder(msgspec.Struct):
    tool: str
    summary: str


class ElicitOrder(msgspec.Struct):
    question: str
    choices: list[str] | None = None
    multiple: bool = False
    min_items: int | None = None
    max_items: int | None = None
    timeout_secs: int | None = None


class ModelOrder(msgspec.Struct):
    body: msgspec.Raw


class ExternalOrder(msgspec.Struct):
    session: str | None


def allowed(tool: str, ceiling: frozenset[str] | None) -> bool:
    return ceiling is None or tool in ceiling


def caller(endpoint: AgentEndpoint, live: LiveSession, turn: Turn, tool_call: str = "") -> Caller:
    """Who the work of a turn runs as."""
    kernel = endpoint.kernel
    principal = endpoint.evaluation_principal(live)
    token = turn.binding.identity.token
    local = principal == kernel.local_human and not (token and token.caps)
    return Caller(
        principal=principal,
        connection=0,
        local_human=local,
        caps=[] if token is None else token.caps,
        budget=kernel.budget,
        page_bytes=kernel.config.limits.page_bytes,
        tool_call=tool_call,
    )


def check_tool(turn: Turn, tool: str) -> None:
    """Whether the prompting connection may still use a tool. Raises RpcError."""
    check_alive(turn.endpoint, turn.binding.identity)
    if not allowed(tool, turn.access.tool_ceiling()):
        raise not_granted("tools:execute", "session/prompt")


async def evaluate(turn: Turn, _worker: Worker, ask: Ask) -> dict[str, Any]:
    """Run source in the session as a submission; answers when it was committed."""
    order = msgspec.json.decode(ask.params, type=ExecOrder)
    check_tool(turn, "shoal")
    if turn.cause is not None:
        raise internal("cancelled", "the turn was cancelled")
    live, endpoint = turn.live, turn.endpoint
    assert live is not None
    check_accepting(endpoint.kernel, live.session)
    params: dict[str, Any] = {"src": order.src, "mode": order.mode}
    if order.plan_ref is not None:
        params["plan_ref"] = order.plan_ref
    answered: asyncio.Future[tuple[bool, bytes]] = endpoint.kernel.loop.create_future()

    def answer(ok: bool, body: bytes) -> None:
        if not answered.done():
            answered.set_result((ok, body))

    submission = endpoint.submission(
        live.session,
        caller(endpoint, live, turn, order.tool_call),
        msgspec.json.encode(params),
        order.src,
        answer,
    )
    timer = None
    if order.timeout_ms is not None:
        timer = endpoint.kernel.loop.call_later(order.timeout_ms / 1000, submission.cancel)
    turn.running = submission
    try:
        submission.submit()
        ok, body = await answered
    finally:
        turn.running = None
        if timer is not None:
            timer.cancel()
    return {"ok": ok, "body": msgspec.Raw(body)}


async def approve(turn: Turn, _worker: Worker, ask: Ask) -> dict[str, Any]:
    """Have a person decide about source whose verdict is `approval_required`."""
    order = msgspec.json.decode(ask.params, type=ApprovalOrder)
    check_tool(turn, "shoal")
    return await turn.endpoint.authority.decide(turn, order.src, order.tool)


async def permission(turn: Turn, _worker: Worker, ask: Ask) -> dict[str, Any]:
    """An external agent asks a person by itself: there is no plan, only its own words."""
    order = msgspec.json.decode(ask.params, type=PermissionOrder)
    live = turn.live
    assert live is not None
    check_alive(turn.endpoint, turn.binding.identity)
    decision = await live.approvals.ask(
        turn, order.tool, order.summary, seconds=turn.agent.approval_timeout_secs,
        plan_owner=turn.endpoint.evaluation_principal(live),
    )  # fmt: skip
    return {"decision": decision.word, "source": decision.source}


async def file_verdict(turn: Turn, _worker: Worker, ask: Ask) -> dict[str, Any]:
    """The verdict about a file that an external agent wants read or written."""
    check_tool(turn, "shoal")
    return await turn.endpoint.authority.file(turn, ask.params)


async def elicit(turn: Turn, _worker: Worker, ask: Ask) -> dict[str, Any]:
    """Ask the person behind the back channel; what the tool is told."""
    order = msgspec.json.decode(ask.params, type=ElicitOrder)
    check_tool(turn, "ask_user")
    live = turn.live
    assert live is not None
    channel = live.back_channel
    if channel is None or not channel.open or channel.binding is None:
        return {"error": "No one can be asked: no client is connected"}
    if not channel.binding.elicitation:
        return {"error": "No one can be asked: the client does not take questions"}
    if _SECRET_WORDS.search(" ".join([order.question, *(order.choices or ())])):
        return {"error": "Questions for passwords, tokens, keys and other secrets are not asked"}
    seconds = order.timeout_secs if order.timeout_secs is not None else ELICIT_S
    seconds = max(1, min(seconds, ELICIT_S_MAX))
    params = msgspec.json.encode(
        {
            "sessionId": live.id,
            "mode": "form",
            "message": order.question,
            "requestedSchema": requested_schema(order),
        }
    )
    try:
        answer = msgspec.json.decode(
            await channel.request("elicitation/create", params, float(seconds))
        )
    except NoAnswer as none:
        return {"error": _NO_ANSWER[none.reason].format(seconds=seconds)}
    except AnsweredError as failed:
        return {"error": f"{failed.error['message']} ({failed.error['code']})"}
    return answer_of(order, answer)


_NO_ANSWER: Final = {
    "timeout": "No response received within {seconds} seconds",
    "closed": "The client's connection ended before it answered",
    "busy": "Too many questions are open on the client's connection",
}


_TEXT_FIELD: Final[dict[str, Any]] = {"type": "string", "title": "Answer"}


def requested_schema(order: ElicitOrder) -> dict[str, Any]:
    """The flat form of a question: one of several, several, or free text."""
    name: str
    field: dict[str, Any]
    if not order.choices:
        name, field = "answer", _TEXT_FIELD
    else:
        options = [
            {"const": f"choice-{index}", "title": title}
            for index, title in enumerate(order.choices)
        ]
        if order.multiple:
            low, high = bounds(order)
            name, field = (
                "choices",
                {"type": "array", "minItems": low, "maxItems": high, "items": {"anyOf": options}},
            )
        else:
            name, field = "choice", {"type": "string", "title": "Choice", "oneOf": options}
    return {"type": "object", "required": [name], "properties": {name: field}}


def bounds(order: ElicitOrder) -> tuple[int, int]:
    count = len(order.choices or ())
    low = 0 if order.min_items is None else max(0, min(order.min_items, count))
    high = count if order.max_items is None else max(low, min(order.max_items, count))
    return low, high


def answer_of(order: ElicitOrder, answer: Any) -> dict[str, Any]:
    """The answer of a form as the tool reports it."""
    if answer is None:
        return {"text": "No answer was given"}
    if type(answer) is not dict:
        return {"error": MALFORMED}
    action = answer.get("action")
    if action in ("decline", "cancel"):
        return {"text": "The person declined to answer"}
    content = answer.get("content")
    if action != "accept" or type(content) is not dict:
        return {"error": MALFORMED}
    if not order.choices:
        text = content.get("answer")
        return {"text": text} if type(text) is str else {"error": MALFORMED}
    titles = {f"choice-{index}": title for index, title in enumerate(order.choices)}
    if not order.multiple:
        chosen = content.get("choice")
        if type(chosen) is not str or chosen not in titles:
            return {"error": MALFORMED}
        return {"text": titles[chosen]}
    several = content.get("choices")
    low, high = bounds(order)
    if (
        type(several) is not list
        or any(type(item) is not str or item not in titles for item in several)
        or len(set(several)) != len(several)
        or not low <= len(several) <= high
    ):
        return {"error": MALFORMED}
    return {"text": msgspec.json.encode([titles[item] for item in several]).decode()}


MALFORMED: Final = "malformed elicitation response"


async def model(turn: Turn, worker: Worker, ask: Ask) -> None:
    """Connect the worker with the model broker for one call."""
    order = msgspec.json.decode(ask.params, type=ModelOrder)
    check_alive(turn.endpoint, turn.binding.identity)
    if "sessions:execute" not in turn.access.grants:
        raise not_granted("sessions:execute", "session/prompt")
    try:
        stream = await turn.endpoint.broker.call(turn.provider, bytes(order.body))
    except OSError as error:
        raise agent_error(
            AgentCode.INTERNAL_ERROR, f"the model broker is not available: {error}",
            "agent_unavailable",
        ) from None  # fmt: skip
    worker.send(Answer(ask.id, True, Content()), [stream])


async def keep_external(turn: Turn, _worker: Worker, ask: Ask) -> dict[str, Any]:
    """Keep the id an external program gave its session."""
    order = msgspec.json.decode(ask.params, type=ExternalOrder)
    live = turn.live
    assert live is not None
    await turn.endpoint.kernel.store.commit(set_external(live.key, order.session))
    live.external_session = order.session
    return {"ok": True}
