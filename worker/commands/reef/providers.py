"""Where tools come from: the five providers and their candidates (chapter 41 §B3).

A candidate is a regular file with an execute bit. Only mise knows versions from its folder names;
files of the system are asked for theirs when a constraint needs it (`probe`).

Failure: nothing raises; unreadable folders have no candidates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from worker.commands.lookup import is_executable, search_path
from worker.commands.reef.constraints import Version

SYSTEM_ROOTS: Final = ("/usr/bin", "/usr/local/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file that could be the tool. `ambient`: found only because PATH names its folder."""

    provider: str
    path: str
    version: Version
    ambient: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What candidates depend on: the directory and the session environment."""

    cwd: str
    env: Mapping[bytes, bytes]

    def variable(self, name: bytes) -> str | None:
        value = self.env.get(name)
        return os.fsdecode(value) if value else None

    def in_home(self, *parts: str) -> str | None:
        home = self.variable(b"HOME")
        return os.path.join(home, *parts) if home else None


Offers = Callable[[str, Surroundings], Iterator[Candidate]]


def _nearest(provider: str, *folder: str) -> Offers:
    """The first ancestor whose `folder` has the tool."""

    def offers(tool: str, around: Surroundings) -> Iterator[Candidate]:
        directory = around.cwd
        while True:
            path = os.path.join(directory, *folder, tool)
            if is_executable(path):
                yield Candidate(provider, path, Version.parse(None))
                return
            parent = os.path.dirname(directory)
            if parent == directory:
                return
            directory = parent

    return offers


def _mise(tool: str, around: Surroundings) -> Iterator[Candidate]:
    data = around.variable(b"MISE_DATA_DIR") or around.in_home(".local", "share", "mise")
    if data is None:
        return
    installs = os.path.join(data, "installs", tool)
    try:
        versions = sorted(os.listdir(installs))
    except OSError:
        return
    for version in versions:
        path = os.path.join(installs, version, "bin", tool)
        if is_executable(path):
            yield Candidate("mise", path, Version.parse(version))


def _cargo(tool: str, around: Surroundings) -> Iterator[Candidate]:
    home = around.variable(b"CARGO_HOME") or around.in_home(".cargo")
    if home is not None:
        path = os.path.join(home, "bin", tool)
        if is_executable(path):
            yield Candidate("cargo", path, Version.parse(None))


def _system(tool: str, around: Surroundings) -> Iterator[Candidate]:
    folders = [(folder, False) for folder in SYSTEM_ROOTS]
    known = set(SYSTEM_ROOTS)
    for folder in search_path(around.env, around.cwd):
        if folder.rstrip("/") not in known:
            known.add(folder.rstrip("/"))
            folders.append((folder, True))
    for folder, ambient in folders:
        path = os.path.join(folder, tool)
        if is_executable(path):
            yield Candidate("system", path, Version.parse(None), ambient)


# Earlier ones win ties.
PROVIDERS: Final[dict[str, Offers]] = {
    "npm-local": _nearest("npm-local", "node_modules", ".bin"),
    "venv": _nearest("venv", ".venv", "bin"),
    "mise": _mise,
    "cargo": _cargo,
    "system": _system,
}
ORDER: Final = {name: place for place, name in enumerate(PROVIDERS)}

# The one provider that can install what it does not have.
FETCHING: Final = "mise"


def offers(tool: str, around: Surroundings, pin: str | None = None) -> list[Candidate]:
    """The candidates of all providers, or of the pinned one, in provider order."""
    if not tool or "/" in tool or "\0" in tool or tool in (".", ".."):
        return []
    return [
        candidate
        for name, provider in PROVIDERS.items()
        if pin is None or name == pin
        for candidate in provider(tool, around)
    ]


def best(found: list[Candidate]) -> Candidate | None:
    """The highest version, then the earlier provider, then the smaller path."""
    ranked = sorted(found, key=lambda c: (ORDER[c.provider], os.fsencode(c.path)))
    # A stable search for the maximum keeps the first of equal versions.
    return max(ranked, key=lambda c: c.version.order, default=None)
