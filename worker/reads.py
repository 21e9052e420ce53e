"""Reads of a session that never wait for its evaluator: environment, directory, stored values.

They run on the I/O thread and see the state after the last finished submission (chapter 60 §2.4,
§5.2, §5.3, §5.10).

Failure: RpcError with the codes of chapter 60; nothing here evaluates or changes anything.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import blake3
import msgspec

from ipc.jsonrpc import Code, RpcError, decode_params, invalid_params
from ipc.methods import METHODS, CompleteParams, PathObject, ValueGetParams
from leash.effects import ENV_READ, names
from leash.verdict import ALLOW
from worker.language.complete import partial
from worker.submission import requested_budget
from worker.values.render import block, bound_render, strip_terminal
from worker.values.selectors import BadPath, raw_page, select, slice_value
from worker.values.types import Value
from worker.values.wire import elide

if TYPE_CHECKING:
    from ipc.messages import Call
    from worker.session import Session

_encode_json = msgspec.json.Encoder().encode


def path_object(raw: str) -> PathObject:
    """The wire form of a directory, from an OS string."""
    data = os.fsencode(raw)
    try:
        return PathObject(data.decode("utf-8"))
    except UnicodeDecodeError:
        return PathObject(data.decode("utf-8", "replace"), base64.b64encode(data).decode())


def env_hash(environment: dict[bytes, bytes]) -> str:
    """16 hex digits of the BLAKE3 over `NAME=value` + NUL of all pairs, sorted by bytes."""
    digest = blake3.blake3()
    for name, value in sorted(environment.items()):
        digest.update(name + b"=" + value + b"\0")
    return str(digest.hexdigest()[:16])


def session_reef(session: Session, _call: Call) -> bytes:
    """Which tools are constrained where the session stands; nothing is resolved for it."""
    reef = session.evaluator.host.reef
    return _encode_json(reef.snapshot(session.evaluator))


def session_cwd(session: Session, _call: Call) -> bytes:
    return _encode_json(path_object(session.evaluator.cwd))


def session_env(session: Session, call: Call) -> bytes:
    pairs: dict[str, str] = {}
    for name, value in sorted(session.evaluator.env.items()):
        try:
            pairs[name.decode("utf-8")] = value.decode("utf-8")
        except UnicodeDecodeError:
            continue
    standing = session.policies.standing(call.caller.principal, call.caller.caps)
    granted = standing.word(names(ENV_READ, pairs)) == ALLOW
    answer: dict[str, Any] = {"granted": granted, "names": list(pairs)}
    if granted:
        answer["env"] = pairs
    return _encode_json(answer)


def session_names(session: Session, call: Call) -> bytes:
    """Names bound in the session that start with the partial before the cursor (chapter 10
    §14.2)."""
    params: CompleteParams = decode_params(call.params, METHODS["complete"].decoder)
    prefix = partial(params.src, params.cursor)
    values, commands = session.evaluator.bound_names()
    return _encode_json(sorted(name for name in values | commands if name.startswith(prefix)))


def value_get(session: Session, call: Call) -> bytes:
    params: ValueGetParams = decode_params(call.params, METHODS["value.get"].decoder)
    kind = params.format or "json"
    if kind not in ("json", "render", "raw"):
        invalid_params(f'format must be json, render, or raw (got "{kind}")')
    if kind != "raw" and (params.offset is not None or params.length is not None):
        invalid_params("`offset` and `length` need format raw")
    value = session.kept.transcript.get(params.ref)
    uri = "shoal://" + params.ref.replace(":", "/", 1)
    if params.path:
        uri += f"?path={params.path}"
    try:
        value = select(value, params.path or "")
        if params.slice is not None:
            value = slice_value(value, *params.slice)
        answer: dict[str, Any] = {"ref": params.ref}
        if kind == "json":
            budget = requested_budget(call.caller.budget, params.elide)
            answer["value"] = msgspec.Raw(elide(value, uri, budget, tty=call.caller.tty))
        elif kind == "render":
            answer["render"] = rendered(value, uri, call.caller.tty)
        else:
            answer.update(raw_page(value, params.offset, params.length))
    except BadPath as error:
        raise RpcError(
            Code.BAD_PATH_OR_SLICE,
            str(error),
            "bad_path_or_slice",
            ref=params.ref,
            path=params.path or "",
        ) from None
    except OSError as error:
        raise RpcError(
            Code.UNKNOWN_REF, str(error), "unknown_ref", ref=params.ref, code="io_error"
        ) from None
    return _encode_json(answer)


def rendered(value: Value, uri: str, tty: bool) -> str:
    text = block(value)
    return bound_render(text if tty else strip_terminal(text), uri)
