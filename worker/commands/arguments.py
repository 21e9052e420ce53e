"""The evaluated arguments of one command call, and the typed readers builtins take them with.

An `Argument` is one word, quoted string, parenthesised value or flag after evaluation, in source
order and with the span to blame. `Arguments` holds all of them for one call, together with the
evaluator they were evaluated in. Readers follow chapter 31 §1.3: flags may stand anywhere, long
flags count by name and short ones letter by letter, `--` is dropped, globs have become absolute
paths before anything is counted, relative paths are joined to the session's directory.

Failure: readers raise `arg_error` for a wrong number of values (chapter 31 §1.4), `type_error` for
a value of another type, both with the span of the argument, else of the call. A malformed glob is
`arg_error`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.errors import Raised, raised
from worker.values.types import MISSING, Glob, Path, Span, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


class Role(Enum):
    """What an argument is by its spelling."""

    VALUE = "value"
    LONG_FLAG = "long flag"
    SHORT_FLAGS = "short flags"
    END_OF_FLAGS = "end of flags"
    DASH = "dash"


class Argument(NamedTuple):
    """One evaluated argument.

    `value`: the value of a VALUE (a glob word is a `Glob` until the reader expands it), the value
    of a long flag or MISSING. `name`: the flag's name with underscores, or the letters of a short
    group. `spelling`: the flag as written, up to and without an inline value (`--dry-run`, `-xvf`).
    `literal`: written as a plain word, also as the value of a flag. `glob_word`: a glob word of the
    source, as opposed to a computed glob value.
    """

    role: Role
    value: Value
    name: str
    spelling: str
    span: Span | None
    literal: bool = False
    glob_word: bool = False


def value_argument(value: Value, span: Span | None = None) -> Argument:
    return Argument(Role.VALUE, value, "", "", span)


def long_flag(name: str, value: Value = MISSING, span: Span | None = None) -> Argument:
    """A long flag given by name instead of by source text: underscores are spelled as hyphens."""
    return Argument(Role.LONG_FLAG, value, name, "--" + name.replace("_", "-"), span)


PATH_TYPES: Final = (str, Path)


class Arguments:
    """The arguments of one call, in source order; `call` is the AST node when there is one."""

    __slots__ = ("_values", "call", "ev", "head", "items", "span", "trailing")

    def __init__(
        self,
        ev: Evaluator,
        head: str,
        items: Sequence[Argument],
        span: Span | None = None,
        *,
        call: Any = None,
        trailing: Any = None,
    ) -> None:
        self.ev = ev
        self.head = head
        self.items = items
        self.span = span
        self.call = call
        self.trailing = trailing
        # Positionals after glob expansion; filled by the first reader that needs them.
        self._values: list[tuple[Value, Span | None]] | None = None

    # -- flags ---------------------------------------------------------------------------------

    def flag(self, *names: str) -> bool:
        """Whether any of the names was given: one-letter names as short flags, others as long."""
        return any(self._given(name) for name in names)

    def _given(self, name: str) -> bool:
        if len(name) == 1:
            return any(item.role is Role.SHORT_FLAGS and name in item.name for item in self.items)
        wanted = name.replace("-", "_")
        return any(item.role is Role.LONG_FLAG and item.name == wanted for item in self.items)

    def literal_option(self, name: str) -> str | None:
        """The text of the last `--name=literal`; every other form of the flag is ignored."""
        found: str | None = None
        for item in self.items:
            if item.role is Role.LONG_FLAG and item.name == name and item.literal:
                found = item.value
        return found

    # -- values --------------------------------------------------------------------------------

    def located(self) -> list[tuple[Value, Span | None]]:
        """Positional values with their spans; globs are expanded, flags and `--` are left out."""
        if self._values is None:
            self._values = list(self._expanded())
        return self._values

    def _expanded(self) -> Iterator[tuple[Value, Span | None]]:
        for item in self.items:
            if item.role is Role.DASH:
                yield "-", item.span
            elif item.role is Role.VALUE:
                if type(item.value) is Glob:
                    for path in expand_glob(self.ev, item.value, item.span):
                        yield path, item.span
                else:
                    yield item.value, item.span

    def values(self) -> list[Value]:
        """Positional values in order."""
        return [value for value, _ in self.located()]

    def __len__(self) -> int:
        return len(self.located())

    def span_of(self, index: int) -> Span | None:
        """The span to blame for positional `index`; that of the call when there is none."""
        located = self.located()
        return (located[index][1] if index < len(located) else None) or self.span

    def first(self, default: Value = MISSING) -> Value:
        located = self.located()
        return located[0][0] if located else default

    def coerced(self, declared: str) -> list[Value]:
        """Positional values with strings converted to the declared type (chapter 20 §5.1)."""
        from worker.values.convert import coerce_word

        result = []
        for value, span in self.located():
            if type(value) is str:
                try:
                    value = coerce_word(value, declared, self.ev.cwd)
                except Raised as error:
                    raise error.at(span or self.span) from None
            result.append(value)
        return result

    def paths(
        self, what: str = "path", *, at_least: int = 0, at_most: int | None = None
    ) -> list[Path]:
        """Positional values as absolute paths, joined to the session's directory, not resolved.

        Raises arg_error `HEAD requires at least one WHAT` (two, three ... for more), type_error
        `expected path, found TYPE`.
        """
        self.require(what, at_least=at_least, at_most=at_most)
        return [self.as_path(value, span) for value, span in self.located()]

    def as_path(self, value: Value, span: Span | None = None) -> Path:
        """One value as an absolute path."""
        if type(value) not in PATH_TYPES:
            raise raised(
                "type_error", f"expected path, found {type_name(value)}", span=span or self.span
            )
        return Path(self.ev.absolute(value))

    def texts(
        self, what: str = "text", *, at_least: int = 0, at_most: int | None = None
    ) -> list[str]:
        """Positional values that are text: strings as they are, paths as their lossy text."""
        self.require(what, at_least=at_least, at_most=at_most)
        return [self.as_text(value, span) for value, span in self.located()]

    def as_text(self, value: Value, span: Span | None = None) -> str:
        if type(value) is str:
            return value
        if type(value) is Path:
            return value.display
        raise raised(
            "type_error", f"expected str, found {type_name(value)}", span=span or self.span
        )

    def require(self, what: str, *, at_least: int = 0, at_most: int | None = None) -> None:
        """Check the number of positional values."""
        count = len(self)
        if count < at_least:
            raise self.error(f"{self.head} requires at least {counted(at_least, what)}")
        if at_most is not None and count > at_most:
            raise raised(
                "arg_error",
                f"{self.head} accepts at most {counted(at_most, what)}",
                span=self.span_of(at_most),
            )

    def error(self, msg: str, *, code: str = "arg_error", hint: str | None = None) -> Raised:
        """An error that blames the whole call."""
        return raised(code, msg, hint=hint, span=self.span)

    # -- words ---------------------------------------------------------------------------------

    def as_typed(self) -> list[tuple[Value, Span | None]]:
        """Everything in order with flags as strings, the way they were written.

        For the heads that pass their arguments on: `run`, `interact`, language scripts. An inline
        value that is not a plain word becomes text by the argv table (chapter 20 §5.2).
        """
        result: list[tuple[Value, Span | None]] = []
        for item in self.items:
            if item.role is Role.VALUE and type(item.value) is Glob:
                if item.glob_word:
                    expanded = expand_glob(self.ev, item.value, item.span)
                    result.extend((path, item.span) for path in expanded)
                else:
                    result.append((item.value, item.span))
            elif item.role is Role.VALUE:
                result.append((item.value, item.span))
            else:
                result.append((os_text(flag_word(item)), item.span))
        return result


_NUMBER_WORDS: Final = ("zero", "one", "two", "three", "four")


def counted(count: int, what: str) -> str:
    word = _NUMBER_WORDS[count] if count < len(_NUMBER_WORDS) else str(count)
    return f"{word} {what}" if count == 1 else f"{word} {what}s"


def expand_glob(ev: Evaluator, glob: Glob, span: Span | None = None) -> list[Path]:
    """Sorted absolute matches that may be read; none leaves a note on the worker's stderr."""
    from worker.values.methods.globs import expanded

    try:
        matches = [path for path in expanded(ev, glob) if type(path) is Path]
    except Raised as error:
        raise error.at(span) from None
    if not matches:
        ev.host.stderr_note(f"no matches for {glob.pattern}")
    return matches


def flag_word(item: Argument) -> bytes:
    """The one argv word of a flag, `--` or `-`, spelled as in the source (chapter 40 §2.2)."""
    from worker.values.convert import argv_word

    spelling = os.fsencode(item.spelling)
    if item.role is not Role.LONG_FLAG or item.value is MISSING:
        return spelling
    try:
        return spelling + b"=" + argv_word(item.value)
    except Raised as error:
        raise error.at(item.span) from None


def os_text(word: bytes) -> Value:
    """An argv word as a value: a `str`, or a `path` when it is not UTF-8."""
    try:
        return word.decode()
    except UnicodeDecodeError:
        return Path(os.fsdecode(word))


def argv_words(ev: Evaluator, items: Sequence[Argument]) -> list[bytes]:
    """The argv words of all items in order; globs, also computed ones, are expanded."""
    from worker.values.convert import argv_word

    words: list[bytes] = []
    for item in items:
        if item.role is not Role.VALUE:
            words.append(flag_word(item))
        elif type(item.value) is Glob:
            words.extend(argv_word(path) for path in expand_glob(ev, item.value, item.span))
        else:
            try:
                words.append(argv_word(item.value))
            except Raised as error:
                raise error.at(item.span) from None
    return words
