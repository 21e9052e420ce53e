"""Session state as saved cells: what changed since the last look, and how it comes back.

State is a set of named cells (chapter 60 §10): `binding:NAME` for every name at top level, `cwd`,
`previous directory`, `directory stack` and `environment` (what differs from the start). What
closures share with each other has cells of its own: `captured:N` for a variable, `code:N` for the
code that all closures of one place have in common, `source:N` for the text it was compiled from,
and `module:N:NAME` for the names of a module that closures keep alive. So a counter and its reset
function still count together after a restore, and a thousand functions of one file store it once.

What a submission changed is found by comparing each variable with the value saved last. Values
never change in place, so identity decides and no value is looked into; the cost is one comparison
for each name of the session.

Results of the transcript are stored alone (`save_result`): closures in them carry copies of their
variables as they are then.

Failure: `changed` never raises for a value: one without a stored form (a stream, a running task) is
saved as lost, together with whatever contains it. `restore` treats damaged data as lost.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.evaluate.callables import Closure, Command
from worker.evaluate.code import Code
from worker.evaluate.revive import StoredCode
from worker.evaluate.scopes import Cell, Scope
from worker.evaluate.static import DYNAMIC_NAMES
from worker.evaluate.stored_values import (
    PLAIN,
    PROTOCOL,
    STORED_BYTES_MAX,
    LoadContent,
    Reader,
    ReadSecret,
    StoredForm,
    content_of,
)
from worker.values.types import MISSING, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

BINDING: Final = "binding:"
CAPTURED: Final = "captured:"
CODE: Final = "code:"
SOURCE: Final = "source:"
MODULE: Final = "module:"
CWD: Final = "cwd"
PREVIOUS: Final = "previous directory"
DIRECTORIES: Final = "directory stack"
ENVIRONMENT: Final = "environment"

# Shared things are looked through for those that nothing leads to any more when there are twice as
# many as the last look left, and at least this many.
_SHARED_UNSWEPT_MAX: Final = 64


class SavedCell(NamedTuple):
    """One cell to store. `data` None: it is removed, or `lost` when its value has no stored
    form."""

    name: str
    data: bytes | None
    lost: bool = False

    @property
    def kept(self) -> bool:
        return self.data is not None or self.lost


class StateKeeper:
    # What is known of the saved state, on the evaluator's thread alone:
    # `_numbers` and `_things` name what closures share (variables, code, sources, module scopes) in
    # both directions, `_captured`, `_dynamic` and `_modules` are the variables, dictionaries of
    # variables and scopes among it. `_stored_code` finds the stored form of code that is alive.
    # `_links` are the shared things each saved cell leads to, for cells with any. `_content` are
    # the hashes each saved cell refers to, `_uses` in how many cells each occurs. `_places` are the
    # plain parts of the state as saved. `_waiting` are cells found while others are being saved;
    # `_records` and `_reading` serve a restore: stored code, and what the cell being read leads to.

    def __init__(
        self,
        ev: Evaluator,
        *,
        load_content: LoadContent | None = None,
        read_secret: ReadSecret | None = None,
    ) -> None:
        self._ev = ev
        self._baseline = dict(ev.env)
        self._numbers: dict[Any, int] = {}
        self._things: dict[int, Any] = {}
        self._next_number = 1
        self._captured: dict[Cell, str] = {}
        self._dynamic: dict[Cell, int] = {}
        self._modules: dict[Scope, int] = {}
        self._stored_code: dict[Code, StoredCode] = {}
        self._links: dict[str, frozenset[Any]] = {}
        self._content: dict[str, frozenset[str]] = {}
        self._uses: Counter[str] = Counter()
        self._content_seen: set[str] = set()
        self._unswept = 0
        self._kept_by_sweep = 0
        self._waiting: list[tuple[str, Any]] = []
        self._records: dict[str, bytes] = {}
        self._reading: set[Any] = set()
        self._reader = Reader(self, load_content, read_secret)
        self._places: dict[str, Any] = {name: self._place(name) for name in _PLACES}

    # -- saving --------------------------------------------------------------------------------

    def changed(self, *, places: bool = True) -> list[SavedCell]:
        """The cells that differ from what was saved last, and the ones no longer needed.

        `places` False: directories and environment are surely as they were.
        """
        saved: list[SavedCell] = []
        waiting = self._waiting
        # Tasks may bind names meanwhile, hence the copies.
        for cell in [c for c in list(self.root.cells.values()) if c.v is not c.saved]:
            waiting.append((BINDING + cell.name, cell))
        if self._numbers:
            self._find_shared_changes(waiting)
        while waiting:
            name, thing = waiting.pop()
            save = _SAVERS.get(type(thing))
            found = self._save_text(name, thing) if save is None else save(self, name, thing)
            if found is not None:
                saved.append(found)
        if self._unswept > max(_SHARED_UNSWEPT_MAX, self._kept_by_sweep):
            saved += self._sweep()
        if places:
            self._save_places(saved)
        return saved

    def _find_shared_changes(self, waiting: list[tuple[str, Any]]) -> None:
        for cell, name in self._captured.items():
            if cell.v is not cell.saved:
                waiting.append((name, cell))
        for cell, size in self._dynamic.items():
            if len(cell.v) != size:
                waiting.append((self._captured[cell], cell))
        for scope, number in self._modules.items():
            self._wait_for_module(scope, number, waiting)

    @staticmethod
    def _wait_for_module(scope: Scope, number: int, waiting: list[tuple[str, Any]]) -> None:
        for cell in [c for c in list(scope.cells.values()) if c.v is not c.saved]:
            waiting.append((f"{MODULE}{number}:{cell.name}", cell))

    def _save_cell(self, name: str, cell: Cell) -> SavedCell | None:
        value, mutable = cell.v, cell.mutable
        if type(value) in PLAIN and name not in self._links and name not in self._content:
            data = pickle.dumps((value, mutable, cell.name), PROTOCOL)
            cell.saved = value
            cell.lost = False
            return (
                SavedCell(name, data)
                if len(data) <= STORED_BYTES_MAX
                else SavedCell(name, None, True)
            )
        if value is cell.saved and cell not in self._dynamic:
            return None
        if cell.name == DYNAMIC_NAMES:
            # The dictionary changes in place, and perhaps at this moment.
            value = dict(value)
            self._dynamic[cell] = len(value)
        form = StoredForm.of((value, mutable, cell.name), self)
        cell.saved = cell.v if cell in self._dynamic else value
        cell.lost = False
        return self._keep(name, form)

    def _save_code(self, name: str, code: StoredCode) -> SavedCell:
        source = None if code.src is None else self.number_of(code.src)
        form = StoredForm.of((code.kind, code.node, source, code.names, code.root), self)
        if form is not None and code.src is not None:
            form = form._replace(links=form.links | {code.src})
        return self._keep(name, form)

    def _save_text(self, name: str, text: str) -> SavedCell:
        return self._keep(name, StoredForm.of(text, self))

    def _keep(self, name: str, form: StoredForm | None) -> SavedCell:
        links = form.links if form is not None else frozenset()
        if links or name in self._links:
            self._unswept += len(self._links.get(name, ()))
            self._links[name] = links
        self._note_content(name, form.content if form is not None else frozenset())
        return SavedCell(name, None if form is None else form.data, form is None)

    # -- content of the store ----------------------------------------------------------------------

    def _note_content(self, name: str, content: frozenset[str]) -> None:
        before = self._content.pop(name, frozenset())
        if content:
            self._content[name] = content
        if content or before:
            self._uses.update(content)
            self._uses.subtract(before)
            self._content_seen |= content | before

    def held(self, digest: str) -> None:
        """Content that the session got hold of; it is let go unless a saved cell refers to it."""
        self._content_seen.add(digest)

    def content_changes(self) -> tuple[list[str], list[str]]:
        """Hashes that saved cells refer to now, and those they no longer do, since the last
        call."""
        if not self._content_seen:
            return [], []
        seen, self._content_seen = self._content_seen, set()
        used = [name for name in sorted(seen) if self._uses[name] > 0]
        unused = [name for name in sorted(seen) if self._uses[name] <= 0]
        for name in unused:
            del self._uses[name]
        return used, unused

    # -- what nothing leads to any more ------------------------------------------------------------

    def _sweep(self) -> list[SavedCell]:
        reached: set[Any] = set()
        waiting = [name for name in self._links if name.startswith(BINDING)]
        while waiting:
            for link in self._links.get(waiting.pop(), ()):
                if link not in reached:
                    reached.add(link)
                    waiting += self._cells_of(link)
        dropped = [
            self._forget(name)
            for thing in [thing for thing in self._numbers if thing not in reached]
            for name in self._dropped(thing)
        ]
        self._stored_code = {
            code: stored for code, stored in self._stored_code.items() if stored in reached
        }
        self._unswept, self._kept_by_sweep = 0, len(reached)
        return dropped

    def _cells_of(self, thing: Any) -> list[str]:
        """The names of the cells that a shared thing is saved in."""
        number = self._numbers[thing]
        if isinstance(thing, Scope):
            return [f"{MODULE}{number}:{cell.name}" for cell in thing.bound()]
        return [f"{_PREFIXES[type(thing)]}{number}"]

    def _dropped(self, thing: Any) -> list[str]:
        """Forget a shared thing; the names of its cells."""
        names = self._cells_of(thing)
        del self._things[self._numbers.pop(thing)]
        for table in (self._captured, self._dynamic, self._modules):
            table.pop(thing, None)
        cells = thing.bound() if isinstance(thing, Scope) else [thing]
        for cell in cells:
            if isinstance(cell, Cell):
                # Should it be captured again, it is saved again.
                cell.saved = MISSING
        return names

    def _forget(self, name: str) -> SavedCell:
        self._links.pop(name, None)
        self._note_content(name, frozenset())
        return SavedCell(name, None)

    # -- the plain parts -------------------------------------------------------------------------

    def _place(self, name: str) -> Any:
        ev = self._ev
        if name == CWD:
            return ev.cwd
        if name == PREVIOUS:
            return ev.prev_cwd
        if name == DIRECTORIES:
            return tuple(ev.dir_stack)
        return tuple(ev.env.items())

    def _save_places(self, saved: list[SavedCell]) -> None:
        ev, places = self._ev, self._places
        if ev.cwd is not places[CWD] or ev.prev_cwd is not places[PREVIOUS]:
            self._save_place(CWD, saved)
            self._save_place(PREVIOUS, saved)
        if ev.dir_stack or places[DIRECTORIES]:
            self._save_place(DIRECTORIES, saved)
        self._save_place(ENVIRONMENT, saved)

    def _save_place(self, name: str, saved: list[SavedCell]) -> None:
        content = self._place(name)
        if self._places[name] != content:
            saved.append(SavedCell(name, self._stored_place(name, content)))
        self._places[name] = content

    def _stored_place(self, name: str, content: Any) -> bytes:
        if name == ENVIRONMENT:
            content = self._environment_changes()
        return pickle.dumps(content, PROTOCOL)

    def _environment_changes(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """Names that were assigned since the start of the session, in order, and those taken away.

        An assigned name moves to the end, so they are what follows the untouched ones.
        """
        env, base = self._ev.env, self._baseline
        untouched = iter(base)
        changed: list[tuple[bytes, bytes | None]] = []
        for name, value in env.items():
            if not changed and base.get(name) == value and name in untouched:
                continue
            changed.append((name, value))
        return (*[(name, None) for name in base if name not in env], *changed)

    # -- everything ------------------------------------------------------------------------------

    def result(self, name: str, value: Value) -> SavedCell:
        """The cell of a transcript result; it shares nothing with the session."""
        if type(value) in PLAIN:
            data = pickle.dumps(value, PROTOCOL)
            if len(data) <= STORED_BYTES_MAX:
                return SavedCell(name, data)
        form = StoredForm.of(value, self, alone=True)
        self._note_content(name, form.content if form is not None else frozenset())
        return SavedCell(name, None if form is None else form.data, form is None)

    def forget(self, name: str) -> SavedCell:
        """The removal of a cell, for a result that is no longer kept."""
        return self._forget(name)

    def read_result(self, data: bytes) -> Value:
        """The value of a stored result, or MISSING when it cannot be brought back."""
        try:
            return self._reader.read(data)
        except Exception:  # noqa: BLE001 - any damage means that the value is lost
            return MISSING

    # -- restoring -------------------------------------------------------------------------------

    def restore(self, cells: Iterable[tuple[str, bytes | None]]) -> list[str]:
        """Bring saved cells back into the evaluator; the names of bindings that are lost, sorted.

        Results of the transcript are not kept here: of those only what content they refer to.
        """
        stored = dict(cells)
        self._records = {n: d for n, d in stored.items() if n.startswith((CODE, SOURCE)) and d}
        for name in stored:
            self._next_number = max(self._next_number, _number_in(name) + 1)
        lost = []
        for name, data in stored.items():
            if name in self._places:
                self._restore_place(name, data)
                continue
            cell = self._target(name)
            if cell is not None:
                self._restore_cell(name, cell, data)
                if cell.lost and name.startswith(BINDING):
                    lost.append(cell.name)
            elif data is not None:
                self._note_content(name, frozenset(content_of(data)))
        self._records.clear()
        self._reading.clear()
        self._waiting.clear()
        self._content_seen.clear()
        self._unswept, self._kept_by_sweep = 0, len(self._things)
        for name in _PLACES:
            self._places[name] = self._place(name)
        return sorted(lost)

    def _target(self, name: str) -> Cell | None:
        """The variable of the evaluator that a saved cell belongs to."""
        if name.startswith(BINDING):
            return self.root.cell(name.removeprefix(BINDING))
        if name.startswith(CAPTURED):
            return self.captured(int(name.removeprefix(CAPTURED)))
        if name.startswith(MODULE):
            number, _, inner = name.removeprefix(MODULE).partition(":")
            return self.scope(int(number)).cell(inner)
        return None

    def _restore_cell(self, name: str, cell: Cell, data: bytes | None) -> None:
        value: Value = MISSING
        mutable = True
        if data is not None:
            try:
                (value, mutable, cell.name), links = self._read(data)
            except Exception:  # noqa: BLE001 - any damage means that the value is lost
                value = MISSING
            else:
                if links:
                    self._links[name] = links
                self._note_content(name, frozenset(content_of(data)))
        cell.lost = value is MISSING
        cell.mutable = mutable
        cell.v = cell.saved = value
        if cell.name == DYNAMIC_NAMES and not cell.lost:
            self._dynamic[cell] = len(value)

    def _read(self, data: bytes) -> tuple[Any, frozenset[Any]]:
        """A stored form and the shared things it leads to."""
        outer, self._reading = self._reading, set()
        try:
            return self._reader.read(data), frozenset(self._reading)
        finally:
            self._reading = outer

    def _restore_place(self, name: str, data: bytes | None) -> None:
        if data is None:
            return
        ev = self._ev
        content = pickle.loads(data)  # written by a worker of this session
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

    # -- names of shared things: the shelf of worker.evaluate.stored_values ------------------------

    @property
    def root(self) -> Scope:
        return self._ev.root

    def number_of(self, item: Any) -> int:
        number = self._numbers.get(item)
        if number is None:
            number = self._next_number
            self._next_number += 1
            self._adopt(item, number)
            self._unswept += 1
            if isinstance(item, Scope):
                self._wait_for_module(item, number, self._waiting)
            elif not isinstance(item, Cell) or item.v is not MISSING:
                self._waiting.append((f"{_PREFIXES[type(item)]}{number}", item))
        return number

    def _adopt(self, item: Any, number: int) -> None:
        self._numbers[item] = number
        self._things[number] = item
        if isinstance(item, Cell):
            self._captured[item] = f"{CAPTURED}{number}"
            if item.name == DYNAMIC_NAMES:
                self._dynamic[item] = -1
        elif isinstance(item, Scope):
            self._modules[item] = number

    def code_of(self, value: Closure | Command) -> tuple[StoredCode, tuple[Cell, ...]]:
        stored = getattr(value, "stored", None)
        if stored is not None:
            return stored.code, stored.cells
        code = self._stored_code.get(value.code)
        if code is None:
            code = self._stored_code[value.code] = StoredCode.of(value.code)
        return code, value.captured

    def captured(self, number: int) -> Cell:
        cell: Cell | None = self._things.get(number)
        if cell is None:
            cell = Cell("")
            self._adopt(cell, number)
        self._reading.add(cell)
        return cell

    def scope(self, number: int) -> Scope:
        scope: Scope | None = self._things.get(number)
        if scope is None:
            scope = Scope()
            self._adopt(scope, number)
        self._reading.add(scope)
        return scope

    def code(self, number: int) -> StoredCode:
        code: StoredCode | None = self._things.get(number)
        if code is None:
            parts, links = self._read(self._records[f"{CODE}{number}"])
            kind, node, source, names, root = parts
            src = None if source is None else self._source(source)
            code = StoredCode(kind, node, src, names, root)
            code.check()
            self._adopt(code, number)
            self._links[f"{CODE}{number}"] = links if src is None else links | {src}
        self._reading.add(code)
        return code

    def _source(self, number: int) -> str:
        text: str | None = self._things.get(number)
        if text is None:
            text = self._reader.read(self._records[f"{SOURCE}{number}"])
            self._adopt(text, number)
        return text


_PLACES: Final = (CWD, PREVIOUS, DIRECTORIES, ENVIRONMENT)
_PREFIXES: Final[dict[type, str]] = {Cell: CAPTURED, StoredCode: CODE, str: SOURCE}
_SAVERS: Final[dict[type, Any]] = {Cell: StateKeeper._save_cell, StoredCode: StateKeeper._save_code}


def _number_in(name: str) -> int:
    """The number of a shared thing in the name of its cell, 0 in other names."""
    if not name.startswith((CAPTURED, CODE, SOURCE, MODULE)):
        return 0
    digits = name.split(":", 2)[1]
    return int(digits) if digits.isdecimal() else 0
