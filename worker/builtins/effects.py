"""How a builtin declares the effects it has, before any argument is known (chapter 50 §4.6, §4.7).

A declaration is data: a tuple of `Rule`s, each naming one effect kind of the closed vocabulary and
the part of the arguments it applies to. The planner turns rules and the arguments it knows into
effects; documentation and tests read the same rules. The order of the tuple is the order of the
effects.

Failure: none; a rule with an unknown kind is a programming error and fails when the module loads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

EFFECT_KINDS: Final = frozenset(
    (
        "fs_read",
        "fs_write",
        "fs_delete",
        "proc_spawn",
        "net_connect",
        "net_listen",
        "env_read",
        "env_write",
        "secret_use",
        "session_write",
        "journal_read",
        "time",
        "opaque",
    )
)

# Two rules that are no effect by themselves: the effects of a program found elsewhere.
SCRIPT: Final = "script"
STORED_PLAN: Final = "stored_plan"


class Operands(enum.Enum):
    """Which arguments of the call an effect is about."""

    NONE = "none"
    PATHS = "all paths"
    PATHS_OR_CWD = "all paths, the cwd when there are none"
    FIRST = "the first argument"
    FIRST_OR_CWD = "the first argument, the cwd when there is none"
    SECOND = "the second argument"
    SOURCES = "all paths but the last"
    TARGETS = "the destination, or destination/name of each source when it is a directory"
    NAME_OR_ALL = "the first argument, every name when there is none"
    URL = "host and port of the first argument"
    RECEIVER = "the value the method is called on"
    CLOSURES = "the bodies of the callables among the arguments"


@dataclass(frozen=True, slots=True)
class Rule:
    """One effect of a builtin.

    `names` are fixed operands (`env_read ["PATH"]`). With `unless_flags` the rule is dropped when
    one of these flags is given; with `irreversible_flags` one of these makes the plan irreversible.
    `fresh_scope` belongs to `SCRIPT`: whether the program runs in the scope of the caller.
    """

    kind: str
    operands: Operands = Operands.NONE
    names: tuple[str, ...] = ()
    unless_flags: tuple[str, ...] = ()
    irreversible_flags: tuple[str, ...] = ()
    fresh_scope: bool = False

    def __post_init__(self) -> None:
        if self.kind not in EFFECT_KINDS and self.kind not in (SCRIPT, STORED_PLAN):
            raise ValueError(f"no such effect kind: {self.kind}")


Rules = tuple[Rule, ...]

NOTHING: Final[Rules] = ()
OPAQUE: Final[Rules] = (Rule("opaque"),)
TIME: Final[Rules] = (Rule("time"),)
SESSION_WRITE: Final[Rules] = (Rule("session_write"),)
JOURNAL_READ: Final[Rules] = (Rule("journal_read"),)


def reads(operands: Operands) -> Rules:
    return (Rule("fs_read", operands),)


def writes(operands: Operands) -> Rules:
    return (Rule("fs_write", operands),)
