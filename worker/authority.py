"""Who may do what in this session: policies as the router sent them, and the checks made with them.

`Policies` holds what the router said about the principals that may act here, always the newest.
`CallAuthority` is what evaluation under one call is held to (chapter 50 §8): the policy and token
caps of its caller, the policy of the session's owner, and the plan it was admitted with. Tasks and
handlers keep the authority of the call that started them, while the policies behind it may change.

Failure: `leash_denied` for an effect that is not granted, `spawn_denied` for a program that is not
on a pinned list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from ipc.messages import PolicyEntry
from leash.effects import (
    FS_KINDS,
    FS_READ,
    OPAQUE,
    PROC_SPAWN,
    Effect,
    os_path,
    spawn,
    subject,
    unit,
)
from leash.patterns import concrete_root
from leash.pins import open_pinned, sealed
from leash.policy import Policy
from leash.verdict import (
    ALLOW,
    APPROVAL,
    Standing,
    caps_admit,
    may_write,
    path_granted,
    spawn_granted,
)
from worker.commands.gate import Admission, SpawnRequest
from worker.errors import Raised, raised
from worker.evaluate.host import Host
from worker.values.types import Span

_LOADER_PREFIXES: Final = (b"LD_", b"DYLD_")
HOSTS_KEPT_MAX: Final = 64


class Policies:
    # Replaced whole by the I/O thread, read by every thread that evaluates.

    def __init__(self) -> None:
        self._standings: dict[str, Standing] = {}
        self._hints: dict[str, str] = {}

    def update(self, entries: Iterable[PolicyEntry]) -> None:
        """Put policies in force; principals not mentioned keep theirs."""
        standings, hints = dict(self._standings), dict(self._hints)
        for entry in entries:
            policy = Policy.from_json(msgspec.json.decode(entry.policy)) if entry.policy else None
            standings[entry.principal] = Standing(entry.principal, policy)
            hints[entry.principal] = entry.hint
        self._standings, self._hints = standings, hints

    def standing(self, principal: str, caps: Iterable[str] = ()) -> Standing:
        found = self._standings.get(principal) or Standing(principal, None)
        return replace(found, caps=tuple(caps)) if caps else found

    def hint(self, principal: str) -> str:
        """How to give an unknown principal a policy."""
        return self._hints.get(principal, "")


@dataclass(frozen=True, slots=True)
class CallAuthority:
    """The authority evaluation runs with. `admitted` are the effects of the plan it runs under."""

    policies: Policies
    principal: str
    caps: tuple[str, ...]
    owner: str
    admitted: tuple[Effect, ...] = ()

    def standings(self) -> list[Standing]:
        """Whose grants an effect must pass, as they are now."""
        caller = self.policies.standing(self.principal, self.caps)
        if self.principal == self.owner:
            return [caller]
        return [caller, self.policies.standing(self.owner)]

    @property
    def restricted(self) -> bool:
        """Whether anybody's grants are to be passed at all."""
        return not all(standing.unrestricted for standing in self.standings())

    def check(self, effect: Effect) -> None:
        """Judge an effect that is about to happen. Raises leash_denied."""
        for standing in self.standings():
            if not standing.unrestricted:
                self._check(standing, effect)

    def _check(self, standing: Standing, effect: Effect) -> None:
        if effect["kind"] in FS_KINDS:
            if _files_granted(standing, effect):
                return
        else:
            word = standing.word(effect)
            if word == ALLOW or (word == APPROVAL and effect in self.admitted):
                return
        raise refused(standing.principal, effect)

    # -- programs ----------------------------------------------------------------------------------

    def admit_spawn(self, request: SpawnRequest) -> Admission | None:
        """The spawn rule. Raises spawn_denied or leash_denied."""
        pinning: list[Standing] = []
        for standing in self.standings():
            if standing.policy is not None and standing.policy.pinned:
                pinning.append(standing)
            elif not standing.unrestricted:
                self._check_unpinned(standing, request)
        return _pinned(pinning, request) if pinning else None

    def _check_unpinned(self, standing: Standing, request: SpawnRequest) -> None:
        """Nobody vouched for the program: what matters is what the plan said about it."""
        planned = any(
            effect["kind"] == PROC_SPAWN and effect["argv0"] == request.argv0
            for effect in self.admitted
        )
        effect = spawn("", request.argv0) if planned else unit("opaque")
        word = standing.word(effect)
        foreseen = planned or effect in self.admitted
        if word == ALLOW or (word == APPROVAL and foreseen):
            return
        raise refused(standing.principal, spawn("", request.argv0)).at(request.span)


def refused(principal: str, effect: Mapping[str, Any]) -> Raised:
    """The language error of an effect that is not granted."""
    return raised(
        "leash_denied",
        f"leash: {effect['kind']} of {subject(effect)} denied for principal {principal}",
    )


# --- files ---------------------------------------------------------------------------------------


def _files_granted(standing: Standing, effect: Effect) -> bool:
    policy, kind = standing.policy, effect["kind"]
    if policy is None or not caps_admit(standing.caps, kind):
        return False
    patterns: tuple[str, ...] = getattr(policy, kind)
    return all(
        _place_granted(patterns, os_path(path), read=kind == FS_READ) for path in effect["paths"]
    )


def _place_granted(patterns: Sequence[str], path: str, *, read: bool) -> bool:
    """Whether a path is granted under its own name and under its real one."""
    return all(
        path_granted(patterns, place, read=read)
        or path_granted(_resolved(patterns), place, read=read)
        for place in {path, os.path.realpath(path)}
    )


def _resolved(patterns: Iterable[str]) -> list[str]:
    """Patterns whose concrete leading path is reached through links, with that path resolved."""
    found: list[str] = []
    for pattern in patterns:
        root = concrete_root(pattern)
        if root is None or not pattern.startswith(root):
            continue
        real = os.path.realpath(root)
        if real != root:
            found.append(real.rstrip("/") + pattern[len(root.rstrip("/")) :])
    return found


# --- pinned programs -----------------------------------------------------------------------------


def _pinned(pinning: Sequence[Standing], request: SpawnRequest) -> Admission:
    """Admit a program by its content or its name, and have exactly what was judged executed."""
    path = os.path.join(request.cwd, request.path)
    file = open_pinned(path)
    try:
        own = _own_file(pinning, os.path.realpath(path))
        if own:
            # Whoever starts it can write to it meanwhile.
            original, file = file, sealed(file)
            os.close(original.fd)
        _check_pins(pinning, request, file.digest, own)
    except BaseException:
        os.close(file.fd)
        raise

    def check() -> None:
        if not file.unchanged():
            raise spawn_denied(request.argv0, pinning[0].principal, request.span)

    return Admission(file.program, _environment(pinning, request), (file.fd,), check)


def _own_file(pinning: Sequence[Standing], path: str) -> bool:
    """Whether one of the principals could change the program itself."""
    return any(
        standing.policy is not None and may_write(standing.policy, path, os.path.realpath)
        for standing in pinning
    )


def _check_pins(pinning: Sequence[Standing], request: SpawnRequest, digest: str, own: bool) -> None:
    for standing in pinning:
        policy = standing.policy
        assert policy is not None
        # A program is started by a plan that holds it, or one that holds anything.
        by_caps = caps_admit(standing.caps, PROC_SPAWN) or caps_admit(standing.caps, OPAQUE)
        admitted = by_caps and spawn_granted(policy, digest, request.argv0, own)
        if not admitted:
            raise spawn_denied(request.argv0, standing.principal, request.span)


def spawn_denied(argv0: str, principal: str, span: Span | None) -> Raised:
    return raised(
        "spawn_denied",
        f"leash: spawn of `{argv0}` denied — its content hash/name is not in principal "
        f"`{principal}`'s proc_spawn allowlist",
        span=span,
    )


def _environment(pinning: Sequence[Standing], request: SpawnRequest) -> Mapping[bytes, bytes]:
    """The environment without loader variables that nobody granted by name: they would put other
    code into the pinned program."""
    return {
        name: value
        for name, value in request.env.items()
        if not name.startswith(_LOADER_PREFIXES)
        or all(
            standing.policy is not None and os.fsdecode(name) in standing.policy.env_write
            for standing in pinning
        )
    }


# --- hosts ---------------------------------------------------------------------------------------


class Hosts:
    """The hosts evaluation runs with, by caller: the session's services under one authority."""

    # Hosts without an admitted plan, by principal and caps; evaluator thread only.

    def __init__(
        self, base: Host, policies: Policies, owner: str, domain: Callable[[Standing], Any]
    ) -> None:
        self._base = base
        self._domain = domain
        self._policies = policies
        self._owner = owner
        self._kept: dict[tuple[str, tuple[str, ...]], Host] = {}

    def of(self, principal: str, caps: Sequence[str]) -> Host:
        """The host of a caller before it has a plan."""
        key = (principal, tuple(caps))
        found = self._kept.get(key)
        if found is None:
            authority = CallAuthority(self._policies, principal, tuple(caps), self._owner)
            found = replace(
                self._base,
                principal=principal,
                authority=authority,
                domain=partial(self._place, principal, key[1]),
            )
            if len(self._kept) >= HOSTS_KEPT_MAX:
                self._kept.clear()
            self._kept[key] = found
        return found

    def _place(self, principal: str, caps: tuple[str, ...]) -> Any:
        """Where programs of a principal are started, by its grants as they are now."""
        return self._domain(self._policies.standing(principal, caps))

    @staticmethod
    def admitted(host: Host, effects: tuple[Effect, ...]) -> Host:
        """The same host for a run under a plan with these effects."""
        if not any(effect["kind"] in ("opaque", PROC_SPAWN) for effect in effects):
            return host
        return replace(host, authority=replace(host.authority, admitted=effects))
