"""What a program may touch, before it runs.

A program is *pure* when nothing in it can start a command, call into the outside or read a file:
literals, operators, bindings, control flow, and methods that only look at values. Such a program has
an empty effect set. Everything else has effects that this module does not derive, and says so with
the one effect `opaque`, which every reader must treat as "anything" (chapter 60 §5.8).

Failure: none; a tree too deep to walk is opaque.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from worker.language import ast

OPAQUE_JSON: Final = b'[{"kind":"opaque"}]'


@dataclass(frozen=True, slots=True)
class Plan:
    """An effect set as the journal and the wire want it."""

    effects_json: bytes
    kinds: list[str]
    opaque: bool

    @property
    def pure(self) -> bool:
        return not self.kinds


PURE: Final = Plan(b"[]", [], False)
OPAQUE: Final = Plan(OPAQUE_JSON, ["opaque"], True)

# Methods that look at values only. A method that is not here might touch files or publish events.
PURE_METHODS: Final = frozenset(
    "len count is_empty first last collect map reduce fold where filter any all find flat_map "
    "sort_by sort reverse uniq sum min max flatten enumerate skip take chunks zip group group_by "
    "join contains get json words chars trim upper lower split starts_with ends_with replace matches "
    "match parse_int parse_float str display keys values items set merge abs round floor ceil "
    "name stem ext parent".split()
)
_COMMAND_NODES: Final = (ast.Cmd, ast.LangBlock, ast.Use, ast.Alias, ast.Spawn, ast.With)


def derive(node: Any, bound: Callable[[str], bool]) -> Plan:
    """The plan of a program or statement; `bound` tells which names hold plain values."""
    stack: list[Any] = [node]
    declared: set[str] = set()
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack.extend(item)
            continue
        if not isinstance(item, msgspec.Struct) or type(item) is ast.Span:
            continue
        if _reaches_out(item, declared, bound):
            return OPAQUE
        declared.update(_names(item))
        stack.extend(getattr(item, name) for name in item.__struct_fields__)
    return PURE


def _reaches_out(item: Any, declared: set[str], bound: Callable[[str], bool]) -> bool:
    """Whether evaluating this node alone, apart from its parts, may touch anything."""
    kind = type(item)
    if kind in _COMMAND_NODES or kind is ast.FnCall:
        return True
    if kind is ast.Var:
        return item.name not in declared and not bound(item.name)
    if kind is ast.MethodCall:
        return item.name not in PURE_METHODS
    if kind is ast.FieldExpr:
        return _may_read(item)
    return False


def _may_read(field: Any) -> bool:
    """Field access falls back to methods of the same name; those of paths read files."""
    return field.name in ("read", "read_bytes", "lines", "exists", "is_dir", "is_file", "size",
                          "modified")  # fmt: skip


def _names(item: Any) -> list[str]:
    if type(item) in (ast.Param, ast.BindPat, ast.FieldPat):
        return [item.name]
    return []
