"""The command line of an adapted call (chapter 41 §A4).

Failure: `arg_error` for an undeclared flag, a flag without its value, a value of another type, a
glob where none belongs; `type_error` for a value that is no word. All before anything is started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from worker.commands.adapters.hints import INT_MAX, INT_MIN
from worker.commands.adapters.schema import Command, Specification, base_type
from worker.commands.arguments import Argument, Role, expand_glob, flag_word
from worker.errors import Raised, raised
from worker.values.convert import argv_word, time_of_day
from worker.values.numbers import parse_float_text, parse_int_text
from worker.values.types import (
    MISSING,
    Duration,
    Glob,
    Path,
    Size,
    Span,
    TimeOfDay,
    Value,
    type_name,
)
from worker.values.units import parse_duration_text, parse_size_text

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


def _word_as(parse: Callable[[str], object]) -> Callable[[Value], bool]:
    return lambda value: type(value) is str and parse(value) is not None


def _int64(text: str) -> object:
    number = parse_int_text(text)
    return number if number is not None and INT_MIN <= number <= INT_MAX else None


# Which values a parameter of each type takes; a list takes anything, a `size_kb` nothing.
_TYPES: Final[dict[str, tuple[frozenset[type], Callable[[Value], bool]]]] = {
    "str": (frozenset((str,)), lambda _value: False),
    "bool": (frozenset((bool, str)), lambda _value: False),
    "int": (frozenset((int,)), _word_as(_int64)),
    "float": (frozenset((int, float)), _word_as(parse_float_text)),
    "path": (frozenset((Path, str)), lambda _value: False),
    "glob": (frozenset((Glob, str, Path)), lambda _value: False),
    "size": (frozenset((Size,)), _word_as(parse_size_text)),
    "duration": (frozenset((Duration,)), _word_as(parse_duration_text)),
    "time": (frozenset((TimeOfDay,)), _word_as(time_of_day)),
    "size_kb": (frozenset(), lambda _value: False),
}
_LIST: Final = "list<"


def choose(command: Command, items: Sequence[Argument]) -> tuple[Specification, list[str], int]:
    """The specification of a call, the fixed words behind the program, and how many arguments
    these took."""
    top = command.top
    if items and _is_word(items[0]):
        name = items[0].value
        found = command.subcommands.get(name)
        if found is not None:
            return found, list(found.invoke) if found.invoke is not None else [name], 1
    return top, list(top.invoke or ()), 0


def _is_word(item: Argument) -> bool:
    return item.role is Role.VALUE and item.literal and type(item.value) is str


def command_line(ev: Evaluator, command: Command, items: Sequence[Argument]) -> list[bytes]:
    """All words behind the program."""
    specification, fixed, taken = choose(command, items)
    line = _Line(ev, command.head, specification)
    line.take(items[taken:])
    return [os.fsencode(word) for word in fixed] + line.words


class _Line:
    """The words made of one call's own arguments."""

    def __init__(self, ev: Evaluator, head: str, specification: Specification) -> None:
        self._ev = ev
        self._head = head
        self._spec = specification
        self._positional = iter(specification.positional)
        self.words: list[bytes] = []

    def take(self, items: Sequence[Argument]) -> None:
        waiting = list(reversed(items))
        while waiting:
            item = waiting.pop()
            if item.role is Role.LONG_FLAG:
                self._long(item, waiting)
            elif item.role is Role.SHORT_FLAGS:
                self._short(item)
            elif item.role is Role.END_OF_FLAGS:
                self.words.append(flag_word(item))
            else:
                self._word(item)

    def _long(self, item: Argument, waiting: list[Argument]) -> None:
        name = item.name
        declared = self._spec.params.get(name)
        if declared is None:
            raise raised(
                "arg_error",
                f"{self._head}: unknown flag {item.spelling}; expected {self._signature()}",
                span=item.span,
            )
        emitted: list[bytes] = []
        if item.value is not MISSING:
            emitted = self._checked(item.value, declared, item.span)
        elif base_type(declared) != "bool":
            if not waiting:
                raise raised("arg_error", f"{item.spelling} requires a value", span=item.span)
            following = waiting.pop()
            emitted = self._checked(_value(following), declared, following.span)
        if name not in self._spec.consumed:
            self.words += [_spelling(name).encode(), *emitted]

    def _short(self, item: Argument) -> None:
        kept = []
        for letter in item.name:
            target = self._spec.short_flags.get(letter)
            if target is None:
                raise raised(
                    "arg_error", f"{self._head}: unknown short flag -{letter}", span=item.span
                )
            if target not in self._spec.consumed:
                kept.append(letter)
        if kept:
            self.words.append(("-" + "".join(kept)).encode())

    def _word(self, item: Argument) -> None:
        name = next(self._positional, None)
        value = _value(item)
        if name is None:
            self.words += self._lowered(value, item.span)
            return
        words = self._checked(value, self._spec.params[name], item.span)
        if name not in self._spec.consumed:
            self.words += words

    def _checked(self, value: Value, declared: str, span: Span | None) -> list[bytes]:
        """The words of a value a parameter of that type takes."""
        wanted = base_type(declared)
        if wanted.startswith(_LIST):
            return self._lowered(value, span)
        types, fits = _TYPES[wanted]
        if type(value) not in types and not fits(value):
            raise raised("arg_error", f"expected {wanted}, found {type_name(value)}", span=span)
        if type(value) is Glob:
            return [value.pattern.encode("utf-8", "surrogateescape")]
        return self._lowered(value, span)

    def _lowered(self, value: Value, span: Span | None) -> list[bytes]:
        if type(value) is Glob:
            return [argv_word(path) for path in expand_glob(self._ev, value, span)]
        try:
            return [argv_word(value)]
        except Raised as error:
            raise error.at(span) from None

    def _signature(self) -> str:
        return ", ".join(f"{_long(name)} <{kind}>" for name, kind in self._spec.params.items())


def _value(item: Argument) -> Value:
    """What an argument is as a value: a flag in the place of one is its own text."""
    return item.value if item.role is Role.VALUE else item.spelling


def _spelling(name: str) -> str:
    return "-" + name if len(name) == 1 else _long(name)


def _long(name: str) -> str:
    return "--" + name.replace("_", "-")
