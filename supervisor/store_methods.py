"""`kernel.store`: pins and collections on the store of a running daemon (chapter 81 §7.14).

The command line asks for them when the daemon holds the state directory. One collection runs at a
time, on the store's own thread; the daemon serves meanwhile.

Failure: `not_operator` for everybody but the local human, -32602 for what makes no sense,
`unknown_hash` for a pin on content that is not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params, invalid_params
from ipc.methods import METHODS, StoreParams
from journal.cas import NAME
from journal.errors import OperationRefused
from journal.gc import Collect
from journal.records import ReleaseManualPins, SetPin
from supervisor.connection import RouterCall
from supervisor.operator_methods import check_operator

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

_OPERATIONS: Final = ("pin", "unpin", "gc")
_encode_json = msgspec.json.Encoder().encode


async def kernel_store(kernel: Kernel, call: RouterCall) -> bytes:
    check_operator(call)
    params: StoreParams = decode_params(call.params, METHODS["kernel.store"].decoder)
    if params.op not in _OPERATIONS:
        invalid_params("op must be pin, unpin or gc")
    if params.op == "gc":
        collect = Collect(
            params.ttl_s,
            params.budget,
            apply=bool(params.apply),
            vacuum=kernel.config.retention.vacuum,
        )
        return _encode_json((await kernel.store.maintain(collect)).as_document())
    if params.hash is None or not NAME.fullmatch(params.hash):
        invalid_params("`hash` must be 64 lower-case hex digits")
    digest = bytes.fromhex(params.hash)
    change: SetPin | ReleaseManualPins = ReleaseManualPins(digest)
    if params.op == "pin":
        change = SetPin(digest, "manual", kernel.local_human, kernel.now_ns())
    try:
        changed = await kernel.store.commit(change)
    except OperationRefused as refusal:
        raise RpcError(Code.UNKNOWN_REF, str(refusal), "unknown_hash", hash=params.hash) from None
    return _encode_json({"changed": changed})
