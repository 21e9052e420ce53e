"""The catalog of adapters: which folders are read, in which order, and what wins (chapter 41 §A2).

Failure: loading never fails. What cannot be used is left out and named in a warning; its siblings
stay.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from worker.commands.adapters.running import Adapter
from worker.commands.adapters.schema import Unusable, read_command

PACK: Final = Path(__file__).resolve().parent / "pack"
SEARCH_PATH_VARIABLE: Final = "SHOAL_ADAPTER_PATH"
SUFFIX: Final = ".toml"


class Catalog:
    """Adapters by head. Read-only once it is made."""

    __slots__ = ("_adapters", "warnings")

    def __init__(self, adapters: Mapping[str, Adapter], warnings: Iterable[str] = ()) -> None:
        self._adapters = adapters
        self.warnings = tuple(warnings)

    def lookup(self, head: str) -> Adapter | None:
        return self._adapters.get(head)

    def heads(self) -> list[str]:
        return sorted(self._adapters)


EMPTY: Final = Catalog({})


def load_catalog(config: Mapping[str, Any], environ: Mapping[str, str]) -> Catalog:
    """The catalog of a session, from its configuration and the environment of its worker."""
    settings = config.get("adapters", {})
    if not settings.get("enabled", True):
        return EMPTY
    replaced = environ.get(SEARCH_PATH_VARIABLE, "")
    if replaced:
        return read_folders([Path(folder) for folder in replaced.split(":") if folder])
    own = [Path(folder) for folder in settings.get("dirs", ())]
    if not own:
        return bundled()
    return merged([bundled(), read_folders(own)])


@lru_cache(maxsize=1)
def bundled() -> Catalog:
    """The adapters that come with the project; read once per process image."""
    return read_folders([PACK])


def read_folders(folders: Iterable[Path]) -> Catalog:
    """The catalog of these folders; later ones win."""
    return merged(_read_folder(folder) for folder in folders)


def merged(catalogs: Iterable[Catalog]) -> Catalog:
    """A later definition of a command replaces an earlier one as a whole."""
    adapters: dict[str, Adapter] = {}
    warnings: list[str] = []
    for catalog in catalogs:
        adapters.update(catalog._adapters)
        warnings += catalog.warnings
    return Catalog(adapters, warnings)


def _read_folder(folder: Path) -> Catalog:
    warnings: list[str] = []
    adapters: dict[str, Adapter] = {}
    try:
        with os.scandir(folder) as entries:
            files = sorted(Path(entry.path) for entry in entries if entry.name.endswith(SUFFIX))
    except OSError as error:
        return Catalog({}, [f"{folder}: {error.strerror}"])
    for file in files:
        for head, table in _commands(file, warnings).items():
            if head in adapters:
                warnings.append(f"{file}: duplicate adapter cmd.{head}; later file wins")
            try:
                adapters[head] = Adapter(read_command(head, table))
            except Unusable as unusable:
                warnings.append(f"{file}: cmd.{head}: {unusable}")
    return Catalog(adapters, warnings)


def _commands(file: Path, warnings: list[str]) -> dict[str, Any]:
    """The command tables of one file."""
    try:
        commands = tomllib.loads(file.read_text(encoding="utf-8")).get("cmd")
    except OSError as error:
        warnings.append(f"{file}: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        warnings.append(f"{file}: {error}")
        return {}
    if not isinstance(commands, dict) or not commands:
        warnings.append(f"{file}: missing [cmd.<name>] table")
        return {}
    return commands
