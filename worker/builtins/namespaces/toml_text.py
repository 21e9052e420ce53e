"""TOML text to plain data and back (chapter 31 §10.2).

Reading is the work of the standard library. It turns date-times into objects that no longer know
how they were spelled; documents that have some are read a second time by tomlkit, which keeps the
text. Writing puts scalars and arrays of a table first, then its tables, then its arrays of tables,
so that nothing lands in the table before it.

Failure: `arg_error` `WHAT: ...` for malformed text, for something other than a record at the top
and for a null anywhere.
"""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import tomlkit
import tomlkit.items
from tomlkit.exceptions import TOMLKitError

from worker.errors import arg_error
from worker.values.json_codec import JSON_DEPTH_MAX
from worker.values.numbers import json_float

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_TIMES: Final = (datetime.datetime, datetime.date, datetime.time)
_SPELLED: Final = (tomlkit.items.DateTime, tomlkit.items.Date, tomlkit.items.Time)


def parse(text: str, what: str) -> dict[str, Any]:
    """The plain data of a document; date-times are strings as they stand in the text."""
    try:
        data = tomllib.loads(text)
        if _has_times(data):
            spelled = tomlkit.parse(text)
            data = {key: _with_times(data[key], spelled[key]) for key in data}
    except (tomllib.TOMLDecodeError, TOMLKitError, ValueError) as error:
        raise arg_error(f"{what}: {error}") from None
    except RecursionError:
        raise arg_error(f"{what}: nesting deeper than {JSON_DEPTH_MAX} levels") from None
    return data


def _has_times(data: Any) -> bool:
    if isinstance(data, dict):
        return any(_has_times(value) for value in data.values())
    if isinstance(data, list):
        return any(_has_times(item) for item in data)
    return isinstance(data, _TIMES)


def _with_times(data: Any, spelled: Any) -> Any:
    """`data` with every date-time replaced by its text in the parallel tree `spelled`."""
    if isinstance(data, dict):
        return {key: _with_times(value, spelled[key]) for key, value in data.items()}
    if isinstance(data, list):
        items = spelled.body if isinstance(spelled, tomlkit.items.AoT) else list(spelled)
        return [_with_times(value, item) for value, item in zip(data, items, strict=True)]
    if isinstance(data, _TIMES):
        return spelled.as_string() if isinstance(spelled, _SPELLED) else data.isoformat()
    return data


def render(data: Any, what: str) -> str:
    if not isinstance(data, dict):
        raise arg_error(f"{what} expects a record at the top")
    return "".join(f"{line}\n" for line in _table(data, (), what)).lstrip("\n")


def _table(table: Mapping[str, Any], path: tuple[str, ...], what: str) -> Iterator[str]:
    """The lines of a table's own pairs, then of the tables below it."""
    inner: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict) or _is_array_of_tables(value):
            inner.append((key, value))
        else:
            yield f"{_key(key)} = {_value(value, what)}"
    # Tables before arrays of tables is only taste; both after the pairs is the rule of the format.
    for key, value in sorted(inner, key=lambda pair: isinstance(pair[1], list)):
        name = ".".join(_key(part) for part in (*path, key))
        if isinstance(value, dict):
            yield ""
            yield f"[{name}]"
            yield from _table(value, (*path, key), what)
        else:
            for row in value:
                yield ""
                yield f"[[{name}]]"
                yield from _table(row, (*path, key), what)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _key(key: str) -> str:
    return key if _BARE_KEY.match(key) else _string(key)


def _string(text: str) -> str:
    # A JSON string is a basic string, but for the one control character JSON lets stand.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _value(value: Any, what: str) -> str:
    if value is None:
        raise arg_error(f"{what}: null has no TOML form")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return json_float(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item, what) for item in value) + "]"
    pairs = ", ".join(f"{_key(key)} = {_value(item, what)}" for key, item in value.items())
    return f"{{ {pairs} }}" if pairs else "{}"
