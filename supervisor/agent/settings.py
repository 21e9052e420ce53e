"""The configuration as the endpoint uses it: a checked tree made into typed settings.

A tree is checked as a whole: unknown names, kinds, ranges, references between sections, rules over
several properties. Completeness of a provider is not asked for here, since a tree is built property
by property; `usable` says what is missing when a session needs it (chapter 70 §16.3, §17).

Pure. Failure: Violation with the first thing that is wrong and whether it is in an authorization
section.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from supervisor.agent.config_schema import (
    BUILT_IN,
    MAP_SECTIONS,
    SECTIONS,
    UnknownProp,
    ValueRefused,
    check_key,
    coerce,
    find,
)

AUTHORIZATION: Final = frozenset({"security", "permission_profiles", "users"})


class Violation(Exception):
    """A tree that is invalid; `section` is where."""

    def __init__(self, section: str, text: str) -> None:
        super().__init__(text)
        self.section = section

    @property
    def authorization(self) -> bool:
        return self.section in AUTHORIZATION


class Unusable(Exception):
    """An agent or provider that cannot serve a session, and why."""


class _Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Rpc(_Group, frozen=True):
    max_local_connections: int = 512
    max_sessions: int = 256
    idle_session_secs: int = 600


class Security(_Group, frozen=True):
    trust_daemon_uid: bool = True


class Profile(_Group, frozen=True):
    admin: bool = False
    grants: dict[str, list[str]] = {}
    allowed_agents: list[str] = []
    allowed_tools: list[str] = []
    config_write_paths: list[str] = []


class User(_Group, frozen=True):
    uid: int | None = None
    permission_profiles: list[str] = []
    principal_id: str | None = None
    leash: str | None = None


class Workspace(_Group, frozen=True):
    path: str | None = None


class Agent(_Group, frozen=True):
    enabled: bool = True
    provider: str = BUILT_IN
    model: str | None = None
    system_prompt: str | None = None
    tools: list[str] = msgspec.field(default_factory=lambda: ["shoal", "ask_user", "update_plan"])
    max_turns: int = 25
    turn_timeout_secs: int = 0
    temperature: float | None = None
    max_context_tokens: int = 120_000
    leash: str | None = None
    workspace: Workspace = Workspace()
    approval_timeout_secs: int = 120
    description: str | None = None


class Provider(_Group, frozen=True):
    kind: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    api_key_env: str | None = None
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    headers: dict[str, str] = {}
    connect_timeout_secs: int = 10
    idle_timeout_secs: int = 120
    command: list[str] = []
    env: dict[str, str] = {}
    startup_timeout_secs: int = 30


class Settings(_Group, frozen=True):
    """The whole tree."""

    rpc: Rpc = Rpc()
    security: Security = Security()
    permission_profiles: dict[str, Profile] = {}
    users: dict[str, User] = {}
    agents: dict[str, Agent] = {}
    providers: dict[str, Provider] = {}

    def agent(self, alias: str) -> Agent | None:
        """The agent of an alias, enabled or not; the built-in one needs no entry."""
        found = self.agents.get(alias)
        return Agent() if found is None and alias == BUILT_IN else found

    def aliases(self) -> list[str]:
        """Every alias, sorted. The built-in one is gone when its entry disables it."""
        names = set(self.agents) | {BUILT_IN}
        if BUILT_IN in self.agents and not self.agents[BUILT_IN].enabled:
            names.discard(BUILT_IN)
        return sorted(names)

    def provider(self, name: str) -> Provider | None:
        found = self.providers.get(name)
        return Provider(kind=BUILT_IN) if found is None and name == BUILT_IN else found


def usable(settings: Settings, alias: str) -> tuple[Agent, Provider]:
    """The agent with its provider, when both can serve a session. Raises Unusable."""
    agent = settings.agent(alias)
    if agent is None:
        raise Unusable(f'unknown agent "{alias}"')
    if not agent.enabled:
        raise Unusable(f'agent "{alias}" is disabled')
    provider = settings.provider(agent.provider)
    if provider is None:
        raise Unusable(f'provider "{agent.provider}" does not exist')
    check_provider(agent.provider, provider, agent.model)
    return agent, provider


def check_provider(name: str, provider: Provider, model: str | None) -> None:
    """Whether a provider has what its kind needs. Raises Unusable."""
    match provider.kind:
        case None:
            raise Unusable(f"providers.{name}.kind is not set")
        case "openai" if not provider.base_url:
            raise Unusable(f"providers.{name}.base_url is not set")
        case "openai" if not (model or provider.model):
            raise Unusable(f"no model is set for provider {name}")
        case "acp" if not provider.command:
            raise Unusable(f"providers.{name}.command is not set")


def check(tree: dict[str, Any]) -> Settings:
    """The settings of a plain tree. Raises Violation."""
    for section, members in tree.items():
        if section not in SECTIONS:
            raise Violation(section, f"{section}: unknown section")
        if type(members) is not dict:
            raise Violation(section, f"{section}: expected a table")
        _check_section(section, members)
    settings = msgspec.convert(tree, Settings)
    _check_references(settings)
    return settings


def _check_section(section: str, members: dict[str, Any]) -> None:
    try:
        if section not in MAP_SECTIONS:
            _check_leaves(members, section)
            return
        for key, entry in members.items():
            check_key(section, key)
            if type(entry) is not dict:
                raise ValueRefused(f"{section}.{key}: expected a table")
            _check_leaves(entry, f"{section}.{key}")
    except (UnknownProp, ValueRefused) as error:
        raise Violation(section, str(error)) from None


def _check_leaves(members: dict[str, Any], place: str) -> None:
    for name, value in members.items():
        path = f"{place}.{name}"
        if path.count(".") == 2 and path.startswith("agents.") and name == "workspace":
            if type(value) is not dict:
                raise ValueRefused(f"{path}: expected a table")
            _check_leaves(value, path)
            continue
        _parts, prop = find(path)
        found = coerce(prop, path, value)
        same = found == value and (type(found) is type(value) or prop.kind == "float")
        if not same or (type(value) is bool and prop.kind != "bool"):
            raise ValueRefused(f"{path}: expected {prop.kind}")


def _check_references(settings: Settings) -> None:
    uids: dict[int, str] = {}
    for name, user in settings.users.items():
        for profile in user.permission_profiles:
            if profile not in settings.permission_profiles:
                raise Violation(
                    "users", f"users.{name}.permission_profiles: no profile {profile!r}"
                )
        if user.uid is not None:
            if user.uid in uids:
                raise Violation(
                    "users", f"users.{name}.uid: {user.uid} is also that of users.{uids[user.uid]}"
                )
            uids[user.uid] = name
    for alias, agent in settings.agents.items():
        if settings.provider(agent.provider) is None:
            raise Violation(
                "agents",
                f"agents.{alias}.provider: expected alias_ref, no provider {agent.provider!r}",
            )
    for name, provider in settings.providers.items():
        if provider.base_url is not None:
            _check_url(f"providers.{name}.base_url", provider.base_url)


def _check_url(path: str, url: str) -> None:
    """https anywhere, http only to loopback and private addresses."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _port = parts.port
    except ValueError:
        raise Violation("providers", f"{path}: not a URL") from None
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and host and _is_near(host):
        return
    raise Violation(
        "providers", f"{path}: expected https, or http to a loopback or private address"
    )


def _is_near(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private
