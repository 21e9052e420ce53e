"""Language cases: programs with the one result each must have, read from TOML files.

Each `[[case]]` has a `name`, a program `src`, a `fixture` of files to create first, and one
expectation: `value`, `error`, or `parse_error`, the latter two with an optional text that message
or hint must contain. A case with `skip` is not run.

Failure: `load` raises InvalidCase for a file that is not of this form.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class InvalidCase(Exception):
    """A case file is malformed."""


@dataclass(frozen=True)
class Case:
    file: str
    name: str
    src: str
    fixture: tuple[str, ...] = ()
    value: str | None = None
    error: str | None = None
    parse_error: bool = False
    contains: str | None = None
    skip: str | None = None

    @property
    def expected(self) -> str:
        """The expectation in words."""
        phrase = "" if self.contains is None else f" mentioning {self.contains!r}"
        if self.value is not None:
            return f"value {self.value!r}"
        if self.parse_error:
            return f"a parse error{phrase}"
        return f"error {self.error}{phrase}"


@dataclass(frozen=True)
class Result:
    """How a program ended: a rendered value, a language error, a syntax error, or neither."""

    kind: str
    text: str
    code: str | None = None
    hint: str | None = None

    def describe(self) -> str:
        if self.kind == "value":
            return f"value {self.text!r}"
        hint = "" if self.hint is None else f" (hint: {self.hint})"
        return f"{self.kind} {self.code or ''}: {self.text}{hint}"


def satisfies(case: Case, result: Result) -> bool:
    if case.value is not None:
        return result.kind == "value" and result.text.strip() == case.value.strip()
    kind = "parse error" if case.parse_error else "error"
    if result.kind != kind or (case.error is not None and result.code != case.error):
        return False
    if case.contains is None:
        return True
    return case.contains in result.text or case.contains in (result.hint or "")


def load(folder: Path) -> list[Case]:
    """The cases of every TOML file in a folder, by file and in order."""
    return [
        _case(file.name, table) for file in sorted(folder.glob("*.toml")) for table in _tables(file)
    ]


def _tables(file: Path) -> list[dict[str, Any]]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8")).get("case", [])
    except tomllib.TOMLDecodeError as error:
        raise InvalidCase(f"{file}: {error}") from error
    if not isinstance(tables, list):
        raise InvalidCase(f"{file}: `case` must be an array of tables")
    return tables


def _case(file: str, table: dict[str, Any]) -> Case:
    name = table.get("name")
    if not isinstance(name, str):
        raise InvalidCase(f"{file}: a case without a name")
    if "skip" in table:
        return Case(file, name, str(table.get("src", "")), skip=str(table["skip"]))
    parse_error = bool(table.get("parse_error", False)) or "parse_error_contains" in table
    expectations = [key for key in ("value", "error") if key in table]
    if len(expectations) + parse_error != 1 or not isinstance(table.get("src"), str):
        raise InvalidCase(f"{file}: {name}: needs a program and exactly one expectation")
    return Case(
        file=file,
        name=name,
        src=table["src"],
        fixture=tuple(table.get("fixture", ())),
        value=table.get("value"),
        error=table.get("error"),
        parse_error=parse_error,
        contains=table.get("error_contains", table.get("parse_error_contains")),
    )
