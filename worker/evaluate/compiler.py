"""From syntax tree to Python closures: the compiler's frame, scopes and entry points.

A thunk is a function of one frame; running it evaluates its node. Each kind of node is compiled by
a function registered in `EXPRESSIONS` or `STATEMENTS` (the modules `expressions`, `operations`,
`names`, `calls`, `control`, `patterns`, `statements`). Compiling never evaluates, except that
operators on literals are worked out when they do not raise.

Positions (chapter 30 §4): `top` is a top-level statement, `stmt` a statement inside a block,
`value` everything else. What `break`, `continue` and `return` reach is described by `Flow`.

Failure: compiling raises nothing; whatever is wrong with a program raises when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from worker.evaluate.code import CaptureSource, Code, Jump, Thunk, frame_padding
from worker.evaluate.mentions import Mentions, Names
from worker.evaluate.scopes import Cell, Scope
from worker.evaluate.static import DYNAMIC_NAMES, Function, StaticScope, Variable
from worker.evaluate.templates import specialise
from worker.language import ast
from worker.values.types import Value

Position = Literal["top", "stmt", "value"]


Lines = Callable[[str, dict[str, Any]], str]


class Flow(NamedTuple):
    """Where jumps out of a statement go. `loop`: a loop of this function takes break and continue.
    `function`: something takes `return`. `tail`: the statement's value is already the value of the
    construct that takes it, so `return e` there is just `e`."""

    loop: bool
    function: bool
    tail: bool

    def inner(self, *, tail: bool) -> Flow:
        return self._replace(tail=self.tail and tail)


AT_TOP: Final = Flow(loop=False, function=False, tail=False)
CONSTRUCT: Final = Flow(loop=False, function=True, tail=True)


class Compiled(NamedTuple):
    """A statement's thunk and whether it may give a `Jump` instead of a value. `lines`, when there
    are some, do the same in a template: they assign the value to a name, and use names that start
    with it."""

    thunk: Thunk
    jumps: bool
    lines: Lines | None = None


class Setup(NamedTuple):
    """What entering a scope does to its slots: new cells, and slots that start unbound."""

    cells: tuple[tuple[int, str], ...]
    cleared: tuple[int, ...]

    @property
    def empty(self) -> bool:
        return not self.cells and not self.cleared


ExpressionCompiler = Callable[["Compiler", Any, StaticScope, Position], Thunk]
StatementCompiler = Callable[["Compiler", Any, StaticScope, Position, Flow], Compiled]

EXPRESSIONS: Final[dict[type, ExpressionCompiler]] = {}
STATEMENTS: Final[dict[type, StatementCompiler]] = {}


def compiles(*kinds: type) -> Callable[[ExpressionCompiler], ExpressionCompiler]:
    """Register the compiler of expression nodes."""

    def register(function: ExpressionCompiler) -> ExpressionCompiler:
        for kind in kinds:
            EXPRESSIONS[kind] = function
        return function

    return register


def compiles_statement(kind: type) -> Callable[[StatementCompiler], StatementCompiler]:
    """Register the compiler of statement nodes."""

    def register(function: StatementCompiler) -> StatementCompiler:
        STATEMENTS[kind] = function
        return function

    return register


class Compiler:
    """Compiles the nodes of one source. `src` is None where spans do not refer to a known text:
    inside string holes. `silent`: top-level statements are in value position, as in a module."""

    def __init__(self, src: str | None, *, silent: bool = False) -> None:
        self.src = src
        self.silent = silent
        self.mentions = Mentions()

    # -- expressions -----------------------------------------------------------------------------

    def expression(self, node: Any, scope: StaticScope, position: Position) -> Thunk:
        return EXPRESSIONS[type(node)](self, node, scope, position)

    def value(self, node: Any, scope: StaticScope) -> Thunk:
        """An expression in value position."""
        return EXPRESSIONS[type(node)](self, node, scope, "value")

    def without_source(self) -> Compiler:
        """A compiler for the text of a string hole."""
        nested = Compiler(None, silent=self.silent)
        nested.mentions = self.mentions
        return nested

    # -- statements and blocks -------------------------------------------------------------------

    def statement(self, node: Any, scope: StaticScope, position: Position, flow: Flow) -> Compiled:
        return STATEMENTS[type(node)](self, node, scope, position, flow)

    def construct(self, block: ast.Block, scope: StaticScope) -> Thunk:
        """A block that takes `return` and stops loop jumps: the body of a construct or function.

        Its scope is new, its tail is in value position.
        """
        return self.block_in(scope.inner(), block, CONSTRUCT).thunk

    def block(self, block: ast.Block, scope: StaticScope, flow: Flow) -> Compiled:
        """A block that lets jumps pass, in a scope of its own."""
        return self.block_in(scope.inner(), block, flow)

    def block_in(self, scope: StaticScope, block: ast.Block, flow: Flow) -> Compiled:
        """A block whose names belong to `scope`, which may already hold parameters or binders."""
        from worker.evaluate.blocks import compile_block

        return compile_block(self, scope, block, flow)

    # -- scopes ----------------------------------------------------------------------------------

    def declare(
        self, scope: StaticScope, names: list[str], body: Names, *, definite: bool
    ) -> list[Variable]:
        """Give names slots in a new scope. `body` is everything that can mention them."""
        definite = definite and not body.dynamic
        return [scope.declare(name, body.captures(name), definite=definite) for name in names]

    def setup(self, scope: StaticScope, skip: int = 0) -> Setup:
        """What entering the scope must do, once everything inside it has been compiled. The first
        `skip` variables are filled by whoever enters."""
        variables = list(scope.variables.values())[skip:]
        return Setup(
            tuple((v.index, v.name) for v in variables if v.boxed),
            tuple(v.index for v in variables if not v.boxed and v.read_early),
        )

    def entering(self, setup: Setup, thunk: Thunk) -> Thunk:
        """The thunk with its scope's slots made ready first."""
        if setup.empty:
            return thunk
        values: dict[str, Any] = {"inner": thunk}
        return specialise(setup_lines(setup, values) + "return inner(frame)", values)

    # -- functions -------------------------------------------------------------------------------

    def finish(self, code: Code, scope: StaticScope, used: int) -> Code:
        """Fill in what is only known when the body is compiled: captures and frame size.

        `used` slots at the front of the frame are filled by the caller.
        """
        function = scope.function
        parent = function.parent
        assert parent is not None
        sources = []
        for variable in function.captures:
            if variable.function is parent:
                sources.append(CaptureSource(True, variable.index))
            else:
                sources.append(CaptureSource(False, parent.captures[variable]))
        code.captures = tuple(sources)
        code.variables = tuple(variable.name for variable in function.captures)
        code.padding = frame_padding(function.size, used)
        code.scope = scope
        if not code.padding and not code.boxed:
            code.plain = code.positional
        return code

    def capture_if_dynamic(self, scope: StaticScope, names: Names) -> None:
        """Where names nobody can foresee may be mentioned, the function captures all there are."""
        if names.dynamic:
            scope.reach_everything()


def setup_lines(setup: Setup, values: dict[str, Any]) -> str:
    """Template lines that make the slots of a scope ready."""
    lines = []
    for position, (index, name) in enumerate(setup.cells):
        values[f"cell{position}"] = index
        values[f"name{position}"] = name
        initial = ", {}" if name == DYNAMIC_NAMES else ""
        lines.append(f"frame[cell{position}] = Cell(name{position}{initial})\n")
    for position, index in enumerate(setup.cleared):
        values[f"clear{position}"] = index
        lines.append(f"frame[clear{position}] = MISSING\n")
    return "".join(lines)


def root_scope(root: Scope) -> StaticScope:
    """The static form of a root scope, with a fresh frame for what top-level blocks bind."""
    return StaticScope(None, Function(None), root)


def unwrap(compiled: Compiled) -> Thunk:
    """A thunk that turns `return` into its value; for the boundary that takes it."""
    if not compiled.jumps:
        return compiled.thunk
    inner = compiled.thunk

    def boundary(frame: list[Any]) -> Value:
        result = inner(frame)
        return result.value if type(result) is Jump else result

    return boundary


def bind_slot(variable: Variable) -> Callable[[list[Any], Value], None]:
    """How a binder (pattern, loop, catch) puts a value into its variable: boxed ones get a new
    cell, since every entry of the scope is a new binding."""
    index = variable.index
    if not variable.boxed:

        def plain(frame: list[Any], value: Value) -> None:
            frame[index] = value

        return plain
    name = variable.name

    def boxed(frame: list[Any], value: Value) -> None:
        frame[index] = Cell(name, value)

    return boxed


def load_all() -> None:
    """Import every module that registers node compilers."""
    from worker.evaluate import (  # noqa: F401
        calls,
        commands,
        control,
        expressions,
        functions,
        names,
        operations,
        statements,
    )
