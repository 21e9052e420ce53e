"""The registry of command heads: one entry per builtin, declared beside its body (chapter 31 §1.1).

`@builtin(name, ...)` registers a function `body(call) -> Value` with everything that is known about
the head without running it: whether its value is wrapped in an outcome, its effects, its undo
record, its usage lines. Dispatch, planning, documentation, completion and tests walk `BUILTINS`.

A structured builtin gives an outcome around its value, a special head the bare value. The bytes of
such an outcome are made when somebody asks for them: a listing of a large directory is rarely
wanted as text.

Failure: the body raises language errors; registering a name twice is a programming error.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.builtins.effects import NOTHING, Rules
from worker.values.types import Outcome, Span, Value

if TYPE_CHECKING:
    from worker.commands.arguments import Arguments
    from worker.evaluate.evaluator import Evaluator


class Undo(enum.Enum):
    """What a builtin records so that `undo` can take it back (chapter 50 §13)."""

    NONE = "nothing"
    RESTORE_BYTES = "the prior content of every file it overwrote"
    MOVE = "the prior content of an overwritten target, else the way back"
    TRASH = "the place in the trash, none when removed for good"


@dataclass(slots=True)
class Call:
    """One run of a builtin: who evaluates, with which arguments, from where in the source."""

    ev: Evaluator
    args: Arguments
    span: Span | None


Body = Callable[[Call], Value]


@dataclass(frozen=True, slots=True)
class Builtin:
    """A command head and all that is known about it.

    `usage` holds one line per form. `structured`: the value is wrapped in a successful outcome.
    """

    name: str
    body: Body
    usage: tuple[str, ...]
    summary: str
    structured: bool
    effects: Rules
    undo: Undo

    def run(self, ev: Evaluator, args: Arguments, span: Span | None) -> Value:
        """The value of one call in command form."""
        value = self.body(Call(ev, args, span))
        return structured_outcome(self.name, value) if self.structured else value


# Filled while the family modules load, unchanged afterwards.
BUILTINS: Final[dict[str, Builtin]] = {}


def builtin(
    name: str,
    *,
    usage: str,
    structured: bool = False,
    effects: Rules = NOTHING,
    undo: Undo = Undo.NONE,
) -> Callable[[Body], Body]:
    """Register a command head; the first line of the body's docstring is its summary."""

    def register(body: Body) -> Body:
        if name in BUILTINS:
            raise ValueError(f"builtin {name} is declared twice")
        BUILTINS[name] = Builtin(
            name=name,
            body=body,
            usage=tuple(usage.splitlines()),
            summary=(body.__doc__ or "").strip().partition("\n")[0],
            structured=structured,
            effects=effects,
            undo=undo,
        )
        return body

    return register


def structured_outcome(head: str, value: Value) -> Outcome:
    """The outcome of a successful builtin around its value (chapter 31 §1.2)."""
    outcome = Outcome(status=0, ok=True, cmd=head, structured=value)
    del outcome.stdout  # computed from the value on first use
    return outcome
