"""The method reference page of the kernel endpoint, `docs/kernel-methods.md`, made from the typed
methods; tests.docs.reference writes and checks it.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from ipc.jsonrpc import Code
from ipc.methods import METHODS, Method, NoParams

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "kernel-methods.md"

_HEAD: Final = """# Methods of the kernel endpoint

This page is generated from the typed parameters and results in `ipc/methods.py`; run
`make format` after a change there.

Every method takes one JSON object. A member marked `?` may be left out or null. Integers are JSON
integers; times are Unix nanoseconds in members that end in `_ns`. *Gate* says whether a connection
must be attached first, *Runs* who answers: `router` and `worker read` never wait for a running
program, `worker, queued` takes its turn in the session's queue. *Read guest* says whether a guest
of a session shared read-only may call the method.
"""


def render() -> str:
    """The whole page."""
    parts = [_HEAD, _index(), *(_section(METHODS[name]) for name in sorted(METHODS)), _codes()]
    return "\n".join(parts)


def _index() -> str:
    lines = ["", "| Method | Gate | Runs | Read guest | |", "| --- | --- | --- | --- | --- |"]
    for name in sorted(METHODS):
        method = METHODS[name]
        guest = "yes" if method.read_guest else "no"
        lines.append(
            f"| [`{name}`](#{name.replace('.', '')}) | {method.gate.value} | {method.runs.value} "
            f"| {guest} | {method.summary} |"
        )
    return "\n".join(lines) + "\n"


def _section(method: Method) -> str:
    lines = [f"## `{method.name}`", "", method.summary, ""]
    if method.params is NoParams:
        lines += ["Parameters: none.", ""]
    else:
        lines += _fields("Parameter", method.params)
    for result in _variants(method.result):
        lines += _result(result)
    return "\n".join(lines)


def _result(result: Any) -> list[str]:
    origin = typing.get_origin(result)
    if origin is list:
        (item,) = typing.get_args(result)
        if not _is_struct(item):
            return ["Result: an array of objects.", ""]
        return ["Result: an array of objects with these members:", "", *_fields("Member", item)]
    return [f"Result ({_words(result.__name__)}):", "", *_fields("Member", result)]


def _words(name: str) -> str:
    text = "".join(f" {char.lower()}" if char.isupper() else char for char in name)
    return text.strip().removesuffix(" result")


def _fields(title: str, struct: type[Any]) -> list[str]:
    lines = [f"| {title} | Type | Default |", "| --- | --- | --- |"]
    omits = bool(getattr(struct.__struct_config__, "omit_defaults", False))
    nested: list[type[Any]] = []
    for field in msgspec.structs.fields(struct):
        optional = not field.required
        mark = "?" if optional else ""
        default = "" if field.required else "absent" if omits else _default(field.default)
        lines.append(f"| `{field.encode_name}{mark}` | {_type(field.type)} | {default} |")
        nested += [part for part in _variants(field.type) if _is_struct(part)]
    lines.append("")
    for part in nested:
        lines += [f"`{part.__name__}`:", "", *_fields("Member", part)]
    return lines


def _default(value: Any) -> str:
    if value is None or value is msgspec.NODEFAULT:
        return "none"
    return f"`{msgspec.json.encode(value).decode()}`"


def _variants(hint: Any) -> list[Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [part for part in typing.get_args(hint) if part is not type(None)]
    return [hint]


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


_NAMES: Final = {
    str: "string",
    int: "integer",
    bool: "boolean",
    float: "number",
    msgspec.Raw: "JSON",
}


def _type(hint: Any) -> str:
    nullable = any(part is type(None) for part in typing.get_args(hint))
    text = " or ".join(_one_type(part) for part in _variants(hint))
    return f"{text} or null" if nullable and text == "JSON" else text


def _one_type(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return "integer ≥ 0"
    if origin is list:
        return f"array of {_type(typing.get_args(hint)[0])}"
    if origin is tuple:
        return "[" + ", ".join(_type(part) for part in typing.get_args(hint)) + "]"
    if origin is dict:
        return "object"
    if _is_struct(hint):
        return f"`{hint.__name__}`"
    if hint is Any:
        return "any"
    return _NAMES[hint]


def _codes() -> str:
    lines = ["## Error codes", "", "| Code | Name |", "| --- | --- |"]
    names = {name: value for name, value in vars(Code).items() if name.isupper()}
    lines += [
        f"| {value} | `{name}` |" for name, value in sorted(names.items(), key=lambda n: n[1])
    ]
    return "\n".join(lines) + "\n"
