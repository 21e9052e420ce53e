"""Plans: what a program would do, how far it can be taken back, and the reference that names it.

A plan is effects in the order the derivation met them, a reversibility, and two estimates
(chapter 50 §3). Its reference is a digest over a canonical record of all of it together with
source, owner and session, so that two sources, owners or sessions never share one.

Failure: none; these are functions of their arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from blake3 import blake3

from leash.effects import FS_DELETE, FS_KINDS, NAME_KINDS, Effect, os_path

REVERSIBLE: Final = "reversible"
CONDITIONAL: Final = "conditional"
IRREVERSIBLE: Final = "irreversible"
# From the lightest to the heaviest.
WEIGHTS: Final = (REVERSIBLE, CONDITIONAL, IRREVERSIBLE)

REFERENCE_BYTES: Final = 16
REFERENCE_PREFIX: Final = "plan:"
RECORD_VERSION: Final = 1

# What a contribution of a kind weighs unless its construct says more (`rm --permanent`).
KIND_WEIGHTS: Final[Mapping[str, str]] = {
    "proc_spawn": CONDITIONAL,
    "opaque": IRREVERSIBLE,
    "net_connect": IRREVERSIBLE,
    "net_listen": IRREVERSIBLE,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """`estimates` holds `bytes` and `items`, each an int or None."""

    effects: Sequence[Effect] = ()
    reversibility: str = REVERSIBLE
    estimates: Mapping[str, int | None] = field(
        default_factory=lambda: {"bytes": None, "items": None}
    )

    @property
    def opaque(self) -> bool:
        return any(effect["kind"] == "opaque" for effect in self.effects)

    @property
    def unattended_reversible(self) -> bool:
        return unattended_reversible(self.effects, self.reversibility)


NOTHING: Final = Plan()
UNKNOWN: Final = Plan(({"kind": "opaque"},), IRREVERSIBLE)


def heaviest(weights: Iterable[str]) -> str:
    return max(weights, key=WEIGHTS.index, default=REVERSIBLE)


def unattended_reversible(effects: Iterable[Mapping[str, Any]], reversibility: str) -> bool:
    """What `auto_apply = "reversible"` asks for: also no deletion, which only the trash undoes."""
    return reversibility == REVERSIBLE and all(effect["kind"] != FS_DELETE for effect in effects)


def item_count(effects: Sequence[Mapping[str, Any]]) -> int | None:
    """The estimate `items`: distinct paths of all file effects."""
    if any(effect["kind"] == "opaque" for effect in effects):
        return None
    listed = [effect["paths"] for effect in effects if effect["kind"] in FS_KINDS]
    if not listed:
        return None
    return len({os_path(path) for paths in listed for path in paths})


def canonical_record(
    plan: Plan, *, src: str, owner: str, session_owner: str, session: str
) -> bytes:
    """The bytes a reference is the digest of."""
    record = {
        "effects": list(plan.effects),
        "estimates": dict(plan.estimates),
        "owner": owner,
        "reversibility": plan.reversibility,
        "session": session,
        "session_owner": session_owner,
        "src": src,
        "v": RECORD_VERSION,
    }
    text = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def reference(plan: Plan, *, src: str, owner: str, session_owner: str, session: str) -> str:
    """`plan:` and 32 hex digits."""
    record = canonical_record(
        plan, src=src, owner=owner, session_owner=session_owner, session=session
    )
    return REFERENCE_PREFIX + blake3(record).hexdigest(length=REFERENCE_BYTES)


# --- what an approval covers ---------------------------------------------------------------------


def uncovered(
    effects: Iterable[Mapping[str, Any]], approved: Sequence[Mapping[str, Any]]
) -> list[Effect]:
    """The effects that an approved set does not cover (chapter 50 §10.3).

    Paths and names must be a subset of the approved ones of that kind; other effects be equal.
    """
    allowed: dict[str, set[str]] = {}
    for effect in approved:
        allowed.setdefault(effect["kind"], set()).update(_operands(effect))
    others = [effect for effect in approved if _is_whole(effect)]
    return [
        dict(effect)
        for effect in effects
        if not (
            effect in others
            if _is_whole(effect)
            else effect["kind"] in allowed and allowed[effect["kind"]].issuperset(_operands(effect))
        )
    ]


def _is_whole(effect: Mapping[str, Any]) -> bool:
    return effect["kind"] not in FS_KINDS and effect["kind"] not in NAME_KINDS


def _operands(effect: Mapping[str, Any]) -> Iterable[str]:
    if effect["kind"] in FS_KINDS:
        return map(os_path, effect["paths"])
    return effect["names"] if effect["kind"] in NAME_KINDS else ()


def no_worse(reversibility: str, approved: str) -> bool:
    return WEIGHTS.index(reversibility) <= WEIGHTS.index(approved)
