"""Printing results and errors of submissions: shared by `exec`, `task output` and `plan apply`.

Failure: RpcError and ClientError of the calls made to fetch a value.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from ipc.client import Client, Code, RpcError
from supervisor.cli.diagnostic import INTERACTIVE_NAME, diagnostic
from supervisor.cli.failure import as_error_object, exit_code
from supervisor.cli.output import Output

PARSE_KIND: Final = "parse error"
PLAN_FIRST: Final = "plan it first: shoal plan make SOURCE, then shoal plan approve REF"


def print_result(out: Output, result: Mapping[str, Any]) -> None:
    """The answer of a finished `exec`: its members as JSON, or its rendering."""
    if out.json:
        out.document({name: result[name] for name in ("ref", "value", "render")})
    elif result["render"]:
        out.line(result["render"])


def fetch_result(client: Client, ref: str, elide: Mapping[str, int] | None) -> dict[str, Any]:
    """What `exec` would have answered for a stored result."""
    value = client.start("value.get", {"ref": ref, "elide": elide})
    render = client.start("value.get", {"ref": ref, "format": "render"})
    return {"ref": ref, "value": value.result()["value"], "render": render.result()["render"]}


def print_raw(out: Output, client: Client, ref: str) -> None:
    """The exact characters or bytes of a stored string or bytes value, page by page."""
    offset: int | None = 0
    while offset is not None:
        params = {"ref": ref, "format": "raw", "offset": offset}
        page = client.call("value.get", params)
        if "raw" in page:
            out.text(page["raw"])
        else:
            out.bytes(base64.b64decode(page["raw_base64"]))
        offset = page.get("next")


def print_failure(
    out: Output,
    error: RpcError,
    source: str,
    *,
    name: str = INTERACTIVE_NAME,
    command: str = "exec",
) -> int:
    """Show why a submission failed; returns the exit code."""
    if out.json:
        out.document({"error": as_error_object(error)})
    else:
        for line in _explain(out, error, source, name, command):
            out.note(line)
    return exit_code(error)


def _explain(out: Output, error: RpcError, source: str, name: str, command: str) -> list[str]:
    data = error.data
    if error.code in (Code.PARSE_ERROR, Code.RAISED):
        raised = error.code == Code.RAISED
        text = diagnostic(
            out,
            name,
            source,
            str(data.get("code")) if raised else PARSE_KIND,
            error.message,
            span=data.get("span"),
            hint=data.get("hint"),
            stderr=data.get("stderr") if raised else None,
        )
        lines = [text.removesuffix("\n")]
        if data.get("ref"):
            lines.append(f"stored as {data['ref']}")
        return lines
    lines = [f"shoal {command}: {error.message}"]
    if data.get("hint"):
        lines.append(f"hint: {data['hint']}")
    lines += [f"  {effect_text(effect)}" for effect in data.get("effects") or ()]
    if error.code == Code.APPROVAL_REQUIRED and command == "exec":
        lines.append(PLAN_FIRST)
    return lines


def effect_text(effect: Mapping[str, Any]) -> str:
    """One effect on one line: its kind, then its members."""
    members = []
    for name, value in effect.items():
        if name != "kind":
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            members.append(f"{name}: {shown}")
    return "  ".join([str(effect.get("kind", "?")), *members])
