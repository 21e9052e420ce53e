"""The provider kind `openai`: chat completions with tools, in a loop (chapter 70 §18.2).

Failure: what the model did wrong comes back to it as the result of a tool call; what the provider
did wrong makes the turn failed, with the text that is visible so far kept.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipc.agent_events import Text, Thought, TurnEnd, TurnTotals, Usage
from worker.agent import context, tools
from worker.agent.model import ModelCall, ModelFailed
from worker.agent.sse import Call, Reply
from worker.agent.turn import Refused, Turn, TurnFailed

NOTE: Final = (
    "Tools run in a persistent shell session whose working directory is {workspace}. "
    "Results of tools are text; long ones are cut."
)


class Loop:
    # `messages` is the context with what happened in this turn; `totals` sums what the provider
    # reports. One thread.

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.order = turn.order
        self.messages: context.Messages = [
            *self.order.context,
            {"role": "user", "content": self.order.visible_prompt},
        ]
        self.totals = TurnTotals()
        self.reported = False

    def run(self) -> TurnEnd:
        for _number in range(self.order.max_turns):
            self._fit()
            try:
                reply = self._call_model()
            except (ModelFailed, Refused) as failed:
                self.turn.check()
                raise TurnFailed(str(failed)) from None
            calls = self._taken(reply)
            if not calls:
                return self._end(reply.stop_reason)
            for call in calls:
                self._run_call(call)
        return self._end("max_turns")

    def _end(self, stop_reason: str) -> TurnEnd:
        return TurnEnd(stop_reason, None, self.totals if self.reported else None)

    # -- the model ---------------------------------------------------------------------------------

    def _call_model(self) -> Reply:
        """One call; a context that is refused as too long is trimmed once and sent again."""
        try:
            return self._stream()
        except ModelFailed as failed:
            if not failed.too_long or not self._trim(at_least_one=True):
                raise
        return self._stream()

    def _stream(self) -> Reply:
        self.turn.check()
        call = ModelCall(self.turn, self._body())
        for delta in call:
            if delta.thought:
                self.turn.reporter.add(Thought(delta.thought))
            if delta.text:
                self.turn.reporter.add(Text(delta.text))
        self.turn.check()
        self._note_usage(call.reply)
        return call.reply

    def _body(self) -> dict[str, Any]:
        provider = self.order.provider
        body: dict[str, Any] = {
            "model": provider.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "system", "content": self._system()}, *self.messages],
        }
        if provider.temperature is not None:
            body["temperature"] = provider.temperature
        if provider.max_tokens is not None:
            body["max_tokens"] = provider.max_tokens
        schemas = tools.schemas(self.order.tools)
        if schemas:
            body["tools"] = schemas
            body["tool_choice"] = "auto"
        return body

    def _system(self) -> str:
        note = NOTE.format(workspace=self.order.workspace)
        prompt = self.order.system_prompt
        return f"{prompt}\n\n{note}" if prompt else note

    def _note_usage(self, reply: Reply) -> None:
        usage = reply.usage
        if usage is None:
            return
        self.reported = True
        given, made = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        self.totals.input_tokens += given
        self.totals.output_tokens += made
        self.totals.total_tokens += usage.get("total_tokens", given + made)
        self.turn.reporter.add(
            Usage(input_tokens=given, max_context_tokens=self.order.max_context_tokens)
        )

    # -- the context -------------------------------------------------------------------------------

    def _fit(self) -> None:
        if context.tokens_of(self.messages) > self.order.max_context_tokens:
            self._trim(at_least_one=False)

    def _trim(self, *, at_least_one: bool) -> bool:
        """Drop old turns, when the router could commit that; whether anything was dropped."""
        trimmed = context.trim(
            self.messages, self.order.max_context_tokens, at_least_one=at_least_one
        )
        if trimmed is None:
            return False
        if not self.turn.reporter.flush():
            self.turn.check()
            return False
        if not self.turn.commit(trimmed):
            # The untrimmed context stays.
            return False
        self.messages = list(trimmed.context)
        return True

    def _taken(self, reply: Reply) -> list[Call]:
        """Put the answer into the context; its tool calls, each with an id of the session's own."""
        calls = reply.tool_calls()
        known = self.turn.session.desk.known_calls
        for call in calls:
            if not call.id or call.id in known:
                call.id = tools.new_call_id(known)
            known.add(call.id)
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments or "{}"},
                }
                for call in calls
            ]
        if reply.text or calls:
            self.messages.append(message)
        return calls

    def _run_call(self, call: Call) -> None:
        """Run one tool call and put its result into the context."""
        self.turn.check()
        arguments, wrong = _arguments(call.arguments)
        self.turn.call(call.id, call.name, arguments)
        if wrong is not None:
            text, is_error = wrong, True
        else:
            text, is_error = tools.run(self.turn, call.id, call.name, arguments)
        self.turn.check()
        self.turn.result(call.id, call.name, text, is_error=is_error)
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


def _arguments(text: str) -> tuple[dict[str, Any], str | None]:
    try:
        found = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        return {}, f"arguments are not JSON: {error}"
    if type(found) is not dict:
        return {}, "arguments are not a JSON object"
    return found, None


def run(turn: Turn) -> TurnEnd:
    return Loop(turn).run()
