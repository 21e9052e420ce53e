"""The grammar of command lines: what a command takes, and reading it.

Rules for every command: `--name value` or `--name=value`; options and operands may mix; `--` ends
the options; a lone `-` is an operand. A command either has operands or subcommands; options of a
command count for all its subcommands and may stand anywhere (chapter 81, section 1).

The declarations are data: help, completion scripts and the reference page are made from them.

Failure: `parse` raises UsageError for an unknown option, a missing or bad value, a missing or
surplus operand, and HelpAsked for `-h` and `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Reader = Callable[[str], object]


class UsageError(Exception):
    """A command line that does not fit the command; exit 2, with the usage."""

    def __init__(self, message: str, command: Command | None = None) -> None:
        super().__init__(message)
        self.command = command


class HelpAsked(Exception):
    """`-h` or `--help` was given."""

    def __init__(self, command: Command) -> None:
        super().__init__()
        self.command = command


@dataclass(frozen=True)
class Option:
    """One option. Without `value` it is a flag; with it, that is the word help shows."""

    name: str
    help: str
    value: str = ""
    read: Reader = str
    repeat: bool = False
    # Other spellings, for example a short one.
    aliases: tuple[str, ...] = ()
    # Text of the message when the value is missing.
    missing: str = ""
    # Key of the value, where the name alone would be ambiguous.
    dest: str = ""

    @property
    def key(self) -> str:
        return self.dest or self.name.lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class Operand:
    """One operand. `many` takes all that follow; `rest` also takes what looks like an option."""

    name: str
    help: str
    required: bool = True
    many: bool = False
    rest: bool = False
    missing: str = ""


@dataclass(frozen=True)
class Command:
    """A command: how it is called and what runs it.

    `run` names a function as `module:function`, so that a command costs nothing until it is used.
    It takes a `Call` and returns the exit code.
    """

    name: str
    summary: str
    run: str = ""
    options: tuple[Option, ...] = ()
    operands: tuple[Operand, ...] = ()
    commands: tuple[Command, ...] = ()
    # Subcommand that is meant when none is named.
    default: str = ""
    # Subcommand that a word which names none is the first operand of.
    implied: str = ""
    # Longer text for help: what it is for, with examples.
    about: str = ""
    # What stands in front of failures; absent: `shoal <name>`.
    prefix: str = ""
    # Texts where the usual ones do not fit, with {} for the word at fault.
    unknown_option: str = "unknown option {}"
    unknown_command: str = "unknown command {}"
    path: str = ""

    def sub(self, name: str) -> Command | None:
        return next((command for command in self.commands if command.name == name), None)


@dataclass
class Arguments:
    """What a command line said: option values by key, and the operands in order."""

    command: Command
    values: dict[str, Any] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)

    def flag(self, key: str) -> bool:
        return bool(self.values.get(key))

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        return None if value is None else str(value)

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        return None if value is None else int(value)

    def many(self, key: str) -> list[str]:
        return list(self.values.get(key, ()))


HELP = Option("--help", "print this text and exit", aliases=("-h",))


class _Line:
    """One command line being read, word by word from the left."""

    # The command so far (it goes down as subcommand words come), the options that count there, and
    # what was found. `_at` is the index of the next word.
    def __init__(self, command: Command, words: Sequence[str]) -> None:
        self._command = command
        self._known: dict[str, Option] = {}
        self._words = words
        self._at = 0
        self.found = Arguments(command)
        self._enter(command)

    def _enter(self, command: Command) -> None:
        self._command = self.found.command = command
        for option in (*command.options, HELP):
            for name in (option.name, *option.aliases):
                self._known[name] = option

    def read(self) -> Arguments:
        only_operands = False
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if only_operands or not word.startswith("-") or word == "-":
                if self._descends(word):
                    continue
                self.found.operands.append(word)
                only_operands = only_operands or self._ends_options()
            elif word == "--":
                only_operands = True
            else:
                self._option(word)
        self._settle()
        return self.found

    def _descends(self, word: str) -> bool:
        if not self._command.commands:
            return False
        sub = self._command.sub(word)
        if sub is not None:
            self._enter(sub)
            return True
        implied = self._command.sub(self._command.implied)
        if implied is None:
            raise self._error(self._command.unknown_command.format(word))
        self._enter(implied)
        return False

    def _ends_options(self) -> bool:
        operands = self._command.operands
        place = min(len(self.found.operands), len(operands)) - 1
        return place >= 0 and operands[place].rest

    def _option(self, word: str) -> None:
        name, given, attached = word.partition("=")
        option = self._known.get(name)
        default = self._command.sub(self._command.default)
        if option is None and default is not None:
            # An option of the default subcommand stands for its name.
            self._enter(default)
            option = self._known.get(name)
        if option is None:
            raise self._error(self._command.unknown_option.format(name))
        if option is HELP:
            raise HelpAsked(self._command)
        if not option.value:
            if given:
                raise self._error(f"{name} takes no value")
            self.found.values[option.key] = True
            return
        text = attached if given else self._next_word(option, name)
        try:
            value = option.read(text)
        except ValueError as error:
            raise self._error(str(error) if option.missing else f"{name}: {error}") from error
        if option.repeat:
            self.found.values.setdefault(option.key, []).append(value)
        else:
            self.found.values[option.key] = value

    def _next_word(self, option: Option, name: str) -> str:
        if self._at == len(self._words):
            raise self._error(option.missing or f"{name} requires a value")
        self._at += 1
        return self._words[self._at - 1]

    def _settle(self) -> None:
        command = self._command
        if command.commands:
            sub = command.sub(command.default)
            if sub is None:
                names = "|".join(each.name for each in command.commands)
                own = command.unknown_command
                raise self._error(f"which one: {names}?" if "{}" in own else own)
            self._enter(sub)
            command = sub
        given = len(self.found.operands)
        for place, operand in enumerate(command.operands):
            if operand.required and place >= given:
                raise self._error(operand.missing or f"{operand.name} is missing")
        if given > len(command.operands) and not any(each.many for each in command.operands):
            surplus = self.found.operands[len(command.operands)]
            raise self._error(f"unexpected operand `{surplus}`")

    def _error(self, message: str) -> UsageError:
        return UsageError(message, self._command)


def parse(command: Command, words: Sequence[str]) -> Arguments:
    """Read the words after a command's name. Raises UsageError or HelpAsked."""
    return _Line(command, words).read()
