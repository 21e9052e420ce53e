"""Which names a piece of program mentions inside closures: what must live in cells.

A local variable needs a cell of its own only if code that may outlive or run beside the scope
(lambdas, functions, aliases, spawned blocks) can reach it. This is decided by name before code is
made: a name that is mentioned anywhere inside such a closure counts, whichever variable it turns
out to mean. Being wrong costs a little time and changes nothing else.

`source`, `apply` and `use` reach names that only exist when they run; where one of them stands,
every name counts as mentioned.

Failure: nothing raises; nodes that are no part of the language are ignored.
"""

from __future__ import annotations

import re
from typing import Any, Final

from worker.language import ast

# Heads that evaluate a program, or bind a name, in the scope they stand in.
DYNAMIC_HEADS: Final = frozenset(("source", "apply"))

_CLOSURES: Final = (ast.Lambda, ast.FnDecl, ast.Alias, ast.Spawn)


class Names:
    """What one node mentions: every name, the names inside closures, and whether it is dynamic."""

    __slots__ = ("all", "dynamic", "in_closures")

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.in_closures: set[str] = set()
        self.dynamic = False

    def captures(self, name: str) -> bool:
        return self.dynamic or name in self.in_closures


class Mentions:
    """Answers for the nodes of one program. Each node is walked once, results are kept by identity
    and are good as long as the program lives."""

    def __init__(self) -> None:
        self._known: dict[int, Names] = {}

    def of(self, node: Any) -> Names:
        """Names of a node and everything below it."""
        known = self._known.get(id(node))
        if known is None:
            known = self._walk(node)
            self._known[id(node)] = known
        return known

    def of_all(self, nodes: list[Any]) -> Names:
        """Names of several nodes together."""
        names = Names()
        for node in nodes:
            self._add(names, node)
        return names

    def _walk(self, node: Any) -> Names:
        kind = type(node)
        children = child_fields(kind)
        if not children and kind is not ast.Var and kind is not ast.Use:
            return _NOTHING
        names = Names()
        if kind is ast.Var or kind is ast.FnCall:
            names.all.add(node.name)
            names.dynamic = kind is ast.FnCall and node.name in DYNAMIC_HEADS
        elif kind is ast.CmdCall:
            names.all.add(node.head)
            names.dynamic = node.head in DYNAMIC_HEADS
        elif kind is ast.Use:
            names.dynamic = True
        for field in children:
            self._add(names, getattr(node, field))
        if kind in _CLOSURES or (kind is ast.CmdCall and node.background):
            names.in_closures |= names.all
        return names

    def _add(self, names: Names, part: Any) -> None:
        if type(part) is list:
            for item in part:
                self._add(names, item)
        elif part is not None and type(part) is not str:
            inner = self.of(part)
            if inner is not _NOTHING:
                names.all |= inner.all
                names.in_closures |= inner.in_closures
                names.dynamic = names.dynamic or inner.dynamic


_NOTHING: Final = Names()

# How the syntax tree annotates fields that hold no nodes.
_PLAIN_FIELDS: Final = re.compile(
    r"(str|bool|float|Int64|Span|AssignOp|UnaryOp|BinaryOp|RedirectKind|Annotated\[int.*\]|None)"
    r"( \| None)?"
)


_CHILD_FIELDS: Final[dict[type, tuple[str, ...]]] = {}


def child_fields(kind: type) -> tuple[str, ...]:
    """The fields of a kind of node in which other nodes stand."""
    fields = _CHILD_FIELDS.get(kind)
    if fields is None:
        annotations: dict[str, str] = kind.__annotations__
        fields = _CHILD_FIELDS[kind] = tuple(
            name for name, text in annotations.items() if not _PLAIN_FIELDS.fullmatch(text)
        )
    return fields
