"""The evaluator of one session worker: its state, and what other parts may ask of it.

One `Evaluator` lives as long as its session (chapter 30 §1). Nested evaluators (spawned blocks,
parallel thunks, handlers, scripts) are made by `child` and by nothing else, so that principal,
authority and cancellation are always inherited (chapter 30 §12.4).

Programs are compiled to Python closures `thunk(frame)`; slot 0 of every frame is the evaluator the
code runs in. See worker.evaluate.compiler for the compiler, worker.evaluate.program for the loop
over top-level statements.

Failure: everything raises language errors as `Raised`, and `Cancelled` when the token is cancelled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from worker.errors import raised
from worker.evaluate.callables import Closure, Command
from worker.evaluate.cancel import CancelToken
from worker.evaluate.host import Host, nowhere
from worker.evaluate.scopes import Scope
from worker.values.types import MISSING, Outcome, Path, Value, type_name

if TYPE_CHECKING:
    from worker.commands.capture import Tail
    from worker.evaluate.static import Place
    from worker.evaluate.tasks import ProcessGroups, TaskTable

Position = Literal["stmt", "value"]

NESTED_CALLS_MAX: Final = 10_000
# Files that run each other in a circle would otherwise end with the worker's memory.
NESTED_PROGRAMS_MAX: Final = 500

NO_TRUTHINESS: Final = (
    "there is no truthiness: a condition is a bool or a command's outcome; "
    "compare explicitly, for example with `.is_empty()` or `!= null`"
)


class Evaluator:
    """State of chapter 30 §1. Everything here changes only on the thread that evaluates with this
    evaluator; what children share (`root`, `tasks`, `channels`, `modules`) is safe to share.

    `call_depth` counts nested closure and alias calls. `depth_base` is how many of them are no
    closure bodies (aliases, the callers of a loading module), so that `body_depth` costs the calls
    nothing. `here` is the place (static scope and frame) of the command or call being resolved:
    what `lookup` looks in.
    """

    def __init__(
        self,
        cwd: str,
        env: dict[bytes, bytes],
        host: Host | None = None,
        *,
        cancel: CancelToken | None = None,
    ) -> None:
        from worker.evaluate.channels import ChannelBus
        from worker.evaluate.tasks import ProcessGroups, TaskTable

        self.cwd: str = cwd
        self.prev_cwd: str | None = None
        self.dir_stack: list[str] = []
        self.env: dict[bytes, bytes] = env
        self.host: Host = host if host is not None else Host()
        self.cancel: CancelToken = cancel if cancel is not None else CancelToken()
        # The token of the whole session: tasks hang on it once their submission has ended.
        self.session_cancel: CancelToken = CancelToken()
        self.root: Scope = Scope()
        self.here: Place | None = None
        self.tasks: TaskTable = TaskTable()
        self.channels: Any = ChannelBus(self.host.clock)
        self.modules: dict[str, Value] = {}
        self.loading: list[str] = []
        self.plans: dict[int, Any] = {}
        self.groups: ProcessGroups = ProcessGroups()
        # The live tail of the task this runs for, None when nobody could watch.
        self.tail: Tail | None = None
        self.pending_exit: int | None = None
        self.last: Value = None
        self.entry: Any = None
        self.reef_overrides: dict[str, str] = {}
        # What `it` and `out` name in a terminal attachment; None everywhere else.
        self.repl: dict[str, Value] | None = None
        self.hooks: Any = self.host.hooks
        # Whether the sink shows anything at all; loops ask before they call it.
        self.shows: bool = self.host.sink is not nowhere
        self.call_depth: int = 0
        self.depth_base: int = 0
        # Programs running inside each other on this thread: scripts, sourced files, modules.
        self.nesting: int = 0
        # Whether this runs a script file: those are parsed without knowledge of bindings.
        self.script: bool = False
        # Text the running program was compiled from; its spans are offsets into it.
        self.src: str = ""

    # -- nesting -------------------------------------------------------------------------------

    def child(
        self,
        *,
        fresh_scope: bool = False,
        cancel: CancelToken | None = None,
        groups: ProcessGroups | None = None,
        sink: Callable[[Value], None] | None = None,
    ) -> Evaluator:
        """The one constructor of nested evaluators (chapter 30 §12.4).

        Authority, host services, tasks, channels and modules are shared; cwd, environment and
        directory stack are copies; the token hangs below this evaluator's unless one is given.
        With `fresh_scope` the child has an empty root scope (scripts), otherwise the same one.
        """
        nested = Evaluator.__new__(Evaluator)
        nested.__dict__.update(self.__dict__)
        nested.env = dict(self.env)
        nested.dir_stack = list(self.dir_stack)
        nested.reef_overrides = dict(self.reef_overrides)
        nested.loading = list(self.loading)
        nested.cancel = cancel if cancel is not None else self.cancel.child()
        nested.groups = groups if groups is not None else self.groups
        nested.hooks = None
        nested.repl = None
        nested.pending_exit = None
        nested.last = None
        nested.call_depth = 0
        nested.depth_base = 0
        nested.here = None
        if fresh_scope:
            nested.root = Scope()
            nested.plans = {}
            nested.script = True
        else:
            nested.nesting = 0
        if sink is not None:
            nested.sink = sink  # type: ignore[method-assign,assignment]
            nested.shows = True
        return nested

    # -- what other parts ask ------------------------------------------------------------------

    @property
    def body_depth(self) -> int:
        """How many closure bodies are being evaluated; 0 at session and module top level."""
        return self.call_depth - self.depth_base

    def call(self, fn: Value, pos: list[Value], named: dict[str, Value] | None = None) -> Value:
        """Call a closure or command with evaluated arguments (chapter 30 §6)."""
        if type(fn) is Closure:
            from worker.evaluate.calls import call_closure

            return call_closure(self, fn, pos, named)
        if type(fn) is Command:
            from worker.evaluate.calls import call_command

            return call_command(self, fn, pos, named)
        raise raised("type_error", f"{type_name(fn)} is not callable")

    def callback(self, fn: Value) -> Callable[..., Value]:
        """`fn` as a Python function of one or two values, for methods that call it many times.

        The result belongs to this evaluator and thread. Errors appear when it is first called.
        """
        from worker.evaluate.calls import callback

        return callback(self, fn)

    def condition(self, value: Value) -> bool:
        """The truth of a bool or an outcome; anything else raises (chapter 20 §2.4)."""
        if value is True or value is False:
            return value is True
        if type(value) is Outcome:
            return value.ok
        raise raised(
            "type_error",
            f"expected bool in condition, found {type_name(value)}",
            hint=NO_TRUTHINESS,
        )

    def sink(self, value: Value) -> None:
        """Show a value; null, and outcomes the terminal has already shown, are not."""
        if value is None or (type(value) is Outcome and value.streamed):
            return
        self.host.sink(value)

    def absolute(self, path: Path | str) -> str:
        """A path joined to the session directory; not resolved, not normalised."""
        raw = path.raw if type(path) is Path else path
        assert isinstance(raw, str)
        return os.path.join(self.cwd, raw)

    # -- names ---------------------------------------------------------------------------------

    def lookup(self, name: str) -> Value:
        """The value bound to a name as seen from the running command or call, or MISSING.

        A value that was lost with a restored session raises `lost_value`.
        """
        from worker.evaluate.static import lookup

        return lookup(self, name)

    def visible_names(self) -> Iterator[str]:
        """Names bound as seen from the running command or call, inner ones first, no duplicates."""
        from worker.evaluate.static import visible_names

        return visible_names(self)

    def visible_callables(self) -> list[str]:
        """Those of `visible_names` that are bound to a closure or command."""
        return [
            name for name in self.visible_names() if type(self.lookup(name)) in (Closure, Command)
        ]

    def bound_names(self) -> tuple[set[str], set[str]]:
        """The binding snapshot for a parse context: value names and command names at top level."""
        values: set[str] = set()
        commands: set[str] = set()
        for cell in list(self.root.cells.values()):
            if cell.v is not MISSING or cell.lost:
                (commands if type(cell.v) in (Closure, Command) else values).add(cell.name)
        return values, commands

    def set_env(self, name: bytes, value: bytes) -> None:
        """Assign an environment variable; the name moves to the end."""
        self.env.pop(name, None)
        self.env[name] = value

    # -- running -------------------------------------------------------------------------------

    def run_program(self, program: Any, src: str, position: Position = "stmt") -> Value:
        """Evaluate a parsed program as top-level statements; the value of the last one."""
        from worker.evaluate.program import run_program

        return run_program(self, program, src, position)

    def run_in_place(self, program: Any, src: str) -> Value:
        """Evaluate a parsed program as top-level statements in the scope of the running command,
        as `source` and `apply` do. Its statements get rows of their own."""
        from worker.evaluate.program import run_in_place

        return run_in_place(self, program, src)

    def evaluate_source(
        self, src: str, position: Position = "stmt", *, repl: bool = False
    ) -> Value:
        """Parse with the session's bindings and run.

        Raises worker.language's syntax error as it is: it belongs to the request, not to the
        program.
        """
        from worker.evaluate.program import evaluate_source

        return evaluate_source(self, src, position, repl=repl)


def process_environment() -> dict[bytes, bytes]:
    """A copy of the worker's own environment, in order."""
    return dict(os.environb)


def bare_evaluator(cwd: str | None = None, host: Host | None = None) -> Evaluator:
    """An evaluator with nothing around it: its own process environment, no session.

    The local human without confinement, for scripts and tests. Tools are resolved by the manifests
    of the project around the directory.
    """
    from worker.commands.reef import Reef

    host = Host() if host is None else host
    if host.reef is None:
        host.reef = Reef()
    return Evaluator(cwd if cwd is not None else os.getcwd(), process_environment(), host)
