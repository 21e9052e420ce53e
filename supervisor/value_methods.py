"""Methods that read: forwarded reads of the worker, stored content, journal rows (60 §5.2-5.11,
5.16).

Failure: the worker's own error objects are passed on as they are; blobs answer `unknown_hash` for
everything that is not stored, malformed or not visible, alike.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params, internal, invalid_params
from ipc.messages import Failure, Reply
from ipc.methods import (
    METHODS,
    BlobGetParams,
    CompleteResult,
    JournalQueryParams,
)
from journal.blobs import BlobVisible, ReadBlob
from journal.errors import BlobDamaged, BlobMissing
from journal.query import EntryFilter, QueryEntriesJson, Visibility
from leash.verdict import ALLOW
from supervisor.connection import RouterCall
from supervisor.contents import close_all, read_content
from supervisor.worker_process import Ending, Worker

if TYPE_CHECKING:
    from supervisor.attachments import Attachment
    from supervisor.kernel import Kernel

QUERY_ROWS_DEFAULT: Final = 100
_QUERY_BYTES_MAX: Final = 15 * 1024 * 1024
_HASH_DIGITS: Final = 64
_encode_json = msgspec.json.Encoder().encode
_OnResult = Callable[[bytes], None]


class _ErrorCode(msgspec.Struct):
    code: int


_error_code = msgspec.json.Decoder(_ErrorCode)


def _attached(call: RouterCall) -> Attachment:
    assert call.attachment is not None
    return call.attachment


def worker_read(kernel: Kernel, call: RouterCall) -> None:
    """Forward a read to the session's worker; its I/O thread answers."""
    decode_params(call.params, METHODS[call.method].decoder)
    forward(call, call.method, call.answer)


def forward(call: RouterCall, method: str, then: _OnResult) -> None:
    attachment = _attached(call)

    def ended(ending: Ending, fds: list[int]) -> None:
        match ending:
            case Reply():
                then(read_content(ending.result, fds))
            case Failure():
                call.fail_raw(_error_code.decode(ending.error).code, ending.error)
            case RpcError():
                call.fail(ending)
            case _:
                close_all(fds)
                call.fail(internal("internal_error", "unexpected answer of the session worker"))

    def send(worker: Worker) -> None:
        worker.call(method, call.params, attachment.caller, ended)

    attachment.session.with_worker(send, call.fail)


def session_names(kernel: Kernel, call: RouterCall, lexical: bytes) -> None:
    """Add the session's own names to lexical completion candidates (chapter 10 §14.2)."""
    result = msgspec.json.decode(lexical, type=CompleteResult)

    def merge(names: bytes) -> None:
        known = set(result.candidates)
        result.session_candidates = [
            name for name in msgspec.json.decode(names, type=list[str]) if name not in known
        ]
        call.answer(_encode_json(result))

    forward(call, "session.names", merge)


def visibility(kernel: Kernel, attachment: Attachment) -> Visibility:
    """Whose journal rows and blobs the caller may see (chapter 60 §5.16): its own, and those of
    owners it has approver authority over."""
    caller = attachment.caller
    owners = {session.owner for session in kernel.sessions}
    supervised = {
        owner
        for owner in owners
        if kernel.policies.may_approve(caller.principal, caller.caps, owner)
    }
    return Visibility(
        everything=caller.local_human,
        principal=attachment.principal,
        owners=(attachment.principal, *sorted(supervised - {attachment.principal})),
    )


async def blob_get(kernel: Kernel, call: RouterCall) -> bytes:
    try:
        params: BlobGetParams = decode_params(call.params, METHODS["blob.get"].decoder)
    except RpcError as error:
        if "hash" in error.message:
            invalid_params("blob.get requires a hash")
        raise
    attachment = _attached(call)
    unknown = RpcError(Code.UNKNOWN_REF, "unknown value hash", "unknown_hash", hash=params.hash)
    if not _is_hash(params.hash):
        raise unknown
    store = kernel.store
    visible = BlobVisible(params.hash, visibility(kernel, attachment), attachment.session.row_id)
    if not await store.load(visible):
        raise unknown
    page = kernel.config.limits.page_bytes
    ranged = params.offset is not None or params.length is not None
    offset = params.offset or 0
    length = page if params.length is None else min(params.length, page)
    try:
        piece = await store.load(ReadBlob(params.hash, offset, length))
    except BlobMissing:
        raise unknown from None
    except BlobDamaged as error:
        raise internal("corrupt_blob", str(error), hash=params.hash) from None
    return _blob_answer(params.hash, piece.data, offset, piece.total, ranged)


def _blob_answer(name: str, data: bytes, offset: int, total: int, ranged: bool) -> bytes:
    if not ranged and len(data) == total:
        value = _one_line_json(data)
        if value is not None:
            return b'{"hash":"%b","value":%b}' % (name.encode(), value)
    answer: dict[str, object] = {
        "hash": name,
        "value": {"$": "bytes", "len": total, "v": base64.b64encode(data).decode()},
    }
    if ranged or len(data) != total:
        answer["offset"] = min(offset, total)
        answer["len"] = len(data)
        answer["total"] = total
        if offset + len(data) < total:
            answer["next"] = offset + len(data)
    return _encode_json(answer)


def _is_hash(text: str) -> bool:
    return len(text) == _HASH_DIGITS and all(char in "0123456789abcdef" for char in text)


def _one_line_json(data: bytes) -> bytes | None:
    """The JSON of a blob without white space between its tokens; None when it is no JSON."""
    try:
        data.decode("utf-8")
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if b"\n" not in data and b"\r" not in data:
        return data
    return msgspec.json.format(data, indent=-1)


def may_read_journal(kernel: Kernel, attachment: Attachment) -> bool:
    """The gate of `journal.query`; the local human is exempt."""
    caller = attachment.caller
    if caller.local_human:
        return True
    standing = kernel.policies.standing(caller.principal, caller.caps)
    return standing.word({"kind": "journal_read"}) == ALLOW


async def journal_query(kernel: Kernel, call: RouterCall) -> bytes:
    params: JournalQueryParams = decode_params(call.params, METHODS["journal.query"].decoder)
    kind = params.kind if params.kind is not None else "submission"
    if kind not in ("submission", "statement", "all"):
        invalid_params("`kind` must be submission, statement or all")
    attachment = _attached(call)
    if not may_read_journal(kernel, attachment):
        raise RpcError(
            Code.LEASH_DENIED,
            "journal_read is not allowed",
            "policy_denied",
            effects=[{"kind": "journal_read"}],
        )
    entry_filter = EntryFilter(
        since=params.since,
        until=params.until,
        principal=params.principal,
        session=params.session,
        head=params.head,
        ok=params.ok,
        effects=tuple(effect.replace(".", "_") for effect in params.effects or ()),
        kind=kind,  # type: ignore[arg-type]
        before_id=params.before_id,
        limit=params.limit or QUERY_ROWS_DEFAULT,
    )
    result: bytes = await kernel.store.load(
        QueryEntriesJson(entry_filter, visibility(kernel, attachment), _QUERY_BYTES_MAX)
    )
    return result
