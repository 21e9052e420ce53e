"""Binding cells and the root scope of a program (chapter 30 §3).

A `Cell` is the place of one name in one scope. Closures that capture a name share its cell, so each
sees what the other assigns. The root scope finds its cells by name; the scopes inside functions and
blocks are resolved to slots when a program is compiled (worker.evaluate.static) and have cells only
for names that a closure captures.

Declaring a name again replaces value and mutability in the same cell: compiled code may hold on to
the cell of a root name for ever.

Failure: nothing here raises; an unbound name has the value MISSING.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from worker.values.types import MISSING, Value

MENTIONS_KEPT: Final = 1024
# References to a cell that is only in its scope: the dictionary, a local name, the question itself.
UNSHARED: Final = 3


class Cell:
    """`v` is MISSING while the name is unbound; `lost` marks a value that recovery could not bring
    back; `saved` is the value of the last state capture, see worker.evaluate.state."""

    __slots__ = ("lost", "mutable", "name", "saved", "v")

    def __init__(self, name: str, v: Value = MISSING, mutable: bool = False) -> None:
        self.name = name
        self.v = v
        self.mutable = mutable
        self.lost = False
        self.saved: Value = MISSING

    def bind(self, v: Value, mutable: bool) -> None:
        """Declare the name: the value and whether it may be assigned."""
        if mutable is not self.mutable:
            self.mutable = mutable
            self.saved = MISSING
        self.lost = False
        self.v = v

    def assign(self, v: Value) -> None:
        """Replace the value of a mutable name."""
        self.v = v

    def __repr__(self) -> str:
        return f"Cell({self.name!r}, {self.v!r}, mutable={self.mutable})"


class Scope:
    """A root scope. `cells` also holds cells of names that were mentioned but never bound."""

    # `_mentions_kept` is the number of cells at which unbound ones nobody holds are looked for.

    __slots__ = ("_mentions_kept", "cells")

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}
        self._mentions_kept = MENTIONS_KEPT

    def cell(self, name: str) -> Cell:
        """The one cell of a name in this scope, made on first mention."""
        cell = self.cells.get(name)
        if cell is None:
            # setdefault: tasks that share the scope must never make two cells for one name.
            cell = self.cells.setdefault(name, Cell(name))
        return cell

    def lookup(self, name: str) -> Value:
        """The value bound to a name, or MISSING."""
        cell = self.cells.get(name)
        return MISSING if cell is None else cell.v

    def declare(self, name: str, value: Value, mutable: bool = False) -> None:
        self.cell(name).bind(value, mutable)

    def bound(self) -> Iterator[Cell]:
        """The cells of bound names, in the order the names were first mentioned."""
        return (cell for cell in list(self.cells.values()) if cell.v is not MISSING)

    @property
    def crowded(self) -> bool:
        """Whether it is time for `forget_mentions`."""
        return len(self.cells) >= self._mentions_kept

    def forget_mentions(self) -> None:
        """Drop cells of unbound names that no compiled code holds: a session that is fed ever new
        words must not grow with them. Only while nothing else is compiling."""
        for name in list(self.cells):
            cell = self.cells[name]
            if cell.v is MISSING and not cell.lost and sys.getrefcount(cell) <= UNSHARED:
                del self.cells[name]
        self._mentions_kept = max(MENTIONS_KEPT, 2 * len(self.cells))

    def names(self) -> list[str]:
        return [cell.name for cell in self.bound()]
