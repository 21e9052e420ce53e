"""Reading blocks and control expressions (chapter 10 §8.5, §8.6, §9).

Where `{` after a header or `=>` after a guard may mean two things, the text is read in one way and,
if that leaves the construct without its own brace or arrow, read again in the other. What was
learned is remembered per offset, and blocks met on the way are kept, so that nesting does not
multiply the work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from worker.language import diagnostics
from worker.language.ast import (
    Block,
    BlockExpr,
    Expr,
    If,
    Match,
    MatchArm,
    Pattern,
    Span,
    Spawn,
    Try,
    With,
)
from worker.language.commands import CommandReader
from worker.language.cursor import (
    HEIGHT_MAX,
    LEAF_HEIGHT,
    MODE_NO_BLOCK,
    MODE_NO_LAMBDA,
    MODE_PLAIN,
    MODE_TRIAL,
)
from worker.language.diagnostics import NestingError, ParseError
from worker.language.tokens import (
    BINARY,
    CONTINUES_CATCH,
    CONTINUES_CHAIN,
    CONTINUES_IF,
    IDENT,
    POSTFIX_STARTS,
    WITH_KEYS,
)

# JSON levels between a block and its statements.
BLOCK_HEIGHT = 2

BLOCK_START = frozenset("{")
SCOPE_VALUE_ENDS = frozenset("{,")


class ControlReader(CommandReader):
    __slots__ = ()

    # --- blocks ----------------------------------------------------------------------------------

    def block(self) -> Block:
        """`{ statements }` with a scope of its own."""
        if self.kind != "{":
            raise self.misfit("expected `{`")
        start = self.start
        if self.blocks:
            known = self.blocks.get((start, self.version))
            if known is not None:
                if isinstance(known, ParseError):
                    raise ParseError(known.message, known.span, known.hint)
                block, end, self.height = known
                self.seek(end)
                return block
        self.enter()
        mode, self.mode = self.mode, MODE_PLAIN
        mark = len(self.trail)
        self.advance()
        statements = self.statements("}")
        end = self.end
        self.leave_scope(mark)
        self.mode = mode
        self.levels -= 1
        self.advance()
        self.grow(self.height + BLOCK_HEIGHT)
        return Block(statements, self.span(start, end))

    def trailing_block(self) -> Block:
        """The block after a call or command. During a trial it is kept for a second reading."""
        if self.mode == MODE_TRIAL:
            self.mode_mattered = True
        if not self.trials:
            return self.block()
        key = (self.start, self.version)
        try:
            block = self.block()
        except NestingError:
            raise
        except ParseError as error:
            self.blocks[key] = ParseError(error.message, error.span, error.hint)
            raise
        self.blocks[key] = (block, self.last, self.height)
        return block

    def block_expression(self) -> Expr:
        block = self.block()
        self.grow(self.height + 1)
        return BlockExpr(block, block.span)

    # --- headers and guards ----------------------------------------------------------------------

    def _in_mode(self, mode: int, read: Callable[[], Expr]) -> tuple[Expr, bool]:
        """Read in a mode; also tell whether anything was read otherwise because of it."""
        mode_before, self.mode = self.mode, mode
        mattered_before, self.mode_mattered = self.mode_mattered, False
        found = read()
        mattered, self.mode_mattered = self.mode_mattered, mattered_before
        self.mode = mode_before
        return found, mattered

    def blockless(self) -> Expr:
        """An expression whose top level takes no trailing blocks."""
        return self._in_mode(MODE_NO_BLOCK, self.expression)[0]

    def header(self, enders: frozenset[str] = BLOCK_START) -> Expr:
        """The expression before a construct's own block (chapter 10 §8.6).

        Trailing blocks are allowed first; without them when that takes the construct's block away.
        Where it did is remembered, and so are the blocks.
        """
        at = self.start
        if at in self.blockless_headers:
            return self.blockless()
        state = self.save()
        mode, mattered_before = self.mode, self.mode_mattered
        failure: ParseError | None = None
        found: Expr | None = None
        self.mode, self.mode_mattered = MODE_TRIAL, False
        self.trials += 1
        try:
            found = self.expression()
        except NestingError:
            raise
        except ParseError as error:
            failure = error
        self.trials -= 1
        mattered, self.mode_mattered = self.mode_mattered, mattered_before
        self.mode = mode
        if found is not None and (not mattered or self.kind in enders):
            return found
        if failure is not None and not mattered:
            raise failure
        self.restore(state)
        self.blockless_headers.add(at)
        return self.blockless()

    # --- the constructs ---------------------------------------------------------------------------

    def if_expression(self) -> Expr:
        branches: list[tuple[int, Expr, Block]] = []
        height = 0
        otherwise: Expr | None = None
        while True:
            start = self.span(self.start, self.start).start
            self.advance()
            condition = self.header()
            height = max(height, self.height)
            branches.append((start, condition, self.block()))
            height = max(height, self.height)
            if len(branches) > HEIGHT_MAX:
                raise self.too_deep()
            if self.kind == "\n" and self.continues() == CONTINUES_IF:
                self.seek(self.newline_target)
            elif self.kind is not IDENT or self.text != "else":
                break
            self.advance()
            if self.kind is not IDENT or self.text != "if":
                otherwise = self.block_expression()
                height = max(height, self.height)
                break
        last = otherwise if otherwise is not None else branches[-1][2]
        end = last.span.end
        for start, condition, block in reversed(branches):
            otherwise = If(condition, block, Span(start, end), otherwise)
        assert otherwise is not None
        self.grow(height + len(branches))
        return otherwise

    def match_expression(self) -> Expr:
        """`match` is read the other way round: what follows its header's `{` is seldom a block.

        The arms come first. Only when they fail, or when after them the text goes on as after a
        trailing block, can the braces have been one; then the header is read with it.
        """
        start = self.start
        self.advance()
        at, key = self.start, (self.start, self.version)
        failed = self.failed_matches.get(key)
        if failed is not None:
            raise ParseError(failed.message, failed.span, failed.hint)
        if at in self.blocked_headers:
            scrutinee, _ = self._in_mode(MODE_PLAIN, self.expression)
            return self._arms(start, scrutinee)
        state = self.save()
        scrutinee, declined = self._in_mode(MODE_NO_BLOCK, self.expression)
        if not declined or at in self.blockless_headers:
            return self._arms(start, scrutinee)
        node: Expr | None = None
        failure: ParseError | None = None
        try:
            node = self._arms(start, scrutinee)
        except NestingError:
            raise
        except ParseError as error:
            failure = error
        if node is not None and not self._goes_on():
            return node
        after, height = self.save(), self.height
        self.restore(state)
        with_block = self._scrutinee_with_block()
        if with_block is not None:
            self.blocked_headers.add(at)
            return self._arms(start, with_block)
        if failure is not None:
            self.failed_matches[key] = failure
            raise failure
        assert node is not None
        self.blockless_headers.add(at)
        self.restore(after)
        self.height = height
        return node

    def _goes_on(self) -> bool:
        """Could the current token follow a trailing block in a header?"""
        kind = self.kind
        if kind is IDENT:
            return self.text in ("in", "catch")
        if kind == "\n":
            return self.continues() in (CONTINUES_CHAIN, CONTINUES_CATCH)
        return kind == "{" or kind in BINARY or kind in POSTFIX_STARTS

    def _scrutinee_with_block(self) -> Expr | None:
        """The header of a `match` with trailing blocks, if that leaves a `{`."""
        self.trials += 1
        found: Expr | None = None
        with suppress(ParseError):
            found, _ = self._in_mode(MODE_TRIAL, self.expression)
        self.trials -= 1
        return found if self.kind == "{" else None

    def _arms(self, start: int, scrutinee: Expr) -> Expr:
        """The braces of a `match`, after its header."""
        height = self.height
        if self.kind != "{":
            raise self.misfit("expected `{`")
        mode, self.mode = self.mode, MODE_PLAIN
        self.enter()
        self.advance()
        arms: list[MatchArm] = []
        while True:
            self.skip_terminators()
            if self.kind == "}":
                break
            arms.append(self._arm())
            height = max(height, self.height + 2)
            self.skip_terminators()
            if self.kind == ",":
                self.advance()
        self.levels -= 1
        self.mode = mode
        self.advance()
        self.grow(height + 1)
        return Match(scrutinee, arms, self.span(start, self.last))

    def _arm(self) -> MatchArm:
        if self.kind == "|":
            raise self.lesson(diagnostics.ARM_PIPE, self.start, self.end)
        start = self.span(self.start, self.start).start
        mark = len(self.trail)
        patterns: list[Pattern] = [self.pattern()]
        while self.kind == "|":
            self.advance()
            patterns.append(self.pattern())
        guard: Expr | None = None
        if self.kind is IDENT and self.text == "if":
            self.advance()
            guard, body = self._guarded_body()
        else:
            body = self._arm_body(LEAF_HEIGHT)
        self.leave_scope(mark)
        return MatchArm(patterns, body, Span(start, body.span.end), guard)

    def _guarded_body(self) -> tuple[Expr, Expr]:
        """A guard, `=>` and the body.

        `(NAME) =>` in a guard is the end of the guard and the arm's own arrow, unless another arrow
        follows: then it was a lambda.
        """
        at = self.start
        lambdas = at in self.lambda_guards
        state = self.save()
        guard, declined = self._in_mode(MODE_PLAIN if lambdas else MODE_NO_LAMBDA, self._guard)
        body = self._arm_body(self.height)
        if declined and self.kind == "=>":
            self.lambda_guards.add(at)
            self.restore(state)
            guard, _ = self._in_mode(MODE_PLAIN, self._guard)
            body = self._arm_body(self.height)
        return guard, body

    def _guard(self) -> Expr:
        """Not a full expression: `NAME =>` at its start is no lambda."""
        return self.rest(self.operand())

    def _arm_body(self, height: int) -> Expr:
        """`=>` and the body; the height becomes at least `height`."""
        self.expect("=>")
        body = self.block_expression() if self.kind == "{" else self.expression()
        self.height = max(height, self.height)
        return body

    def try_expression(self) -> Expr:
        start = self.start
        self.advance()
        body = self.block()
        height = self.height
        if self.kind is not IDENT or self.text != "catch":
            raise self.misfit("expected catch")
        self.advance()
        pattern = self.binder() if self.kind is IDENT else None
        handler = self.block()
        self.grow(max(height, self.height) + 1)
        return Try(body, handler, self.span(start, self.last), pattern)

    def with_expression(self) -> Expr:
        start = self.start
        scope: dict[str, Expr] = {}
        height = LEAF_HEIGHT
        self.advance()
        while True:
            if self.kind is IDENT and self.text not in WITH_KEYS:
                raise self.lesson(diagnostics.WITH_KEY, self.start, self.end)
            key = self.identifier()
            self.expect(":")
            scope[key] = self.header(SCOPE_VALUE_ENDS)
            height = max(height, self.height)
            if self.kind != ",":
                break
            self.advance()
        body = self.block()
        self.grow(max(height, self.height) + 1)
        where = self.span(start, self.last)
        return With(body, where, scope.get("cwd"), scope.get("env"), scope.get("reef"))

    def spawn_expression(self) -> Expr:
        start = self.start
        self.advance()
        body = self.block()
        self.grow(self.height + 1)
        return Spawn(body, self.span(start, self.last))
