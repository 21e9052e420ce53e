"""`json`, `yaml`, `toml` and `csv`: texts of data, both ways (chapter 31 §10.1 - §10.3).

All of them share one mapping between data and values: objects become records with ascending keys, a
non-empty array of objects becomes a table, integers beyond 64 bits become floats.

Failure: `arg_error` `NS.parse: ...` for malformed text and for data the format cannot hold,
`type_error` for a value `csv.stringify` cannot lay out in rows.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from worker.builtins.namespaces import csv_text, toml_text, yaml_text
from worker.builtins.namespaces.model import MemberCall, Namespace
from worker.values.json_codec import from_json, from_plain, to_json
from worker.values.types import Value

JSON: Final = Namespace("json")
YAML: Final = Namespace("yaml")
TOML: Final = Namespace("toml")
CSV: Final = Namespace("csv")


def plain_data(value: Value) -> Any:
    """A value as the plain data its JSON text says (chapter 20 §5.5)."""
    return orjson.loads(to_json(value))


@JSON.function("parse", usage="json.parse(s) -> value")
def json_parse(call: MemberCall) -> Value:
    """The value of a JSON text."""
    return from_json(call.text(), call.name)


@JSON.function("stringify", usage="json.stringify(v, pretty: false) -> str")
def json_stringify(call: MemberCall) -> str:
    """The JSON text of a value, compact or indented by two spaces."""
    return to_json(call.value(), pretty=call.option("pretty", 1) is True)


@YAML.function("parse", usage="yaml.parse(s) -> value")
def yaml_parse(call: MemberCall) -> Value:
    """The value of one YAML document, read by the core schema."""
    return from_plain(yaml_text.parse(call.text(), call.name), call.name)


@YAML.function("stringify", usage="yaml.stringify(v) -> str")
def yaml_stringify(call: MemberCall) -> str:
    """The YAML text of a value in block style."""
    return yaml_text.render(plain_data(call.value()))


@TOML.function("parse", usage="toml.parse(s) -> record")
def toml_parse(call: MemberCall) -> Value:
    """The record of a TOML document; date-times arrive as their text."""
    return from_plain(toml_text.parse(call.text(), call.name), call.name)


@TOML.function("stringify", usage="toml.stringify(v) -> str")
def toml_stringify(call: MemberCall) -> str:
    """The TOML text of a record."""
    return toml_text.render(plain_data(call.value()), call.name)


@CSV.function("parse", usage="csv.parse(s) -> table")
def csv_parse(call: MemberCall) -> Value:
    """The table of a CSV text; the first row is the header, every cell a string."""
    return csv_text.parse(call.text(), call.name)


@CSV.function("stringify", usage="csv.stringify(v) -> str")
def csv_stringify(call: MemberCall) -> str:
    """The CSV text of a table, a list of records or one record."""
    return csv_text.render(call.value())
