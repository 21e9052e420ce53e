"""Schemas of tool arguments: what `tools/list` advertises is what arguments are checked against.

Pure. A field is a JSON schema (the subset used here) and the words for what it expects.

Failure: `check` raises McpError -32602 with the first violation (chapter 80, 8.5).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipc.mcp.frames import INVALID_PARAMS, McpError


class Field(msgspec.Struct, frozen=True):
    """One argument. `expected` names what fits, for messages."""

    schema: dict[str, Any]
    expected: str
    required: bool = False

    @property
    def is_string(self) -> bool:
        return self.schema.get("type") == "string"


Fields = dict[str, Field]

ELIDE_MEMBERS: Final = ("max_bytes", "max_rows", "max_items")


def text(*, required: bool = False) -> Field:
    return Field({"type": "string"}, "string", required)


def nonempty(name: str) -> Field:
    return Field({"type": "string", "minLength": 1}, f"non-empty {name}", required=True)


def one_of(*words: str, default: str) -> Field:
    schema = {"type": "string", "enum": list(words), "default": default}
    return Field(schema, "one of " + ", ".join(words))


def boolean(default: bool | None = None) -> Field:
    schema: dict[str, Any] = {"type": "boolean"}
    return Field(schema if default is None else {**schema, "default": default}, "boolean")


def integer(
    low: int | None = None,
    high: int | None = None,
    *,
    default: int | None = None,
    required: bool = False,
) -> Field:
    schema: dict[str, Any] = {"type": "integer"}
    expected = "integer"
    if low is not None:
        schema["minimum"] = low
        expected = f"integer >= {low}"
    if high is not None:
        schema["maximum"] = high
        expected = f"integer in {low}..={high}"
    if default is not None:
        schema["default"] = default
    return Field(schema, expected, required)


def strings() -> Field:
    return Field({"type": "array", "items": {"type": "string"}}, "array of strings")


def string_map() -> Field:
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    return Field(schema, "object with string values")


def window() -> Field:
    items = {"type": "integer", "minimum": 0}
    schema = {"type": "array", "items": items, "minItems": 2, "maxItems": 2}
    return Field(schema, "array of two integers >= 0")


def effects() -> Field:
    named = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
    schema = {"type": "array", "items": {"anyOf": [{"type": "string"}, named]}}
    return Field(schema, "array of strings or objects with `kind`")


def anything(description: str) -> Field:
    return Field({"description": description}, "any value", required=True)


def elide() -> Field:
    members = {name: {"type": "integer", "minimum": 0} for name in ELIDE_MEMBERS}
    schema = {"type": "object", "properties": members, "additionalProperties": False}
    return Field(schema, "object of integers >= 0")


def object_schema(fields: Fields) -> dict[str, Any]:
    """The closed object that a tool takes."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: field.schema for name, field in fields.items()},
        "additionalProperties": False,
    }
    required = [name for name, field in fields.items() if field.required]
    return {**schema, "required": required} if required else schema


def check(fields: Fields, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, whole floats as integers. Raises McpError."""
    for name, field in fields.items():
        if not field.required:
            continue
        if field.is_string and not isinstance(arguments.get(name), str):
            raise _violation(f'missing string argument "{name}"')
        if name not in arguments:
            raise _violation(f'missing argument "{name}"')
    for name in arguments:
        if name not in fields:
            raise _violation(f'unknown argument "{name}"')
    return {
        name: _checked(name, field, field.schema, arguments[name])
        for name, field in fields.items()
        if name in arguments
    }


def _checked(name: str, field: Field, schema: dict[str, Any], value: Any) -> Any:
    wrong = _violation(f'argument "{name}": expected {field.expected}')
    if "anyOf" in schema:
        for choice in schema["anyOf"]:
            if _is_type(choice["type"], value):
                return _checked(name, field, choice, value)
        raise wrong
    kind = schema.get("type")
    if kind is None:
        return value
    if not _is_type(kind, value):
        raise wrong
    if kind == "integer":
        number = int(value)
        if number < schema.get("minimum", number) or number > schema.get("maximum", number):
            raise wrong
        return number
    if kind == "string":
        if len(value) < schema.get("minLength", 0) or value not in schema.get("enum", (value,)):
            raise wrong
        return value
    if kind == "array":
        size = len(value)
        if size < schema.get("minItems", 0) or size > schema.get("maxItems", size):
            raise wrong
        return [_checked(name, field, schema["items"], item) for item in value]
    if kind == "object":
        return _checked_object(name, field, schema, value)
    return value


def _checked_object(name: str, field: Field, schema: dict[str, Any], value: dict[str, Any]) -> Any:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if not all(member in value for member in schema.get("required", ())):
        raise _violation(f'argument "{name}": expected {field.expected}')
    checked = {}
    for member, item in value.items():
        if member in properties:
            checked[member] = _checked(f"{name}.{member}", field, properties[member], item)
        elif others is False:
            raise _violation(f'unknown argument "{name}.{member}"')
        elif isinstance(others, dict):
            checked[member] = _checked(name, field, others, item)
        else:
            checked[member] = item
    return checked


def _is_type(kind: str, value: Any) -> bool:
    if kind == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    types = {"string": str, "boolean": bool, "array": list, "object": dict}
    return isinstance(value, types[kind])


def _violation(message: str) -> McpError:
    return McpError(INVALID_PARAMS, message)
