"""Session state as saved cells: what changed since the last look, and how it comes back.

State is a set of named cells (chapter 60 §10): one per binding, one for the cwd, the previous
directory, the directory stack and the changes of the environment. Closures share variables with each
other and with their scope, so the variables they captured are cells of their own, `captured:N`, and
so are the names of module scopes that closures keep alive, `module:N:NAME`: a counter and its reset
function still count together after a restore.

What a submission changed is found by comparing each cell with the value saved last; values never
change in place, so identity decides and no value is looked into.

Cells are pickles that only a worker of the same session reads back. A value without a stored form
(stream, running task, secret) is saved as lost, together with whatever contains it.

Failure: `changed` never raises for a value; `restore` treats damaged data as lost.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.evaluate.revive import Saved, revive
from worker.evaluate.callables import Closure, Command
from worker.evaluate.scopes import Cell, Scope
from worker.values.types import MISSING, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

PROTOCOL: Final = 5
BINDING: Final = "binding:"
CAPTURED: Final = "captured:"
MODULE: Final = "module:"
CWD: Final = "cwd"
PREVIOUS: Final = "previous directory"
DIRECTORIES: Final = "directory stack"
ENVIRONMENT: Final = "environment"

_UNPICKLABLE: Final = (
    pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError,
)  # fmt: skip


class SavedCell(NamedTuple):
    """One cell to store; `data` None removes it. `lost`: the value has no stored form."""

    name: str
    data: bytes | None
    lost: bool = False


class StateKeeper:
    # What is known of the saved state, changed only by `changed` and `restore` on the evaluator's
    # thread: `_numbers` and `_scopes` name the captured cells and module scopes by object, `_links`
    # says which of them each saved cell leads to, `_places` holds the plain parts of the state.

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev
        self._baseline = dict(ev.env)
        self._numbers: dict[Cell, int] = {}
        self._scopes: dict[Scope, int] = {ev.root: 0}
        self._by_number: dict[int, Any] = {0: ev.root}
        self._next_number = 1
        self._links: dict[str, frozenset[Cell | Scope]] = {}
        self._places: dict[str, Any] = dict(self._current_places())

    # -- saving --------------------------------------------------------------------------------

    def changed(self) -> list[SavedCell]:
        """The cells that differ from what was saved last, and the ones no longer needed."""
        saved: list[SavedCell] = []
        waiting = [(BINDING + cell.name, cell) for cell in self._ev.root.bound()]
        waiting += [(CAPTURED + str(number), cell) for cell, number in self._numbers.items()]
        waiting += self._module_cells(self._scopes)
        seen: set[str] = set()
        while waiting:
            name, cell = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if cell.v is cell.saved and name in self._links:
                continue
            found = self._save_cell(name, cell)
            saved.append(found)
            waiting += self._newly_linked(self._links[name])
        if saved:
            saved += self._dropped()
        saved += self._changed_places()
        return saved

    def _module_cells(self, scopes: Iterable[Scope]) -> list[tuple[str, Cell]]:
        return [
            (f"{MODULE}{self._scopes[scope]}:{cell.name}", cell)
            for scope in scopes
            if scope is not self._ev.root
            for cell in scope.bound()
        ]

    def _newly_linked(self, links: frozenset[Cell | Scope]) -> list[tuple[str, Cell]]:
        cells = [
            (CAPTURED + str(self._numbers[link]), link) for link in links if isinstance(link, Cell)
        ]
        return cells + self._module_cells(link for link in links if isinstance(link, Scope))

    def _save_cell(self, name: str, cell: Cell) -> SavedCell:
        value = cell.v
        pickler = _Pickler(self)
        try:
            data, lost = pickler.dumps((cell.name, cell.mutable, False, value)), False
        except _UNPICKLABLE:
            pickler = _Pickler(self)
            data, lost = pickler.dumps((cell.name, cell.mutable, True, None)), True
        cell.saved = value
        self._links[name] = frozenset(pickler.links)
        return SavedCell(name, data, lost)

    def _dropped(self) -> list[SavedCell]:
        """Captured cells and module scopes that no saved cell leads to any more."""
        reached: set[Cell | Scope] = set()
        waiting = [name for name in self._links if name.startswith(BINDING)]
        while waiting:
            for link in self._links.get(waiting.pop(), ()):
                if link not in reached:
                    reached.add(link)
                    waiting += [name for name, _ in self._newly_linked(frozenset((link,)))]
        dropped = []
        for cell in [cell for cell in self._numbers if cell not in reached]:
            number = self._numbers.pop(cell)
            del self._by_number[number]
            dropped.append(self._forget(CAPTURED + str(number)))
        for scope in [s for s in self._scopes if s not in reached and s is not self._ev.root]:
            dropped += [self._forget(name) for name, _ in self._module_cells((scope,))]
            del self._by_number[self._scopes.pop(scope)]
        return dropped

    def _forget(self, name: str) -> SavedCell:
        self._links.pop(name, None)
        return SavedCell(name, None)

    # -- the plain parts -------------------------------------------------------------------------

    def _current_places(self) -> Iterator[tuple[str, Any]]:
        ev = self._ev
        yield CWD, ev.cwd
        yield PREVIOUS, ev.prev_cwd
        yield DIRECTORIES, tuple(ev.dir_stack)
        yield ENVIRONMENT, self._environment_changes()

    def _environment_changes(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """Names set otherwise than at the start of the session, in order, and names taken away."""
        env, base = self._ev.env, self._baseline
        changed = [(name, value) for name, value in env.items() if base.get(name) != value]
        return (*changed, *[(name, None) for name in base if name not in env])

    def _changed_places(self) -> list[SavedCell]:
        changed = []
        for name, content in self._current_places():
            if self._places[name] != content:
                self._places[name] = content
                changed.append(SavedCell(name, pickle.dumps(content, PROTOCOL)))
        return changed

    # -- restoring -------------------------------------------------------------------------------

    def restore(self, cells: Iterable[tuple[str, bytes | None]]) -> list[str]:
        """Bring saved cells back into the evaluator; the names of bindings that are lost, sorted."""
        stored = [(name, data) for name, data in cells if data is not None]
        for name, _ in stored:
            if name.startswith(CAPTURED):
                self.cell_numbered(int(name.removeprefix(CAPTURED)))
        lost = []
        for name, data in stored:
            assert data is not None
            if name in self._places:
                self._restore_place(name, data)
                continue
            cell = self._target(name)
            if cell is not None and self._restore_cell(name, cell, data) and name[:8] == BINDING:
                lost.append(cell.name)
        self._places.update(self._current_places())
        return sorted(lost)

    def _target(self, name: str) -> Cell | None:
        """The cell of the evaluator a saved cell belongs to."""
        if name.startswith(BINDING):
            return self._ev.root.cell(name.removeprefix(BINDING))
        if name.startswith(CAPTURED):
            return self.cell_numbered(int(name.removeprefix(CAPTURED)))
        if name.startswith(MODULE):
            number, _, inner = name.removeprefix(MODULE).partition(":")
            return self.scope_numbered(int(number)).cell(inner)
        return None

    def _restore_cell(self, name: str, cell: Cell, data: bytes) -> bool:
        """Fill a cell; whether its value is lost."""
        unpickler = _Unpickler(self, data)
        try:
            cell.name, cell.mutable, lost, value = unpickler.load()
        except Exception:  # noqa: BLE001 - any damage means that the value is lost
            lost, value = True, None
        cell.lost = lost
        cell.v = MISSING if lost else value
        cell.saved = cell.v
        self._links[name] = frozenset(unpickler.links)
        return lost

    def _restore_place(self, name: str, data: bytes) -> None:
        ev = self._ev
        content = pickle.loads(data)  # noqa: S301 - written by a worker of this session
        if name == CWD:
            ev.cwd = content
        elif name == PREVIOUS:
            ev.prev_cwd = content
        elif name == DIRECTORIES:
            ev.dir_stack = list(content)
        else:
            for key, value in content:
                ev.env.pop(key, None)
                if value is not None:
                    ev.env[key] = value

    # -- values of their own ----------------------------------------------------------------------

    def dumps(self, value: Value) -> bytes | None:
        """The stored form of a value that is no binding (a transcript result), None without one.

        Closures in it carry copies of their captured variables as they are now.
        """
        try:
            return _Pickler(self, by_value=True).dumps(value)
        except _UNPICKLABLE:
            return None

    def loads(self, data: bytes) -> Value:
        """The value of `dumps`, or MISSING when it cannot be brought back."""
        try:
            return _Unpickler(self, data).load()
        except Exception:  # noqa: BLE001 - any damage means that the value is lost
            return MISSING

    # -- names of shared objects ------------------------------------------------------------------

    def number_of(self, cell: Cell) -> int:
        return self._number(self._numbers, cell)

    def scope_number_of(self, scope: Scope) -> int:
        return self._number(self._scopes, scope)

    def _number(self, numbers: dict[Any, int], item: Any) -> int:
        number = numbers.get(item)
        if number is None:
            number = numbers[item] = self._next_number
            self._by_number[number] = item
            self._next_number += 1
        return number

    def cell_numbered(self, number: int) -> Cell:
        cell: Cell = self._numbered(number, self._numbers, lambda: Cell(""))
        return cell

    def scope_numbered(self, number: int) -> Scope:
        scope: Scope = self._numbered(number, self._scopes, Scope)
        return scope

    def _numbered(self, number: int, numbers: dict[Any, int], make: Callable[[], Any]) -> Any:
        item = self._by_number.get(number)
        if item is None:
            item = self._by_number[number] = make()
            numbers[item] = number
            self._next_number = max(self._next_number, number + 1)
        return item


class _Pickler(pickle.Pickler):
    """Pickles values; cells and scopes become their names, callables their syntax."""

    def __init__(self, keeper: StateKeeper, *, by_value: bool = False) -> None:
        self._buffer = io.BytesIO()
        super().__init__(self._buffer, PROTOCOL)
        self._keeper = keeper
        self._by_value = by_value
        self.links: set[Cell | Scope] = set()

    def dumps(self, value: Any) -> bytes:
        self.dump(value)
        return self._buffer.getvalue()

    def persistent_id(self, item: Any) -> tuple[str, int] | None:
        if type(item) is Cell and not self._by_value:
            self.links.add(item)
            return "cell", self._keeper.number_of(item)
        if type(item) is Scope:
            if item is not self._keeper._ev.root:
                self.links.add(item)
            return "scope", self._keeper.scope_number_of(item)
        return None

    def reducer_override(self, item: Any) -> Any:
        if type(item) is Closure or type(item) is Command:
            return revive, (Saved.of(item),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, keeper: StateKeeper, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._keeper = keeper
        self.links: set[Cell | Scope] = set()

    def persistent_load(self, name: tuple[str, int]) -> Cell | Scope:
        kind, number = name
        if kind == "cell":
            cell = self._keeper.cell_numbered(number)
            self.links.add(cell)
            return cell
        scope = self._keeper.scope_numbered(number)
        if number:
            self.links.add(scope)
        return scope
