"""`initialize`: protocol version, credential, client identity, and what is bound (chapter 70 §6).

Failure: RpcError -32011 for another version, -32010 for a refused credential or signature, -32012
for a principal that nothing is granted to; the connection then stays as it was.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec
import structlog

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_methods import (
    AGENT_PROTOCOL,
    FEATURES,
    METHODS,
    InitializeParams,
    InitializeResult,
)
from ipc.agent_params import invalid_params
from supervisor.agent.identity import (
    AUTH_METHODS,
    Binding,
    ClientKeys,
    authenticate,
    not_granted,
)
from supervisor.version import VERSION

if TYPE_CHECKING:
    from supervisor.agent.connection import AgentConnection
    from supervisor.agent_endpoint import AgentEndpoint

log = structlog.get_logger()


def initialize(
    endpoint: AgentEndpoint, connection: AgentConnection, raw: bytes
) -> InitializeResult:
    """Bind a connection to who it is; a failure leaves what was bound before. Raises RpcError."""
    _check_version(raw)
    params: InitializeParams = METHODS["initialize"].decode(raw)
    identity = authenticate(endpoint, connection, params.auth_token, params.auth_provider)
    access = endpoint.access(identity)
    if not access.grants and endpoint.config.authorization_invalid is None:
        raise not_granted("system:read", "initialize")
    tui_id, tui_sig = _client_identity(endpoint.keys, params)
    env = params.env if access.admin else None
    connection.initialized(Binding(identity, tui_id, _takes_forms(params.client_capabilities), env))
    endpoint.had_client = endpoint.kernel.had_client = True
    log.info("agent.initialize", conn=connection.number, principal=identity.wire)
    return InitializeResult(
        protocol_version=AGENT_PROTOCOL,
        server_version=VERSION,
        server_pid=os.getpid(),
        daemon_instance_id=endpoint.instance_id,
        tui_id=tui_id,
        tui_sig=tui_sig,
        capabilities=list(METHODS),
        commands=[],
        auth_methods=list(AUTH_METHODS),
        principal_id=identity.wire,
        features=list(FEATURES),
    )


def _client_identity(keys: ClientKeys, params: InitializeParams) -> tuple[str, str]:
    if params.tui_id is None:
        return keys.new()
    if params.tui_sig is None:
        raise agent_error(AgentCode.AUTH_REQUIRED, "TUI signature required", "client_signature")
    if not keys.verify(params.tui_id, params.tui_sig):
        raise agent_error(AgentCode.AUTH_REQUIRED, "Invalid TUI signature", "client_signature")
    return params.tui_id, params.tui_sig


def _check_version(raw: bytes) -> None:
    """Either spelling of the protocol version, when given, must be 1. Raises RpcError."""
    if raw[:1] == b"[":
        raise invalid_params("params must be an object with named parameters")
    try:
        members = msgspec.json.decode(raw or b"{}", type=_Versions)
    except msgspec.ValidationError as error:
        raise invalid_params(f"`protocol_version`: {error}", field="protocol_version") from None
    for version in (members.protocol_version, members.protocolVersion):
        if version is not None and version != AGENT_PROTOCOL:
            raise agent_error(
                AgentCode.VERSION_MISMATCH,
                f"Protocol version mismatch: server={AGENT_PROTOCOL}, client={version}",
                "protocol_version",
                client=version,
                server_supported=[AGENT_PROTOCOL],
                server_version=VERSION,
            )


class _Versions(msgspec.Struct):
    protocol_version: int | None = None
    protocolVersion: int | None = None  # noqa: N815 - the name on the wire


def _takes_forms(capabilities: msgspec.Raw) -> bool:
    """Whether a client declared form elicitation."""
    if not bytes(capabilities):
        return False
    with contextlib.suppress(msgspec.DecodeError):
        found = msgspec.json.decode(capabilities)
        elicitation = found.get("elicitation") if isinstance(found, dict) else None
        if isinstance(elicitation, dict):
            return not elicitation or "form" in elicitation
    return False
