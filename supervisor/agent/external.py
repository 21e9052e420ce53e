"""External agent programs as the router sees them: started with their session, in its worker.

Failure: RpcError `agent_unavailable` when the program does not come up or does not speak version 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_events import ProviderView
from ipc.jsonrpc import RpcError
from supervisor.agent.attachments import call_worker

if TYPE_CHECKING:
    from supervisor.agent.sessions import LiveSession
    from supervisor.agent.settings import Provider
    from supervisor.agent_endpoint import AgentEndpoint


class StartOrder(msgspec.Struct):
    provider: ProviderView
    workspace: str
    external_session: str | None


class Started(msgspec.Struct):
    session: str


async def start(endpoint: AgentEndpoint, live: LiveSession, provider: Provider) -> str:
    """Start the program in the session's worker; the id it gave its session. Raises RpcError."""
    order = StartOrder(
        ProviderView(
            name="",
            kind="acp",
            command=provider.command,
            env=provider.env,
            startup_s=provider.startup_timeout_secs,
        ),
        live.workspace_dir,
        live.external_session,
    )
    try:
        worker = await live.worker()
        reply = await call_worker(
            endpoint, worker, "agent.start", msgspec.json.encode(order), live.session.owner
        )
    except RpcError as error:
        raise agent_error(
            AgentCode.INTERNAL_ERROR,
            f"Failed to create agent: {error.message}",
            "agent_unavailable",
            session_id=live.id,
        ) from None
    return msgspec.json.decode(reply, type=Started).session
