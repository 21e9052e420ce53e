"""The manifests above a directory and the scopes they form (chapter 41 §B2).

From the directory up to the root every folder may have a native file, files of mise and of asdf; a
user file of the host comes last. Each file that names a tool, a runner or an option is a `Scope`;
the list is nearest first.

Failure: an unreadable or malformed file forms no scope and is reported in `Chain.malformed`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from worker.commands.reef.constraints import Constraint

NATIVE: Final = ".reef.toml"
LOCK_NAME: Final = "reef.lock"

# Names in the order they are looked for in one folder, with their kind labels.
_FILES: Final = (
    (NATIVE, "reef"),
    ("mise.toml", "mise"),
    (".mise.toml", "mise"),
    (".tool-versions", "tool-versions"),
)
USER_KIND: Final = "user"

# Enough for any manifest; a larger file is not read.
MANIFEST_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mention:
    constraint: Constraint
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What one manifest says. `source` is its path or `<with reef:>`; `file` None for that."""

    kind: str
    source: str
    file: str | None
    tools: Mapping[str, Mention] = field(default_factory=dict)
    runners: Mapping[str, list[str]] = field(default_factory=dict)
    hermetic: bool = False
    has_options: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """The scopes of a directory, nearest first; `lock` is where its lock file belongs, if any."""

    scopes: tuple[Scope, ...]
    malformed: tuple[tuple[str, str], ...]
    lock: str | None


# (device, inode, size, mtime_ns) of each candidate file that exists.
Signature = tuple[tuple[str, int, int, int, int], ...]


def user_file(environ: Mapping[str, str]) -> str:
    """Where the user's own scope is declared: the `[reef]` table of the shell's configuration."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    return os.path.join(base, "shoal", "shoal.toml")


def candidates(directory: str, user_file: str | None) -> Iterator[tuple[str, str]]:
    """Every file that may be a manifest, nearest first, with its kind label."""
    folder = directory
    while True:
        for name, kind in _FILES:
            yield os.path.join(folder, name), kind
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    if user_file is not None:
        yield user_file, USER_KIND


def signature(paths: list[str]) -> Signature:
    """The state of files; equal signatures mean that nothing has to be read again."""
    found = []
    for path in paths:
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            continue
        found.append((path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns))
    return tuple(found)


def discover(directory: str, user_file: str | None) -> Chain:
    scopes: list[Scope] = []
    malformed: list[tuple[str, str]] = []
    native: str | None = None
    first: str | None = None
    for path, kind in candidates(directory, user_file):
        try:
            text = _read(path)
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            malformed.append((path, str(error)))
            continue
        if kind == "reef" and native is None:
            native = path
        try:
            scope = _PARSERS[kind](path, text)
        except (ValueError, RecursionError) as error:
            malformed.append((path, str(error)))
            continue
        if scope.tools or scope.runners or scope.has_options:
            scopes.append(scope)
            first = first or path
    anchor = native or first
    lock = None if anchor is None else os.path.join(os.path.dirname(anchor), LOCK_NAME)
    return Chain(tuple(scopes), tuple(malformed), lock)


def _read(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read(MANIFEST_BYTES_MAX + 1)
    if len(data) > MANIFEST_BYTES_MAX:
        raise OSError(f"larger than {MANIFEST_BYTES_MAX} bytes")
    return data.decode()


def _native(path: str, text: str) -> Scope:
    return _scope("reef", path, tomllib.loads(text))


def _user(path: str, text: str) -> Scope:
    table = tomllib.loads(text).get("reef", {})
    return _scope(USER_KIND, path, table if isinstance(table, dict) else {})


def _scope(kind: str, path: str, data: Mapping[str, Any]) -> Scope:
    options = _table(data, "options")
    return Scope(
        kind,
        path,
        path,
        tools={
            name: mention
            for name, value in _table(data, "tools").items()
            if (mention := _mention(value)) is not None
        },
        runners={
            extension.lower(): runner
            for extension, value in _table(data, "runners").items()
            if (runner := _runner(value)) is not None
        },
        hermetic=options.get("hermetic") is True,
        has_options=isinstance(options.get("hermetic"), bool),
    )


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"[{name}] is not a table")
    return value


def _mention(value: Any) -> Mention | None:
    if isinstance(value, str):
        return Mention(Constraint.parse(value))
    if not isinstance(value, dict):
        return None
    version, provider = value.get("version", "*"), value.get("provider")
    if not isinstance(version, str):
        return None
    return Mention(Constraint.parse(version), provider if isinstance(provider, str) else None)


def _runner(value: Any) -> list[str] | None:
    """The words before the script: the tool, possibly of several words, and its arguments."""
    if isinstance(value, str):
        return value.split() or None
    if not isinstance(value, dict) or not isinstance(value.get("tool"), str):
        return None
    arguments = value.get("args", [])
    if not isinstance(arguments, list):
        return None
    words: list[str] = value["tool"].split()
    return [*words, *(word for word in arguments if isinstance(word, str))] if words else None


def _mise(path: str, text: str) -> Scope:
    tools: dict[str, Mention] = {}
    for name, value in _table(tomllib.loads(text), "tools").items():
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, dict):
            value = value.get("version")
        if isinstance(value, str):
            tools[name] = Mention(Constraint.parse(value))
    return Scope("mise", path, path, tools)


def _tool_versions(path: str, text: str) -> Scope:
    tools: dict[str, Mention] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) >= 2:
            tools.setdefault(words[0], Mention(Constraint.parse(words[1])))
    return Scope("tool-versions", path, path, tools)


_PARSERS: Final = {
    "reef": _native,
    "mise": _mise,
    "tool-versions": _tool_versions,
    USER_KIND: _user,
}
