"""The walk over a program that finds its effects (chapter 50 §4).

A `Walk` follows a syntax tree in source order, carries what is statically known, and collects
effects. It starts nothing and changes nothing; what it looks at on disk it may look at only as far
as the principal may read. What each node contributes is registered with `visits` by the sibling
modules; this one has the state, the limits and the rules for collecting.

Failure: `program` raises only when strict, `arg_error` for a path of a builtin that is not known. A
construct that cannot be followed is one `opaque`; a walk that gives up as a whole is nothing but
that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from leash.effects import Effect, files, identity, normal_path, unit
from leash.plan import KIND_WEIGHTS, REVERSIBLE, heaviest, item_count
from leash.plan import Plan as LeashPlan
from worker.errors import arg_error
from worker.language import ast
from worker.planning.known import DYNAMIC, Known, Names
from worker.planning.looks import Looks
from worker.planning.plans import Derived, Plan, nothing, unknown
from worker.values.types import Path, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

NODES_MAX: Final = 100_000
NESTING_MAX: Final = 64
PATHS_MAX: Final = 10_000
SECONDS_MAX: Final = 2.0
# The clock is looked at once in this many nodes.
_CLOCK_EVERY: Final = 256

NOT_LITERAL: Final = "planning requires a literal argument"


class Exhausted(Exception):
    """The walk met a limit that holds for the plan as a whole."""


class _Collector:
    """Effects in order, without duplicates, and what each contribution weighs."""

    __slots__ = ("effects", "seen", "weights")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.seen: set[str] = set()
        self.weights: set[str] = set()

    def add(self, effect: Effect) -> None:
        key = identity(effect)
        if key not in self.seen:
            self.seen.add(key)
            self.effects.append(effect)

    def merge(self, other: _Collector) -> None:
        for effect in other.effects:
            self.add(effect)
        self.weights |= other.weights


class Walk:
    # `cwd` is the abstract directory, None when unknown; `branches` counts the branches, loop
    # bodies and function bodies around the current node, in which a change of directory makes it
    # unknown. `walked` are the (body, arguments) met in this statement, `stack` the bodies being
    # walked now, `modules` the scopes of modules by file. `measured` are the files whose sizes are
    # estimated.

    def __init__(self, ev: Evaluator, *, strict: bool = False) -> None:
        self.ev = ev
        self.strict = strict
        self.deadline = time.monotonic() + SECONDS_MAX
        self.looks = Looks(ev, self.check_time)
        self.cwd: str | None = ev.cwd
        self.names = Names()
        self.assigned: set[str] = set()
        self.branches = 0
        self.nesting = 0
        self.walked: set[Any] = set()
        self.stack: list[Any] = []
        self.modules: dict[str, Names] = {}
        self.measured: dict[str, None] = {}
        self._collector = _Collector()
        self._nodes = 0
        # Trees read during the walk: what is walked is told apart by identity.
        self._kept: list[Any] = []

    def keep(self, tree: Any) -> None:
        """Let a tree live as long as the walk."""
        self._kept.append(tree)

    # -- the whole program -------------------------------------------------------------------------

    def program(self, program: ast.Program) -> Derived:
        """Derive a program's plan."""
        total = _Collector()
        statements: list[Plan] = []
        try:
            self.assigned |= assigned_names(program)
            for statement in program.stmts:
                self._collector = one = _Collector()
                self.walked = set()
                self.visit(statement)
                statements.append(Plan(tuple(one.effects)))
                total.merge(one)
            self.check_time()
        except (Exhausted, RecursionError):
            return unknown(len(program.stmts))
        if not total.effects:
            return nothing(len(statements))
        effects = tuple(total.effects)
        estimates = {"bytes": self._bytes(effects), "items": item_count(effects)}
        return Derived(
            Plan(effects),
            tuple(statements),
            LeashPlan(effects, heaviest(total.weights), estimates),
        )

    def _bytes(self, effects: Iterable[Effect]) -> int | None:
        if not self.measured or any(effect["kind"] == "opaque" for effect in effects):
            return None
        sizes = [size for path in self.measured if (size := self.looks.file_size(path)) is not None]
        return sum(sizes) if sizes else None

    # -- nodes -------------------------------------------------------------------------------------

    def visit(self, node: Any) -> Known:
        """Collect the effects of a node; what is known of its value."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise Exhausted
        if self._nodes % _CLOCK_EVERY == 0:
            self.check_time()
        visitor = VISITORS.get(type(node))
        if visitor is None:
            self.opaque()
            return DYNAMIC
        return visitor(self, node)

    def visit_all(self, nodes: Iterable[Any]) -> list[Known]:
        return [self.visit(node) for node in nodes]

    def check_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise Exhausted

    # -- collecting --------------------------------------------------------------------------------

    def add(self, effect: Effect, weight: str | None = None) -> None:
        """Collect an effect; `weight` when the construct says more than the kind does."""
        self._collector.add(effect)
        self._collector.weights.add(weight or KIND_WEIGHTS.get(effect["kind"], REVERSIBLE))

    def opaque(self) -> None:
        self.add(unit("opaque"))

    def add_files(self, kind: str, paths: list[str] | None, weight: str | None = None) -> None:
        """A file effect on normalised paths; `opaque` in its place when they are not known."""
        if paths is None or len(paths) > PATHS_MAX:
            self.opaque()
        else:
            self.add(files(kind, paths), weight)

    @contextmanager
    def aside(self) -> Iterator[Callable[[], None]]:
        """Collect apart; the function yielded adds what was collected, where it is called."""
        outer, inner = self._collector, _Collector()
        self._collector = inner
        try:
            yield lambda: outer.merge(inner)
        finally:
            self._collector = outer

    def dynamic_path(self) -> None:
        """A path argument of a builtin turned out to be unknown. Raises when strict."""
        if self.strict:
            raise arg_error(NOT_LITERAL)

    # -- paths -------------------------------------------------------------------------------------

    def place(self, value: Value) -> str | None:
        """The normalised absolute path of a value; None for a relative one under an unknown cwd,
        and for what is no path."""
        if type(value) is not str and type(value) is not Path:
            return None
        raw: str = value.raw if isinstance(value, Path) else str(value)
        if "\0" in raw:
            return None
        if not raw.startswith("/"):
            if self.cwd is None:
                return None
            raw = os.path.join(self.cwd, raw)
        return normal_path(raw)

    def places(self, known: Known) -> list[str] | None:
        """The paths of known values, globs expanded; None when one of them is not known."""
        if known is None:
            return None
        found: list[str] = []
        for value in self.looks.without_globs(known):
            path = self.place(value)
            if path is None:
                return None
            found.append(path)
        return found

    # -- scopes and surroundings -------------------------------------------------------------------

    @contextmanager
    def scope(self, names: Names | None = None) -> Iterator[Names]:
        """A scope inside the current one, or inside the one given."""
        outer = self.names
        self.names = Names(outer if names is None else names)
        try:
            yield self.names
        finally:
            self.names = outer

    @contextmanager
    def branch(self) -> Iterator[None]:
        """A part that may run any number of times, or not at all."""
        self.branches += 1
        try:
            yield
        finally:
            self.branches -= 1

    @contextmanager
    def apart(self, cwd: str | None) -> Iterator[None]:
        """A part whose changes of directory end with it."""
        outer, branches = self.cwd, self.branches
        self.cwd, self.branches = cwd, 0
        try:
            yield
        finally:
            self.cwd, self.branches = outer, branches

    @contextmanager
    def deeper(self) -> Iterator[bool]:
        """One more function, script or module; False when it is one too many."""
        self.nesting += 1
        try:
            yield self.nesting <= NESTING_MAX
        finally:
            self.nesting -= 1

    def change_directory(self, target: str | None) -> None:
        """The rest of the program runs elsewhere; None: nobody knows where."""
        if target is None or self.branches:
            self.cwd = None
        else:
            self.cwd = self.looks.directory(target)


Visitor = Callable[[Walk, Any], Known]
# What each node contributes; filled while the sibling modules load.
VISITORS: Final[dict[type, Visitor]] = {}


def visits(*kinds: type) -> Callable[[Callable[[Walk, Any], Known]], Callable[[Walk, Any], Known]]:
    """Register what nodes of these types contribute."""

    def register(visitor: Visitor) -> Visitor:
        for kind in kinds:
            VISITORS[kind] = visitor
        return visitor

    return register


def assigned_names(node: Any) -> set[str]:
    """Names that are assigned anywhere in a tree."""
    found: set[str] = set()
    stack: list[Any] = [node]
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack.extend(item)
        elif isinstance(item, ast.Record | ast.Node) and type(item) is not ast.Span:
            if type(item) is ast.Assign and type(item.target) is ast.Var:
                found.add(item.target.name)
            stack.extend([getattr(item, name) for name in item.__struct_fields__])
    return found
