"""The configuration file of the agent endpoint: read, staged, checked, saved, published.

A writer takes the lock, stages its changes on a copy of the document, has the whole checked, and
publishes the new tree only when the file is on disk under its name. The document keeps comments and
order. Variables `SHOAL_CFG_<PATH>` override properties when read and are never written back.

Acts that must not fall between a check and a change of policy hold the lock shared.

Failure: `Violation` for a candidate that is invalid, `OSError` for a file that cannot be written;
file and live tree stay as they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Item, Table

from supervisor.agent.config_schema import (
    MAP_SECTIONS,
    UnknownProp,
    ValueRefused,
    coerce,
    find,
    split,
)
from supervisor.agent.settings import Settings, Violation, check

log = structlog.get_logger()

OVERRIDE_PREFIX: Final = "SHOAL_CFG_"


class SharedLock:
    # `_readers` counts shared holders, `_writing` is the exclusive one; `_changed` wakes waiters.
    # Writers that wait keep new readers out, so neither starves.

    def __init__(self) -> None:
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._writing and not self._writers_waiting)
            self._readers += 1
        try:
            yield
        finally:
            async with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._changed:
            self._writers_waiting += 1
            try:
                await self._changed.wait_for(lambda: not self._writing and self._readers == 0)
                self._writing = True
            finally:
                self._writers_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            async with self._changed:
                self._writing = False
                self._changed.notify_all()


class Candidate:
    """A copy of the document with staged changes."""

    def __init__(self, text: str) -> None:
        self.document = tomlkit.parse(text)

    def tree(self) -> dict[str, Any]:
        return dict(self.document.unwrap())

    def set(self, parts: tuple[str, ...], value: Any, comment: str | None = None) -> None:
        """Put a checked value at a path; the tables on the way are made."""
        table: Any = self.document
        for depth, part in enumerate(parts[:-1]):
            if part not in table:
                table[part] = tomlkit.table(is_super_table=depth < len(parts) - 2)
            table = table[part]
        table[parts[-1]] = value
        if comment:
            _comment_above(table, parts[-1], comment)

    def reset(self, parts: tuple[str, ...]) -> bool:
        """Remove a key, with all below it; whether it was there."""
        table: Any = self.document
        for part in parts[:-1]:
            if part not in table:
                return False
            table = table[part]
        if parts[-1] not in table:
            return False
        table.remove(parts[-1])
        return True

    def create(self, section: str, key: str) -> bool:
        """Make an empty map entry; False when it exists."""
        if section not in self.document:
            self.document[section] = tomlkit.table(is_super_table=True)
        table: Any = self.document[section]
        if key in table:
            return False
        table[key] = tomlkit.table()
        return True

    def text(self) -> str:
        return tomlkit.dumps(self.document)


def _comment_above(table: Any, key: str, comment: str) -> None:
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    item = table.value.item(key) if isinstance(table, Table) else table.item(key)
    assert isinstance(item, Item)
    item.trivia.indent = "\n".join(lines) + "\n" + item.trivia.indent.rpartition("\n")[2]


class ConfigStore:
    # `_text` is the document on disk as last read or written, `tree` its plain form, `effective`
    # the same with overrides, `settings` what the endpoint goes by. They change together in
    # `_publish`, which also raises `generation`. `authorization_invalid` stays until a restart.

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.path = path
        self.lock = SharedLock()
        self.generation = 0
        self.settings = Settings()
        self.tree: dict[str, Any] = {}
        self.effective: dict[str, Any] = {}
        self.overridden: dict[str, Any] = {}
        self.on_disk = False
        self.authorization_invalid: str | None = None
        self.reload_failed: str | None = None
        self._environ = environ
        self._text = ""

    # -- reading -----------------------------------------------------------------------------------

    def load_at_start(self) -> None:
        """Read the file; what is invalid leaves the defaults, and authorization locked."""
        try:
            text = self._read()
            tree = _plain(text)
            settings = self._checked(tree)
        except (Violation, OSError) as error:
            violation = error if isinstance(error, Violation) else Violation("", str(error))
            log.error("agent.config", err=str(violation))
            if violation.authorization or not violation.section:
                self.authorization_invalid = str(violation)
            self.reload_failed = str(violation)
            with contextlib.suppress(Violation, OSError):
                # The document stays editable: a repair through the file keeps what is in it.
                self._text = self._read()
                self.tree = _plain(self._text)
            self.effective = {}
            return
        self._publish(text, tree, settings)

    def reload(self) -> None:
        """Read the file again. Raises Violation or OSError; the former tree stays then."""
        try:
            text = self._read()
            tree = _plain(text)
            settings = self._checked(tree)
        except (Violation, OSError) as error:
            self.reload_failed = str(error)
            raise
        self.reload_failed = None
        self._publish(text, tree, settings)

    def validate(self) -> str | None:
        """What is wrong with the live tree, or with the file when it was changed outside."""
        try:
            text = self._read()
            self._checked(_plain(text) if text != self._text else self.tree)
        except (Violation, OSError) as error:
            return str(error)
        return None

    def _read(self) -> str:
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            self.on_disk = False
            return ""
        except UnicodeDecodeError:
            raise Violation("", f"{self.path}: not UTF-8") from None
        self.on_disk = True
        return text

    def _checked(self, tree: dict[str, Any]) -> Settings:
        check(tree)
        return check(self._with_overrides(tree))

    def _publish(self, text: str, tree: dict[str, Any], settings: Settings) -> None:
        self._text, self.tree, self.settings = text, tree, settings
        self.effective = self._with_overrides(tree)
        self.generation += 1

    def _with_overrides(self, tree: dict[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(tree))
        self.overridden = {}
        for name, text in self._environ.items():
            if not name.startswith(OVERRIDE_PREFIX):
                continue
            try:
                parts = _override_parts(name[len(OVERRIDE_PREFIX) :], tree)
                path = ".".join(parts)
                value = coerce(find(path)[1], path, text)
            except (UnknownProp, ValueRefused) as error:
                log.warning("agent.config", variable=name, err=str(error))
                continue
            place = merged
            for part in parts[:-1]:
                place = place.setdefault(part, {})
            place[parts[-1]] = value
            self.overridden[path] = value
        return merged

    def value(self, parts: tuple[str, ...]) -> Any:
        """The effective value at a path of the tree, None when unset."""
        place: Any = self.effective
        for part in parts:
            if type(place) is not dict or part not in place:
                return None
            place = place[part]
        return place

    def keys(self, section: str) -> list[str]:
        return sorted(self.effective.get(section, {}))

    # -- writing -----------------------------------------------------------------------------------

    def stage(self) -> Candidate:
        """A candidate of the live document; the lock must be held."""
        return Candidate(self._text)

    async def commit(self, candidate: Candidate) -> None:
        """Check, save and publish. Raises Violation or OSError."""
        tree, text = candidate.tree(), candidate.text()
        settings = self._checked(tree)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, _write_durably, self.path, text)
        self.on_disk = True
        self._publish(text, tree, settings)


def _plain(text: str) -> dict[str, Any]:
    try:
        tree = dict(tomlkit.parse(text).unwrap())
        # TOML has dates; no property takes one, so only JSON's kinds may pass.
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(tree))
    except (TOMLKitError, TypeError) as error:
        raise Violation("", f"config.toml: {error}") from None
    return found


def _override_parts(name: str, tree: dict[str, Any]) -> tuple[str, ...]:
    """The path a variable means: case does not count, an existing map key keeps its own."""
    parts = name.split("__")
    lowered = [part.lower() for part in parts]
    if len(parts) > 1 and lowered[0] in MAP_SECTIONS:
        known = {key.lower(): key for key in tree.get(lowered[0], {})}
        lowered[1] = known.get(lowered[1], lowered[1])
    return split(".".join(lowered))


def _write_durably(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
