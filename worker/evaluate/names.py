"""Variables: reading, finding, declaring and assigning names (chapter 30 §3, §5.1).

Failure: reading an unbound name that is no command raises `undefined_var`; assigning what is no
`var` raises `type_error`; a value lost with a restored session raises `lost_value`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worker.errors import Raised, raised
from worker.evaluate.code import Thunk, span_of
from worker.evaluate.compiler import Compiler, Position, compiles
from worker.evaluate.scopes import Cell
from worker.evaluate.static import (
    DynamicName,
    Frame,
    Place,
    StaticScope,
    Variable,
    lost_value,
    slot_cell,
    slot_value,
)
from worker.language import ast
from worker.values.types import MISSING, Span, Value

Finder = Callable[[Frame], Value]
CellFinder = Callable[[Frame], Cell | None]
Binder = Callable[[Frame, Value], None]


@compiles(ast.Var)
def compile_var(compiler: Compiler, node: ast.Var, scope: StaticScope, position: Position) -> Thunk:
    name = node.name
    candidates, certain = scope.resolve(name)
    first = candidates[0]
    if type(first) is Variable and certain:
        return definite_reader(first, scope)
    unbound = unbound_reader(node, scope)
    if type(first) is Cell:
        cell = first

        def read_root(frame: Frame) -> Value:
            value = cell.v
            if value is MISSING:
                return unbound(frame)
            return value

        return read_root
    find = finder(candidates, scope)

    def read(frame: Frame) -> Value:
        value = find(frame)
        if value is MISSING:
            return unbound(frame)
        return value

    return read


def definite_reader(variable: Variable, scope: StaticScope) -> Thunk:
    """Read a variable that is certainly bound."""
    index = variable.index
    if variable.function is not scope.function:
        index = scope.function.captures[variable]

        def read_captured(frame: Frame) -> Value:
            return frame[1][index].v

        return read_captured
    if variable.boxed:

        def read_boxed(frame: Frame) -> Value:
            return frame[index].v

        return read_boxed

    def read_slot(frame: Frame) -> Value:
        return frame[index]

    return read_slot


def find_name(name: str, scope: StaticScope) -> Finder:
    """A thunk that gives the value bound to a name, or MISSING."""
    candidates, certain = scope.resolve(name)
    first = candidates[0]
    if type(first) is Variable and certain:
        return definite_reader(first, scope)
    if type(first) is Cell:
        cell = first

        def find_root(frame: Frame) -> Value:
            value = cell.v
            if value is MISSING and cell.lost:
                raise lost_value(cell.name)
            return value

        return find_root
    return finder(candidates, scope)


def finder(candidates: list[Variable | DynamicName | Cell], scope: StaticScope) -> Finder:
    """Try the candidates from the inside out."""
    steps: list[Finder] = []
    for candidate in candidates:
        if type(candidate) is Variable:
            steps.append(_variable_step(candidate, scope))
        elif type(candidate) is DynamicName:
            steps.append(_dynamic_step(candidate, scope))
        else:
            assert type(candidate) is Cell
            steps.append(_cell_step(candidate))
    tried = tuple(steps)

    def find(frame: Frame) -> Value:
        for step in tried:
            value = step(frame)
            if value is not MISSING:
                return value
        return MISSING

    return find


def _variable_step(variable: Variable, scope: StaticScope) -> Finder:
    function = scope.function

    def step(frame: Frame) -> Value:
        return slot_value(variable, function, frame)

    return step


def _dynamic_step(name: DynamicName, scope: StaticScope) -> Finder:
    find_cell = _dynamic_cell(name, scope)

    def step(frame: Frame) -> Value:
        cell = find_cell(frame)
        return MISSING if cell is None else cell.v

    return step


def _cell_step(cell: Cell) -> Finder:
    def step(frame: Frame) -> Value:
        if cell.v is MISSING and cell.lost:
            raise lost_value(cell.name)
        return cell.v

    return step


def _dynamic_cell(name: DynamicName, scope: StaticScope) -> CellFinder:
    function = scope.function

    def find(frame: Frame) -> Cell | None:
        cells = slot_value(name.hidden, function, frame)
        if cells is MISSING:
            return None
        cell: Cell | None = cells.get(name.name)
        return cell

    return find


def unbound_reader(node: ast.Var, scope: StaticScope) -> Thunk:
    """What an unbound bare name means: the clock's, a command, or nothing (chapter 30 §5.1)."""
    name = node.name
    span = span_of(node)
    cell = scope.root.cell(name)

    def read(frame: Frame) -> Value:
        ev = frame[0]
        if cell.lost:
            raise lost_value(name).at(span)
        if ev.repl is not None and name in ev.repl:
            return ev.repl[name]
        outer = ev.here
        ev.here = Place(scope, frame)
        try:
            return run_bare_name(ev, name, span)
        except Raised as error:
            error.at(span)
            raise
        finally:
            ev.here = outer

    return read


def run_bare_name(ev: Any, name: str, span: Span) -> Value:
    if name in ("now", "today"):
        from worker.builtins.functions import FUNCTIONS

        return FUNCTIONS[name](ev, [], {}, span)
    from worker.commands.run import call_command_name, is_command_name

    if is_command_name(ev, name):
        return call_command_name(ev, name, [], {}, span)
    raise raised("undefined_var", f"undefined variable `{name}`", span=span)


# -- declaring -----------------------------------------------------------------------------------


def declarer(scope: StaticScope, name: str, mutable: bool) -> Binder:
    """How `let`, `var`, `fn` and `alias` bind a name in the scope they stand in."""
    if scope.declares_in is not None:
        return _declare_at_place(scope, name, mutable)
    if scope.is_root:
        cell = scope.root.cell(name)

        def declare_root(frame: Frame, value: Value) -> None:
            cell.bind(value, mutable)

        return declare_root
    variable = scope.variables[name]
    variable.declared(mutable)
    index = variable.index
    if not variable.boxed:

        def declare_slot(frame: Frame, value: Value) -> None:
            frame[index] = value

        return declare_slot

    def declare_boxed(frame: Frame, value: Value) -> None:
        frame[index].bind(value, mutable)

    return declare_boxed


def declare_dynamic(scope: StaticScope, frame: Frame, name: str, value: Value) -> None:
    """Bind a name that was not known before the program ran (`use`), immutable."""
    if scope.is_root:
        scope.root.declare(name, value)
        return
    target = scope.declares_in or scope
    variable = target.variables.get(name)
    if variable is not None and variable.boxed:
        slot_cell(variable, scope.function, frame).bind(value, False)
        return
    hidden = target.owner_of_dynamic_names()
    assert hidden is not None, "a scope with `use` in it keeps unforeseeable names"
    cells = slot_cell(hidden, scope.function, frame).v
    cells.setdefault(name, Cell(name)).bind(value, False)


def _declare_at_place(scope: StaticScope, name: str, mutable: bool) -> Binder:
    """A declaration of a sourced program: into the scope `source` stands in."""
    place = scope.declares_in
    assert place is not None
    variable = place.variables.get(name)
    target = variable if variable is not None else place.owner_of_dynamic_names()
    assert target is not None
    scope.reach(target)

    def declare(frame: Frame, value: Value) -> None:
        cell = slot_cell(target, scope.function, frame)
        if variable is None:
            cell = cell.v.setdefault(name, Cell(name))
        cell.bind(value, mutable)

    return declare


# -- assigning -----------------------------------------------------------------------------------


def not_assignable(name: str, why: str) -> Raised:
    return raised("type_error", f"cannot assign `{name}`: {why}")


def cell_for_assignment(name: str, scope: StaticScope) -> CellFinder:
    """Find the cell of the nearest bound variable of a name, None when there is none.

    For names whose candidates all live in cells.
    """
    steps: list[CellFinder] = []
    for candidate in scope.resolve(name).candidates:
        if type(candidate) is Variable:
            steps.append(_variable_cell(candidate, scope))
        elif type(candidate) is DynamicName:
            steps.append(_dynamic_cell(candidate, scope))
        else:
            assert type(candidate) is Cell
            steps.append(_same_cell(candidate))
    tried = tuple(steps)

    def find(frame: Frame) -> Cell | None:
        for step in tried:
            cell = step(frame)
            if cell is not None and (cell.v is not MISSING or cell.lost):
                return cell
        return None

    return find


def _variable_cell(variable: Variable, scope: StaticScope) -> CellFinder:
    function = scope.function
    if not variable.boxed:
        index = variable.index

        def find_slot(frame: Frame) -> Cell | None:
            return SlotCell(frame, index, variable)

        return find_slot

    def find(frame: Frame) -> Cell | None:
        return slot_cell(variable, function, frame)

    return find


def _same_cell(cell: Cell) -> CellFinder:
    return lambda frame: cell


class SlotCell(Cell):
    """A slot of a frame seen as a cell, for the rare assignments that must search for theirs."""

    __slots__ = ("_frame", "_index")

    def __init__(self, frame: Frame, index: int, variable: Variable) -> None:
        super().__init__(variable.name, frame[index], variable.mutable is not False)
        self._frame = frame
        self._index = index

    def assign(self, value: Value) -> None:
        self._frame[self._index] = value
