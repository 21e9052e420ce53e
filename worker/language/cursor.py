"""Where the parser is: the current token, the names in scope, the limits, and the way back.

One Cursor serves one parse. The layers above it (strings, patterns, commands, expressions,
statements) add reading methods and no state of their own. A string hole is read in place: the same
cursor with a nearer end and spans counted from the hole's start.

Failure: reading methods raise ParseError only. After one, the cursor is usable only through
`restore`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from worker.language import diagnostics
from worker.language.ast import Block, Cmd, Expr, Span, Stmt
from worker.language.diagnostics import Lesson, NestingError, ParseError
from worker.language.source import Source, SpanFactory
from worker.language.tokens import (
    BAD,
    BLANK_RUN,
    CONSTRUCTORS,
    CONTINUATION,
    IDENT,
    NUMBER,
    QUOTE,
    TAGGED,
    TERMINATOR_RUN,
    TOKEN,
    TOKEN_KINDS,
    TOKEN_NAMES,
)

# Nested constructs the parser enters: one level of source nesting is up to three. Parentheses add
# nothing to the tree, so this is above HEIGHT_MAX: canonical source, which has parentheses around
# every operator, parses whenever its tree did. Types and patterns weigh more: nobody tracks their
# height.
LEVELS_MAX = 2_500
TYPE_WEIGHT = 4
# Depth of the finished tree, in nested JSON objects and arrays; bounds what encoding and
# evaluating it recurse through, also for flat-looking chains such as `1 + 1 + 1 …`.
HEIGHT_MAX = 2_000
# A node with its span, and nothing deeper.
LEAF_HEIGHT = 2

# What `{` and `=>` mean at the top level of the construct being read; brackets reset it.
MODE_PLAIN = 0
MODE_TRIAL = 1  # a header, trailing blocks allowed: we may come back
MODE_NO_BLOCK = 2  # a header without trailing blocks
MODE_NO_LAMBDA = 3  # a match guard without lambdas that begin with a parenthesis

State = tuple[int, int, str, str, int, int, bool, int, int, int, SpanFactory]


class Cursor(ABC):
    # Text and the part of it being read. `limit` and `span` change only around a string hole.
    # `span` is the Span class itself where offsets need no translation.
    source: Source
    src: str
    limit: int
    span: SpanFactory
    # The current token: kind, text of an identifier, start, end; and where the one before ended.
    # Numbers, strings and tagged literals are read when used, until then `end` is past their first
    # character only. All five change in `advance` and in the readers of those literals.
    kind: str
    text: str
    start: int
    end: int
    last: int
    mode: int
    # Open constructs, and the height of the node read last.
    levels: int
    height: int
    # Value-bound names with the number of open scopes that bind them, and the order of binding as
    # (name, version before). Equal versions mean equal bindings, so a version can be a memo key.
    repl: bool
    bound: dict[str, int]
    trail: list[tuple[str, int]]
    version: int
    versions: dict[tuple[int, str], int]
    # Whether the innermost mode made anything read otherwise, and how many trials are going on.
    mode_mattered: bool
    trials: int
    # What reading twice found out, by offset: headers without and with trailing blocks, guards with
    # lambdas; by offset and version: matches that do not parse, trailing blocks met in a trial.
    blockless_headers: set[int]
    blocked_headers: set[int]
    lambda_guards: set[int]
    failed_matches: dict[tuple[int, int], ParseError]
    blocks: dict[tuple[int, int], tuple[Block, int, int] | ParseError]
    # The newline looked past last, what the line after it continues, and where.
    newline: int
    newline_continues: int
    newline_target: int

    __slots__ = (
        "blocked_headers", "blockless_headers", "blocks", "bound", "end", "failed_matches",
        "height", "kind", "lambda_guards", "last", "levels", "limit", "mode", "mode_mattered",
        "newline", "newline_continues", "newline_target", "repl", "source", "span", "src", "start",
        "text", "trail", "trials", "version", "versions",
    )  # fmt: skip

    def __init__(self, text: str, repl: bool, values: frozenset[str]) -> None:
        self.source = Source(text)
        self.src = text
        self.limit = len(text)
        self.span = self.source.spans_from(0)
        self.kind = ""
        self.text = ""
        self.start = self.end = self.last = 0
        self.mode = MODE_PLAIN
        self.levels = 0
        self.height = 0
        self.repl = repl
        self.bound = dict.fromkeys(values | CONSTRUCTORS, 1)
        if repl:
            self.bound.update(it=1, out=1)
        self.trail = []
        self.version = 0
        self.versions = {}
        self.blockless_headers = set()
        self.blocked_headers = set()
        self.lambda_guards = set()
        self.failed_matches = {}
        self.blocks = {}
        self.mode_mattered = False
        self.trials = 0
        self.newline = -1
        self.newline_continues = 0
        self.newline_target = 0

    # --- tokens ----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Step to the next expression token."""
        self.last = self.end
        found = TOKEN(self.src, self.end, self.limit)
        group = found.lastindex  # type: ignore[union-attr]
        self.start, self.end = found.span(group)  # type: ignore[union-attr,arg-type]
        if group == 1:
            self.kind = IDENT
            self.text = found[1]  # type: ignore[index]
        elif group == 2:
            self.kind = found[2]  # type: ignore[index]
        else:
            self.kind = TOKEN_KINDS[group]  # type: ignore[index]

    def seek(self, position: int) -> None:
        """Make the first token at or after `position` the current one."""
        self.end = position
        self.advance()

    def skip_newlines(self) -> None:
        if self.kind == "\n":
            self.seek(BLANK_RUN(self.src, self.end, self.limit).end())  # type: ignore[union-attr]

    def skip_terminators(self) -> None:
        """Step over newlines and semicolons: one by itself, more in one sweep."""
        if self.kind == "\n" or self.kind == ";":
            self.advance()
            if self.kind == "\n" or self.kind == ";":
                end = TERMINATOR_RUN(self.src, self.end, self.limit).end()  # type: ignore[union-attr]
                self.seek(end)

    def expect(self, kind: str) -> None:
        """Step over a token of this kind, or fail."""
        if self.kind != kind:
            raise self.misfit(f"expected `{kind}`")
        self.advance()

    def identifier(self) -> str:
        """Step over an identifier and return it, or fail."""
        if self.kind is not IDENT:
            raise self.misfit("expected identifier")
        name = self.text
        self.advance()
        return name

    def continues(self) -> int:
        """At a newline: which construct the next line continues (a CONTINUES_ constant), or 0."""
        if self.newline != self.start:
            found = CONTINUATION(self.src, self.start, self.limit)
            group = found.lastindex or 0  # type: ignore[union-attr]
            self.newline = self.start
            self.newline_continues = group
            self.newline_target = found.start(group)  # type: ignore[union-attr]
        return self.newline_continues

    def since(self, node: Expr) -> Span:
        """From the start of a node to the end of the token before the current one."""
        if self.span is Span:
            return Span(node.span.start, self.last)
        return Span(node.span.start, self.span(self.last, self.last).end)

    def takes_block(self, mode: int) -> bool:
        """After something a trailing block may follow: does one, and may it in this mode?"""
        if self.kind != "{":
            return False
        if mode == MODE_NO_BLOCK:
            self.mode_mattered = True
            return False
        return True

    # --- errors ----------------------------------------------------------------------------------

    def misfit(self, message: str, hint: str | None = None) -> ParseError:
        """The error that the current token does not fit. Raises the token's own trouble, if any."""
        self.examine()
        return ParseError(message, self.span(self.start, self.end), hint)

    def lesson(self, lesson: Lesson, start: int, end: int) -> ParseError:
        message, hint = lesson
        return ParseError(message, self.span(start, end), hint)

    def examine(self) -> None:
        """Read the current token in full; raise what is wrong with it by itself."""
        kind, start = self.kind, self.start
        if kind == "|":
            raise self.lesson(diagnostics.PIPE, start, self.end)
        if kind is BAD:
            raise self.bad_character(start)
        if kind is NUMBER:
            self.number()
        elif kind is QUOTE:
            _, self.end = self.string_at(start)
        elif kind is TAGGED:
            self.tagged()

    def bad_character(self, at: int) -> ParseError:
        """What to say about a character that starts no expression token."""
        character = self.src[at]
        if character == "$":
            return self.lesson(diagnostics.SIGIL, at, at + 1)
        if character == "`":
            return self.lesson(diagnostics.BACKTICK, at, at + 1)
        if character == "&":
            for operator in ("&>>", "&>"):
                if self.src.startswith(operator, at, self.limit):
                    return self.lesson(diagnostics.MERGE_REDIRECT, at, at + len(operator))
            return self.lesson(diagnostics.AMPERSAND, at, at + 1)
        return ParseError(f"unexpected character `{character}`", self.span(at, at + 1))

    def token_name(self) -> str:
        """The current token as messages call it."""
        if self.kind is IDENT:
            return f"Ident({debug_text(self.text)})"
        return TOKEN_NAMES.get(self.kind, self.kind)

    # --- limits ----------------------------------------------------------------------------------

    def enter(self, weight: int = 1) -> None:
        """Count a nested construct; the caller takes its weight back from `levels`."""
        self.levels += weight
        if self.levels > LEVELS_MAX:
            raise self.too_deep()

    def grow(self, height: int) -> None:
        """Set the height of the node just made."""
        self.height = height
        if height > HEIGHT_MAX:
            raise self.too_deep()

    def too_deep(self) -> NestingError:
        message, hint = diagnostics.NESTING
        return NestingError(message, self.span(self.start, min(self.end, self.limit)), hint)

    # --- names -----------------------------------------------------------------------------------

    def bind(self, name: str) -> None:
        """Add a value-bound name to the innermost scope."""
        self.bound[name] = self.bound.get(name, 0) + 1
        self.trail.append((name, self.version))
        key = (self.version, name)
        self.version = self.versions.setdefault(key, len(self.versions) + 1)

    def leave_scope(self, mark: int) -> None:
        """Forget the names bound since the trail was `mark` long."""
        while len(self.trail) > mark:
            name, self.version = self.trail.pop()
            count = self.bound[name] - 1
            if count:
                self.bound[name] = count
            else:
                del self.bound[name]

    # --- the way back ----------------------------------------------------------------------------

    def save(self) -> State:
        return (
            self.start, self.end, self.kind, self.text, self.last,
            self.mode, self.mode_mattered, self.levels, len(self.trail), self.limit, self.span,
        )  # fmt: skip

    def restore(self, state: State) -> None:
        (
            self.start, self.end, self.kind, self.text, self.last,
            self.mode, self.mode_mattered, self.levels, mark, self.limit, self.span,
        ) = state  # fmt: skip
        self.leave_scope(mark)

    # --- the layers above ------------------------------------------------------------------------
    # What they read for each other. Only the topmost, which has all of it, can be instantiated.

    @abstractmethod
    def number(self) -> Expr: ...

    @abstractmethod
    def tagged(self) -> Expr: ...

    @abstractmethod
    def string_at(self, position: int) -> tuple[Expr, int]: ...

    @abstractmethod
    def expression(self) -> Expr: ...

    @abstractmethod
    def operand(self) -> Expr: ...

    @abstractmethod
    def rest(self, left: Expr) -> Expr: ...

    @abstractmethod
    def operand_or_command(self) -> Expr: ...

    @abstractmethod
    def block(self) -> Block: ...

    @abstractmethod
    def trailing_block(self) -> Block: ...

    @abstractmethod
    def command(self, position: int) -> Cmd: ...

    @abstractmethod
    def statements(self, closer: str) -> list[Stmt]: ...


_DEBUG_ESCAPES = {
    ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t",
    0: "\\0",
}  # fmt: skip


def debug_text(text: str) -> str:
    """A text in quotes with escapes, for token names such as `Str("a\\n")`."""
    return f'"{text.translate(_DEBUG_ESCAPES)}"'
