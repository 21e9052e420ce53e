"""What a worker is told to run a turn with: provider, tools, context (chapter 70 §10, §17).

Failure: StoreError when the transcript cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ipc.agent_events import ProviderView, TurnOrder
from journal.agent_store import whole_transcript
from supervisor.agent import history, tools

if TYPE_CHECKING:
    from supervisor.agent.sessions import LiveSession
    from supervisor.agent.turns import Turn


async def retained_context(turn: Turn, live: LiveSession) -> history.Context:
    """What the model is given. An explicit empty snapshot is authoritative."""
    if turn.provider.kind != "openai":
        return []
    if live.context_json is not None:
        found: history.Context = msgspec.json.decode(live.context_json)
        return found
    rows = await turn.endpoint.kernel.store.load(whole_transcript(live.key))
    context = history.replay(rows)
    live.context_json = history.json_text(context)
    return context


def order_of(
    turn: Turn, live: LiveSession, prompt: str, files: list[str], context: history.Context
) -> TurnOrder:
    """The order; `prompt` has the markers of the stored `files`."""
    overrides, agent, provider = live.overrides, turn.agent, turn.provider
    switched = overrides.get("model_provider") not in (None, agent.provider)
    agent_model = None if switched else agent.model
    temperature = overrides.get("temperature", agent.temperature)
    return TurnOrder(
        turn_id=turn.id,
        session_id=live.id,
        prompt=turn.params.prompt,
        visible_prompt=prompt,
        attachments=files,
        provider=ProviderView(
            name=turn.provider_name,
            kind=provider.kind or "",
            model=overrides.get("model") or agent_model or provider.model,
            temperature=provider.temperature if temperature is None else temperature,
            max_tokens=provider.max_tokens,
            command=provider.command,
            env=provider.env,
            startup_s=provider.startup_timeout_secs,
        ),
        workspace=live.workspace_dir,
        system_prompt=agent.system_prompt,
        tools=[name for name in agent.tools if tools.allowed(name, turn.ceiling)],
        max_turns=agent.max_turns,
        max_context_tokens=agent.max_context_tokens,
        context=context,
        next_tool=live.tool_calls + 1,
        elicitation=_can_ask(live),
        external_session=live.external_session,
    )


def _can_ask(live: LiveSession) -> bool:
    channel = live.back_channel
    return (
        channel is not None
        and channel.open
        and channel.binding is not None
        and channel.binding.elicitation
    )
