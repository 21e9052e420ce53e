"""From a parsed TOML table to checked values by dotted path, or a reason why not.

`check` looks at one file alone, before any merging, so that a bad value is an error even where a
later layer would override it. Pure: it reads no file and no environment.

Failure: `ConfigError` with the texts of chapter 81, section 6.2, the file's name in front.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from supervisor.config import rules
from supervisor.config.schema import KEYS, TABLES, Shape

UNSIGNED_MAX: Final = 2**63 - 1

# The sections that count in a project file (a checked-out directory must not loosen the rest).
PROJECT_SECTIONS: Final = frozenset(
    {
        "adapters",
        "aliases",
        "attach",
        "completion",
        "editor",
        "env",
        "history",
        "init",
        "prompt",
        "reef",
        "render",
        "version",
    }
)


class ConfigError(Exception):
    """A configuration that cannot be used. The text names file (or variable) and key."""


class Checked(msgspec.Struct, frozen=True):
    """What one file says: values by dotted path, what to warn about, entries that were skipped."""

    values: dict[str, object]
    warnings: list[str]
    skipped: list[str]


# Checked from the top: bool is an int to Python, datetime is a date.
_TOML_TYPES: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((bool,), "boolean"),
    ((int,), "integer"),
    ((float,), "float"),
    ((str,), "string"),
    ((datetime.date, datetime.time), "datetime"),
    ((list,), "array"),
    ((dict,), "table"),
)


def toml_type(value: object) -> str:
    return next(name for types, name in _TOML_TYPES if isinstance(value, types))


def check(file: str, table: Mapping[str, object], *, project: bool = False) -> Checked:
    """Check one parsed file. Raises ConfigError."""
    found = Checked({}, [], [])
    if project:
        table = _project_part(file, table, found)
    _table(file, "", table, found)
    _check_caps(file, found.values)
    return found


def apply_rules(path: str, value: object) -> str | None:
    """The rule text that a well-typed value of a key breaks, with the key's name, or None."""
    rule = rules.VALUE_RULES.get(path)
    text = rule(value) if rule else None
    if text:
        return f"{path}: {text}"
    item_rule = rules.ITEM_RULES.get(path)
    if item_rule and isinstance(value, tuple):
        for index, item in enumerate(value):
            text = item_rule(item)
            if text:
                return f"{path}[{index}]: {text}"
    return None


def _project_part(file: str, table: Mapping[str, object], found: Checked) -> Mapping[str, object]:
    for section in table:
        if section in TABLES[""] and section not in PROJECT_SECTIONS:
            found.warnings.append(f"{file}: `{section}` is ignored in a project file")
    return {
        section: value
        for section, value in table.items()
        if section in PROJECT_SECTIONS or section not in TABLES[""]
    }


def _table(file: str, prefix: str, table: Mapping[str, object], found: Checked) -> None:
    for name, value in table.items():
        path = f"{prefix}.{name}" if prefix else name
        if name not in TABLES[prefix]:
            found.warnings.append(_unknown(file, path, name, TABLES[prefix], prefix))
        elif path in TABLES:
            if not isinstance(value, dict):
                raise _wrong_type(file, path, Shape.TABLE, value)
            _table(file, path, value, found)
        else:
            found.values[path] = _value(file, path, value, found)


def _value(file: str, path: str, value: object, found: Checked) -> object:
    shape = KEYS[path].shape
    converted = _CONVERT[shape](file, path, value)
    if shape is Shape.STRING_MAP and isinstance(converted, dict):
        converted = _free_table(file, path, converted, found)
    text = apply_rules(path, converted)
    if text:
        raise ConfigError(f"{file}: {text}")
    return converted


def _boolean(file: str, path: str, value: object) -> object:
    if isinstance(value, bool):
        return value
    raise _wrong_type(file, path, Shape.BOOLEAN, value)


def _unsigned(file: str, path: str, value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= UNSIGNED_MAX:
        return value
    raise _wrong_type(file, path, Shape.UNSIGNED, value)


def _string(file: str, path: str, value: object) -> object:
    if isinstance(value, str):
        return value
    raise _wrong_type(file, path, Shape.STRING, value)


def _strings(file: str, path: str, value: object) -> object:
    if not isinstance(value, list):
        raise _wrong_type(file, path, Shape.STRINGS, value)
    return tuple(_string(file, f"{path}[{index}]", item) for index, item in enumerate(value))


def _string_map(file: str, path: str, value: object) -> object:
    if not isinstance(value, dict):
        raise _wrong_type(file, path, Shape.STRING_MAP, value)
    return {name: _string(file, f"{path}.{name}", item) for name, item in value.items()}


def _any_table(file: str, path: str, value: object) -> object:
    if isinstance(value, dict):
        return value
    raise _wrong_type(file, path, Shape.TABLE, value)


_CONVERT: Final = {
    Shape.BOOLEAN: _boolean,
    Shape.UNSIGNED: _unsigned,
    Shape.STRING: _string,
    Shape.STRINGS: _strings,
    Shape.STRING_MAP: _string_map,
    Shape.TABLE: _any_table,
}


def _free_table(file: str, path: str, entries: dict[str, str], found: Checked) -> dict[str, str]:
    rule = rules.NAME_RULES.get(path)
    if rule is None:
        return entries
    for name in entries:
        text = rule(name)
        if text:
            raise ConfigError(f"{file}: {path}: {text}")
    if path != "env":
        return entries
    kept = {}
    for name, value in entries.items():
        if rules.ENVIRONMENT_NAME.fullmatch(name):
            kept[name] = value
        else:
            found.skipped.append(f"env.{name}: not a name of an environment variable")
    return kept


def _check_caps(file: str, values: Mapping[str, object]) -> None:
    inline, cap = values.get("limits.inline_bytes"), values.get("limits.hard_cap_bytes")
    if isinstance(inline, int) and isinstance(cap, int):
        text = rules.caps_in_order(inline, cap)
        if text:
            raise ConfigError(f"{file}: limits.hard_cap_bytes: {text}")


def _wrong_type(file: str, path: str, shape: Shape, value: object) -> ConfigError:
    return ConfigError(f"{file}: {path}: expected {shape.value}, found {toml_type(value)}")


def _unknown(file: str, path: str, name: str, siblings: Iterable[str], prefix: str) -> str:
    text = f"{file}: unknown config key `{path}`"
    near = nearest(name, siblings)
    if near is None:
        return text
    suggestion = f"{prefix}.{near}" if prefix else near
    return f"{text} (did you mean `{suggestion}`?)"


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate with the smallest edit distance, when it is small for a name of this length."""
    allowed = 1 if len(name) <= 3 else 2 if len(name) <= 6 else 3
    ranked = sorted((edit_distance(name, other), other) for other in candidates)
    if ranked and ranked[0][0] <= allowed:
        return ranked[0][1]
    return None


def edit_distance(left: str, right: str) -> int:
    """Insertions, deletions and replacements of single characters."""
    previous = list(range(len(right) + 1))
    for row, mine in enumerate(left, 1):
        current = [row]
        for column, other in enumerate(right, 1):
            current.append(
                min(
                    previous[column] + 1,
                    current[column - 1] + 1,
                    previous[column - 1] + (mine != other),
                )
            )
        previous = current
    return previous[-1]
