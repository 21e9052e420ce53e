"""Verdicts: what a principal may do, by its policy and its token's caps (chapter 50 §6, §7).

A `Standing` is who asks: a principal, its policy (None when the policy file does not know it) and
the caps of its token. `word` judges one effect, `judge` a whole plan. The same code runs in the
router, for plans it stores, and in workers, for runs and at the moment of each effect.

Failure: none; whatever is not granted is denied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from leash.effects import ANY, FS_KINDS, FS_READ, KINDS, NAME_KINDS, Effect, os_path, request_kind
from leash.patterns import compiled, concrete_root
from leash.plan import unattended_reversible
from leash.policy import Policy

ALLOW: Final = "allow"
DENY: Final = "deny"
APPROVAL: Final = "approval_required"

_OPAQUE_WORDS: Final = {"deny": DENY, "ask": APPROVAL, "allow": ALLOW}
_BELOW: Final = "/**"
_HASH_DIGITS: Final = 64


@dataclass(frozen=True, slots=True)
class Standing:
    """Who asks, and with what in hand."""

    principal: str
    policy: Policy | None
    caps: tuple[str, ...] = ()

    @property
    def unrestricted(self) -> bool:
        """Whether no effect is ever refused when it happens."""
        return not self.caps and self.policy is not None and _permissive(self.policy)

    def word(self, effect: Mapping[str, Any]) -> str:
        """The verdict of one effect, by what it says and nothing else."""
        policy = self.policy
        if policy is None or not caps_admit(self.caps, effect["kind"]):
            return DENY
        return _word(policy, effect)

    @property
    def opaque_word(self) -> str:
        return self.word({"kind": "opaque"})


@dataclass(frozen=True, slots=True)
class Judgement:
    """`denied` are the effects that are denied; all of them for an unknown principal."""

    word: str
    denied: tuple[Effect, ...] = ()
    no_policy: bool = False


def judge(standing: Standing, effects: Sequence[Effect], reversibility: str) -> Judgement:
    """The verdict of a plan (chapter 50 §7.2)."""
    if standing.policy is None:
        return Judgement(DENY, tuple(effects), no_policy=True)
    words = [standing.word(effect) for effect in effects]
    denied = tuple(effect for effect, word in zip(effects, words, strict=True) if word == DENY)
    if denied:
        return Judgement(DENY, denied)
    if APPROVAL in words:
        return Judgement(APPROVAL)
    auto_apply = standing.policy.auto_apply
    if auto_apply == "in-grant" or (
        auto_apply == "reversible" and unattended_reversible(effects, reversibility)
    ):
        return Judgement(ALLOW)
    return Judgement(APPROVAL)


def denial(
    standing: Standing, effects: Sequence[Effect], judgement: Judgement, hint: str
) -> dict[str, Any]:
    """The data of a denied run; `hint` is for a principal without a policy (chapter 50 §10.10)."""
    data: dict[str, Any] = {
        "effects": list(effects),
        "denied": list(judgement.denied),
        "principal": standing.principal,
    }
    if judgement.no_policy:
        data["cause"] = "no_policy"
        data["hint"] = hint
    return data


@lru_cache(maxsize=256)
def _permissive(policy: Policy) -> bool:
    return policy.permissive


# --- token caps ----------------------------------------------------------------------------------


def caps_admit(caps: Iterable[str], kind: str) -> bool:
    """Whether caps let an effect kind through; no caps at all let everything through."""
    caps = tuple(caps)
    return not caps or kind in _admitted(caps)


@lru_cache(maxsize=256)
def _admitted(caps: tuple[str, ...]) -> frozenset[str]:
    return frozenset(kind for kind in KINDS if any(_cap_names(cap, kind) for cap in caps))


def _cap_names(cap: str, kind: str) -> bool:
    if cap == ANY:
        return True
    for suffix in (".*", "_*"):
        if cap.endswith(suffix):
            return kind.startswith(request_kind(cap[: -len(suffix)]) + "_")
    return request_kind(cap) == kind


# --- one effect ----------------------------------------------------------------------------------


def _word(policy: Policy, effect: Mapping[str, Any]) -> str:
    kind = effect["kind"]
    if kind == "opaque":
        return _OPAQUE_WORDS[policy.opaque]
    if kind == "proc_spawn" and not policy.pinned:
        # Nobody vouched for the program.
        return _OPAQUE_WORDS[policy.opaque]
    return ALLOW if granted(policy, effect) else DENY


def granted(policy: Policy, effect: Mapping[str, Any]) -> bool:
    """Whether the lists and flags of a policy grant an effect that is not opaque."""
    kind = effect["kind"]
    if kind in FS_KINDS:
        patterns = getattr(policy, kind)
        return all(
            path_granted(patterns, os_path(path), read=kind == FS_READ) for path in effect["paths"]
        )
    if kind in NAME_KINDS:
        return names_granted(getattr(policy, kind), effect["names"])
    if kind == "net_connect":
        return connect_granted(policy.net_connect, effect["host"], effect["port"])
    if kind == "net_listen":
        return ANY in policy.net_listen or effect["port"] in policy.net_listen
    if kind == "proc_spawn":
        return spawn_granted(policy, effect["bin_hash"], effect["argv0"])
    return bool(getattr(policy, kind))


def path_granted(patterns: Iterable[str], path: str, *, read: bool) -> bool:
    """Whether a pattern matches a normalised path. For reading, `/a/**` also grants `/a`."""
    return any(
        pattern == _BELOW
        or compiled(pattern).fullmatch(path) is not None
        or (read and pattern.endswith(_BELOW) and _names(pattern[: -len(_BELOW)], path))
        for pattern in patterns
    )


def _names(pattern: str, path: str) -> bool:
    return compiled(pattern).fullmatch(path) is not None


def names_granted(grants: Sequence[str], names: Iterable[str]) -> bool:
    return ANY in grants or all(name != ANY and name in grants for name in names)


def connect_granted(grants: Iterable[str], host: str, port: int) -> bool:
    for grant in grants:
        pattern, _, number = grant.rpartition(":")
        fits = number == ANY or int(number) == port
        if fits and compiled(pattern.lower()).fullmatch(host.lower()) is not None:
            return True
    return False


def spawn_granted(policy: Policy, bin_hash: str, argv0: str, own: bool | None = None) -> bool:
    """Whether the program list admits a program: by content hash, by the name as written, or by its
    last component. A bare name does not admit a file that the principal could write itself; `own`
    says whether it could, None when only the name as written is known."""
    name = argv0.rpartition("/")[2]
    for entry in policy.proc_spawn:
        if not entry:
            continue
        if len(entry) == _HASH_DIGITS and entry == bin_hash:
            return True
        if "/" in entry:
            if entry == argv0:
                return True
        elif entry == name and not (may_write(policy, argv0) if own is None else own):
            return True
    return False


def may_write(policy: Policy, path: str, resolve: Callable[[str], str] = str) -> bool:
    """Whether a principal, or a program it starts, could change a file: programs are held to whole
    trees, so what counts is the root of a grant, not its pattern alone. `resolve` gives the real
    path of a root."""
    if not path.startswith("/"):
        return False
    if path_granted(policy.fs_write, path, read=False):
        return True
    roots = (concrete_root(pattern) for pattern in policy.fs_write)
    return any(
        (path + "/").startswith(resolve(root).rstrip("/") + "/")
        for root in roots
        if root is not None
    )


def may_approve(approver: Standing, owner: str, *, local_human: bool) -> bool:
    """Whether a caller may approve plans of `owner` (chapter 50 §7.5)."""
    if local_human:
        return True
    if approver.principal == owner or approver.policy is None:
        return False
    return any(
        compiled(pattern).fullmatch(owner) is not None for pattern in approver.policy.approve
    )
