"""A small external agent program for tests, built with the `agent-client-protocol` package.

    python acp_agent.py [--version N] [--no-load]

What a prompt says decides what it does: `read PATH`, `write PATH TEXT`, `ask`, `tool`, `plan`,
`think`, `wait`, `die`, `env NAME`, anything else is repeated.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, cast

from acp import (
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    plan_entry,
    run_agent,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp import schema as acp_schema


class Echo:
    def __init__(self) -> None:
        self._client: Any = None
        self._cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_rest: Any) -> InitializeResponse:
        version = int(sys.argv[sys.argv.index("--version") + 1]) if "--version" in sys.argv else 1
        return InitializeResponse(
            protocol_version=version,
            agent_capabilities=acp_schema.AgentCapabilities(
                load_session="--no-load" not in sys.argv
            ),
        )

    async def new_session(self, cwd: str, **_rest: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id=f"ext-{os.getpid()}")

    async def load_session(self, cwd: str, session_id: str, **_rest: Any) -> LoadSessionResponse:
        await self._say(session_id, "a replayed line")
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_rest: Any) -> None:
        self._cancelled.set()

    async def _say(self, session: str, text: str) -> None:
        await self._client.session_update(
            session_id=session, update=update_agent_message_text(text)
        )

    async def prompt(self, session_id: str, prompt: list[Any], **_rest: Any) -> PromptResponse:
        text = "".join(getattr(block, "text", "") for block in prompt)
        word, _, rest = text.partition(" ")
        self._cancelled.clear()
        action = getattr(self, f"_do_{word}", None)
        if action is None:
            await self._say(session_id, f"you said {text} in {session_id.split('-')[0]}")
            return PromptResponse(stop_reason="end_turn")
        reason = await action(session_id, rest)
        return PromptResponse(stop_reason=reason or "end_turn")

    async def _do_think(self, session: str, rest: str) -> None:
        await self._client.session_update(
            session_id=session, update=update_agent_thought_text("hmm")
        )
        await self._say(session, "thought")

    async def _do_plan(self, session: str, rest: str) -> None:
        entry = plan_entry("measure", priority="high", status="pending")
        await self._client.session_update(session_id=session, update=update_plan([entry]))

    async def _do_tool(self, session: str, rest: str) -> None:
        start = start_tool_call("t1", "Count", kind="read", raw_input={"path": "x"})
        await self._client.session_update(session_id=session, update=start)
        done = update_tool_call(
            "t1", status="completed", content=[tool_content(text_block("3 lines"))]
        )
        await self._client.session_update(session_id=session, update=done)

    async def _do_ask(self, session: str, rest: str) -> None:
        answer = await self._client.request_permission(
            session_id=session,
            tool_call=acp_schema.ToolCallUpdate(tool_call_id="t2", title="Drop the table"),
            options=[
                acp_schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
                acp_schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
            ],
        )
        outcome = answer.outcome
        await self._say(session, str(getattr(outcome, "option_id", outcome.outcome)))

    async def _do_read(self, session: str, rest: str) -> None:
        try:
            answer = await self._client.read_text_file(session_id=session, path=rest)
            await self._say(session, answer.content)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
            await self._say(session, f"refused: {error}")

    async def _do_write(self, session: str, rest: str) -> None:
        path, _, text = rest.partition(" ")
        await self._client.write_text_file(session_id=session, path=path, content=text)

    async def _do_wait(self, session: str, rest: str) -> str:
        await self._say(session, "waiting")
        await self._cancelled.wait()
        return "cancelled"

    async def _do_die(self, session: str, rest: str) -> None:
        os._exit(7)

    async def _do_env(self, session: str, rest: str) -> None:
        await self._say(session, os.environ.get(rest, "<unset>"))


if __name__ == "__main__":
    asyncio.run(run_agent(cast(Any, Echo())))
