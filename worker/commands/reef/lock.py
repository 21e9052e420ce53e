"""The lock file: which file a constrained tool resolved to, and what it contained (chapter 41 §B5).

Failure: a missing or unparseable lock counts as empty, an entry without its six strings does not
exist. `write` raises OSError and leaves the old file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, slots=True)
class LockEntry:
    """Members in the order they are written. `blake3` is hex of the file's content."""

    name: str
    version: str
    provider: str
    path: str
    blake3: str
    resolved_at: str

    @property
    def hash8(self) -> str:
        return self.blake3[:8]


_MEMBERS: Final = ("name", "version", "provider", "path", "blake3", "resolved_at")


def read(path: str) -> dict[str, LockEntry]:
    """The entries by tool name."""
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    tools = data.get("tool")
    if not isinstance(tools, dict):
        return {}
    entries: dict[str, LockEntry] = {}
    for name, table in tools.items():
        if not isinstance(table, dict):
            continue
        members = [value for member in _MEMBERS if isinstance(value := table.get(member), str)]
        if len(members) == len(_MEMBERS):
            entries[name] = LockEntry(*members)
    return entries


def text_of(entries: Mapping[str, LockEntry]) -> str:
    """The file's text, entries in name order."""
    blocks = []
    for name in sorted(entries):
        key = name if _BARE_KEY.match(name) else _string(name)
        lines = [f"{member} = {_string(value)}" for member, value in asdict(entries[name]).items()]
        blocks.append("\n".join([f"[tool.{key}]", *lines, ""]))
    return "\n".join(blocks)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def write(path: str, entries: Mapping[str, LockEntry]) -> None:
    """Replace the file as a whole."""
    fd, temporary = tempfile.mkstemp(prefix=".reef-", dir=os.path.dirname(path))
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text_of(entries))
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except (OSError, UnicodeEncodeError) as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise
        raise OSError(str(error)) from None
