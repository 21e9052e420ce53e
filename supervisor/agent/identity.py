"""Who a connection of the agent endpoint is, and what its profiles let it do (chapter 70 §6, §7).

`initialize` binds an identity to a connection; what that identity may do is resolved from the live
configuration at every call, so that narrowing a profile or revoking a token counts at once.

Failure: RpcError with the codes of chapter 70 §5.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from ipc.agent_envelope import AgentCode, agent_error
from ipc.jsonrpc import RpcError
from supervisor.agent.config_schema import RESOURCES, VERBS
from supervisor.agent.settings import Profile, Settings
from supervisor.tokens import Token

if TYPE_CHECKING:
    from supervisor.agent.connection import AgentConnection
    from supervisor.agent_endpoint import AgentEndpoint

log = structlog.get_logger()

SHARED_OPERATOR: Final = "shared-operator"
AUTH_METHODS: Final = ("peercred", "native")
UNIFORM_SESSION: Final = "Session not found or not owned by this principal"
_TUI_ID: Final = re.compile(r"tui_[0-9a-f]{8}")
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """`wire` is the principal id clients see, `principal` the one policy and sessions know."""

    wire: str
    principal: str
    operator: bool = False
    profiles: tuple[str, ...] = ()
    leash: str | None = None
    token: Token | None = None

    @property
    def owner(self) -> str | None:
        """What is stamped on sessions: nothing for the shared operator."""
        return None if self.operator else self.wire


@dataclass(frozen=True, slots=True)
class Access:
    """What profiles give, joined."""

    admin: bool
    grants: frozenset[str]
    agents: frozenset[str]
    tools: frozenset[str]
    config_paths: tuple[str, ...]

    def may_use(self, alias: str) -> bool:
        return self.admin or "*" in self.agents or alias in self.agents

    def may_write(self, path: str) -> bool:
        return self.admin or any(_covers(pattern, path) for pattern in self.config_paths)

    def tool_ceiling(self) -> frozenset[str] | None:
        """The tools a turn may use; None is no ceiling, an empty set no tool at all."""
        if self.admin:
            return None
        if "tools:execute" not in self.grants:
            return frozenset()
        return None if "*" in self.tools else self.tools


EVERYTHING: Final = frozenset(f"{resource}:{verb}" for resource in RESOURCES for verb in VERBS)
NOTHING: Final = Access(False, frozenset(), frozenset(), frozenset(), ())


def _covers(pattern: str, path: str) -> bool:
    if pattern == "*" or pattern == path:
        return True
    return pattern.endswith(".*") and (path == pattern[:-2] or path.startswith(pattern[:-1]))


@dataclass(slots=True)
class Binding:
    """What `initialize` left on a connection. Replaced as a whole, never changed."""

    identity: Identity
    tui_id: str
    elicitation: bool
    env: dict[str, str] | None


class ClientKeys:
    """Signatures of client ids, under a key of this router that survives a restart."""

    def __init__(self, path: Path) -> None:
        self._key = _load_key(path)

    def new(self) -> tuple[str, str]:
        tui_id = "tui_" + secrets.token_hex(4)
        return tui_id, self.sign(tui_id)

    def sign(self, tui_id: str) -> str:
        return hmac.new(self._key, tui_id.encode(), "sha256").hexdigest()

    def verify(self, tui_id: str, signature: str) -> bool:
        if _TUI_ID.fullmatch(tui_id) is None:
            return False
        return hmac.compare_digest(self.sign(tui_id).encode(), signature.encode())


def _load_key(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        key = secrets.token_bytes(_KEY_BYTES)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(key)
        return key
    with os.fdopen(fd, "rb") as file:
        return file.read(_KEY_BYTES)


def authenticate(
    endpoint: AgentEndpoint,
    connection: AgentConnection,
    token: str | None,
    provider: str | None,
) -> Identity:
    """The identity of a connection that initializes. Raises RpcError."""
    mechanism = provider if provider is not None else ("native" if token else "peercred")
    if mechanism not in AUTH_METHODS:
        raise agent_error(
            AgentCode.AUTH_REQUIRED, "Unknown auth_provider selection", "unknown_auth_provider"
        )
    if mechanism == "native":
        return _by_token(endpoint, token)
    return _by_peer(endpoint, connection)


def _by_token(endpoint: AgentEndpoint, bearer: str | None) -> Identity:
    kernel = endpoint.kernel
    if bearer is None or kernel.tokens is None:
        raise _credential("rejected")
    try:
        token = kernel.tokens.authenticate(bearer, kernel.now_ns())
    except RpcError as error:
        kernel.metrics.count("shoal_auth_failures_total", "unknown")
        if error.kind == "token_store_unavailable":
            raise agent_error(
                AgentCode.AUTH_REQUIRED, "Token store is not readable", error.kind
            ) from None
        raise _credential("rejected") from None
    if token.principal == kernel.local_human:
        return Identity(SHARED_OPERATOR, kernel.local_human, operator=not token.caps, token=token)
    return _roster(endpoint.settings, token.principal, token)


def _by_peer(endpoint: AgentEndpoint, connection: AgentConnection) -> Identity:
    kernel, settings = endpoint.kernel, endpoint.settings
    uid = connection.peer_uid
    operator = Identity(SHARED_OPERATOR, kernel.local_human, operator=True)
    if uid < 0:
        if settings.users:
            raise _peer_refused()
        return operator
    if connection.process is None or connection.process.must_present_token(kernel):
        # What an agent starts would otherwise be the operator, and approve its own plans.
        raise _peer_refused()
    if uid == kernel.uid and settings.security.trust_daemon_uid:
        return operator
    for name, user in settings.users.items():
        if user.uid == uid:
            wire = user.principal_id or f"user:{name}"
            return Identity(wire, wire, profiles=tuple(user.permission_profiles), leash=user.leash)
    if str(uid) in kernel.config.kernel.peer_uids:
        return _roster(settings, f"uid:{uid}", None)
    raise _peer_refused()


def _roster(settings: Settings, principal: str, token: Token | None) -> Identity:
    """The identity of a principal id, with what a `users` entry of that id gives."""
    for name, user in settings.users.items():
        if (user.principal_id or f"user:{name}") == principal:
            return Identity(
                principal, principal, profiles=tuple(user.permission_profiles),
                leash=user.leash, token=token,
            )  # fmt: skip
    return Identity(principal, principal, token=token)


def _peer_refused() -> RpcError:
    return agent_error(
        AgentCode.AUTH_REQUIRED, "Peer is not admitted to this endpoint", "peer_refused"
    )


def _credential(what: str) -> RpcError:
    return agent_error(AgentCode.AUTH_REQUIRED, f"Credential {what}", f"credential_{what}")


def check_alive(endpoint: AgentEndpoint, identity: Identity) -> None:
    """Whether the credential behind a binding still holds. Raises RpcError."""
    kernel, token = endpoint.kernel, identity.token
    if token is None or kernel.tokens is None:
        return
    now_ns = kernel.now_ns()
    try:
        kernel.tokens.check(token, now_ns)
    except RpcError:
        expired = token.expires_ns is not None and token.expires_ns <= now_ns
        raise _credential("expired" if expired else "rejected") from None


def resolve(settings: Settings, identity: Identity, local_human: str) -> Access:
    """What an identity may do under the settings in force."""
    if identity.operator:
        return Access(True, EVERYTHING, frozenset("*"), frozenset("*"), ("*",))
    if identity.principal == local_human:
        # The operator behind a token with caps: its caps narrow effects, and it is never admin.
        return Access(False, EVERYTHING, frozenset("*"), frozenset("*"), ())
    current = _roster_entry(settings, identity)
    profiles = [
        settings.permission_profiles[name]
        for name in current
        if name in settings.permission_profiles
    ]
    if not profiles:
        return NOTHING
    may_be_admin = not identity.wire.startswith("agent:") and not (
        identity.token is not None and identity.token.caps
    )
    admin = may_be_admin and any(profile.admin for profile in profiles)
    return Access(
        admin,
        EVERYTHING if admin else frozenset(_grants(profiles)),
        frozenset(name for profile in profiles for name in profile.allowed_agents),
        frozenset(name for profile in profiles for name in profile.allowed_tools),
        tuple(path for profile in profiles for path in profile.config_write_paths),
    )


def _roster_entry(settings: Settings, identity: Identity) -> tuple[str, ...]:
    for name, user in settings.users.items():
        if (user.principal_id or f"user:{name}") == identity.wire:
            return tuple(user.permission_profiles)
    return ()


def _grants(profiles: list[Profile]) -> list[str]:
    return [
        f"{resource}:{verb}"
        for profile in profiles
        for resource, verbs in profile.grants.items()
        for verb in verbs
    ]


# --- refusals ------------------------------------------------------------------------------------


def not_granted(grant: str, method: str) -> RpcError:
    resource, _, verb = grant.partition(":")
    return agent_error(
        AgentCode.FORBIDDEN,
        f"Principal is not granted {grant} (required by {method})",
        "not_granted",
        resource=resource,
        verb=verb,
        method=method,
    )


def not_entitled(alias: str) -> RpcError:
    return agent_error(
        AgentCode.FORBIDDEN,
        f'Principal is not entitled to agent "{alias}"',
        "not_entitled",
        agent_alias=alias,
    )


def not_owned(session_id: str) -> RpcError:
    return agent_error(
        AgentCode.FORBIDDEN, UNIFORM_SESSION, "session_not_owned", session_id=session_id
    )


def session_not_found(session_id: str) -> RpcError:
    return agent_error(
        AgentCode.SESSION_NOT_FOUND, "Session not found", "session_not_found",
        session_id=session_id,
    )  # fmt: skip


def config_forbidden(path: str, index: int | None = None) -> RpcError:
    message = f'Principal is not granted config write access to "{path}"'
    if index is None:
        return agent_error(AgentCode.FORBIDDEN, message, "config_path", prop=path)
    return agent_error(
        AgentCode.FORBIDDEN,
        f"{message} (entry {index})",
        "config_path",
        prop=path,
        index=index,
    )
