"""The operator's view of the daemon: `kernel.status` and `kernel.reload` (chapter 81 §7.14).

Failure: `not_operator` for everybody but the local human.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params
from ipc.methods import METHODS, StatusParams
from journal.gc import StoreTotals, Totals
from leash.platform import landlock_abi
from supervisor.connection import Connection, RouterCall
from supervisor.path_object import path_object
from supervisor.version import VERSION

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session

_encode_json = msgspec.json.Encoder().encode


def check_operator(call: RouterCall) -> None:
    assert call.attachment is not None
    if not call.attachment.caller.local_human:
        raise RpcError(Code.LEASH_DENIED, "this needs operator authority", "not_operator")


def reload_kernel(kernel: Kernel, call: RouterCall) -> None:
    """Serve `kernel.reload`; files that are wrong are an answer, not an error."""
    check_operator(call)
    failure = kernel.reload()
    call.answer(
        _encode_json(
            {"reloaded": failure is None, "generation": kernel.generation, "error": failure}
        )
    )


async def kernel_status(kernel: Kernel, call: RouterCall) -> bytes:
    """Serve `kernel.status`."""
    check_operator(call)
    params: StatusParams = decode_params(call.params, METHODS["kernel.status"].decoder)
    totals = await kernel.store.load(Totals())
    status = _status(kernel, totals)
    if params.metrics:
        status["metrics"] = kernel.metrics.text()
    return _encode_json(status)


def _status(kernel: Kernel, totals: StoreTotals) -> dict[str, Any]:
    failure = kernel.store.failure
    return {
        "version": VERSION,
        "pid": os.getpid(),
        "started_ns": kernel.started_ns,
        "socket": kernel.socket,
        "state_dir": kernel.state_dir,
        "ephemeral": kernel.ephemeral,
        "draining": kernel.draining,
        "config": {
            "generation": kernel.generation,
            "sources": kernel.config_sources,
            "warnings": kernel.config_warnings,
        },
        "policy": {
            "path": None if kernel.policies.path is None else str(kernel.policies.path),
            "generation": kernel.policies.generation,
        },
        "enforcement": {
            "available_tier": kernel.tier,
            "landlock_abi": landlock_abi(),
            "network": False,
        },
        "connections": [
            _connection(kernel, connection)
            for connection in sorted(kernel.connections, key=lambda one: one.number)
        ],
        "sessions": [
            _session(session) for session in sorted(kernel.sessions, key=lambda one: one.key)
        ],
        "plans": {"stored": 0, "pending": 0},
        "tokens": _tokens(kernel),
        "journal": {
            "store": "ok" if failure is None else failure.text,
            "on_failure": kernel.config.journal.on_failure,
            "entries": totals.entries,
            "db_bytes": totals.database_bytes,
            "cas_blobs": totals.blobs,
            "cas_bytes": totals.blob_bytes,
        },
        "quotas": msgspec.to_builtins(kernel.config.quotas),
    }


def _connection(kernel: Kernel, connection: Connection) -> dict[str, Any]:
    attachment = connection.attachment
    return {
        "id": connection.number,
        "endpoint": connection.endpoint_name,
        "principal": attachment.principal if attachment else None,
        "session": attachment.session.name if attachment else None,
        "client": attachment.client_kind if attachment else None,
        "since_ns": connection.since_ns,
        "requests": connection.requests,
        "subscriptions": len(kernel.bus.subscribed(connection)),
    }


def _session(session: Session) -> dict[str, Any]:
    pid = session.worker.pid if session.worker is not None else None
    rss_bytes, cpu_ns = (0, 0) if pid is None else _usage(pid)
    return {
        "owner": session.owner,
        "name": session.name,
        "state": session.state,
        "pid": pid,
        "rss_bytes": rss_bytes,
        "cpu_ns": cpu_ns,
        "cwd": path_object(session.cwd).display,
        "attached": session.attached,
        "shared_with": sorted(session.guests),
        "tasks": len(session.tasks.live()),
        "ptys": session.ptys,
        "transcript": session.next_out - 1,
        "restarts": session.restarts,
        "created_ns": session.created_ns,
        "last_used_ns": session.last_used_ns,
    }


def _usage(pid: int) -> tuple[int, int]:
    """Resident bytes and CPU nanoseconds of a process; zeros where the platform does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return pages * resource.getpagesize(), ticks * tick_ns
    return 0, 0


def _tokens(kernel: Kernel) -> dict[str, Any]:
    if kernel.tokens is None:
        return {"store": "ok", "active": 0, "revoked": 0, "expired": 0}
    counts = kernel.tokens.counts(kernel.now_ns())
    return {"store": kernel.tokens.broken or "ok", **counts}
