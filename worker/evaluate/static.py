"""Scopes while a program is compiled, and the same scopes seen from a running command.

Chapter 30 §3 describes scopes as objects that are made when a block, call, round, arm or handler is
entered. Their shape is known beforehand, so each name a scope can bind gets a slot in the frame of
its function, and reading it is one list access. What keeps this invisible:

- a name counts from its declaration on. Until then a mention means the same name further out; a
  read that may come too early tries the candidates from the inside out;
- a scope entered again starts unbound: slots that may be read early are cleared at entry;
- a name that closures mention lives in a `Cell`, made anew each time its scope is entered;
- `source`, `apply` and `use` bind names nobody can foresee: their scope keeps these in a hidden
  variable, a dictionary of cells;
- the root scope has no slots: its names are cells found once, when code is made.

Frame layout: slot 0 the evaluator, slot 1 the tuple of captured cells, then parameters and locals.

Failure: nothing raises but the look at a value that was lost with a restored session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.errors import Raised, raised
from worker.evaluate.scopes import Cell, Scope
from worker.values.types import MISSING, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

Frame = list[Any]

EVALUATOR_SLOT: Final = 0
CAPTURED_SLOT: Final = 1
FIRST_FREE_SLOT: Final = 2

# The hidden variable of a scope with unforeseeable names. No identifier has a blank in it.
DYNAMIC_NAMES: Final = "dynamic names"


class Variable:
    """One name of one scope. `definite`: code made from now on runs only after the declaration.
    `read_early`: some code reads the slot before that, so entering the scope must clear it.
    `mutable`: what its declarations say, None while there is none. A name that one scope declares
    both ways is boxed: then its cell knows."""

    __slots__ = ("boxed", "definite", "function", "index", "mutable", "name", "read_early")

    def __init__(self, name: str, index: int, function: Function, boxed: bool) -> None:
        self.name = name
        self.index = index
        self.function = function
        self.boxed = boxed
        self.definite = False
        self.read_early = False
        self.mutable: bool | None = None

    def declared(self, mutable: bool) -> None:
        """Note a declaration; names that are declared both ways are boxed (`block_parts`)."""
        self.mutable = mutable


class Function:
    """The frame of one function being compiled: how many slots, and which cells it captures."""

    __slots__ = ("captures", "late", "parent", "size")

    def __init__(self, parent: Function | None, *, late: bool = False) -> None:
        self.parent = parent
        self.size = FIRST_FREE_SLOT
        # Captured variables of enclosing functions, in the order of the captured tuple.
        self.captures: dict[Variable, int] = {}
        # The nearest function, this or an enclosing one, that is compiled after its surroundings
        # already run (a sourced program): of those it can only reach what they kept in cells.
        self.late: Function | None = self if late else parent.late if parent else None

    def can_reach(self, variable: Variable) -> bool:
        """Whether code of this function can get at a variable of an enclosing one."""
        late = self.late
        if late is None or variable.function.late is late:
            return True
        running = late.parent
        return variable.boxed and (
            variable.function is running or (running is not None and variable in running.captures)
        )

    def new_slot(self) -> int:
        self.size += 1
        return self.size - 1

    def capture(self, variable: Variable) -> int:
        """The place of an outer variable in this function's captured tuple."""
        index = self.captures.get(variable)
        if index is None:
            if self.parent is not None and self.parent is not variable.function:
                self.parent.capture(variable)
            index = self.captures[variable] = len(self.captures)
        return index


class StaticScope:
    """A scope of a program: the root, or one inside with slots in `function`'s frame."""

    __slots__ = ("declares_in", "function", "parent", "root", "variables")

    def __init__(self, parent: StaticScope | None, function: Function, root: Scope) -> None:
        self.parent = parent
        self.function = function
        self.root = root
        self.variables: dict[str, Variable] = {}
        # The scope a sourced program declares its names in, when that is not this one.
        self.declares_in: StaticScope | None = None

    def declare(self, name: str, boxed: bool, *, definite: bool = False) -> Variable:
        """Give a name a slot; a second declaration of the same scope shares it."""
        variable = self.variables.get(name)
        if variable is None:
            variable = Variable(name, self.function.new_slot(), self.function, boxed)
            self.variables[name] = variable
        variable.definite = variable.definite or definite
        return variable

    @property
    def is_root(self) -> bool:
        """Whether declarations here bind names of the root scope."""
        return self.parent is None

    def inner(self) -> StaticScope:
        """A scope inside this one, in the same function."""
        return StaticScope(self, self.function, self.root)

    def inner_function(self) -> StaticScope:
        """The outermost scope of a closure made in this scope."""
        return StaticScope(self, Function(self.function), self.root)

    def resolve(self, name: str) -> Resolution:
        """Where a mention of a name may find it, inside out. A variable that is certainly bound
        ends the search; otherwise the cell of the root scope comes last."""
        found: list[Variable | DynamicName | Cell] = []
        scope: StaticScope | None = self
        late = self.function.late
        while scope is not None:
            variable = scope.variables.get(name)
            if variable is not None and self.function.can_reach(variable):
                self.reach(variable)
                found.append(variable)
                if variable.definite and variable.function.late is late:
                    return Resolution(found, certain=len(found) == 1)
                variable.read_early = True
            hidden = scope.variables.get(DYNAMIC_NAMES)
            if hidden is not None and self.function.can_reach(hidden):
                self.reach(hidden)
                found.append(DynamicName(hidden, name))
            scope = scope.parent
        found.append(self.root.cell(name))
        return Resolution(found, certain=False)

    def reach(self, variable: Variable) -> None:
        """Capture a variable unless it is this function's own."""
        if variable.function is not self.function:
            assert variable.boxed, variable.name
            self.function.capture(variable)

    def reach_everything(self) -> None:
        """Capture all variables of the enclosing functions: code made later may mention any."""
        scope: StaticScope | None = self
        while scope is not None:
            for variable in scope.variables.values():
                if self.function.can_reach(variable):
                    self.reach(variable)
            scope = scope.parent

    def owner_of_dynamic_names(self) -> Variable | None:
        """The hidden variable of this very scope."""
        return self.variables.get(DYNAMIC_NAMES)


class DynamicName(NamedTuple):
    """A name that may be in the dictionary of a scope with unforeseeable names."""

    hidden: Variable
    name: str


class Resolution(NamedTuple):
    """Candidates of a name; `certain`: the first one is a variable and is bound."""

    candidates: list[Variable | DynamicName | Cell]
    certain: bool


class Place(NamedTuple):
    """Where a command or call stands while it runs: what names mean there."""

    scope: StaticScope
    frame: Frame


def slot_value(variable: Variable, function: Function, frame: Frame) -> Value:
    """The value of a variable seen from a running frame of `function`; MISSING when unbound or when
    that function did not capture it."""
    if variable.function is function:
        content = frame[variable.index]
        if not variable.boxed:
            return content
        return _content_of(content) if type(content) is Cell else MISSING
    index = function.captures.get(variable)
    captured = frame[CAPTURED_SLOT]
    if index is None or index >= len(captured):
        return MISSING
    return _content_of(captured[index])


def _content_of(cell: Cell) -> Value:
    if cell.v is MISSING and cell.lost:
        raise lost_value(cell.name)
    return cell.v


def slot_cell(variable: Variable, function: Function, frame: Frame) -> Cell:
    """The cell of a boxed variable seen from a running frame."""
    cell: Cell
    if variable.function is function:
        cell = frame[variable.index]
    else:
        cell = frame[CAPTURED_SLOT][function.captures[variable]]
    return cell


def lost_value(name: str) -> Raised:
    return raised(
        "lost_value",
        f"value of `{name}` was lost when the session was restored",
        hint="compute it again",
    )


def lookup(ev: Evaluator, name: str) -> Value:
    """See `Evaluator.lookup`."""
    place = ev.here
    if place is not None:
        scope: StaticScope | None = place.scope
        function = place.scope.function
        while scope is not None:
            variable = scope.variables.get(name)
            if variable is not None:
                value = slot_value(variable, function, place.frame)
                if value is not MISSING:
                    return value
            hidden = scope.variables.get(DYNAMIC_NAMES)
            if hidden is not None:
                cells = slot_value(hidden, function, place.frame)
                if cells is not MISSING and name in cells and cells[name].v is not MISSING:
                    return cells[name].v
            scope = scope.parent
    root = ev.root if place is None else place.scope.root
    cell = root.cells.get(name)
    if cell is None:
        return MISSING
    if cell.v is MISSING and cell.lost:
        raise lost_value(name)
    return cell.v


def visible_names(ev: Evaluator) -> Iterator[str]:
    """See `Evaluator.visible_names`."""
    seen: set[str] = set()
    place = ev.here
    scope: StaticScope | None = None if place is None else place.scope
    while scope is not None:
        assert place is not None
        for name, variable in list(scope.variables.items()):
            value = slot_value(variable, place.scope.function, place.frame)
            names = list(value) if name == DYNAMIC_NAMES and value is not MISSING else [name]
            for inner in names:
                if value is not MISSING and inner not in seen and inner != DYNAMIC_NAMES:
                    seen.add(inner)
                    yield inner
        scope = scope.parent
    root = ev.root if place is None else place.scope.root
    for cell in root.bound():
        if cell.name not in seen and not cell.lost:
            seen.add(cell.name)
            yield cell.name
