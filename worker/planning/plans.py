"""What derivation gives: the plan of a program and of each of its statements.

`Plan` is an effect set ready for journal rows and answers; `Derived` is a whole program's plan with
everything that is reported about it.

Failure: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from leash.effects import Effect, kinds_of
from leash.plan import NOTHING, UNKNOWN
from leash.plan import Plan as LeashPlan

_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Plan:
    """The effects of a program or statement, in order and without duplicates."""

    effects: tuple[Effect, ...] = ()

    @cached_property
    def effects_json(self) -> bytes:
        return _encode_json(self.effects)

    @cached_property
    def kinds(self) -> list[str]:
        return kinds_of(self.effects)

    @property
    def opaque(self) -> bool:
        return "opaque" in self.kinds

    @property
    def pure(self) -> bool:
        return not self.effects


PURE: Final = Plan()
OPAQUE: Final = Plan(({"kind": "opaque"},))


@dataclass(frozen=True)
class Derived:
    """A program's plan; `statements` are those of its top-level statements alone, `leash` has
    reversibility and estimates beside the same effects."""

    plan: Plan
    statements: tuple[Plan, ...]
    leash: LeashPlan = NOTHING


def nothing(statements: int) -> Derived:
    """The plan of a program without effects."""
    return Derived(PURE, (PURE,) * statements)


def unknown(statements: int) -> Derived:
    """The plan of a program nobody could follow to its end."""
    return Derived(OPAQUE, (OPAQUE,) * statements, UNKNOWN)
