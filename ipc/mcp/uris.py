"""`shoal://` URIs: their grammar, and the kernel call that each one means (chapter 80, 10.3-10.4).

Pure.

Failure: McpError -32602 with the texts of chapter 80, 10.5.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn
from urllib.parse import unquote_to_bytes

import msgspec

from ipc.mcp.frames import INVALID_PARAMS, McpError
from ipc.mcp.text import SCHEME

_SLICE: Final = re.compile(r"([0-9]+)\.\.([0-9]+)")
_UNSIGNED: Final = re.compile(r"[0-9]+")
_SIGNED: Final = re.compile(r"[+-]?[0-9]+")
_FORMATS: Final = frozenset({"json", "render", "raw"})
_VIEWS: Final = frozenset({"cwd", "env", "reef"})
U64_MAX: Final = 2**64 - 1
I64_MAX: Final = 2**63 - 1

Query = dict[str, str]


class Address(msgspec.Struct, frozen=True):
    """A parsed URI: segments (the first is the root) and query values, percent-decoded."""

    segments: list[str]
    query: Query


class Read(msgspec.Struct, frozen=True):
    """A kernel call. With `then`, the value of the task's `result_ref` is what is meant."""

    method: str
    params: dict[str, Any]
    then: dict[str, Any] | None = None


def _decoded(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")


def parse(uri: str) -> Address:
    """Raises McpError for what is no `shoal://` URI, or an empty one."""
    if not uri.startswith(SCHEME):
        _refuse(f"not a shoal:// uri: {uri}")
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    segments = [_decoded(part) for part in path.split("/") if part]
    if not segments:
        _refuse(f"empty shoal:// uri: {uri}")
    values: Query = {}
    for pair in query.split("&"):
        key, _, value = pair.partition("=")
        values[key] = _decoded(value)
    return Address(segments, values)


def read_of(uri: str) -> Read:
    """The kernel call that reads a URI. Raises McpError."""
    address = parse(uri)
    root = address.segments[0]
    reader = _ROOTS.get(root)
    if reader is None:
        _refuse(f"unsupported resource root: {root}")
    return reader(address)


def channel_of(uri: str) -> tuple[str, int | None]:
    """Channel and `since` of a URI that can be subscribed. Raises McpError."""
    with contextlib.suppress(McpError):
        match parse(uri):
            case Address(["events", channel, *_], query):
                return channel, _unsigned(query, "since")
            case Address(["task", task, *_]):
                return f"task.{task.removeprefix('task:')}", None
    raise McpError(
        INVALID_PARAMS, "only shoal://events/{ch} and shoal://task/{id}[/out] are subscribable"
    )


def _refuse(message: str) -> NoReturn:
    raise McpError(INVALID_PARAMS, message)


def _second(address: Address, what: str) -> str:
    if len(address.segments) < 2:
        _refuse(what)
    return address.segments[1]


def _prefixed(prefix: str, text: str) -> str:
    return text if text.startswith(prefix) else prefix + text


def _number(query: Query, key: str, pattern: re.Pattern[str], low: int, high: int) -> int | None:
    text = query.get(key, "")
    if len(text) > 40 or not pattern.fullmatch(text):
        return None
    number = int(text)
    return number if low <= number <= high else None


def _unsigned(query: Query, key: str) -> int | None:
    return _number(query, key, _UNSIGNED, 0, U64_MAX)


def _signed(query: Query, key: str) -> int | None:
    return _number(query, key, _SIGNED, -I64_MAX - 1, I64_MAX)


def _selection(query: Query) -> dict[str, Any]:
    """What of a value is asked for; the parts that say nothing usable are absent."""
    selection: dict[str, Any] = {}
    if "path" in query:
        selection["path"] = query["path"]
    found = _SLICE.fullmatch(query.get("slice", ""))
    if found and all(len(part) <= 20 and int(part) <= U64_MAX for part in found.groups()):
        selection["slice"] = [int(part) for part in found.groups()]
    if query.get("format") in _FORMATS:
        selection["format"] = query["format"]
    try:
        elide = msgspec.json.decode(query.get("elide", ""))
    except (msgspec.DecodeError, RecursionError):
        elide = None
    if isinstance(elide, dict):
        selection["elide"] = elide
    return selection | _range(query)


def _range(query: Query) -> dict[str, Any]:
    found = {key: _unsigned(query, key) for key in ("offset", "length")}
    return {key: number for key, number in found.items() if number is not None}


def _out(address: Address) -> Read:
    index = _second(address, "shoal://out/{n} needs an index")
    return Read("value.get", {"ref": f"out:{index}", **_selection(address.query)})


def _val(address: Address) -> Read:
    content = _second(address, "shoal://val/{hash} needs a hash").removeprefix("blake3:")
    return Read("blob.get", {"hash": content, **_range(address.query)})


def _plan(address: Address) -> Read:
    ref = _second(address, "shoal://plan/{ref} needs a plan ref")
    return Read("plan.get", {"plan_ref": _prefixed("plan:", ref)})


def _task(address: Address) -> Read:
    if address.segments == ["task", "out"]:
        _refuse("shoal://task/{id}/out needs an id")
    task = _second(address, "shoal://task/{id} needs an id")
    params = {"task": _prefixed("task:", task)}
    if address.segments[2:3] == ["out"]:
        return Read("task.get", params, then=_selection(address.query))
    return Read("task.get", params)


def _pty(address: Address) -> Read:
    if len(address.segments) == 1:
        return Read("pty.list", {})
    return Read("pty.read", {"pty_id": _prefixed("pty:", address.segments[1])})


def _session(address: Address) -> Read:
    view = address.segments[1] if len(address.segments) > 1 else ""
    if view not in _VIEWS:
        _refuse(f"unsupported session view: {view}")
    return Read(f"session.{view}", {})


def _journal(address: Address) -> Read:
    query = address.query
    params: dict[str, Any] = {"limit": _unsigned(query, "limit") or 0}
    for key in ("since", "until"):
        number = _signed(query, key)
        if number is not None:
            params[key] = number
    for key in ("head", "principal"):
        if key in query:
            params[key] = query[key]
    if query.get("ok") in ("true", "false"):
        params["ok"] = query["ok"] == "true"
    effects = [kind for kind in query.get("effects", "").split(",") if kind]
    if effects:
        params["effects"] = effects
    return Read("journal.query", params)


def _events(address: Address) -> Read:
    channel = _second(address, "shoal://events/{channel} needs a channel")
    numbers = {key: _unsigned(address.query, key) for key in ("since", "limit")}
    given = {key: number for key, number in numbers.items() if number is not None}
    return Read("events.read", {"channel": channel, **given})


_ROOTS: Final[dict[str, Callable[[Address], Read]]] = {
    "out": _out,
    "val": _val,
    "plan": _plan,
    "task": _task,
    "jobs": lambda _: Read("task.list", {}),
    "pty": _pty,
    "session": _session,
    "journal": _journal,
    "events": _events,
}
