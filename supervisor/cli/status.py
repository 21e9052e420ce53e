"""`shoal status`: what the kernel is doing (chapter 81, section 7.14).

Failure: exit 77 without operator authority, 69 without a kernel.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from supervisor.cli.call import Call
from supervisor.cli.failure import Exit
from supervisor.cli.output import Output, one_line, path_text


def run(call: Call) -> int:
    # Asking for the state of a kernel must not start one.
    with call.connect(autostart=False) as client:
        call.attached(client)
        status = client.call("kernel.status")
    if call.out.json:
        call.out.document(status)
    else:
        print_summary(call.out, status)
    return Exit.SUCCESS


def metrics(call: Call) -> int:
    """`shoal metrics`: the text a Prometheus server would scrape."""
    with call.connect(autostart=False) as client:
        call.attached(client)
        text = client.call("kernel.status", {"metrics": True})["metrics"]
    call.out.text(text)
    return Exit.SUCCESS


def print_summary(out: Output, status: Mapping[str, Any]) -> None:
    journal, plans = status["journal"], status["plans"]
    uptime_s = time.time() - status["started_ns"] / 1e9
    state = "draining" if status["draining"] else "serving"
    rows = [
        ("kernel", f"{status['version']}, pid {status['pid']}, {state}, up {duration(uptime_s)}"),
        ("socket", path_text(status["socket"])),
        ("state", path_text(status["state_dir"]) or "in memory"),
        ("policy", path_text(status["policy"]["path"]) or "permissive for the local user"),
        ("sandbox", f"tier {status['enforcement']['available_tier']}"),
        ("connections", str(len(status["connections"]))),
        ("plans", f"{plans['stored']} stored, {plans['pending']} pending"),
        (
            "journal",
            f"{journal['entries']} entries, {size(journal['db_bytes'])}, "
            f"{journal['cas_blobs']} blobs, {size(journal['cas_bytes'])}"
            + _trouble(journal["store"]),
        ),
    ]
    tokens = status["tokens"]
    rows.append(
        (
            "tokens",
            f"{tokens['active']} active, {tokens['revoked']} revoked, {tokens['expired']} expired"
            + _trouble(tokens["store"]),
        )
    )
    for name, value in rows:
        out.line(f"{name + ':':<13}{value}")
    for warning in status["config"]["warnings"]:
        out.line(f"warning: {warning}")
    if status["sessions"]:
        out.line()
    sessions_table(out, status["sessions"])


def sessions_table(out: Output, sessions: list[dict[str, Any]]) -> None:
    columns = ("OWNER", "NAME", "STATE", "PID", "RSS", "TASKS", "PTYS", "ATTACHED", "CWD")
    out.table(
        columns,
        (
            (
                session["owner"],
                one_line(session["name"]),
                session["state"],
                str(session["pid"] or "-"),
                size(session["rss_bytes"]),
                str(session["tasks"]),
                str(session["ptys"]),
                str(session["attached"]),
                one_line(path_text(session["cwd"])),
            )
            for session in sessions
        ),
    )


def _trouble(store: str) -> str:
    return "" if store == "ok" else f" ({store})"


def size(count: int) -> str:
    """Bytes in the largest binary unit that keeps a number of at least one."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def duration(seconds: float) -> str:
    """A span of time, coarse: its two largest units."""
    whole = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, whole = divmod(whole, length)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount}{unit}")
    return " ".join(parts[:2])
