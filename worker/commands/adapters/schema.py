"""One declared command: what a `[cmd.NAME]` table may say (chapter 41 §A3).

Failure: `read_command` raises Unusable with the reason, and the whole command is dropped. Unknown
keys are ignored; a key with a value of another type counts as absent, except where that is a reason
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from worker.commands.adapters.parsers import PARSERS

T = TypeVar("T")

CLASSES: Final = ("cli", "tui", "daemon", "interpreter")
INTERPRETER: Final = "interpreter"
TERMINAL: Final = "tui"
PAYLOADS: Final = ("arg", "stdin")
PARAMETER_TYPES: Final = frozenset(
    ("str", "bool", "int", "float", "path", "glob", "size", "size_kb", "duration", "time")
)
OK_CODES: Final = (0,)
Table = Mapping[str, Any]


class Unusable(Exception):
    """The declaration cannot be used; the text is the reason of the warning."""


@dataclass(frozen=True, slots=True)
class Specification:
    """What one subcommand, or the command without one, takes and gives. `params` maps names to
    declared types; `ok_codes` None means those of the command."""

    params: dict[str, str] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    short_flags: dict[str, str] = field(default_factory=dict)
    invoke: tuple[str, ...] | None = None
    consumed: frozenset[str] = frozenset()
    parser: str = "none"
    hint: str | None = None
    effects: tuple[str, ...] = ()
    ok_codes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One declared command."""

    head: str
    bin: str
    command_class: str
    ok_codes: tuple[int, ...]
    invoke_payload: str
    top: Specification
    subcommands: dict[str, Specification]


def base_type(declared: str) -> str:
    """A declared type without the mark of an optional parameter."""
    return declared.strip().removesuffix("?").strip()


def read_command(head: str, table: Any) -> Command:
    """The command of a `[cmd.HEAD]` table. Raises Unusable."""
    if not isinstance(table, dict):
        raise Unusable("must be a table")
    command_class = _text(table, "class")
    if command_class is not None and command_class not in CLASSES:
        raise Unusable(f'unknown class "{command_class}"')
    command_class = command_class or CLASSES[0]
    payload = _text(table, "invoke_payload")
    if payload is not None and payload not in PAYLOADS:
        raise Unusable(f'unknown invoke_payload "{payload}"')
    if payload is not None and command_class != INTERPRETER:
        raise Unusable('invoke_payload may only be declared on a class = "interpreter" adapter')
    top = _specification(table)
    subcommands = {}
    for name, sub in _table(table, "sub").items():
        if not isinstance(sub, dict):
            raise Unusable("subcommand must be a table")
        subcommands[name] = _specification(sub)
    return Command(
        head=head,
        bin=_text(table, "bin") or head,
        command_class=command_class,
        ok_codes=OK_CODES if top.ok_codes is None else top.ok_codes,
        invoke_payload=payload or PAYLOADS[0],
        top=top,
        subcommands=subcommands,
    )


def _specification(table: Table) -> Specification:
    params = _table(table, "params")
    for declared in params.values():
        if not isinstance(declared, str):
            raise Unusable("parameter type must be a string")
        if not _known_type(declared):
            raise Unusable(f'unknown parameter type "{declared}"')
    positional = _list(table, "positional", str) or ()
    for name in positional:
        if name not in params:
            raise Unusable(f'positional parameter "{name}" is not declared in params')
    short = _table(_table(table, "flags"), "short")
    for target in short.values():
        if not isinstance(target, str):
            raise Unusable("short flag target must be a string")
        if target not in params:
            raise Unusable(f'short flag targets undeclared parameter "{target}"')
    consumed = _list(table, "consumed", str) or ()
    for name in consumed:
        if name not in params:
            raise Unusable(f'consumed names undeclared parameter "{name}"')
    output = _table(table, "output")
    parser = _text(output, "parse") or "none"
    if parser not in PARSERS:
        raise Unusable(f'unknown output parser "{parser}"')
    return Specification(
        params=dict(params),
        positional=positional,
        short_flags=dict(short),
        invoke=_list(table, "invoke", str),
        consumed=frozenset(consumed),
        parser=parser,
        hint=_text(output, "type"),
        effects=_list(table, "effects", str) or (),
        ok_codes=_list(table, "ok_codes", int),
    )


def _known_type(declared: str) -> bool:
    name = base_type(declared)
    if name.startswith("list<") and name.endswith(">"):
        name = base_type(name.removeprefix("list<").removesuffix(">"))
    return name in PARAMETER_TYPES


def _text(table: Table, key: str) -> str | None:
    value = table.get(key)
    return value if isinstance(value, str) else None


def _table(table: Table, key: str) -> Table:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _list(table: Table, key: str, kind: type[T]) -> tuple[T, ...] | None:
    """A list of values of exactly one type; anything else counts as absent."""
    value = table.get(key)
    if not isinstance(value, list) or any(type(item) is not kind for item in value):
        return None
    return tuple(value)
