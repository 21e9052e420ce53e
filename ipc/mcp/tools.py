"""The thirteen tools: names, schemas, and the kernel call that each one is (chapter 80, 9).

Pure.

Failure: `prepare` raises McpError -32602 for a call that does not fit its tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ipc.mcp import schemas
from ipc.mcp.frames import INVALID_PARAMS, McpError
from ipc.mcp.schemas import Fields, integer, object_schema, text

Arguments = dict[str, Any]
SIZE_MAX: Final = 1_000


class Tool(msgspec.Struct, frozen=True):
    """`params` makes the kernel's parameters out of checked arguments."""

    name: str
    method: str
    fields: Fields
    description: str
    params: Callable[[Arguments], Arguments]
    terminal: bool = False
    read_only: bool = False
    destructive: bool = False

    def entry(self) -> dict[str, Any]:
        """What `tools/list` says about it."""
        entry: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": object_schema(self.fields),
        }
        if self.read_only:
            entry["annotations"] = {"readOnlyHint": True}
        elif self.destructive:
            entry["annotations"] = {"destructiveHint": True}
        return entry


def _same(arguments: Arguments) -> Arguments:
    return arguments


def _exec(arguments: Arguments) -> Arguments:
    defaults = {"mode": "run", "position": "value", "background": False}
    return {**defaults, "timeout_ms": None, "elide": None, **arguments}


def _plan(arguments: Arguments) -> Arguments:
    return {**arguments, "mode": "plan", "position": "value"}


def _get(arguments: Arguments) -> Arguments:
    return {"path": None, "slice": None, "elide": None, **arguments}


def _cap_request(arguments: Arguments) -> Arguments:
    return {"effects": [], **arguments}


def _pty_open(arguments: Arguments) -> Arguments:
    return {"args": [], "cols": None, "rows": None, "env": {}, **arguments}


_PTY_ID: Final[Fields] = {"pty_id": text(required=True)}

TOOLS: Final = (
    Tool(
        "shoal_exec", "exec",
        {
            "src": text(required=True),
            "mode": schemas.one_of("run", "plan", default="run"),
            "position": schemas.one_of("stmt", "value", default="value"),
            "background": schemas.boolean(False),
            "timeout_ms": integer(1),
            "elide": schemas.elide(),
        },
        "Run source in the session and get its value. With `background` or when `timeout_ms` "
        "passes, the work goes on as a task.",
        _exec, destructive=True,
    ),
    Tool(
        "shoal_plan", "exec", {"src": text(required=True)},
        "Show what source would do without running it. Use before effects that may need approval.",
        _plan, read_only=True,
    ),
    Tool(
        "shoal_apply", "plan.apply", {"plan_ref": text(required=True)},
        "Run exactly the source of a plan, once it is allowed or approved.",
        _same, destructive=True,
    ),
    Tool(
        "shoal_get", "value.get",
        {
            "ref": text(required=True), "path": text(), "slice": schemas.window(),
            "elide": schemas.elide(),
        },
        "Read an earlier result or a part of it by reference. Use instead of running again.",
        _get, read_only=True,
    ),
    Tool(
        "shoal_journal", "journal.query",
        {
            "since": integer(), "until": integer(), "principal": text(),
            "ok": schemas.boolean(), "effects": schemas.strings(), "head": text(),
            "limit": integer(1),
        },
        "List what has been run, newest first. Use to find out whether an effect happened.",
        _same, read_only=True,
    ),
    Tool(
        "shoal_cancel", "task.cancel", {"task": text(required=True)},
        "Ask a running task to stop.", _same,
    ),
    Tool(
        "shoal_cap_request", "cap.request",
        {"plan_ref": text(required=True), "effects": schemas.effects()},
        "Ask for a plan to be approved. The answer says whether it is, or waits for an approver.",
        _cap_request,
    ),
    Tool(
        "shoal_pty_open", "pty.open",
        {
            "cmd": schemas.nonempty("cmd"), "args": schemas.strings(),
            "cols": integer(1, SIZE_MAX, default=80), "rows": integer(1, SIZE_MAX, default=24),
            "env": schemas.string_map(),
        },
        "Start an interactive program in a terminal of the session. Close it when done.",
        _pty_open, terminal=True,
    ),
    Tool(
        "shoal_pty_send", "pty.send",
        {
            **_PTY_ID,
            "input": schemas.anything(
                'text, {"text":...}, {"key":"Enter"}, {"bytes":"<base64>"}, or an array of these'
            ),
        },
        "Type text or keys into a terminal.", _same, terminal=True, destructive=True,
    ),
    Tool(
        "shoal_pty_read", "pty.read", _PTY_ID,
        "Read the screen of a terminal as plain text.", _same, terminal=True, read_only=True,
    ),
    Tool(
        "shoal_pty_resize", "pty.resize",
        {
            **_PTY_ID, "cols": integer(1, SIZE_MAX, required=True),
            "rows": integer(1, SIZE_MAX, required=True),
        },
        "Change the size of a terminal.", _same, terminal=True,
    ),
    Tool(
        "shoal_pty_close", "pty.close", _PTY_ID,
        "End a terminal and its program.", _same, terminal=True, destructive=True,
    ),
    Tool(
        "shoal_pty_list", "pty.list", {},
        "List the terminals of the session.", _same, terminal=True, read_only=True,
    ),
)  # fmt: skip

_BY_NAME: Final = {tool.name: tool for tool in TOOLS}


def named(params: Any) -> Tool | None:
    """The tool that parameters of `tools/call` name, if any."""
    name = params.get("name") if isinstance(params, dict) else None
    return _BY_NAME.get(name) if isinstance(name, str) else None


def prepare(params: Any) -> tuple[str, Arguments]:
    """The kernel method and parameters of a call. Raises McpError."""
    name = params.get("name") if isinstance(params, dict) else None
    if not isinstance(name, str):
        raise McpError(INVALID_PARAMS, "tools/call requires name")
    tool = _BY_NAME.get(name)
    if tool is None:
        raise McpError(INVALID_PARAMS, f'unknown tool "{name}"')
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise McpError(INVALID_PARAMS, "tool arguments must be an object")
    return tool.method, tool.params(schemas.check(tool.fields, arguments))
