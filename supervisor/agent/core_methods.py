"""Handlers of `status`, `health`, `agents/*` and the log subscriptions (chapter 70 §8, §19).

Failure: RpcError with the codes of chapter 70 §5.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ipc.agent_methods import (
    AGENT_PROTOCOL,
    AgentEntry,
    AgentsResult,
    AgentsStatusResult,
    AgentStatusEntry,
    HealthResult,
    LogsSubscribeParams,
    LogsSubscribeResult,
    StatusResult,
    SubscriptionCancelParams,
    SubscriptionCancelResult,
)
from ipc.agent_params import NoParams
from journal.agent_store import count_by_alias
from journal.errors import StoreError
from supervisor.agent.identity import not_granted
from supervisor.agent.sessions import store_failed
from supervisor.version import VERSION

if TYPE_CHECKING:
    from supervisor.agent.call import AgentCall


def status(call: AgentCall, _params: NoParams) -> StatusResult:
    endpoint = call.endpoint
    visible = [live.id for live in endpoint.sessions if call.owns(live.owner)]
    result = StatusResult(
        server_version=VERSION,
        protocol_version=AGENT_PROTOCOL,
        active_sessions=len(visible),
        session_ids=sorted(visible),
        local_ipc_endpoint=endpoint.path,
    )
    if call.access.admin:
        result.config_dir = str(endpoint.data_dir)
        result.config_file = str(endpoint.config.path)
        result.config_kind = "file" if endpoint.config.on_disk else "defaults"
    return result


def health(call: AgentCall, _params: NoParams) -> HealthResult:
    endpoint = call.endpoint
    components = endpoint.health.components()
    return HealthResult(
        pid=os.getpid(),
        updated_at=components["agent_endpoint"]["updated_at"],
        uptime_seconds=(endpoint.kernel.now_ns() - endpoint.kernel.started_ns) // 1_000_000_000,
        components=components,
        process=endpoint.health.process(),
    )


def agents_list(call: AgentCall, _params: NoParams) -> AgentsResult:
    settings = call.endpoint.settings
    entries = []
    for alias in settings.aliases():
        agent = settings.agent(alias)
        if agent is not None and call.access.may_use(alias):
            entries.append(AgentEntry(alias=alias, enabled=agent.enabled, channels=[]))
    return AgentsResult(entries)


async def agents_status(call: AgentCall, params: NoParams) -> AgentsStatusResult:
    try:
        durable = await call.endpoint.kernel.store.load(count_by_alias())
    except StoreError as error:
        raise store_failed(None, str(error)) from None
    live = [live.alias for live in call.endpoint.sessions if call.owns(live.owner)]
    stored = [alias for alias, owner in durable if call.owns(owner)]
    return AgentsStatusResult(
        [
            AgentStatusEntry(
                alias=entry.alias,
                enabled=entry.enabled,
                channels=[],
                live_sessions=live.count(entry.alias),
                persisted_sessions=stored.count(entry.alias),
            )
            for entry in agents_list(call, params).agents
        ]
    )


def logs_subscribe(call: AgentCall, params: LogsSubscribeParams) -> LogsSubscribeResult:
    if not call.access.admin:
        raise not_granted("logs:read", call.method)
    return call.endpoint.log_ring.subscribe(call.connection, params)


def subscription_cancel(
    call: AgentCall, params: SubscriptionCancelParams
) -> SubscriptionCancelResult:
    return SubscriptionCancelResult(
        call.endpoint.log_ring.cancel(call.connection, params.subscription_id)
    )
