"""Storing files with a session: the one step behind attach, upload and prompt (chapter 70 §15).

The session's worker reads and writes the files; the router keeps the index of what is stored and
sees to it that no change of policy falls between the last check and the write.

Failure: RpcError -32602 with the texts of chapter 70 §15.1; nothing is stored then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_methods import FileEntry
from ipc.jsonrpc import RpcError
from ipc.messages import Caller, Failure, Reply
from journal.agent_store import UploadRow, put_upload, uploads
from journal.errors import StoreError
from supervisor.agent.limits import FILE_BYTES_MAX, FILE_NAME_BYTES_MAX, FILES_BYTES_MAX
from supervisor.contents import close_all
from supervisor.worker_process import Ending, Worker

if TYPE_CHECKING:
    from supervisor.agent.identity import Binding
    from supervisor.agent.sessions import LiveSession
    from supervisor.agent_endpoint import AgentEndpoint


class Stored(msgspec.Struct):
    """One stored file as the worker reports it."""

    ref_id: str
    marker: str
    workspace_path: str
    size_bytes: int
    deduplicated: bool
    file_name: str


class Known(msgspec.Struct):
    """What the index says about a content."""

    hash: str
    marker: str
    path: str


class WholeFile(FileEntry):
    """An entry whose content is here already, and within the limits."""

    data: bytes | bytearray = b""


class StoreOrder(msgspec.Struct):
    """What a worker is asked to store; `known` is the session's index."""

    workspace: str
    entries: list[FileEntry]
    known: list[Known]


async def store(
    endpoint: AgentEndpoint,
    live: LiveSession,
    binding: Binding,
    entries: list[FileEntry],
    *,
    method: str,
) -> list[Stored]:
    """Check all entries, then store all; the session's slot is held. Raises RpcError."""
    check_shapes(entries)
    worker = await live.worker()
    async with endpoint.config.lock.shared():
        if live.ended or endpoint.sessions.live.get(live.id) is not live:
            raise replaced(live.id)
        endpoint.check_session_access(
            binding.identity, method, "files:create", live.id, live.owner, alias=live.alias
        )
        for entry in entries:
            if entry.data_b64 is None and entry.path is not None:
                endpoint.check_readable(binding, live, entry.path)
        try:
            index = await endpoint.kernel.store.load(uploads(live.key))
            known = [Known(row.content_hash, row.marker, row.path) for row in index]
            order = StoreOrder(str(endpoint.workspace(live.alias)), entries, known)
            files = await _ask_worker(endpoint, live, worker, order)
            for file in files:
                row = UploadRow(file.ref_id, file.file_name, file.marker, file.workspace_path)
                await endpoint.kernel.store.commit(
                    put_upload(live.key, row, endpoint.kernel.now_ns())
                )
        except StoreError as error:
            raise agent_error(
                AgentCode.INTERNAL_ERROR, f"Store failed: {error}", "store_failed",
                session_id=live.id,
            ) from None  # fmt: skip
    return files


def check_shapes(entries: list[FileEntry]) -> None:
    """What can be said without looking at content. Raises RpcError."""
    total = 0
    for index, entry in enumerate(entries):
        if isinstance(entry, WholeFile):
            continue
        if entry.data_b64 is None and entry.path is None:
            raise _refused("Each file entry must have either `data_b64` or `path`", index)
        if entry.data_b64 is None:
            assert entry.path is not None
            if not entry.path.startswith("/"):
                raise _refused("Path must be absolute", index)
            continue
        name = entry.filename or "upload"
        if len(name.encode("utf-8", "replace")) > FILE_NAME_BYTES_MAX:
            raise _refused(f"File name exceeds {FILE_NAME_BYTES_MAX} bytes", index)
        size = len(entry.data_b64) // 4 * 3 - entry.data_b64[-2:].count("=")
        if size > FILE_BYTES_MAX:
            raise _refused(f"File exceeds 10 MB limit ({size} bytes)", index)
        total += size
    if total > FILES_BYTES_MAX:
        raise _refused("Total attachment size exceeds 20 MB limit", None)


def _refused(message: str, index: int | None) -> RpcError:
    data: dict[str, Any] = {} if index is None else {"index": index}
    return agent_error(AgentCode.INVALID_PARAMS, message, "invalid_params", **data)


async def _ask_worker(
    endpoint: AgentEndpoint, live: LiveSession, worker: Worker, order: StoreOrder
) -> list[Stored]:
    reply = await call_worker(
        endpoint, worker, "agent.attach", msgspec.json.encode(order), live.session.owner
    )
    return msgspec.json.decode(reply, type=list[Stored])


async def call_worker(
    endpoint: AgentEndpoint, worker: Worker, method: str, params: bytes, principal: str
) -> bytes:
    """One call of the agent part of a worker. Raises RpcError."""
    answered: asyncio.Future[bytes] = endpoint.kernel.loop.create_future()

    def over(ending: Ending, fds: list[int]) -> None:
        close_all(fds)
        if answered.done():
            return
        match ending:
            case Reply():
                answered.set_result(ending.result.data)
            case Failure():
                answered.set_exception(_error_of(bytes(ending.error)))
            case RpcError():
                answered.set_exception(ending)

    worker.call(method, params, Caller(principal, 0), over)
    return await answered


def _error_of(data: bytes) -> RpcError:
    found = msgspec.json.decode(data)
    members = {k: v for k, v in found["data"].items() if k not in ("kind", "reason")}
    return agent_error(found["code"], found["message"], found["data"]["kind"], **members)


def replaced(session_id: str) -> RpcError:
    return agent_error(
        AgentCode.SESSION_NOT_FOUND,
        "The session was closed or replaced before the upload was stored",
        "session_replaced",
        session_id=session_id,
    )
