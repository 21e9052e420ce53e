"""Handlers of `file/*` and `fs/list_dir` (chapter 70 §15).

Failure: RpcError with the codes and texts of chapter 70 §15.
"""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_methods import (
    AttachParams,
    AttachResult,
    DirEntry,
    FileResult,
    ListDirParams,
    ListDirResult,
    UploadBeginParams,
    UploadBeginResult,
    UploadChunkParams,
    UploadChunkResult,
    UploadCommitParams,
)
from ipc.jsonrpc import RpcError
from supervisor.agent import attachments
from supervisor.agent.attachments import Stored
from supervisor.agent.identity import not_owned, session_not_found
from supervisor.agent.limits import DIR_ENTRIES_MAX, FILE_BYTES_MAX, UPLOAD_CHUNK_BYTES
from supervisor.agent.sessions import SURFACES, LiveSession

if TYPE_CHECKING:
    from supervisor.agent.call import AgentCall


async def attach(call: AgentCall, params: AttachParams) -> AttachResult:
    await call.check_session(params.session_id)
    attachments.check_shapes(params.files)
    place = call.endpoint.sessions.slots.enter(params.session_id)
    try:
        live = call.endpoint.sessions.live.get(params.session_id)
        if live is None:
            await place.wait()
            live = await _live(call, params.session_id)
        files = await attachments.store(
            call.endpoint, live, call.binding, params.files, method="file/attach"
        )
    finally:
        place.leave()
    return AttachResult([_result(file) for file in files])


async def _live(call: AgentCall, session_id: str) -> LiveSession:
    """The live session, brought back when only durable; the slot is held. Raises RpcError."""
    sessions = call.endpoint.sessions
    live = sessions.live.get(session_id)
    if live is not None:
        call.check_owner(session_id, live.owner)
        return live
    rows = [row for row in await sessions.rows(session_id) if call.owns(row.principal_id)]
    usable = [row for row in rows if row.killed_at is None and row.interaction_surface in SURFACES]
    if not rows and not call.access.admin:
        raise not_owned(session_id)
    if not usable:
        raise session_not_found(session_id)
    live = await sessions.rehydrate(max(usable, key=lambda row: row.last_activity))
    live.back_channel = call.connection
    live.tui_id = call.binding.tui_id
    return live


def _result(file: Stored) -> FileResult:
    return FileResult(
        file.ref_id, file.marker, file.workspace_path, file.size_bytes, file.deduplicated
    )


async def begin(call: AgentCall, params: UploadBeginParams) -> UploadBeginResult:
    await call.check_session(params.session_id)
    endpoint = call.endpoint
    live = endpoint.sessions.live.get(params.session_id)
    if live is None:
        place = endpoint.sessions.slots.enter(params.session_id)
        try:
            await place.wait()
            live = await _live(call, params.session_id)
        finally:
            place.leave()
    endpoint.check_session_access(
        call.binding.identity, call.method, "files:create", live.id, live.owner, alias=live.alias
    )
    upload = endpoint.uploads.begin(call.connection, live, params)
    return UploadBeginResult(upload.id, UPLOAD_CHUNK_BYTES, FILE_BYTES_MAX)


def chunk(call: AgentCall, params: UploadChunkParams) -> UploadChunkResult:
    upload = call.endpoint.uploads.find(call.connection, params.upload_id)
    return UploadChunkResult(call.endpoint.uploads.chunk(upload, params))


async def commit(call: AgentCall, params: UploadCommitParams) -> FileResult:
    endpoint = call.endpoint
    upload = endpoint.uploads.find(call.connection, params.upload_id)
    data = endpoint.uploads.take(upload)
    live = upload.live
    if endpoint.sessions.live.get(live.id) is not live or live.owner != upload.owner:
        raise attachments.replaced(live.id)
    entry = attachments.WholeFile(data=data, filename=upload.filename)
    files = await attachments.store(
        endpoint, live, call.binding, [entry], method="file/upload/commit"
    )
    return _result(files[0])


# --- directories ---------------------------------------------------------------------------------


async def list_dir(call: AgentCall, params: ListDirParams) -> ListDirResult:
    path = params.path
    if not path or not path.startswith("/") or "\0" in path:
        raise _fs_error(AgentCode.FS_INVALID_PATH, "Path must be absolute", "fs_invalid_path", path)
    if ".." in path.split("/"):
        raise _fs_error(
            AgentCode.FS_INVALID_PATH, "Path traversal not allowed", "fs_invalid_path", path
        )
    call.endpoint.check_listing(call, path)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, _listing, path, bool(params.show_hidden))


def _listing(path: str, show_hidden: bool) -> ListDirResult:
    """Read a directory; runs on a thread."""
    full = os.path.normpath(path)
    entries: list[DirEntry] = []
    truncated = False
    try:
        with os.scandir(full) as found:
            for item in found:
                hidden = item.name.startswith(".")
                if hidden and not show_hidden:
                    continue
                if len(entries) >= DIR_ENTRIES_MAX:
                    truncated = True
                    break
                entries.append(_entry(item, hidden))
    except NotADirectoryError:
        raise _fs_error(
            AgentCode.FS_NOT_FOUND, f"Not a directory: {path}", "fs_not_found", path
        ) from None
    except OSError as error:
        raise _fs_error(
            AgentCode.FS_NOT_FOUND, f"{path}: {error.strerror}", "fs_not_found", path
        ) from None
    entries.sort(key=lambda entry: (not entry.is_dir, entry.name.casefold(), entry.name))
    return ListDirResult(entries, full, True if truncated else None)


def _entry(item: os.DirEntry[str], hidden: bool) -> DirEntry:
    name = item.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    full = item.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    try:
        status = item.stat()
    except OSError:
        try:
            status = item.stat(follow_symlinks=False)
        except OSError:
            return DirEntry(name, full, False, hidden, 0)
    is_dir = stat.S_ISDIR(status.st_mode)
    return DirEntry(name, full, is_dir, hidden, status.st_size, int(status.st_mtime))


def _fs_error(code: int, message: str, kind: str, path: str) -> RpcError:
    return agent_error(code, message, kind, path=path)
