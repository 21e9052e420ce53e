"""The layers of configuration, read and merged.

Lowest first: built-in defaults, /etc/shoal/shoal.toml, the user's file, the project's file (only
where asked for), environment overrides, `NO_COLOR`, command-line options. A daemon calls `load`
again to reload; nothing is kept between calls.

Failure: `ConfigError` with the text for the user; a missing file is not a failure, except one that
was named with `--config` (chapter 81, section 6.1).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from supervisor.config import rules
from supervisor.config.environment import overrides
from supervisor.config.schema import Config
from supervisor.config.validate import ConfigError, apply_rules, check
from supervisor.paths import config_dir, expand

SYSTEM_FILE: Final = Path("/etc/shoal/shoal.toml")
PROJECT_FILE: Final = ".shoal.toml"
USER_FILE: Final = "shoal.toml"


class Source(msgspec.Struct, frozen=True):
    """A file that was considered; state is `used`, `absent` or `ignored`."""

    path: str
    state: str


class Loaded(msgspec.Struct, frozen=True):
    """A resolved configuration and where it came from."""

    config: Config
    warnings: tuple[str, ...]
    # `aliases` and `env` entries that were left out, each with the reason.
    skipped: tuple[str, ...]
    sources: tuple[Source, ...]
    # Values by dotted path: what the files say, and what environment and options put above them.
    from_files: Mapping[str, object]
    from_above: Mapping[str, object]

    def is_default(self, path: str) -> bool:
        return path not in self.from_files and path not in self.from_above


class _Layers:
    # The layers read so far, lower ones first. Only `load` and `with_project` make one, and it does
    # not outlive their call.
    def __init__(self) -> None:
        self.files: dict[str, object] = {}
        self.above: dict[str, object] = {}
        self.warnings: list[str] = []
        self.skipped: list[str] = []
        self.sources: list[Source] = []

    def add_file(self, path: Path, *, project: bool = False) -> bool:
        """Merge a file over what is there; False when it does not exist."""
        table = read_toml(path)
        self.sources.append(Source(str(path), "absent" if table is None else "used"))
        if table is None:
            return False
        found = check(str(path), table, project=project)
        self.files = merge(self.files, found.values)
        self.warnings += found.warnings
        self.skipped += found.skipped
        return True

    def resolve(self) -> Loaded:
        return Loaded(
            build(merge(self.files, self.above)),
            tuple(self.warnings),
            tuple(self.skipped),
            tuple(self.sources),
            self.files,
            self.above,
        )


def load(
    environ: Mapping[str, str],
    *,
    config_file: str | None = None,
    project_from: Path | None = None,
    options: Mapping[str, object] | None = None,
    system_file: Path = SYSTEM_FILE,
) -> Loaded:
    """Read and merge all layers.

    `config_file` is the value of `--config`; `project_from` the directory to look for a project
    file from (None: that layer is not read); `options` are command-line values by dotted path.
    """
    layers = _Layers()
    layers.add_file(system_file)
    _add_user_file(layers, environ, config_file)
    if project_from is not None:
        _add_project_file(layers, project_from)
    layers.above = overrides(environ)
    if "NO_COLOR" in environ:
        layers.above["render.color"] = False
    for path, value in (options or {}).items():
        broken = apply_rules(path, value)
        if broken:
            raise ConfigError(broken)
        layers.above[path] = value
    return layers.resolve()


def with_project(loaded: Loaded, directory: Path) -> Loaded:
    """A daemon's configuration with the project file of a session's first directory added, in its
    place between the user's file and the environment. Raises ConfigError."""
    layers = _Layers()
    layers.files = dict(loaded.from_files)
    layers.above = dict(loaded.from_above)
    layers.warnings = list(loaded.warnings)
    layers.skipped = list(loaded.skipped)
    layers.sources = list(loaded.sources)
    _add_project_file(layers, directory)
    return layers.resolve()


def _add_user_file(layers: _Layers, environ: Mapping[str, str], config_file: str | None) -> None:
    home = config_dir(environ)
    usual = home / USER_FILE if home else None
    named = config_file or environ.get("SHOAL_CONFIG")
    if not named:
        if usual:
            layers.add_file(usual)
        return
    chosen = expand(named, environ)
    if usual and usual != chosen:
        layers.sources.append(Source(str(usual), "ignored"))
    if not layers.add_file(chosen) and config_file:
        raise ConfigError(f"{chosen}: No such file or directory")


def _add_project_file(layers: _Layers, directory: Path) -> None:
    found = find_project_file(directory)
    if found is None:
        layers.sources.append(Source(str(directory / PROJECT_FILE), "absent"))
    else:
        layers.add_file(found, project=True)


def find_project_file(directory: Path) -> Path | None:
    """The first `.shoal.toml` from a directory upward to the root."""
    for place in (directory, *directory.parents):
        candidate = place / PROJECT_FILE
        if candidate.exists():
            return candidate
    return None


def read_toml(path: Path) -> dict[str, object] | None:
    """A parsed file, or None when it does not exist. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def merge(lower: Mapping[str, object], upper: Mapping[str, object]) -> dict[str, object]:
    """Values by dotted path: tables merge name by name, everything else is replaced."""
    merged = dict(lower)
    for path, value in upper.items():
        below = merged.get(path)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[path] = {**below, **value}
        else:
            merged[path] = value
    return merged


def build(values: Mapping[str, object]) -> Config:
    """The tree from checked values by dotted path. Raises ConfigError for the rule between keys."""
    tree: dict[str, object] = {}
    for path, value in values.items():
        if value is None:
            continue
        table = tree
        *groups, name = path.split(".")
        for group in groups:
            inner = table.setdefault(group, {})
            if not isinstance(inner, dict):
                raise TypeError(f"{path} is not a key")
            table = inner
        table[name] = value
    config = msgspec.convert(tree, Config)
    broken = rules.caps_in_order(config.limits.inline_bytes, config.limits.hard_cap_bytes)
    if broken:
        raise ConfigError(f"limits.hard_cap_bytes: {broken}")
    return config
