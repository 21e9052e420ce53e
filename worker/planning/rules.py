"""What the declared rules of a builtin give with known arguments (chapter 50 §4.6).

A builtin declares its effects as rules over its arguments (worker.builtins.effects); here rules and
known arguments become effects. Flags are ignored for paths, a lone `-` is no path.

Failure: `arg_error` from a strict walk for a path that is not known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from leash.effects import (
    ANY,
    FS_DELETE,
    FS_KINDS,
    NAME_KINDS,
    PORT_MAX,
    Effect,
    connect,
    names,
    normal_path,
    unit,
)
from leash.plan import IRREVERSIBLE
from worker.builtins.effects import Operands, Rule, Rules
from worker.planning.known import DYNAMIC, Known
from worker.planning.looks import WILDCARDS, leading_directory
from worker.planning.operands import Operand, has_flag, values_of
from worker.planning.walk import Walk
from worker.values.types import Glob, Path, Value

HTTPS_PORT: Final = 443
HTTP_PORT: Final = 80
_DIGITS: Final = re.compile(r"[0-9]+")

Paths = list[str] | None


class _Call:
    """The arguments of one call that rules look at; paths are worked out once."""

    def __init__(self, walk: Walk, operands: Sequence[Operand]) -> None:
        self.walk = walk
        self.operands = operands
        self.values = [operand for operand in values_of(operands) if not operand.dash]
        self._places: list[Paths] | None = None

    @property
    def places(self) -> list[Paths]:
        """The paths of each value, globs expanded, without globs that match nothing."""
        if self._places is None:
            found = [self.walk.places(operand.known) for operand in self.values]
            self._places = [paths for paths in found if paths != []]
        return self._places

    def all_paths(self) -> Paths:
        return joined(self.places)

    def cwd(self) -> Paths:
        return None if self.walk.cwd is None else [normal_path(self.walk.cwd)]

    def nth(self, index: int) -> Paths:
        return self.places[index] if index < len(self.places) else []

    def ends(self) -> tuple[list[Paths], Paths] | None:
        """Sources, and the alternatives of the destination; None when there are too few paths."""
        if not self.places:
            return None
        *sources, last = self.places
        if last is not None and any(type(v) is Glob for v in self.values[-1].known or ()):
            # The matches are arguments of their own: the last of them is the destination.
            sources = [*sources, last[:-1]] if len(last) > 1 else sources
            last = last[-1:]
        return (sources, last) if sources else None


def joined(parts: Iterable[Paths]) -> Paths:
    """All paths in a row; None when some are not known."""
    found: list[str] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found


def _sources(call: _Call) -> Paths:
    ends = call.ends()
    return joined(ends[0]) if ends is not None else None


def _targets(call: _Call) -> Paths:
    ends = call.ends()
    if ends is None or ends[1] is None:
        return None
    sources, destinations = ends[0], ends[1]
    found: list[str] = []
    for destination in destinations:
        inside = call.walk.looks.is_directory(destination)
        names_known = joined(sources) if inside else [destination]
        if inside is None or names_known is None:
            return None
        found += (
            [os.path.join(destination, os.path.basename(source)) for source in names_known]
            if inside
            else names_known
        )
    return found


_PATHS: Final[dict[Operands, Callable[[_Call], Paths]]] = {
    Operands.PATHS: _Call.all_paths,
    Operands.PATHS_OR_CWD: lambda call: call.all_paths() if call.places else call.cwd(),
    Operands.FIRST: lambda call: call.nth(0),
    Operands.FIRST_OR_CWD: lambda call: call.nth(0) if call.places else call.cwd(),
    Operands.SECOND: lambda call: call.nth(1),
    Operands.SOURCES: _sources,
    Operands.TARGETS: _targets,
}
_NEEDS_TWO: Final = frozenset((Operands.SOURCES, Operands.TARGETS))


def apply_rules(walk: Walk, rules: Rules, operands: Sequence[Operand]) -> None:
    """The effects that declared rules give with these arguments. Rules about programs found
    elsewhere are the caller's."""
    call = _Call(walk, operands)
    if any(rule.operands in _NEEDS_TWO for rule in rules) and call.ends() is None:
        walk.opaque()
        return
    for rule in rules:
        if not (rule.unless_flags and has_flag(operands, rule.unless_flags)):
            _apply(call, rule)


def _apply(call: _Call, rule: Rule) -> None:
    walk = call.walk
    if rule.kind in FS_KINDS:
        paths = _PATHS[rule.operands](call)
        if paths is None:
            walk.dynamic_path()
        elif rule.kind == FS_DELETE or rule.operands is Operands.SOURCES:
            walk.measured.update(dict.fromkeys(paths))
        for_good = rule.irreversible_flags and has_flag(call.operands, rule.irreversible_flags)
        walk.add_files(rule.kind, paths, IRREVERSIBLE if for_good else None)
    elif rule.kind in NAME_KINDS:
        walk.add(names(rule.kind, rule.names or _name(call)))
    elif rule.kind == "net_connect":
        for effect in _connections(call):
            walk.add(effect)
    else:
        walk.add(unit(rule.kind))


def _name(call: _Call) -> list[str]:
    known = call.values[0].known if call.values else DYNAMIC
    if known is None or not all(type(value) is str for value in known):
        return [ANY]
    return list(known)


def _connections(call: _Call) -> list[Effect]:
    known = call.values[0].known if call.values else DYNAMIC
    if known is None or not all(type(value) in (str, Path) for value in known):
        return [connect(ANY, HTTPS_PORT)]
    return [connect(*host_and_port(text_of(value))) for value in known]


def text_of(value: Value) -> str:
    return value.display if type(value) is Path else str(value)


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of a URL by its text alone (chapter 50 §4.7)."""
    rest = url.partition("://")[2] if "://" in url else url
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    host, colon, port = authority.rpartition(":")
    if colon and _DIGITS.fullmatch(port) and int(port) <= PORT_MAX:
        return host, int(port)
    return authority, HTTPS_PORT if url.startswith("https") else HTTP_PORT


def watched(walk: Walk, known: Known, *, patterns: bool) -> Paths:
    """What `watch` and `tail` look at: paths, and for a glob its concrete leading directory. With
    `patterns` a text with wildcards is a glob, as `watch` takes it."""
    if known is None:
        return None
    return joined(_watched(walk, value, patterns) for value in known)


def _watched(walk: Walk, value: Value, patterns: bool) -> Paths:
    if type(value) is Glob:
        return [leading_directory(value)]
    if patterns and type(value) is str and not WILDCARDS.isdisjoint(value):
        if walk.cwd is None and not value.startswith("/"):
            return None
        return [leading_directory(Glob(value, walk.cwd or "/"))]
    return walk.places((value,))
