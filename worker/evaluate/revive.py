"""Stored callables: the parts of a closure or alias that are saved, and how it is made again.

Saved are the syntax node, its source, the root scope and the names of the captured variables; code
is compiled again when it is first needed, so that bringing a session back costs nothing for
functions nobody calls. All closures made at one place share one `StoredCode`.

The captured variables form the scopes around the node: the first captured one of a name is the
innermost, which is the order in which the compiler found them.

Failure: none; a node that cannot be read back raises msgspec's error, and its holder is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from worker.evaluate.callables import Closure, Command
from worker.evaluate.scopes import Cell, Scope
from worker.language import ast
from worker.values.types import MISSING

if TYPE_CHECKING:
    from worker.evaluate.code import Code

_NODES: Final[dict[str, Any]] = {"fn": ast.FnDecl, "lambda": ast.Lambda, "alias": ast.CmdCall}
_DECODERS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(node) for kind, node in _NODES.items()
}
_KINDS: Final = {node: kind for kind, node in _NODES.items()}
_encode = msgspec.msgpack.Encoder().encode

# Code is compiled by whichever thread needs it first: the evaluator's, or one that shows a value.
_compiling: Final = threading.RLock()


class StoredCode:
    """What is kept of one piece of code. `names` are those of the captured variables, in the order
    of the cells that closures of it are stored with."""

    # `_compiled` maps which of the captured variables were bound to the code made for that case,
    # and the place of each of its captured cells among the stored ones.

    __slots__ = ("_compiled", "kind", "names", "node", "root", "src")

    def __init__(
        self, kind: str, node: bytes, src: str | None, names: tuple[str, ...], root: Scope
    ) -> None:
        self.kind = kind
        self.node = node
        self.src = src
        self.names = names
        self.root = root
        self._compiled: dict[tuple[bool, ...], tuple[Code, tuple[int, ...]]] = {}

    @classmethod
    def of(cls, code: Code) -> StoredCode:
        assert code.scope is not None
        kind = _KINDS[type(code.node)]
        return cls(kind, _encode(code.node), code.src, code.variables, code.scope.root)

    def check(self) -> None:
        """Raise unless the node can be read back."""
        _DECODERS[self.kind].decode(self.node)

    def compiled(self, cells: tuple[Cell, ...]) -> tuple[Code, tuple[Cell, ...]]:
        """The code, and those of the cells it captures."""
        # A bound name stays bound, and code that knows it need not ask.
        bound = tuple([cell.v is not MISSING for cell in cells])
        with _compiling:
            found = self._compiled.get(bound)
            if found is None:
                found = self._compiled[bound] = self._compile(bound)
        code, places = found
        return code, tuple([cells[place] for place in places])

    def _compile(self, bound: tuple[bool, ...]) -> tuple[Code, tuple[int, ...]]:
        from worker.evaluate.compiler import Compiler, load_all, root_scope
        from worker.evaluate.functions import command_code, function_code, lambda_code

        load_all()
        scope = root_scope(self.root)
        places: dict[Any, int] = {}
        for place, name in reversed(list(enumerate(self.names))):
            scope = scope.inner()
            variable = scope.declare(name, boxed=True, definite=bound[place])
            places[variable] = place
        makers: dict[str, Callable[..., Code]] = {
            "fn": function_code,
            "lambda": lambda_code,
            "alias": command_code,
        }
        make = makers[self.kind]
        code = make(Compiler(self.src), _DECODERS[self.kind].decode(self.node), scope)
        assert code.scope is not None
        return code, tuple(places[variable] for variable in code.scope.function.captures)


class StoredCallable:
    """The stored form of one closure or alias: its code and its own captured cells."""

    # `_revived` becomes True once, under `_compiling`, when the value has both its slots.

    __slots__ = ("_revived", "cells", "code")

    def __init__(self, code: StoredCode, cells: tuple[Cell, ...]) -> None:
        self.code = code
        self.cells = cells
        self._revived = False

    def revive(self, value: Closure | Command) -> None:
        """Give a value that came back its code."""
        with _compiling:
            if not self._revived:
                code, captured = self.code.compiled(self.cells)
                # Callers look at the code first.
                value.captured = captured
                value.code = code
                self._revived = True


def callable_of(code: StoredCode, cells: tuple[Cell, ...]) -> Closure | Command:
    """A closure or alias whose code is compiled when somebody asks for it."""
    for name, cell in zip(code.names, cells, strict=True):
        # A variable whose value was lost has lost its name with it.
        cell.name = cell.name or name
    value: Closure | Command
    value = Command.__new__(Command) if code.kind == "alias" else Closure.__new__(Closure)
    value.stored = StoredCallable(code, cells)
    return value
