"""Reading commands: prefixes, head, arguments, redirects, and how they end (chapter 10 §3.2, §10).

Commands are read in a mode of their own, straight from the text: words are runs of characters
classified by shape. Expression tokens come back after the command's last piece, or inside the
parentheses and braces of its arguments.
"""

from __future__ import annotations

import re

from worker.language import diagnostics
from worker.language.ast import (
    Block,
    Cmd,
    CmdArg,
    CmdCall,
    Dash,
    DashDash,
    EnvPrefix,
    ExprArg,
    FlagLong,
    FlagShort,
    GlobArg,
    PathArg,
    Redirect,
    Str,
    StrArg,
    WordArg,
)
from worker.language.cursor import LEAF_HEIGHT, MODE_PLAIN, debug_text
from worker.language.diagnostics import CHAIN_HINT, ParseError
from worker.language.patterns import PatternReader
from worker.language.tokens import (
    ACCESS_GLUED,
    ARROW_AHEAD,
    BRACKET_CLASS,
    COMMAND_ENDS,
    COMMAND_TOKEN,
    COMMAND_TOKEN_NAMES,
    ENV_SHAPE,
    GLOB_CHARS,
    IDENT,
    INTERPRETER_AHEAD,
    INTERPRETERS,
    LONG_FLAG,
    NEVER_HEADS,
    PATH_HEAD,
    REDIRECTS,
    SHORT_FLAG,
    SIGILS,
)

CMD_HEIGHT = 2
ARG_HEIGHT = 2
EXPECTED_ARGUMENT = "expected command argument"

# A command token: the word, or the text of an operator ("" at the end), with start and end.
WORD = True
Token = tuple[bool, str, int, int]


class CommandReader(PatternReader):
    __slots__ = ()

    # --- is it one -------------------------------------------------------------------------------

    def begins_command(self) -> bool:
        """At an operand: does a command begin here (chapter 10 §6.2)?"""
        kind = self.kind
        if kind is IDENT:
            name = self.text
            return not (
                name in NEVER_HEADS
                or name in self.bound
                or ACCESS_GLUED(self.src, self.end, self.limit)
                or (name in INTERPRETERS and self.opens_interpreter())
                or ARROW_AHEAD(self.src, self.end, self.limit)
            )
        return kind == "^" or self.begins_path_head()

    def begins_path_head(self) -> bool:
        return PATH_HEAD(self.src, self.start, self.limit) is not None

    def opens_interpreter(self) -> bool:
        return INTERPRETER_AHEAD(self.src, self.end, self.limit) is not None

    def begins_prefixed_command(self) -> bool:
        """At an identifier with `=` glued: is it a prefix, with more of a command on the line?"""
        try:
            is_word, text, start, end = self._token(self.start)
            if not env_shape(text):
                return False
            self._word(start, end, text)
            is_word, text, start, end = self._token(end)
            if is_word and not text.startswith("^"):
                self._word(start, end, text)
            elif text in ('"', "'") and self.string_end(start) < 0:
                return False
        except ParseError:
            # Trouble met while looking ahead is no match; whoever reads on will tell it.
            return False
        return is_word or text not in ("\n", ";", "", "}", ")")

    # --- the whole command -----------------------------------------------------------------------

    def command(self, position: int) -> Cmd:
        """Read a command from `position`; the current token is then the one after it."""
        self.enter()
        prefixes: list[EnvPrefix] = []
        token = self._token(position)
        begin = token[2]
        while token[0] and (found := env_shape(token[1])):
            prefixes.append(self._prefix(token, found[1]))
            token = self._token(token[3])
        forced = token[1].startswith("^")
        if forced:
            token = self._token(token[2] + 1)
        head = self._head(token)

        args: list[CmdArg] = []
        redirects: list[Redirect] = []
        background = False
        trailing: Block | None = None
        height = LEAF_HEIGHT + ARG_HEIGHT
        end = token[3]
        while True:
            is_word, text, start, stop = self._token(end)
            if is_word:
                arg, end = self._word(start, stop, text)
                args.append(arg)
            elif text in COMMAND_ENDS:
                break
            elif text == "(":
                arg, stop = self._group(start, _chained_word(args, end, start))
                args.append(arg)
                end = stop
            elif text in ('"', "'"):
                arg, end = self._string(start)
                args.append(arg)
            elif text in REDIRECTS:
                target, end = self._required(stop)
                redirects.append(Redirect(REDIRECTS[text], target, self.span(start, end)))
            elif text == "{":
                self.seek(start)
                if self.takes_block(self.mode):
                    trailing = self.trailing_block()
                    height = max(height, self.height)
                    end = self.last
                break
            elif text == "&":
                background = True
                end = stop
                break
            else:
                raise self._foreign(text, start, stop)
            height = max(height, self.height + ARG_HEIGHT)
        if trailing is None:
            self.seek(end)
        self.levels -= 1
        self.grow(height + CMD_HEIGHT)
        where = self.span(begin, end)
        call = CmdCall(head, forced, args, redirects, prefixes, background, where, trailing)
        return Cmd(call, where)

    def _prefix(self, token: Token, name: str) -> EnvPrefix:
        _, text, start, end = token
        self._check_word(start, end, text)
        where = self.span(start, end)
        return EnvPrefix(name, WordArg(text[len(name) + 1 :], where), where)

    def _head(self, token: Token) -> str:
        is_word, text, start, end = token
        if is_word:
            if text.isalnum():
                self.height = LEAF_HEIGHT
                return text
            if not text.startswith("^") and not env_shape(text):
                self._check_word(start, end, text)
                if isinstance(self._classify(start, end, text), (WordArg, PathArg)):
                    return text
        raise self._misfit_at(token, f"expected command head, found {self._token_name(token)}")

    def module_path(self, position: int) -> tuple[str, int]:
        """The operand of `use`: one plain word or path, and its end."""
        token = self._token(position)
        is_word, text, start, end = token
        if is_word and not env_shape(text):
            self._check_word(start, end, text)
            if isinstance(self._classify(start, end, text), (WordArg, PathArg)):
                return text, end
        raise self._misfit_at(token, "expected module path")

    # --- pieces ----------------------------------------------------------------------------------

    def _token(self, position: int) -> Token:
        found = COMMAND_TOKEN(self.src, position, self.limit)
        group = found.lastindex  # type: ignore[union-attr]
        start, end = found.span(group)  # type: ignore[union-attr,arg-type]
        return group == 1, found[group], start, end  # type: ignore[index]

    def _required(self, position: int) -> tuple[CmdArg, int]:
        """The argument that must follow at `position`."""
        token = self._token(position)
        is_word, text, start, end = token
        if is_word:
            return self._word(start, end, text)
        if text == "(":
            return self._group(start, chained=False)
        if text in ('"', "'"):
            return self._string(start)
        raise self._misfit_at(token, EXPECTED_ARGUMENT)

    def _string(self, position: int) -> tuple[CmdArg, int]:
        node, end = self.string_at(position)
        return StrArg(node, node.span), end

    def _group(self, position: int, chained: bool) -> tuple[CmdArg, int]:
        """A parenthesised argument. `chained`: it looks like a method call on a word."""
        mode, self.mode = self.mode, MODE_PLAIN
        try:
            self.seek(position)
            self.advance()
            node = self.operand_or_command()
            if self.kind != ")":
                raise self.misfit("expected `)`")
        except ParseError as error:
            if chained:
                raise ParseError(error.message, error.span, CHAIN_HINT) from None
            raise
        self.mode = mode
        return ExprArg(node, self.span(position, self.end)), self.end

    def _word(self, start: int, end: int, text: str) -> tuple[CmdArg, int]:
        """The argument that begins with this word: mostly the word itself."""
        if text.isalnum():
            if text.isdigit() and text.isascii() and self.src.startswith(">", end, self.limit):
                operator = 2 if self.src.startswith(">>", end, self.limit) else 1
                raise self.lesson(diagnostics.FD_REDIRECT, start, end + operator)
            self.height = LEAF_HEIGHT
            return WordArg(text, self.span(start, end)), end
        self._check_word(start, end, text)
        arg = self._classify(start, end, text)
        self.height = LEAF_HEIGHT
        if isinstance(arg, FlagLong) and arg.value is None and text.endswith("="):
            arg.value, stop = self._required(end)
            arg.span = self.span(start, stop)
            self.grow(self.height + 1)
            return arg, stop
        return arg, end

    def _check_word(self, start: int, end: int, text: str) -> None:
        """Raise for characters a word cannot have, or cannot begin with."""
        first = text[0]
        if first == "^":
            raise ParseError(EXPECTED_ARGUMENT, self.span(start, start + 1))
        if first == "]":
            raise self.lesson(diagnostics.BRACKET_CLOSE, start, start + 1)
        if first == "[" and not BRACKET_CLASS(text, 0, len(text)):
            raise self.lesson(diagnostics.BRACKET_OPEN, start, start + 1)
        found = SIGILS(text)
        if found:
            at = start + found.start()
            lesson = diagnostics.SIGIL if found[0] == "$" else diagnostics.BACKTICK
            raise self.lesson(lesson, at, at + 1)

    def _classify(self, start: int, end: int, text: str) -> CmdArg:
        """A word by its shape, first match wins (chapter 10 §3.2)."""
        where = self.span(start, end)
        if text == "--":
            return DashDash(where)
        if text == "-":
            return Dash(where)
        if GLOB_CHARS(text):
            return GlobArg(text, where)
        if text.startswith(("/", "./", "../", "~/")) or text == "~":
            return PathArg(text, where)
        if text.startswith("-"):
            flag = LONG_FLAG(text, 0, len(text))
            if flag and (flag[2] or flag.end() == len(text)):
                value = text[flag.end() :]
                name = flag[1].replace("-", "_")
                return FlagLong(name, where, WordArg(value, where) if value else None)
            flag = SHORT_FLAG(text, 0, len(text))
            if flag:
                return FlagShort(flag[1], where)
        return WordArg(text, where)

    # --- errors ----------------------------------------------------------------------------------

    def _foreign(self, operator: str, start: int, end: int) -> ParseError:
        """An operator of other shells between two arguments."""
        return self.lesson(_FOREIGN_OPERATORS[operator], start, end)

    def _misfit_at(self, token: Token, message: str) -> ParseError:
        _, text, start, end = token
        if text in ('"', "'"):
            end = self.string_at(start)[1]
        elif text.startswith("^"):
            end = start + 1
        return ParseError(message, self.span(start, end))

    def _token_name(self, token: Token) -> str:
        """A command token as messages call it; tells a lesson instead where there is one."""
        is_word, text, start, end = token
        if not is_word:
            if text in _FOREIGN_OPERATORS:
                raise self._foreign(text, start, end)
            if text in ('"', "'"):
                node, stop = self.string_at(start)
                content = node.value if isinstance(node, Str) else self.src[start + 1 : stop - 1]
                return f"Str({debug_text(content)})"
            return COMMAND_TOKEN_NAMES.get(text, text)
        if text.startswith("^"):
            return "Caret"
        env = env_shape(text)
        if env:
            return f"EnvAssign({debug_text(env[1])}, {debug_text(text[env.end() :])})"
        arg = self._classify(start, end, text)
        match arg:
            case GlobArg(pattern=pattern):
                return f"GlobWord({debug_text(pattern)})"
            case FlagLong(name=name, value=WordArg(text=value)):
                return f"FlagLongEq({debug_text(name)}, {debug_text(value)})"
            case FlagLong(name=name):
                kind = "FlagLongPendingValue" if text.endswith("=") else "FlagLong"
                return f"{kind}({debug_text(name)})"
            case FlagShort(chars=chars):
                return f"FlagShort({debug_text(chars)})"
        return COMMAND_TOKEN_NAMES.get(text, text)


_FOREIGN_OPERATORS = {
    "|": diagnostics.PIPE,
    "<<": diagnostics.HEREDOC,
    "<<<": diagnostics.HERE_STRING,
    "&>": diagnostics.MERGE_REDIRECT,
    "&>>": diagnostics.MERGE_REDIRECT,
}


def env_shape(word: str) -> re.Match[str] | None:
    """NAME=REST (group 1 is the name), unless the word is a glob first."""
    return None if GLOB_CHARS(word) else ENV_SHAPE(word, 0, len(word))


def _chained_word(args: list[CmdArg], end: int, start: int) -> bool:
    """Is the `(` at `start` glued to an argument word with a dot in it?"""
    return bool(end == start and args and isinstance(args[-1], WordArg) and "." in args[-1].text)
