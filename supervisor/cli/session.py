"""`shoal session`: list, share and close sessions (chapter 81, section 7.12).

Failure: RpcError, such as exit 1 for `session is in use`.
"""

from __future__ import annotations

from typing import Any

from ipc.client import Client
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.output import one_line, path_text


def list_sessions(call: Call) -> int:
    with call.connect() as client:
        call.attached(client)
        rows = client.call("session.list", {"all": call.flag("all")})["sessions"]
    if call.out.json:
        call.out.document(rows)
        return Exit.SUCCESS
    columns = ("OWNER", "NAME", "STATE", "PID", "ATTACHED", "TASKS", "PTYS", "CWD", "SHARED")
    call.out.table(columns, map(_row, rows))
    return Exit.SUCCESS


def _row(session: dict[str, Any]) -> tuple[str, ...]:
    guests = session.get("shared_with") or []
    shared = ",".join(guests) + (f" ({session['share_mode']})" if guests else "")
    return (
        session["owner"],
        one_line(session["session"]),
        session["state"],
        str(session["pid"] or "-"),
        str(session["attached"]),
        str(session["tasks"]),
        str(session["ptys"]),
        one_line(path_text(session["cwd"])),
        shared,
    )


def share(call: Call) -> int:
    return _set_guests(call, add=True)


def unshare(call: Call) -> int:
    return _set_guests(call, add=False)


def _set_guests(call: Call, *, add: bool) -> int:
    """Read the guest list, change it, and set it: the method always takes the whole list."""
    name, *principals = call.operands
    with call.connect() as client:
        attached = call.attached(client)
        present, mode = _guests(client, attached["principal"], name)
        guests = present | set(principals) if add else present - set(principals)
        params = {
            "session": name,
            "principals": sorted(guests),
            "mode": call.text("mode") or mode or "full",
        }
        answer = client.call("session.share", params)
    if call.out.json:
        call.out.document(answer)
    return Exit.SUCCESS


def _guests(client: Client, owner: str, name: str) -> tuple[set[str], str | None]:
    for session in client.call("session.list")["sessions"]:
        if session["owner"] == owner and session["session"] == name:
            return set(session.get("shared_with") or ()), session.get("share_mode")
    raise Failure(f"unknown session: {name}")


def close(call: Call) -> int:
    params = {"session": call.operands[0], "force": call.flag("force")}
    with call.connect() as client:
        call.attached(client)
        answer = client.call("session.close", params)
    if call.out.json:
        call.out.document(answer)
    return Exit.SUCCESS
