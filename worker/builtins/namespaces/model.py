"""What a namespace is: named functions and fields that only exist behind a dot (chapter 31 §10).

A namespace is no value of the language: the evaluator recognises its name as the receiver of a
member and calls `call` or `field`. Every function is declared with its usage and its effects, like
a command head, so that planning and documentation can walk them.

Failure: `field_missing` for a member that is not there, or is there but not in that form; whatever
the function raises otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.builtins.effects import NOTHING, Rules
from worker.errors import arg_error, field_missing
from worker.values.types import MISSING, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


@dataclass(slots=True)
class MemberCall:
    """One call of a namespace function; `name` is its full name, for messages."""

    ev: Evaluator
    name: str
    pos: list[Value]
    named: dict[str, Value]

    def text(self, index: int = 0) -> str:
        """A required string argument."""
        if index >= len(self.pos):
            raise arg_error(f"{self.name} expects a str argument")
        value = self.pos[index]
        if type(value) is not str:
            raise arg_error(f"{self.name} expects a str, found {type_name(value)}")
        return value

    def value(self) -> Value:
        """The required first argument, of any type."""
        if not self.pos:
            raise arg_error(f"{self.name} expects a value argument")
        return self.pos[0]

    def option(self, name: str, index: int) -> Value:
        """An optional argument by name, else by position; MISSING when it was not given."""
        if name in self.named:
            return self.named[name]
        return self.pos[index] if index < len(self.pos) else MISSING


MemberBody = Callable[[MemberCall], Value]


@dataclass(frozen=True, slots=True)
class Member:
    """A function of a namespace and what is known about it without calling it."""

    name: str
    body: MemberBody
    usage: str
    summary: str
    effects: Rules


class Namespace:
    """Functions and constant fields under one name. Filled while its module loads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.functions: dict[str, Member] = {}
        self.constants: dict[str, Value] = {}

    def function(
        self, member: str, *, usage: str, effects: Rules = NOTHING
    ) -> Callable[[MemberBody], MemberBody]:
        """Register a function; the first line of its docstring is its summary."""

        def register(body: MemberBody) -> MemberBody:
            summary = (body.__doc__ or "").strip().partition("\n")[0]
            self.functions[member] = Member(member, body, usage, summary, effects)
            return body

        return register

    def call(
        self, ev: Evaluator, member: str, pos: list[Value], named: dict[str, Value] | None = None
    ) -> Value:
        found = self.functions.get(member)
        if found is None:
            raise field_missing(f"unknown method `{self.name}.{member}`")
        return found.body(MemberCall(ev, f"{self.name}.{member}", pos, named or {}))

    def field(self, ev: Evaluator, member: str) -> Value:
        if member in self.constants:
            return self.constants[member]
        return self.no_field(ev, member)

    def no_field(self, ev: Evaluator, member: str) -> Value:
        """What reading a field gives that is no constant."""
        if member in self.functions:
            raise field_missing(f"`{self.name}.{member}` is a function — call it")
        raise field_missing(f"unknown field `{self.name}.{member}`")
