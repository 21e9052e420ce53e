"""Tool resolution: from a bare name and the manifests around it to one file (chapter 41 §B1 - §B7).

`Reef` is the port a host gives its evaluators. `resolve` is what a spawn asks, with the policy of
scripts: a constrained tool must be in the lock. The commands `which` and `reef` use `find`, which
asks the providers and makes lock entries.

What is remembered belongs to the session: the chain of a directory while its files do not change,
file hashes, probed versions, and lock entries that have no file.

Failure: `reef_unlocked`, `reef_drift`, `reef_conflict`, `reef_not_found`, `reef_provider`. A name
no scope mentions is never an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from worker.commands.lookup import find_program
from worker.commands.reef import failures, lock, views
from worker.commands.reef.constraints import Constraint, Version
from worker.commands.reef.hashes import HashCache
from worker.commands.reef.lock import LockEntry
from worker.commands.reef.manifests import (
    LOCK_NAME,
    Chain,
    Mention,
    Scope,
    Signature,
    candidates,
    discover,
    signature,
)
from worker.commands.reef.probe import VersionProbe
from worker.commands.reef.providers import Candidate, Surroundings, best, offers
from worker.commands.scripts import DEFAULT_RUNNERS
from worker.errors import Raised
from worker.values import temporal

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator
    from worker.values.types import Span

OVERRIDE_SOURCE: Final = "<with reef:>"
_CHAINS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ResolvedTool:
    """What a spawn gets: argv[0], its content hash, and the child's PATH."""

    path: str
    content_hash: str
    search_path: bytes


@dataclass(frozen=True, slots=True)
class Demand:
    """What the scopes together ask of one name. `scope` is the nearest one that mentions it."""

    constraint: Constraint
    pin: str | None
    scope: Scope


@dataclass(frozen=True, slots=True)
class Found:
    """A resolved name: the chosen candidate with its hash; `entry` when it is locked now."""

    candidate: Candidate
    content_hash: str
    entry: LockEntry | None
    fresh: bool


@dataclass(slots=True)
class View:
    """The tool scopes as one evaluator sees them at this moment."""

    scopes: tuple[Scope, ...]
    chain: Chain
    entries: dict[str, LockEntry]

    def mentions(self, name: str) -> bool:
        return any(name in scope.tools for scope in self.scopes)

    def names(self) -> list[str]:
        return sorted({name for scope in self.scopes for name in scope.tools})

    def nearest(self, name: str) -> Scope:
        return next(scope for scope in self.scopes if name in scope.tools)


@dataclass(slots=True)
class _Known:
    """The chain of one directory, valid while the signature is the same."""

    signature: Signature
    chain: Chain
    entries: dict[str, LockEntry]


class Reef:
    # `_known` holds chains by directory, `_memory` the lock entries of chains without a file, by
    # lock path or None. Both are only added to or replaced whole, by whichever evaluator looks.

    def __init__(self, user_file: str | None = None) -> None:
        self._user_file = user_file
        self._known: dict[str, _Known] = {}
        self._memory: dict[str | None, dict[str, LockEntry]] = {}
        self.hashes = HashCache()
        self.probe = VersionProbe()

    # -- what is around ------------------------------------------------------------------------

    def look(self, ev: Evaluator) -> View:
        """The scopes and lock entries that hold for an evaluator now."""
        known = self._chain(ev.cwd)
        scopes = known.chain.scopes
        if ev.reef_overrides:
            override = Scope(
                "reef",
                OVERRIDE_SOURCE,
                None,
                {name: Mention(Constraint.parse(text)) for name, text in ev.reef_overrides.items()},
            )
            scopes = (override, *scopes)
        entries = {**known.entries, **self._memory.get(known.chain.lock, {})}
        return View(scopes, known.chain, entries)

    def _chain(self, directory: str) -> _Known:
        paths = [path for path, _ in candidates(directory, self._user_file)]
        known = self._known.get(directory)
        if known is not None:
            watched = paths if known.chain.lock is None else [*paths, known.chain.lock]
            if signature(watched) == known.signature:
                return known
        chain = discover(directory, self._user_file)
        watched = paths if chain.lock is None else [*paths, chain.lock]
        before = signature(watched)
        entries = {} if chain.lock is None else lock.read(chain.lock)
        if len(self._known) >= _CHAINS_MAX:
            self._known.clear()
        self._known[directory] = _Known(before, chain, entries)
        return self._known[directory]

    def forget(self) -> None:
        """Read everything again: a manifest was edited."""
        self._known.clear()

    # -- spawning ------------------------------------------------------------------------------

    def resolve(
        self, ev: Evaluator, name: str, env: Mapping[bytes, bytes], span: Span | None
    ) -> ResolvedTool | None:
        """The tool a spawn gets for a bare name; None when no scope mentions it."""
        view = self.look(ev)
        if not view.mentions(name):
            return None
        try:
            return self._resolve(ev, view, name, env)
        except Raised as error:
            raise error.at(span) from None

    def _resolve(
        self, ev: Evaluator, view: View, name: str, env: Mapping[bytes, bytes]
    ) -> ResolvedTool:
        demand = self.demand(view, name)
        try:
            found = self._locked(view, name, demand)
            if found is None:
                if not ev.host.interactive:
                    raise failures.unlocked(name, demand.constraint)
                found = self._chosen(ev, view, name, demand)
        except Raised as error:
            if error.error.code == "reef_not_found":
                raise _missing_at_spawn(ev, name, demand, env, error) from None
            raise
        if found.fresh and found.entry is not None:
            self._lock_at_spawn(ev, view, found.entry)
        bindings = {tool: entry.path for tool, entry in view.entries.items()}
        bindings[name] = found.candidate.path
        try:
            folder = os.fsencode(views.view(bindings, env))
        except OSError as error:
            raise failures.provider_failure(f"synthesizing PATH: {error}") from None
        before = env.get(b"PATH", b"")
        hermetic = any(scope.hermetic for scope in view.scopes) or not before
        search_path = folder if hermetic else folder + b":" + before
        return ResolvedTool(found.candidate.path, found.content_hash, search_path)

    def _lock_at_spawn(self, ev: Evaluator, view: View, entry: LockEntry) -> None:
        try:
            self.save(view, [entry])
        except Raised as error:
            ev.host.stderr_note(f"reef: {failures.as_note(error)}")
        else:
            ev.host.stderr_note(
                f"reef: locked {entry.name}@{entry.version} via {entry.provider} ({entry.path})"
            )

    # -- deciding ------------------------------------------------------------------------------

    def demand(self, view: View, name: str) -> Demand:
        """Constraint and provider of a mentioned name over all scopes; raises reef_conflict."""
        nearest = view.nearest(name)
        constraint, pin = nearest.tools[name].constraint, nearest.tools[name].provider
        giver = nearest
        for scope in view.scopes[view.scopes.index(nearest) + 1 :]:
            mention = scope.tools.get(name)
            if mention is None:
                continue
            if not constraint.compatible(mention.constraint):
                raise failures.reef_error(
                    "reef_conflict",
                    f"{name}: {giver.kind} ({constraint}) is incompatible with "
                    f"{scope.kind} ({mention.constraint})",
                    f"reconcile {giver.source} and {scope.source}",
                )
            if mention.provider is not None:
                if pin is not None and pin != mention.provider:
                    raise failures.reef_error(
                        "reef_conflict",
                        f"{name}: provider pinned to both {pin} and {mention.provider}",
                    )
                pin = mention.provider
            if mention.constraint.more_specific_than(constraint):
                constraint, giver = mention.constraint, scope
        return Demand(constraint, pin, nearest)

    def find(self, ev: Evaluator, view: View, name: str) -> Found:
        """Resolve with the policy of people: the lock if it serves, else the providers."""
        if not view.mentions(name):
            chosen = best(offers(name, _around(ev)))
            if chosen is None:
                raise failures.no_candidate(name, "*")
            return Found(chosen, self._hash(chosen.path), None, False)
        demand = self.demand(view, name)
        return self._locked(view, name, demand) or self._chosen(ev, view, name, demand)

    def _locked(self, view: View, name: str, demand: Demand) -> Found | None:
        entry = view.entries.get(name)
        if entry is None or (demand.pin is not None and entry.provider != demand.pin):
            return None
        version = Version.parse(entry.version)
        if not demand.constraint.accepts(version):
            return None
        try:
            found = self.hashes.content_hash(entry.path)
        except OSError:
            raise failures.locked_file_unreadable(name, demand.constraint) from None
        if found != entry.blake3:
            raise failures.drift(name, found, entry.blake3)
        return Found(Candidate(entry.provider, entry.path, version), found, entry, False)

    def _chosen(self, ev: Evaluator, view: View, name: str, demand: Demand) -> Found:
        chosen = self.choose(ev, name, demand)
        if chosen is None:
            raise failures.no_candidate(name, demand.constraint)
        content_hash = self._hash(chosen.path)
        entry = LockEntry(
            name,
            str(chosen.version),
            chosen.provider,
            chosen.path,
            content_hash,
            temporal.rfc3339(ev.host.clock.now_ns() // 10**9 * 10**9),
        )
        return Found(chosen, content_hash, entry, True)

    def choose(self, ev: Evaluator, name: str, demand: Demand) -> Candidate | None:
        """The best candidate that satisfies the demand, versions filled in where needed."""
        found: list[Candidate] = []
        for candidate in offers(name, _around(ev), demand.pin):
            if demand.constraint.needs_version and candidate.provider == "system":
                version = Version.parse(self.probe.version(ev, candidate.path))
                candidate = Candidate("system", candidate.path, version, candidate.ambient)
            if demand.constraint.accepts(candidate.version):
                found.append(candidate)
        return best(found)

    def _hash(self, path: str) -> str:
        try:
            return self.hashes.content_hash(path)
        except OSError as error:
            raise failures.hashing_failure(path, error) from None

    # -- locking -------------------------------------------------------------------------------

    def remember(self, view: View, entries: Iterable[LockEntry]) -> None:
        """Keep entries for the session without writing them."""
        kept = dict(self._memory.get(view.chain.lock, {}))
        kept.update((entry.name, entry) for entry in entries)
        self._memory[view.chain.lock] = kept
        view.entries.update(kept)

    def drop(self, view: View, names: Iterable[str]) -> None:
        """Take entries out, so that the next look resolves them afresh; the file is not written."""
        kept = dict(self._memory.get(view.chain.lock, {}))
        for name in names:
            view.entries.pop(name, None)
            kept.pop(name, None)
        self._memory[view.chain.lock] = kept

    def save(self, view: View, entries: Iterable[LockEntry]) -> None:
        """Put entries into the lock file, or into memory when there is none.

        Raises reef_provider when the file cannot be written.
        """
        self.remember(view, entries)
        path = view.chain.lock
        if path is None:
            return
        try:
            lock.write(path, view.entries)
        except OSError as error:
            raise failures.provider_failure(f"writing lock {path}: {error}") from None
        # What is in the file now need not be remembered, and may be changed by others.
        self._memory.pop(path, None)
        self.forget()

    # -- runners and the session's picture -------------------------------------------------------

    def runners(self, ev: Evaluator) -> dict[str, list[str]] | None:
        """The runner table of the active scopes; None when none is active."""
        scopes = self.look(ev).scopes
        if not scopes:
            return None
        table = dict(DEFAULT_RUNNERS)
        for scope in reversed(scopes):
            table.update(scope.runners)
        return table

    def snapshot(self, ev: Evaluator) -> dict[str, Any]:
        """The picture of `session.reef` (chapter 41 §B9): no provider, probe or hash is asked."""
        known = self._chain(ev.cwd)
        view = View(known.chain.scopes, known.chain, known.entries)
        bindings = []
        for name in view.names():
            entry = view.entries.get(name)
            bindings.append(
                {
                    "tool": name,
                    "version": None if entry is None else entry.version,
                    "provider": None if entry is None else entry.provider,
                    "scope": view.nearest(name).kind,
                    "constrained": True,
                }
            )
        first = view.scopes[0] if view.scopes else None
        active = None if first is None else first.file or first.kind
        return {"active_scope": active, "bindings": bindings}


def _around(ev: Evaluator) -> Surroundings:
    return Surroundings(ev.cwd, ev.env)


def _missing_at_spawn(
    ev: Evaluator, name: str, demand: Demand, env: Mapping[bytes, bytes], error: Raised
) -> Raised:
    message = f"`{name}` is constrained ({demand.constraint}) but not installed — reef fetch {name}"
    ambient = find_program(name, env, ev.cwd)
    if ambient is not None:
        message += f" (found in ambient PATH at {ambient} but shadowed by project reef)"
    return failures.reef_error("reef_not_found", message, error.error.hint)


__all__ = ["LOCK_NAME", "OVERRIDE_SOURCE", "Demand", "Found", "Reef", "ResolvedTool", "View"]
