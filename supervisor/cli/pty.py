"""`shoal pty`: terminals of a session (chapter 81, section 7.8).

Failure: UsageError for an item or a size that cannot be one; RpcError for unknown terminals.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from supervisor.cli.call import Call
from supervisor.cli.failure import Exit
from supervisor.cli.options import UsageError
from supervisor.cli.output import one_line
from supervisor.cli.pty_attach import attach_to

_SIZE: Final = re.compile(r"(\d{1,5})[xX](\d{1,5})")


def pty_ref(text: str) -> str:
    """`N` or `pty:N`."""
    number = text.removeprefix("pty:")
    if not (number.isascii() and number.isdigit()):
        raise UsageError(f"not a terminal: `{text}`")
    return f"pty:{number}"


def read_item(text: str) -> object:
    """One item of `send`: text, `key:NAME` or `b64:...`."""
    if text.startswith("key:"):
        return {"key": text.removeprefix("key:")}
    if text.startswith("b64:"):
        return {"bytes": text.removeprefix("b64:")}
    return {"text": text}


def _ask(call: Call, method: str, params: dict[str, Any]) -> dict[str, Any]:
    with call.connect() as client:
        call.attached(client)
        answer: dict[str, Any] = client.call(method, params)
    return answer


def _quietly(call: Call, answer: dict[str, Any]) -> int:
    """Nothing but the answer as JSON where that was asked for."""
    if call.out.json:
        call.out.document(answer)
    return Exit.SUCCESS


def list_ptys(call: Call) -> int:
    rows = _ask(call, "pty.list", {})["ptys"]
    if call.out.json:
        call.out.document(rows)
        return Exit.SUCCESS
    call.out.table(
        ("PTY", "ALIVE", "PID", "SIZE", "CMD"),
        (
            (
                row["pty_id"],
                "yes" if row["alive"] else "no",
                str(row["pid"]),
                f"{row['cols']}x{row['rows']}",
                one_line(row["cmd"]),
            )
            for row in rows
        ),
    )
    return Exit.SUCCESS


def open_pty(call: Call) -> int:
    command, *arguments = call.operands
    size = _own_size()
    variables = dict(_variable(text) for text in call.many("env"))
    params = {
        "cmd": command,
        "args": arguments,
        "cols": call.number("cols") or size[0],
        "rows": call.number("rows") or size[1],
        "env": variables or None,
    }
    with call.connect() as client:
        call.attached(client)
        answer = client.call("pty.open", params)
        if call.flag("attach"):
            return attach_to(call, client, answer["pty_id"])
    if call.out.json:
        call.out.document(answer)
    else:
        call.out.line(answer["pty_id"])
    return Exit.SUCCESS


def attach(call: Call) -> int:
    ref = pty_ref(call.operands[0])
    with call.connect() as client:
        call.attached(client, tty=True)
        return attach_to(call, client, ref)


def _own_size() -> tuple[int | None, int | None]:
    """The size of the caller's terminal, when it has one."""
    try:
        size = os.get_terminal_size(0)
    except OSError:
        return None, None
    # Some do not know theirs and say 0.
    return size.columns or None, size.lines or None


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not given or not name:
        raise UsageError(f"--env needs K=V, got `{text}`")
    return name, value


def send(call: Call) -> int:
    ref, *items = call.operands
    params = {"pty_id": pty_ref(ref), "input": [read_item(item) for item in items]}
    return _quietly(call, _ask(call, "pty.send", params))


def read(call: Call) -> int:
    answer = _ask(call, "pty.read", {"pty_id": pty_ref(call.operands[0])})
    if call.out.json:
        call.out.document(answer)
    else:
        for row in answer["screen"]:
            call.out.line(row)
    return Exit.SUCCESS


def resize(call: Call) -> int:
    ref, text = call.operands
    size = _SIZE.fullmatch(text)
    if size is None:
        raise UsageError(f"not a size: `{text}` (COLSxROWS)")
    params = {"pty_id": pty_ref(ref), "cols": int(size[1]), "rows": int(size[2])}
    return _quietly(call, _ask(call, "pty.resize", params))


def close(call: Call) -> int:
    return _quietly(call, _ask(call, "pty.close", {"pty_id": pty_ref(call.operands[0])}))
