"""The policy file: one TOML table of grants per principal (chapter 50 §5).

`parse` reads a whole file; every key has one canonical name, several spellings and one type.
Entries that can never match and unknown keys are kept out and reported as warnings, everything else
that is wrong refuses the file: a policy is never guessed.

Failure: PolicyError with a text that names the principal, the key and what is wrong with it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from leash.effects import ANY, PORT_MAX
from leash.patterns import BadPattern, compiled, concrete_root, starts_with_wildcard

AUTO_APPLY: Final = ("never", "in-grant", "reversible")
OPAQUE_WORDS: Final = ("deny", "ask", "allow")
# What a policy decides, as the key names it, without the trailing details of an effect.
PATH_KEYS: Final = ("fs_read", "fs_write", "fs_delete")
NAME_KEYS: Final = ("env_read", "env_write", "secret_use")
FLAG_KEYS: Final = ("session_write", "journal_read", "time", "hermetic")

_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "fs": ("read", "write", "delete"),
    "env": ("read", "write"),
    "secret": ("use",),
    "proc": ("spawn",),
    "net": ("connect", "listen"),
    "session": ("write",),
    "journal": ("read",),
}
_ALIASES: Final[Mapping[str, str]] = {
    "net": "net_connect",
    "spawn": "proc_spawn",
    "secrets": "secret_use",
}
_EVERY_PATH: Final = "/**"
_PORT: Final = re.compile(r"[0-9]+")


class PolicyError(ValueError):
    """The file is no policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The grants of one principal. Lists hold what the file says, `~` expanded and entries that can
    never match left out; `given` are the canonical names of the keys that were there at all."""

    fs_read: tuple[str, ...] = ()
    fs_write: tuple[str, ...] = ()
    fs_delete: tuple[str, ...] = ()
    net_connect: tuple[str, ...] = ()
    net_listen: tuple[int | str, ...] = ()
    proc_spawn: tuple[str, ...] = ()
    env_read: tuple[str, ...] = ()
    env_write: tuple[str, ...] = ()
    secret_use: tuple[str, ...] = ()
    session_write: bool = False
    journal_read: bool = False
    time: bool = False
    auto_apply: str = "never"
    opaque: str = "deny"
    hermetic: bool = False
    approve: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()

    @property
    def pinned(self) -> bool:
        """Whether spawn pinning is active."""
        return bool(self.proc_spawn)

    @property
    def permissive(self) -> bool:
        """Whether no check at the moment of an effect can ever refuse anything."""
        return (
            self.opaque == "allow"
            and all(_EVERY_PATH in getattr(self, key) for key in PATH_KEYS)
            and all(ANY in getattr(self, key) for key in NAME_KEYS)
            and "*:*" in self.net_connect
            and ANY in self.net_listen
            and self.session_write
            and self.journal_read
            and self.time
            and not self.proc_spawn
        )

    def as_json(self) -> dict[str, Any]:
        """The plain form that travels to workers; `from_json` reads it back."""
        return {
            **{
                name: list(value) if isinstance(value, tuple) else value
                for name in _FIELDS
                if (value := getattr(self, name)) != _DEFAULTS[name]
            },
            "given": sorted(self.given),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Policy:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in data.items()
            if name in _FIELDS
        }
        return cls(**fields, given=frozenset(data["given"]))


_FIELDS: Final = tuple(name for name in Policy.__dataclass_fields__ if name != "given")
_DEFAULTS: Final = {name: Policy.__dataclass_fields__[name].default for name in _FIELDS}

# The policy of a principal nobody restricts; it confines nothing (chapter 50 §5.5).
PERMISSIVE: Final = Policy(
    fs_read=(_EVERY_PATH,),
    fs_write=(_EVERY_PATH,),
    fs_delete=(_EVERY_PATH,),
    net_connect=("*:*",),
    net_listen=(ANY,),
    env_read=(ANY,),
    env_write=(ANY,),
    secret_use=(ANY,),
    session_write=True,
    journal_read=True,
    time=True,
    auto_apply="in-grant",
    opaque="allow",
)


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """Policies by principal, and what was strange about the file."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def of(self, principal: str) -> Policy | None:
        """None: the principal is unknown."""
        return self.policies.get(principal)


def permissive_for(principal: str) -> PolicyFile:
    """What is in force without a file: everything for one principal, nothing for others."""
    return PolicyFile({principal: PERMISSIVE})


def read(path: Path, home: str | None = None) -> PolicyFile:
    """Read a policy file. Raises PolicyError, also when it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise PolicyError(f"cannot read policy {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyError(f"policy {path}: not UTF-8") from None
    try:
        return parse(text, os.environ.get("HOME") if home is None else home)
    except PolicyError as error:
        raise PolicyError(f"policy {path}: {error}") from None


def parse(text: str, home: str | None) -> PolicyFile:
    """The policies of a file's text. `home` replaces a leading `~`. Raises PolicyError."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyError(f"not TOML: {error}") from None
    principals = document.get("principal", {})
    if not isinstance(principals, dict):
        raise PolicyError("`principal` must be a table")
    policies: dict[str, Policy] = {}
    warnings: list[str] = []
    for principal, table in principals.items():
        if not isinstance(table, dict):
            raise PolicyError(f'principal "{principal}" must be a table')
        reader = _Reader(principal, home, warnings)
        policies[principal] = reader.read(table)
    return PolicyFile(policies, tuple(warnings))


class _Reader:
    """Reads one principal's table."""

    def __init__(self, principal: str, home: str | None, warnings: list[str]) -> None:
        self._principal = principal
        self._home = home
        self._warnings = warnings

    def read(self, table: Mapping[str, Any]) -> Policy:
        values: dict[str, Any] = {}
        for spelled, name, value in self._entries(table):
            if name not in _READERS:
                self._warn(f"unknown key `{spelled}` is ignored")
                continue
            if name in values:
                raise self._fault(spelled, f"duplicate: `{name}` is already given")
            values[name] = _READERS[name](self, spelled, value)
        return Policy(**values, given=frozenset(values))

    def _entries(self, table: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
        """Every key as spelled, its canonical name, and its value; groups taken apart."""
        found: list[tuple[str, str, Any]] = []
        for key, value in table.items():
            if key in _GROUPS and isinstance(value, dict):
                found += [(f"{key}.{sub}", f"{key}_{sub}", inner) for sub, inner in value.items()]
            elif key in _GROUPS and key not in _ALIASES:
                raise self._fault(key, "must be a table")
            else:
                found.append((key, _ALIASES.get(key, _underscored(key)), value))
        return found

    def _fault(self, key: str, text: str) -> PolicyError:
        return PolicyError(f'principal "{self._principal}": `{key}`: {text}')

    def _warn(self, text: str) -> None:
        self._warnings.append(f'principal "{self._principal}": {text}')

    def _never(self, key: str, entry: str, why: str) -> None:
        self._warn(f"`{key}`: `{entry}` can never match ({why})")

    # -- values ------------------------------------------------------------------------------------

    def flag(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._fault(key, "must be true or false")
        return value

    def auto_apply(self, key: str, value: Any) -> str:
        return self._word(key, value, AUTO_APPLY)

    def opaque(self, key: str, value: Any) -> str:
        return self._word(key, value, OPAQUE_WORDS)

    def _word(self, key: str, value: Any, words: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in words:
            raise self._fault(key, f"must be one of {', '.join(words)}")
        return value

    def _texts(self, key: str, value: Any) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._fault(key, "must be a list of strings")
        return value

    def names(self, key: str, value: Any) -> tuple[str, ...]:
        return tuple(item for item in self._texts(key, value) if self._not_empty(key, item))

    def programs(self, key: str, value: Any) -> tuple[str, ...]:
        # Entries that never match stay: a list that is there pins, whatever is in it.
        for item in self._texts(key, value):
            self._not_empty(key, item)
        return tuple(value)

    def _not_empty(self, key: str, item: str) -> bool:
        if not item:
            self._never(key, item, "empty")
        return bool(item)

    def paths(self, key: str, value: Any) -> tuple[str, ...]:
        found: list[str] = []
        for item in self._texts(key, value):
            pattern = self._expanded(item)
            why = _path_fault(pattern)
            if why is None:
                found.append(pattern)
            else:
                self._never(key, item, why)
        return tuple(found)

    def _expanded(self, pattern: str) -> str:
        if (pattern == "~" or pattern.startswith("~/")) and self._home:
            return self._home.rstrip("/") + pattern[1:] or "/"
        return pattern

    def principals(self, key: str, value: Any) -> tuple[str, ...]:
        found: list[str] = []
        for item in self.names(key, value):
            try:
                compiled(item)
            except BadPattern:
                self._never(key, item, "bad pattern")
            else:
                found.append(item)
        return tuple(found)

    def connects(self, key: str, value: Any) -> tuple[str, ...]:
        return tuple(item for item in self._texts(key, value) if self._can_connect(key, item))

    def _can_connect(self, key: str, item: str) -> bool:
        host, colon, port = item.rpartition(":")
        if not colon:
            self._never(key, item, "no `:`" if item else "empty")
            return False
        if port != ANY and _PORT.fullmatch(port) and int(port) > PORT_MAX:
            raise self._fault(key, f"port of `{item}` is outside 0..{PORT_MAX}")
        if port != ANY and not _PORT.fullmatch(port):
            self._never(key, item, "no port")
            return False
        try:
            compiled(host.lower())
        except BadPattern:
            self._never(key, item, "bad pattern")
            return False
        return bool(host) or self._not_empty(key, host)

    def listens(self, key: str, value: Any) -> tuple[int | str, ...]:
        if not isinstance(value, list):
            raise self._fault(key, 'must be a list of ports or "*"')
        for item in value:
            if item != ANY and type(item) is not int:
                raise self._fault(key, 'must be a list of ports or "*"')
            if item != ANY and not 0 <= item <= PORT_MAX:
                raise self._fault(key, f"port {item} is outside 0..{PORT_MAX}")
        return tuple(value)


def _underscored(key: str) -> str:
    group, dot, rest = key.partition(".")
    return f"{group}_{rest}" if dot and rest in _GROUPS.get(group, ()) else key


def _path_fault(pattern: str) -> str | None:
    """Why a path pattern can never match a normalised absolute path."""
    if not pattern:
        return "empty"
    try:
        compiled(pattern)
    except BadPattern:
        return "bad pattern"
    if not pattern.startswith("/") and not starts_with_wildcard(pattern):
        return "relative path"
    return None


_READERS: Final[dict[str, Callable[[_Reader, str, Any], Any]]] = {
    **dict.fromkeys(PATH_KEYS, _Reader.paths),
    **dict.fromkeys(NAME_KEYS, _Reader.names),
    **dict.fromkeys(FLAG_KEYS, _Reader.flag),
    "net_connect": _Reader.connects,
    "net_listen": _Reader.listens,
    "proc_spawn": _Reader.programs,
    "auto_apply": _Reader.auto_apply,
    "opaque": _Reader.opaque,
    "approve": _Reader.principals,
}


def roots(patterns: tuple[str, ...]) -> list[str]:
    """The concrete roots of path patterns, sorted and without duplicates."""
    found = {root for pattern in patterns if (root := concrete_root(pattern)) is not None}
    return sorted(found)
