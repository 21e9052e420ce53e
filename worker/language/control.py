"""Reading blocks and control expressions (chapter 10 §8.5, §8.6, §9).

Where `{` or `=>` after a header may mean two things the text is read in one way and, if that leaves
the construct without its own `{` or `=>`, read again in the other. What was learned is remembered
per offset, and blocks met on the way are kept, so that nested headers do not multiply the work.
"""

from __future__ import annotations

from collections.abc import Callable

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
    MODE_GUARD_TRIAL,
    MODE_NO_BLOCK,
    MODE_NO_LAMBDA,
    MODE_PLAIN,
    MODE_TRIAL,
)
from worker.language.diagnostics import NestingError, ParseError
from worker.language.tokens import CONTINUES_IF, IDENT, WITH_KEYS

# JSON levels between a block and its statements.
BLOCK_HEIGHT = 2

BLOCK_START = frozenset("{")
SCOPE_VALUE_ENDS = frozenset("{,")
ARM_ARROW = frozenset(("=>",))


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
        if self.mode & MODE_TRIAL:
            self.trial_used = True
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

    # --- headers and guards: read in one way, or in the other -------------------------------------

    def header(self, enders: frozenset[str] = BLOCK_START) -> Expr:
        """The expression before a construct's own block (chapter 10 §8.6).

        Trailing blocks are allowed first; without them when that takes the construct's block away.
        """
        return self._read_twice(
            self.expression, MODE_TRIAL, MODE_NO_BLOCK, self.blockless_headers, enders
        )

    def guard(self) -> Expr:
        """The guard of a match arm.

        `(NAME) =>` at its end is a lambda first; only a parenthesised name when that takes the
        arm's arrow away.
        """
        return self._read_twice(
            lambda: self.rest(self.operand()),
            MODE_GUARD_TRIAL,
            MODE_NO_LAMBDA,
            self.lambdaless_guards,
            ARM_ARROW,
        )

    def _read_twice(
        self,
        read: Callable[[], Expr],
        trial_mode: int,
        final_mode: int,
        known_final: set[int],
        enders: frozenset[str],
    ) -> Expr:
        """Read in `trial_mode`; in `final_mode` when no ender follows and the mode mattered.

        `known_final` remembers where the second reading was needed, so no text inside is read more
        than twice per level, and the trial of an outer construct makes the inner ones known.
        """
        mode, at = self.mode, self.start
        if at not in known_final:
            state = self.save()
            used_before, self.trial_used = self.trial_used, False
            self.mode = trial_mode
            self.trials += 1
            failure: ParseError | None = None
            found: Expr | None = None
            try:
                found = read()
            except NestingError:
                raise
            except ParseError as error:
                failure = error
            self.trials -= 1
            used, self.trial_used = self.trial_used, used_before
            if found is not None and (not used or self.kind in enders):
                self.mode = mode
                return found
            if failure is not None and not used:
                raise failure
            self.restore(state)
            known_final.add(at)
        self.mode = final_mode
        found = read()
        self.mode = mode
        return found

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
        start = self.start
        self.advance()
        scrutinee = self.header()
        height = self.height
        mode, self.mode = self.mode, MODE_PLAIN
        if self.kind != "{":
            raise self.misfit("expected `{`")
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
        height = LEAF_HEIGHT
        if self.kind is IDENT and self.text == "if":
            self.advance()
            guard = self.guard()
            height = self.height
        self.expect("=>")
        body = self.block_expression() if self.kind == "{" else self.expression()
        self.leave_scope(mark)
        self.height = max(height, self.height)
        return MatchArm(patterns, body, Span(start, body.span.end), guard)

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
