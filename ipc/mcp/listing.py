"""What `resources/list` and `resources/templates/list` answer, and read results (chapter 80, 10).

Pure.

Failure: `page` raises McpError -32602 for a cursor that was not issued by the same pager.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any, Final

from ipc.mcp.frames import INVALID_PARAMS, McpError
from ipc.mcp.text import SCHEME, bounded, pretty

PAGE_MAX: Final = 500
_JSON: Final = "application/json"

_STANDING: Final = (
    ("journal", "journal", "execution journal"),
    ("jobs", "jobs", "task table"),
    ("session/cwd", "cwd", "working directory, live"),
    ("session/env", "env", "environment: names, values only when granted"),
    ("session/reef", "reef", "active tool scope and bindings"),
    ("pty", "pty", "open terminals"),
)

_TEMPLATES: Final = (
    ("out/{n}{?path,slice,format}", "transcript-value", "a stored result, or a part of it"),
    ("val/{hash}", "content-value", "stored content by its hash"),
    ("task/{id}", "task", "the record of a task"),
    ("task/{id}/out{?path,slice,format}", "task-output", "the result of a task"),
    ("plan/{ref}", "plan", "a stored plan"),
    ("session/{view}", "session-view", "a view of the session: cwd, env or reef"),
    ("pty/{id}", "pty-screen", "the screen of a terminal"),
    ("journal{?since,until,head,principal,ok,effects,limit}", "journal", "journal entries"),
    ("events/{channel}{?since,limit}", "events", "past events of a channel"),
)

# Kernel method, where its rows are, the member that names a row, and what a row is.
LISTED: Final = (
    ("task.list", None, "task", "task"),
    ("plan.list", None, "plan_ref", "plan"),
    ("pty.list", "ptys", "pty_id", "terminal"),
)


def _entry(uri: str, name: str, description: str) -> dict[str, Any]:
    return {"uri": uri, "name": name, "description": description, "mimeType": _JSON}


def standing() -> list[dict[str, Any]]:
    return [_entry(SCHEME + path, name, what) for path, name, what in _STANDING]


def templates() -> list[dict[str, Any]]:
    return [
        {"uriTemplate": SCHEME + path, "name": name, "description": what, "mimeType": _JSON}
        for path, name, what in _TEMPLATES
    ]


def rows_of(result: Any, where: str | None, member: str, what: str) -> list[dict[str, Any]]:
    """The entries of one listing of the kernel."""
    rows = result.get(where, []) if where and isinstance(result, dict) else result
    entries = []
    for row in rows if isinstance(rows, list) else []:
        ref = str(row[member])
        detail = row.get("state") or row.get("verdict") or row.get("cmd")
        description = f"{what}, {detail}" if detail else what
        entries.append(_entry(SCHEME + ref.replace(":", "/", 1), ref, description))
    return entries


class Pager:
    """Cuts a listing into pages. Its cursors are signed places, so nothing has to be kept."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def start(self, cursor: Any) -> int:
        """Where the page of a cursor starts. Raises McpError."""
        if cursor is None:
            return 0
        if isinstance(cursor, str):
            place = cursor.partition(".")[0]
            if place.isdecimal() and hmac.compare_digest(
                self._cursor(place).encode(), cursor.encode("utf-8", "replace")
            ):
                return int(place)
        raise McpError(INVALID_PARAMS, "invalid cursor")

    def page(self, entries: Sequence[dict[str, Any]], start: int) -> dict[str, Any]:
        end = start + PAGE_MAX
        page: dict[str, Any] = {"resources": list(entries[start:end])}
        if len(entries) > end:
            page["nextCursor"] = self._cursor(str(end))
        return page

    def _cursor(self, place: str) -> str:
        return f"{place}.{hmac.new(self._key, place.encode(), hashlib.sha256).hexdigest()[:32]}"


def read_result(uri: str, result: Any) -> dict[str, Any]:
    """The result of `resources/read` around what the kernel answered."""
    members = result if isinstance(result, dict) else {}
    for name in ("render", "raw"):
        text = members.get(name)
        if isinstance(text, str):
            content = {"uri": uri, "mimeType": "text/plain", "text": bounded(text)}
            return {"contents": [content], "structuredContent": result}
    value = members.get("value", result)
    if value is not result and isinstance(value, dict):
        names = {"offset": "offset", "size": "len", "total": "total", "next": "next"}
        value = value | {new: members[old] for new, old in names.items() if old in members}
    content = {"uri": uri, "mimeType": _JSON, "text": bounded(pretty(value))}
    return {"contents": [content], "structuredContent": value}
