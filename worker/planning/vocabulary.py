"""The registries seen from the planner: which names have which effects (chapter 50 §4.7).

Methods, namespaces, call forms and command heads declare their effects beside their bodies; the
planner only knows names, since it has no values. Methods of one name therefore share what any of
their declarations says.

Failure: a method name with two different declarations of effects is a programming error and fails
when this module loads.
"""

from __future__ import annotations

from typing import Final

from worker.builtins.namespaces import NAMESPACES
from worker.values.methods.registry import METHODS, MethodEffect

# Fields that look at the clock; they are members of durations, not methods.
CLOCK_FIELDS: Final = frozenset(("ago", "from_now"))
CLOCK_NAMES: Final = frozenset(("now", "today"))
# The one method whose argument is a command (chapter 40 §7).
FEED: Final = "feed"
ENVIRONMENT: Final = "env"
SECRETS: Final = "secret"


def _method_effects() -> dict[str, tuple[MethodEffect, ...]]:
    found: dict[str, tuple[MethodEffect, ...]] = {}
    for method in METHODS:
        if not method.effects:
            continue
        if found.setdefault(method.name, method.effects) != method.effects:
            raise ValueError(f"method {method.name} declares two sets of effects")
    return found


METHOD_EFFECTS: Final = _method_effects()
# Receivers that are recognised by their name.
RECEIVER_NAMES: Final = frozenset((*NAMESPACES, ENVIRONMENT))
# A method call or field with one of these names may do more than look at values.
ACTIVE_MEMBERS: Final = frozenset((*METHOD_EFFECTS, *CLOCK_FIELDS, FEED))
