"""One turn of a session, from the admission of its prompt to its answer (chapter 70 §10).

The order is the chapter's: a place in the session's queue by arrival, rehydration, checks anew,
attachments, checkpoint, run, finish. Every event of the worker is committed to the checkpoint
before the client hears of it; all events, `turn_complete` last, go out before the answer.

Failure: whatever happens after admission ends in exactly one `turn_complete` and one answer. A
worker that ends, a store that fails and a timeout make the turn failed and leave the session
usable.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ipc.agent_envelope import AgentCode, Request, agent_error
from ipc.agent_events import (
    Event,
    TurnEnd,
    TurnTotals,
    decode_batch,
)
from ipc.agent_methods import METHODS, PromptParams, PromptResult
from ipc.jsonrpc import RpcError, internal
from ipc.messages import Ask, Cancel, Failure, Reply
from journal.agent_store import (
    SessionRow,
    begin_turn,
)
from journal.errors import StoreError
from journal.records import Probe
from supervisor.agent import attachments, tools
from supervisor.agent.identity import Access, Binding, not_granted
from supervisor.agent.limits import CANCEL_GRACE_S, SLOT_WAIT_S
from supervisor.agent.sessions import (
    AMBIGUOUS,
    SURFACES,
    LiveSession,
    answer_ask,
    refuse_ask,
    session_gone,
    store_failed,
)
from supervisor.agent.settings import Agent, Provider, Unusable
from supervisor.agent.slots import Place, SlotFull, SlotTimeout
from supervisor.agent.turn_order import order_of, retained_context
from supervisor.agent.turn_record import TurnRecord
from supervisor.agent.updates import update_of, update_params
from supervisor.contents import close_all
from supervisor.submissions import journal_unavailable
from supervisor.worker_process import Ending, Worker

if TYPE_CHECKING:
    from supervisor.agent.connection import AgentConnection
    from supervisor.agent_endpoint import AgentEndpoint
    from supervisor.submissions import Submission

log = structlog.get_logger()

# How long after the grace the worker itself is ended, when it does not give the turn back.
WORKER_ABORT_S: Final = 1.0
BUSY_RETRY_MS: Final = 1000
BLANK: Final = "session/prompt requires a non-empty `prompt` or at least one attachment"
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended: the outcome word, its content, and the error of the answer if any."""

    outcome: str
    content: str
    stop_reason: str = "end_turn"
    error: RpcError | None = None


class Turn:
    # `cause` is set once, by the first cancellation. `_record` is what the turn has said. `running`
    # is the submission a tool call evaluates right now, `_tasks` the questions being answered.
    # `call_id` names the call to the worker while it runs.

    def __init__(
        self,
        endpoint: AgentEndpoint,
        connection: AgentConnection,
        binding: Binding,
        params: PromptParams,
    ) -> None:
        self.endpoint = endpoint
        self.connection = connection
        self.binding = binding
        self.params = params
        self.id = str(uuid.uuid4())
        self.session_id = params.session_id
        self.request = Request("session/prompt", b"", b"")
        self.done = asyncio.Event()
        self.live: LiveSession | None = None
        self.started_ns = 0
        self.cause: str | None = None
        self.call_id = 0
        self.begun = False
        self.agent = Agent()
        self.provider = Provider()
        self.provider_name = ""
        self.ceiling: frozenset[str] | None = None
        self._place: Place | None = None
        self._worker: Worker | None = None
        self._record = TurnRecord(endpoint.kernel, self.id, self._tell)
        self._usage: TurnTotals | None = None
        self.running: Submission | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[TurnEnd | RpcError] | None = None
        self._cancelled = asyncio.Event()
        self._timed_out = False
        self._abort_timer: asyncio.TimerHandle | None = None
        self._timeout_timer: asyncio.TimerHandle | None = None

    @property
    def access(self) -> Access:
        """What the prompting connection may do now."""
        return self.endpoint.access(self.binding.identity)

    # -- admission ---------------------------------------------------------------------------------

    def admit(self) -> RpcError | None:
        """Take the place in the session's queue; the refusal when there is none."""
        try:
            self._place = self.endpoint.sessions.slots.enter(self.session_id, turn=True)
        except SlotFull:
            return self._busy("the queue is full")
        return None

    def _busy(self, why: str) -> RpcError:
        return agent_error(
            AgentCode.SESSION_BUSY,
            f"Session busy: {why}",
            "session_busy",
            retry_after_ms=BUSY_RETRY_MS,
            queued=self.endpoint.sessions.slots.waiting_turns(self.session_id),
        )

    def give_up(self) -> None:
        """Leave the queue without a word."""
        self._leave()
        self.done.set()

    async def run(self, refusal: RpcError | None) -> None:
        """Everything after admission, up to the answer."""
        result: bytes | None = None
        error: RpcError | None = refusal
        try:
            if error is None:
                if self.endpoint.draining:
                    raise internal("shutting_down", "kernel is shutting down")
                await self._wait()
                ended = await self._run_in_slot()
                await self._complete(ended)
                error = ended.error
                result = METHODS["session/prompt"].encode(
                    PromptResult(self.session_id, ended.stop_reason, ended.content, self.id)
                )
        except RpcError as refused:
            error = refused
        except Exception:
            log.exception("agent.turn", session=self.session_id)
            error = internal("internal_error", "unexpected failure in the router")
        if result is None:
            assert error is not None
            await self._complete(Ended("failed", self._refused_text(error), error=error))
        self._leave()
        if error is not None:
            self.endpoint.failed(self.connection, "session/prompt", error)
        self.endpoint.answered(self.connection, self, result, error)
        self.done.set()

    def _refused_text(self, error: RpcError) -> str:
        if error.kind == "session_not_found":
            return "turn cancelled by daemon: session_not_found"
        return f"turn refused by daemon: {error.message}"

    async def _wait(self) -> None:
        """Until the slot is ours, or the turn is cancelled. Raises RpcError."""
        assert self._place is not None
        waiting = asyncio.ensure_future(self._place.wait(SLOT_WAIT_S))
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({waiting, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
        except SlotTimeout:
            self._place = None
            raise self._busy("no turn of it ended in time") from None
        finally:
            waiting.cancel()
            cancelled.cancel()

    def _leave(self) -> None:
        live = self.live
        if live is not None and live.turn is self:
            live.turn = None
        if self._place is not None:
            self._place.leave()
            self._place = None
        if live is not None and not live.ended:
            live.rest()
        self.endpoint.quieter()

    # -- under the slot ----------------------------------------------------------------------------

    async def _run_in_slot(self) -> Ended:
        if self.cause is not None:
            return self._cancelled_end()
        self.live = live = await self._session()
        live.busy()
        live.turn = self
        self._check_again(live)
        try:
            self.provider_name, self.agent, self.provider = live.provider()
        except Unusable as why:
            raise agent_error(
                AgentCode.INTERNAL_ERROR,
                f"Failed to create agent: {why}",
                "agent_unavailable",
                session_id=live.id,
            ) from None
        self._check_tools()
        await self._check_store()
        files = await self._store_attachments(live)
        markers = [file.marker for file in files]
        prompt = "\n".join([self.params.prompt, *markers]) if markers else self.params.prompt
        await self._begin(live, prompt)
        if self.agent.turn_timeout_secs:
            self._timeout_timer = self.endpoint.kernel.loop.call_later(
                self.agent.turn_timeout_secs, self._time_out
            )
        end = await self._work(live, prompt, [file.workspace_path for file in files])
        return await self._finish(live, prompt, end)

    async def _session(self) -> LiveSession:
        """The live session, brought back when only durable. Raises RpcError."""
        sessions = self.endpoint.sessions
        live = sessions.live.get(self.session_id)
        if live is not None:
            return live
        rows = [
            row
            for row in await sessions.rows(self.session_id)
            if self.access.admin or row.principal_id == self.binding.identity.owner
        ]
        if len(rows) > 1:
            raise agent_error(AgentCode.INVALID_PARAMS, AMBIGUOUS, "invalid_params")
        if not rows or rows[0].killed_at is not None or rows[0].interaction_surface not in SURFACES:
            raise session_gone(self.session_id)
        return await self._rehydrated(rows[0])

    async def _rehydrated(self, row: SessionRow) -> LiveSession:
        live = await self.endpoint.sessions.rehydrate(row)
        live.back_channel = self.connection
        live.tui_id = self.binding.tui_id
        return live

    def _check_again(self, live: LiveSession) -> None:
        """What waiting may have changed: credential, grant, owner, agent. Raises RpcError."""
        self.endpoint.check_session_access(
            self.binding.identity, "session/prompt", "sessions:execute", live.id, live.owner,
            alias=live.alias,
        )  # fmt: skip
        if self.params.attachments and "files:create" not in self.access.grants:
            raise not_granted("files:create", "session/prompt")

    def _check_tools(self) -> None:
        self.ceiling = self.access.tool_ceiling()
        if self.provider.kind == "shell" and not tools.allowed("shoal", self.ceiling):
            raise not_granted("tools:execute", "session/prompt")

    async def _check_store(self) -> None:
        """While the store cannot commit, nothing begins. Raises RpcError."""
        kernel = self.endpoint.kernel
        if kernel.draining:
            raise internal("shutting_down", "kernel is shutting down")
        if kernel.store.failure is None:
            return
        try:
            await kernel.store.commit(Probe())
        except StoreError as error:
            unavailable = journal_unavailable(error)
            unavailable.data["session_id"] = self.session_id
            raise unavailable from None

    async def _store_attachments(self, live: LiveSession) -> list[attachments.Stored]:
        if not self.params.attachments:
            return []
        return await attachments.store(
            self.endpoint, live, self.binding, self.params.attachments, method="session/prompt"
        )

    async def _begin(self, live: LiveSession, prompt: str) -> None:
        """Commit the checkpoint, then announce the turn. Raises RpcError."""
        kernel = self.endpoint.kernel
        self.started_ns = kernel.now_ns()
        try:
            await kernel.store.commit(begin_turn(live.key, self.id, prompt, self.started_ns))
        except StoreError as error:
            self.endpoint.spawn(self.endpoint.sessions.remove(live))
            raise store_failed(live.id, f"turn checkpoint failed: {error}") from None
        self.begun = True
        started: dict[str, Any] = {"turn_id": self.id}
        if self.params.client_turn_generation is not None:
            started["client_turn_generation"] = self.params.client_turn_generation
        self.notify("turn_started", started)

    # -- running -----------------------------------------------------------------------------------

    async def _work(self, live: LiveSession, prompt: str, files: list[str]) -> TurnEnd | RpcError:
        """Have the worker run the turn; how it ended there."""
        try:
            await self.endpoint.sessions.renew(live)
            worker = await live.worker()
            context = await retained_context(self, live)
        except RpcError as error:
            return error
        except StoreError as error:
            return store_failed(live.id, str(error))
        if self.cause is not None:
            return TurnEnd()
        order = order_of(self, live, prompt, files, context)
        self._ended = self.endpoint.kernel.loop.create_future()
        self._worker = worker
        self.call_id = worker.call(
            "agent.turn", _encode(order), tools.caller(self.endpoint, live, self), self._over
        )
        return await self._ended

    def _over(self, ending: Ending, fds: list[int]) -> None:
        close_all(fds)
        ended = self._ended
        if ended is None or ended.done():
            return
        match ending:
            case Reply():
                try:
                    ended.set_result(msgspec.json.decode(ending.result.data, type=TurnEnd))
                except msgspec.DecodeError:
                    ended.set_result(internal("worker_lost", "session worker ended"))
            case Failure():
                ended.set_result(_worker_error(bytes(ending.error)))
            case RpcError():
                ended.set_result(ending)
            case _:
                ended.set_result(internal("internal_error", "unexpected answer"))

    # -- cancelling --------------------------------------------------------------------------------

    def cancel(self, cause: str) -> None:
        """Signal the end of the turn; its own events announce that it is over."""
        if self.cause is not None:
            return
        self.cause = cause
        self._cancelled.set()
        worker = self._worker
        if worker is None or self._ended is None or self._ended.done():
            return
        worker.send(Cancel(self.call_id))
        if self.running is not None:
            self.running.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._abort_timer = self.endpoint.kernel.loop.call_later(
            CANCEL_GRACE_S + WORKER_ABORT_S, self._abort
        )

    def _abort(self) -> None:
        if self._worker is not None and self._ended is not None and not self._ended.done():
            self._worker.kill("turn")

    def _time_out(self) -> None:
        self._timed_out = True
        self.cancel("turn_timeout")

    # -- questions of the worker -------------------------------------------------------------------

    def asked(self, worker: Worker, ask: Ask) -> None:
        """Answer one question, now or later."""
        handler = _QUESTIONS.get(ask.op)
        if handler is None:
            refuse_ask(worker, ask, internal("internal_error", f"unknown question {ask.op}"))
            return
        task = self.endpoint.kernel.loop.create_task(self._answer(handler, worker, ask))
        # Events and evaluations end by themselves; waiting for people and models is cut off.
        if ask.op not in ("agent.events", "agent.exec"):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self.endpoint.keep(task)

    async def _answer(self, handler: Question, worker: Worker, ask: Ask) -> None:
        try:
            body = await handler(self, worker, ask)
        except RpcError as error:
            refuse_ask(worker, ask, error)
        except asyncio.CancelledError:
            refuse_ask(worker, ask, internal("cancelled", "the turn was cancelled"))
            raise
        except (msgspec.DecodeError, StoreError) as error:
            refuse_ask(worker, ask, internal("internal_error", str(error)))
        except Exception:
            log.exception("agent.question", op=ask.op)
            refuse_ask(worker, ask, internal("internal_error", "unexpected failure"))
        else:
            if body is not None:
                answer_ask(worker, ask, body)

    async def commit_events(self, _worker: Worker, ask: Ask) -> dict[str, Any]:
        """Commit a batch, then tell the client, then wait until it has room for more."""
        assert self.live is not None
        try:
            await self._record.commit(self.live, decode_batch(ask.params))
        except StoreError:
            if self._record.failure is not None:
                self.cancel("checkpoint_failed")
            raise
        await self.connection.room()
        return {"ok": True}

    def _tell(self, event: Event) -> None:
        kind, members = update_of(event)
        self.notify(kind, members)

    def notify(
        self, kind: str, members: dict[str, Any], connection: AgentConnection | None = None
    ) -> None:
        """Send one `session/update`, to the prompting connection unless another is given."""
        (connection or self.connection).notify(
            "session/update", update_params(kind, self.session_id, members)
        )

    # -- the end -----------------------------------------------------------------------------------

    async def _finish(self, live: LiveSession, prompt: str, end: TurnEnd | RpcError) -> Ended:
        """Close what is open, commit the end, and say how it was."""
        for timer in (self._abort_timer, self._timeout_timer):
            if timer is not None:
                timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        ended = self._judge(end)
        self._record.close_calls("cancelled" if ended.outcome == "cancelled" else "interrupted")
        totals = end.totals if isinstance(end, TurnEnd) else None
        self._usage = totals
        try:
            await self._record.finish(live, prompt, ended.outcome, totals)
        except StoreError as error:
            # The checkpoint stays; the next use of the session folds it in.
            self.endpoint.spawn(self.endpoint.sessions.remove(live))
            return _failed(f"store failed: {error}", "store_failed", live.id)
        live.failed = ended.outcome == "failed"
        return ended

    def _judge(self, end: TurnEnd | RpcError) -> Ended:
        if self._record.failure is not None:
            why = f"turn checkpoint failed: {self._record.failure}"
            return _failed(why, "checkpoint_failed", self.session_id)
        if self._timed_out:
            why = f"no end within {self.agent.turn_timeout_secs} s"
            return _failed(why, "turn_failed", self.session_id)
        if self.cause is not None:
            return self._cancelled_end()
        if isinstance(end, RpcError):
            kind = end.kind if end.kind in _KEPT_KINDS else "turn_failed"
            return _failed(end.message, kind, self.session_id, **_extra(end))
        if end.error is not None:
            return _failed(end.error, "turn_failed", self.session_id)
        return Ended("completed", self._record.text, end.stop_reason)

    def _cancelled_end(self) -> Ended:
        return Ended("cancelled", self._record.text, "cancelled")

    async def _complete(self, ended: Ended) -> None:
        """Send the one `turn_complete`."""
        content = ended.content
        if ended.outcome == "cancelled":
            content = f"turn cancelled via {self.cause} in RPC_SESSION {self.session_id}"
        live = self.live
        members: dict[str, Any] = {
            "outcome": ended.outcome,
            "content": content,
            "turn_id": self.id,
            "message_count": 0 if live is None else live.count,
        }
        if self.params.client_turn_generation is not None:
            members["client_turn_generation"] = self.params.client_turn_generation
        if self._usage is not None:
            members["usage"] = msgspec.to_builtins(self._usage)
        self.notify("turn_complete", members)


Question = Callable[[Turn, Worker, Ask], Awaitable[dict[str, Any] | None]]

_KEPT_KINDS: Final = frozenset(
    {"worker_lost", "worker_backoff", "shutting_down", "journal_unavailable", "store_failed",
     "internal_error", "agent_unavailable"}
)  # fmt: skip

_QUESTIONS: Final[dict[str, Question]] = {
    "agent.events": Turn.commit_events,
    "agent.exec": tools.evaluate,
    "agent.approval": tools.approve,
    "agent.permission": tools.permission,
    "agent.file": tools.file_verdict,
    "agent.elicit": tools.elicit,
    "agent.model": tools.model,
    "agent.external": tools.keep_external,
}


def _failed(why: str, kind: str, session_id: str, **extra: Any) -> Ended:
    text = f"turn failed: {why}"
    error = agent_error(AgentCode.INTERNAL_ERROR, text, kind, **{"session_id": session_id, **extra})
    return Ended("failed", text, error=error)


def _extra(error: RpcError) -> dict[str, Any]:
    return {
        name: value
        for name, value in error.data.items()
        if name not in ("kind", "reason", "session", "session_id")
    }


def _worker_error(data: bytes) -> RpcError:
    found = msgspec.json.decode(data)
    return internal(str(found["data"].get("kind", "internal_error")), str(found["message"]))
