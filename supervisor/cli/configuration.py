"""`shoal config`: show, check and list the configuration (chapter 81, section 6.5).

Failure: `show` exits 1 for a configuration that cannot be used or a key that does not exist;
`check` has a scale of its own: 0 clean, 1 warnings, 2 errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.config import KEYS, PROJECT_FILE, ConfigError, Loaded, load, lookup
from supervisor.config.load import read_toml
from supervisor.config.validate import check as check_table


def _load(call: Call) -> Loaded:
    return load(call.environ, config_file=call.text("config"), project_from=Path.cwd())


def _load_or_fail(call: Call) -> Loaded:
    try:
        return _load(call)
    except ConfigError as error:
        raise Failure(str(error)) from error


def show(call: Call) -> int:
    loaded = _load_or_fail(call)
    wanted = call.operands[0] if call.operands else ""
    try:
        value = lookup(loaded.config, wanted) if wanted else loaded.config
    except KeyError as error:
        raise Failure(f"unknown config key `{wanted}`") from error
    if call.out.json:
        call.out.document(msgspec.to_builtins(value))
    elif wanted in KEYS:
        call.out.line("" if value is None else _toml(value))
    else:
        call.out.line("\n".join(_as_toml(loaded, wanted)).lstrip("\n"))
    return Exit.SUCCESS


def _as_toml(loaded: Loaded, prefix: str) -> Iterator[str]:
    """The keys below a section as a TOML file, defaults marked."""
    section = ""
    for path, key in KEYS.items():
        if prefix and not path.startswith(f"{prefix}."):
            continue
        value = lookup(loaded.config, path)
        mark = "  # default" if loaded.is_default(path) else ""
        if isinstance(value, dict):
            # Free names need a header of their own.
            section = path
            yield ""
            yield f"[{path}]{mark}"
            for name, item in value.items():
                yield f"{_toml_key(name)} = {_toml(item)}"
            continue
        group, _, name = key.path.rpartition(".")
        if group != section:
            section = group
            yield ""
            yield f"[{group}]"
        yield f"# {name} is not set{mark}" if value is None else f"{name} = {_toml(value)}{mark}"


def _toml(value: Any) -> str:
    """A value as it stands in a TOML file; tables inline, so that each key is one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml_key(name)} = {_toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")


def _toml_key(name: str) -> str:
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def check(call: Call) -> int:
    """Validate the named files, each alone; without any, everything that is in effect."""
    warnings: list[str] = []
    errors: list[str] = []
    if call.operands:
        for file in call.operands:
            _check_file(file, warnings, errors)
    else:
        try:
            loaded = _load(call)
        except ConfigError as error:
            errors.append(str(error))
        else:
            warnings += [*loaded.warnings, *loaded.skipped]
    if call.out.json:
        call.out.document({"warnings": warnings, "errors": errors})
    else:
        for text in warnings:
            call.out.line(text)
        for text in errors:
            call.out.note(f"shoal config: {text}")
    if errors:
        return 2
    return 1 if warnings else 0


def _check_file(file: str, warnings: list[str], errors: list[str]) -> None:
    try:
        table = read_toml(Path(file))
        if table is None:
            raise ConfigError(f"{file}: No such file or directory")
        found = check_table(file, table, project=Path(file).name == PROJECT_FILE)
    except ConfigError as error:
        errors.append(str(error))
    else:
        warnings += [*found.warnings, *found.skipped]


def sources(call: Call) -> int:
    loaded = _load_or_fail(call)
    if call.out.json:
        call.out.document(msgspec.to_builtins(loaded.sources))
    else:
        for source in loaded.sources:
            call.out.line(f"{source.state:<8}{source.path}")
    return Exit.SUCCESS
