"""What an adapter-described program contributes (chapter 50 §4.8).

An adapter declares effect templates per specification; `$NAME` in one stands for what the arguments
bind to a parameter. The program itself is a `proc_spawn` with its content hash.

Failure: none; what a template cannot be bound to is `opaque`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from leash.effects import (
    FS_KINDS,
    NAME_KINDS,
    PORT_MAX,
    connect,
    listen,
    names,
    request_kind,
    spawn,
)
from worker.commands.site import expand_home
from worker.planning.known import DYNAMIC, Known, union
from worker.planning.looks import leading_directory
from worker.planning.operands import LONG, Operand
from worker.planning.rules import HTTPS_PORT, host_and_port, text_of
from worker.planning.walk import Walk
from worker.values.types import Glob, Path, Value

_TEMPLATE: Final = re.compile(r"\s*([A-Za-z_.]+)\((.*)\)\s*", re.DOTALL)
_DIGITS: Final = re.compile(r"[0-9]+")
_INTERPRETER: Final = "interpreter"
_TRANSLATED: Final = frozenset((*FS_KINDS, *NAME_KINDS, "net_connect", "net_listen"))


class Specification(Protocol):
    """Parameters and effects of an adapter's top level or of one subcommand."""

    @property
    def params(self) -> Mapping[str, str]: ...
    @property
    def positional(self) -> Sequence[str]: ...
    @property
    def effects(self) -> Sequence[str]: ...


class Adapter(Protocol):
    """An adapted command: the program, its class, and its specifications."""

    @property
    def bin(self) -> str: ...
    @property
    def command_class(self) -> str: ...
    @property
    def subcommands(self) -> Mapping[str, Specification]: ...
    @property
    def top(self) -> Specification: ...


def adapted(walk: Walk, adapter: Adapter, operands: Sequence[Operand]) -> None:
    """The declared effects, then the start of the program."""
    rest = list(operands)
    specification = adapter.top
    if rest and not rest[0].flag and rest[0].text is not None:
        found = adapter.subcommands.get(rest[0].text)
        if found is not None:
            specification, rest = found, rest[1:]
    bound = bindings(specification, rest)
    for template in specification.effects:
        _template(walk, template, bound)
    walk.add(spawn(walk.looks.program_hash(adapter.bin), adapter.bin))
    if adapter.command_class == _INTERPRETER:
        walk.opaque()


def bindings(specification: Specification, operands: Sequence[Operand]) -> dict[str, list[Known]]:
    """What the arguments bind to each parameter."""
    found: dict[str, list[Known]] = {}
    positional = iter(specification.positional)
    waiting: str | None = None
    for operand in operands:
        if operand.flag == LONG and operand.name:
            name = operand.name.replace("-", "_")
            declared = specification.params.get(name)
            waiting = None
            if declared is None or declared.strip().removesuffix("?").strip() == "bool":
                continue
            if operand.given:
                found.setdefault(name, []).append(operand.known)
            else:
                waiting = name
        elif not operand.flag:
            target = waiting if waiting is not None else next(positional, None)
            waiting = None
            if target is not None:
                found.setdefault(target, []).append(operand.known)
    return found


def _template(walk: Walk, template: str, bound: Mapping[str, list[Known]]) -> None:
    match = _TEMPLATE.fullmatch(template)
    kind = request_kind(match[1]) if match is not None else ""
    if match is None or kind not in _TRANSLATED:
        return
    known = _operand(walk, kind, match[2].strip(), bound)
    if known is None:
        walk.opaque()
    elif kind in FS_KINDS:
        walk.add_files(kind, _paths(walk, known))
    elif kind in NAME_KINDS:
        walk.add(names(kind, [text_of(value) for value in known]))
    elif kind == "net_connect":
        for value in known:
            walk.add(connect(*_host(text_of(value))))
    else:
        for value in known:
            _listen(walk, text_of(value))


def _operand(walk: Walk, kind: str, arg: str, bound: Mapping[str, list[Known]]) -> Known:
    if arg == "cwd" or arg.startswith("cwd/"):
        return DYNAMIC if walk.cwd is None else (Path(os.path.join(walk.cwd, arg[4:])),)
    if arg.startswith("$"):
        return union(bound.get(arg[1:], []))
    return (Path(expand_home(walk.ev, arg)) if kind in FS_KINDS else arg,)


def _paths(walk: Walk, known: tuple[Value, ...]) -> list[str] | None:
    """Paths of file effects; a glob the program gets unexpanded is its leading directory."""
    found: list[str] = []
    for value in known:
        place = leading_directory(value) if type(value) is Glob else walk.place(value)
        if place is None:
            return None
        found.append(place)
    return found


def _host(text: str) -> tuple[str, int]:
    if "://" in text:
        return host_and_port(text)
    host, colon, port = text.rpartition(":")
    if colon and _DIGITS.fullmatch(port) and int(port) <= PORT_MAX:
        return host, int(port)
    return text, HTTPS_PORT


def _listen(walk: Walk, text: str) -> None:
    if _DIGITS.fullmatch(text) and int(text) <= PORT_MAX:
        walk.add(listen(int(text)))
    else:
        walk.opaque()
