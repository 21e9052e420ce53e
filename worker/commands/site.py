"""The compiled form of one command call: head, argument thunks, redirects, environment prefix.

A `CommandSite` is built once when a program is compiled and run any number of times by
`worker.commands.run`. Constant words are evaluated at build time, everything else is a small
function of (evaluator, frame). The site keeps how each flag was spelled in the source, since the
syntax tree only has the normalised name while external programs get flags as typed (chapter 40
§2.2).

Failure: building never fails. Evaluating an argument raises what its expression raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.commands.arguments import Argument, Role
from worker.language import ast
from worker.values.types import MISSING, Glob, Path, Span, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

Thunk = Callable[[Any], Value]
CompileExpr = Callable[[ast.Expr], Thunk]
EvaluateArgument = Callable[["Evaluator", Any], Argument]


class ArgumentSite(NamedTuple):
    """One argument: `constant` when it is known at build time, else `evaluate`."""

    constant: Argument | None
    evaluate: EvaluateArgument | None

    def run(self, ev: Evaluator, frame: Any) -> Argument:
        if self.constant is not None:
            return self.constant
        assert self.evaluate is not None
        return self.evaluate(ev, frame)


class RedirectSite(NamedTuple):
    kind: ast.RedirectKind
    target: ArgumentSite
    span: Span


class CommandSite:
    """One command call, compiled. `call` is its AST node."""

    __slots__ = (
        "arguments",
        "background",
        "call",
        "constant_arguments",
        "env_prefix",
        "forced",
        "head",
        "redirects",
        "span",
        "trailing",
    )

    def __init__(
        self,
        call: ast.CmdCall,
        arguments: tuple[ArgumentSite, ...],
        redirects: tuple[RedirectSite, ...],
    ) -> None:
        self.call = call
        self.head = call.head
        self.forced = call.forced
        self.arguments = arguments
        self.redirects = redirects
        self.env_prefix = tuple(
            (os.fsencode(prefix.name), os.fsencode(_prefix_text(prefix.value)))
            for prefix in call.env_prefix
        )
        self.background = call.background
        self.trailing = call.trailing
        self.span = as_span(call.span)
        self.constant_arguments: list[Argument] | None = None
        if all(argument.constant is not None for argument in arguments):
            self.constant_arguments = [
                argument.constant for argument in arguments if argument.constant is not None
            ]

    @classmethod
    def build(
        cls, call: ast.CmdCall, compile_expr: CompileExpr, src: str | None = None
    ) -> CommandSite:
        """Compile one call. `src` is the text its spans refer to, when there is one."""
        builder = _Builder(compile_expr, src)
        return cls(
            call,
            tuple(builder.argument(argument) for argument in call.args),
            tuple(
                RedirectSite(
                    redirect.kind, builder.argument(redirect.target), as_span(redirect.span)
                )
                for redirect in call.redirects
            ),
        )

    @classmethod
    def named(cls, head: str, span: Span | None) -> CommandSite:
        """The call of a head alone, for a name that is used as an expression."""
        place = ast.Span(*span) if span is not None else ast.Span(0, 0)
        return cls(ast.CmdCall(head, False, [], [], [], False, place), (), ())

    def evaluate_arguments(self, ev: Evaluator, frame: Any) -> list[Argument]:
        """The arguments in source order, evaluated left to right."""
        if self.constant_arguments is not None:
            return self.constant_arguments
        return [argument.run(ev, frame) for argument in self.arguments]

    @property
    def bare(self) -> bool:
        """A head alone: no arguments, redirects or environment prefix."""
        return not (self.arguments or self.redirects or self.env_prefix)

    def __repr__(self) -> str:
        return f"<site {self.head} {self.span}>"


class _Builder:
    def __init__(self, compile_expr: CompileExpr, src: str | None) -> None:
        self._compile_expr = compile_expr
        self._src = src

    def argument(self, node: ast.CmdArg) -> ArgumentSite:
        build: Callable[[_Builder, Any, Span], ArgumentSite] = _BUILDERS[type(node)]
        return build(self, node, as_span(node.span))

    def word(self, node: ast.WordArg, span: Span) -> ArgumentSite:
        return _constant(Argument(Role.VALUE, node.text, "", "", span, literal=True))

    def path(self, node: ast.PathArg, span: Span) -> ArgumentSite:
        text = node.text
        if not text.startswith("~"):
            return _constant(Argument(Role.VALUE, Path(text), "", "", span, literal=True))

        def evaluate(ev: Evaluator, frame: Any) -> Argument:
            path = Path(expand_home(ev, text))
            return Argument(Role.VALUE, path, "", "", span, literal=True)

        return ArgumentSite(None, evaluate)

    def glob(self, node: ast.GlobArg, span: Span) -> ArgumentSite:
        pattern = node.pattern

        def evaluate(ev: Evaluator, frame: Any) -> Argument:
            return Argument(Role.VALUE, Glob(pattern, ev.cwd), "", "", span, glob_word=True)

        return ArgumentSite(None, evaluate)

    def string(self, node: ast.StrArg, span: Span) -> ArgumentSite:
        if type(node.expr) is ast.Str:
            return _constant(Argument(Role.VALUE, node.expr.value, "", "", span))
        return self._computed(node.expr, span)

    def expression(self, node: ast.ExprArg, span: Span) -> ArgumentSite:
        return self._computed(node.expr, span)

    def _computed(self, expr: ast.Expr, span: Span) -> ArgumentSite:
        thunk = self._compile_expr(expr)

        def evaluate(ev: Evaluator, frame: Any) -> Argument:
            return Argument(Role.VALUE, thunk(frame), "", "", span)

        return ArgumentSite(None, evaluate)

    def long_flag(self, node: ast.FlagLong, span: Span) -> ArgumentSite:
        name = node.name
        spelling = self._spelling(name, span)
        if node.value is None:
            return _constant(Argument(Role.LONG_FLAG, MISSING, name, spelling, span))
        inner = self.argument(node.value)
        if inner.constant is not None:
            found = inner.constant
            return _constant(
                Argument(
                    Role.LONG_FLAG, _flag_value(found), name, spelling, span, literal=found.literal
                )
            )

        def evaluate(ev: Evaluator, frame: Any) -> Argument:
            found = inner.run(ev, frame)
            return Argument(
                Role.LONG_FLAG, _flag_value(found), name, spelling, span, literal=found.literal
            )

        return ArgumentSite(None, evaluate)

    def _spelling(self, name: str, span: Span) -> str:
        """The flag as typed; a tree without source text spells underscores as hyphens."""
        if self._src is not None:
            written = _utf8(self._src)[span.start : span.start + 2 + len(name)]
            if written.replace(b"-", b"_") == b"__" + name.encode():
                return written.decode()
        return "--" + name.replace("_", "-")

    def short_flags(self, node: ast.FlagShort, span: Span) -> ArgumentSite:
        return _constant(Argument(Role.SHORT_FLAGS, MISSING, node.chars, "-" + node.chars, span))

    def end_of_flags(self, node: ast.DashDash, span: Span) -> ArgumentSite:
        return _constant(Argument(Role.END_OF_FLAGS, MISSING, "", "--", span))

    def dash(self, node: ast.Dash, span: Span) -> ArgumentSite:
        return _constant(Argument(Role.DASH, "-", "", "-", span))


_BUILDERS: Final[dict[type, Callable[[_Builder, Any, Span], ArgumentSite]]] = {
    ast.WordArg: _Builder.word,
    ast.PathArg: _Builder.path,
    ast.GlobArg: _Builder.glob,
    ast.StrArg: _Builder.string,
    ast.ExprArg: _Builder.expression,
    ast.FlagLong: _Builder.long_flag,
    ast.FlagShort: _Builder.short_flags,
    ast.DashDash: _Builder.end_of_flags,
    ast.Dash: _Builder.dash,
}


def as_span(span: Any) -> Span:
    return Span(span.start, span.end)


def expand_home(ev: Evaluator, text: str) -> str:
    """`~` and `~/rest` with the session's home directory; any other text unchanged."""
    if text == "~":
        return home_directory(ev)
    if text.startswith("~/"):
        return home_directory(ev).rstrip("/") + text[1:]
    return text


def home_directory(ev: Evaluator) -> str:
    """`HOME` of the session environment, else the account's home, else `/` (chapter 31 §4.1)."""
    home = ev.env.get(b"HOME")
    if home:
        return os.fsdecode(home)
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir or "/"
    except KeyError:
        return "/"


def _constant(argument: Argument) -> ArgumentSite:
    return ArgumentSite(argument, None)


def _flag_value(argument: Argument) -> Value:
    """The value of an argument that is the inline value of a flag; a flag there is its own text."""
    return argument.value if argument.role is Role.VALUE else argument.spelling


def _prefix_text(value: ast.CmdArg) -> str:
    """The value of `NAME=value`, which the grammar only lets be a plain word."""
    return value.text if isinstance(value, ast.WordArg | ast.PathArg) else ""


@lru_cache(maxsize=8)
def _utf8(src: str) -> bytes:
    return src.encode("utf-8", "surrogatepass")
