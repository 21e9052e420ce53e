"""The protocol reference of the agent endpoint, made from the typed methods: the generated block of
`docs/agent-endpoint.md`, which tests.docs.reference writes and checks.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any, Final

import msgspec

from ipc.agent_envelope import AgentCode
from ipc.agent_methods import METHODS
from ipc.agent_params import Json, Method, NoParams, camel

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "agent-endpoint.md"


def render() -> str:
    """The generated part."""
    parts = [
        "Generated from `ipc/agent_methods.py`; run `make format` after a change there.",
        "",
        "A parameter marked `?` may be left out or null. Every name is also accepted in camelCase;",
        "methods marked *twins* send both spellings.",
        "",
        _index(),
        *(_section(method) for method in METHODS.values()),
        _codes(),
    ]
    return "\n".join(parts)


def _anchor(name: str) -> str:
    return name.replace("/", "").replace("_", "_")


def _index() -> str:
    lines = ["| Method | Grant | Twins | |", "| --- | --- | --- | --- |"]
    lines += [
        f"| [`{method.name}`](#{_anchor(method.name)}) | {method.grant or 'none'} "
        f"| {'yes' if method.twins else 'no'} | {method.summary} |"
        for method in METHODS.values()
    ]
    return "\n".join(lines) + "\n"


def _section(method: Method) -> str:
    lines = [f"### `{method.name}`", "", method.summary, ""]
    if method.params is NoParams:
        lines += ["Parameters: none.", ""]
    else:
        lines += _table("Parameter", method.params, twins=True)
    for result in _variants(method.result):
        lines += [f"Result{_which(method, result)}:", ""]
        lines += _table("Member", result, twins=method.twins)
    return "\n".join(lines)


def _which(method: Method, result: Any) -> str:
    return f" (`{result.__name__}`)" if len(_variants(method.result)) > 1 else ""


def _table(title: str, struct: type[Any], *, twins: bool) -> list[str]:
    lines = [f"| {title} | Type |", "| --- | --- |"]
    nested: list[type[Any]] = []
    for field in msgspec.structs.fields(struct):
        name = field.encode_name
        twin = f" / `{camel(name)}`" if twins and camel(name) != name else ""
        mark = "" if field.required else "?"
        lines.append(f"| `{name}`{twin}{mark} | {_type(field.type)} |")
        nested += [part for part in _structs(field.type) if part not in nested]
    lines.append("")
    for part in nested:
        lines += [f"`{part.__name__}`:", "", *_table("Member", part, twins=twins)]
    return lines


def _structs(hint: Any) -> list[type[Any]]:
    found: list[type[Any]] = []
    for part in _variants(hint):
        if typing.get_origin(part) is list:
            found += _structs(typing.get_args(part)[0])
        elif isinstance(part, type) and issubclass(part, msgspec.Struct):
            found.append(part)
    return found


def _variants(hint: Any) -> list[Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [part for part in typing.get_args(hint) if part is not type(None)]
    return [hint]


_NAMES: Final[dict[Any, str]] = {
    str: "string",
    int: "integer",
    bool: "boolean",
    float: "number",
    bytes: "base64",
    Json: "JSON",
    Any: "JSON",
}


def _type(hint: Any) -> str:
    return " or ".join(_one_type(part) for part in _variants(hint))


def _one_type(hint: Any) -> str:
    if typing.get_origin(hint) is list:
        return f"array of {_type(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is dict:
        return "object"
    if hint in _NAMES:
        return _NAMES[hint]
    return f"`{hint.__name__}`"


def _codes() -> str:
    lines = ["### Error codes", "", "| Code | Name |", "| --- | --- |"]
    names = {name: value for name, value in vars(AgentCode).items() if name.isupper()}
    lines += [f"| {value} | `{name}` |" for name, value in sorted(names.items(), key=_by_value)]
    return "\n".join(lines)


def _by_value(item: tuple[str, int]) -> int:
    return item[1]
