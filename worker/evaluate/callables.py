"""The two callable value types: closures (`fn`, lambdas) and commands (aliases).

A closure is compiled code plus the cells it captured when it was made; calling it is the work of
worker.evaluate.calls. A command is the stored call of an alias with the cells its computed
arguments need; running it is the work of worker.commands.

Both are stored without their compiled code: node and source travel, and one that came back has its
`code` and `captured` made on first use (`stored`, see worker.evaluate.revive).

Failure: nothing here raises language errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from worker.evaluate.scopes import Cell
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.code import Code
    from worker.evaluate.evaluator import Evaluator
    from worker.evaluate.revive import StoredCallable
    from worker.evaluate.static import Place


class Closure:
    """`code` is shared by all closures made at the same place; `captured` are this one's cells."""

    __slots__ = ("captured", "code", "stored")
    TYPE_NAME: ClassVar[str] = "closure"
    stored: StoredCallable

    def __init__(self, code: Code, captured: tuple[Cell, ...]) -> None:
        self.code = code
        self.captured = captured

    def __getattr__(self, name: str) -> Any:
        return _revived(self, name)

    @property
    def name(self) -> str | None:
        """The name of an `fn`; None for a lambda."""
        return self.code.name

    @property
    def params(self) -> list[str]:
        """Parameter names in order, without the rest parameter."""
        return [param.name for param in self.code.params]

    @property
    def rest(self) -> str | None:
        return None if self.code.rest is None else self.code.rest.name

    def signature(self) -> str:
        """The inline form: `fn NAME(p, q, ...rest)` or `closure(p, q)` (chapter 20 §6)."""
        names = self.params
        if self.rest is not None:
            names.append(f"...{self.rest}")
        head = "closure" if self.name is None else f"fn {self.name}"
        return f"{head}({', '.join(names)})"

    def __repr__(self) -> str:
        return f"<{self.signature()}>"


class Command:
    """A stored command call. `call` is its AST node, `src` the source its spans refer to, `site`
    the compiled call of worker.commands, and `frame(ev)` the frame its computed arguments need.
    """

    __slots__ = ("captured", "code", "stored")
    TYPE_NAME: ClassVar[str] = "command"
    stored: StoredCallable

    def __init__(self, code: Code, captured: tuple[Cell, ...]) -> None:
        self.code = code
        self.captured = captured

    def __getattr__(self, name: str) -> Any:
        return _revived(self, name)

    @property
    def call(self) -> Any:
        return self.code.node

    @property
    def src(self) -> str | None:
        return self.code.src

    @property
    def head(self) -> str:
        """The head word as written; the inline form is `command(HEAD)`."""
        head: str = self.code.node.head
        return head

    @property
    def site(self) -> Any:
        """The compiled call, `worker.commands.site.CommandSite.build(...)`."""
        return self.code.site

    def frame(self, ev: Evaluator) -> list[Any]:
        """A fresh frame for the expressions among the stored arguments."""
        return self.code.new_frame(ev, self.captured)

    def place(self, frame: list[Any]) -> Place:
        """What names mean to the stored call: its head means what it meant where the alias
        stood."""
        from worker.evaluate.static import Place

        assert self.code.scope is not None
        return Place(self.code.scope, frame)

    def same_call(self, other: Command) -> bool:
        """Structural equality of the stored calls; where they stand in a source does not count."""
        from worker.evaluate.code import without_spans

        return self is other or without_spans(self.call) == without_spans(other.call)

    def __repr__(self) -> str:
        return f"<command({self.head})>"


def _revived(value: Closure | Command, name: str) -> Any:
    """Reached only for an unset slot: the code of a callable that came back is made now."""
    if name != "code" and name != "captured":
        raise AttributeError(name)
    value.stored.revive(value)
    return value.code if name == "code" else value.captured


def is_callable(value: Value) -> bool:
    return type(value) is Closure or type(value) is Command
