"""The syntax worker: parse and complete for clients, in a process that owns nothing.

Each call gets a budget of CPU time and memory; passing it ends the call with a quota error and,
when the work cannot be interrupted, the process (the router then answers in its place). Calls are
served one at a time.

Failure: `parse_time` and `parse_memory` quota errors (chapter 60 §2.6); syntax errors as -32001.
"""

from __future__ import annotations

import resource
import signal
import sys
import time
from types import FrameType
from typing import Final

import msgspec

from ipc.jsonrpc import RpcError, decode_params, internal, quota
from ipc.messages import Call, Failure, Ping, Pong, Reply
from ipc.methods import AST_VERSION, METHODS, CompleteParams, CompleteResult, ParseParams
from worker.language import ParseError, parse
from worker.language.complete import complete
from worker.link import Link, Parcel
from worker.submission import parse_error

CPU_SECONDS_MAX: Final = 10
MEMORY_BYTES_MAX: Final = 512 * 1024 * 1024
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_ENVELOPE_BYTES: Final = 4096

_encode_json = msgspec.json.Encoder().encode


class _OutOfTime(Exception):
    """The CPU budget of the call is used up."""


def serve(link: Link, settings: dict[str, int]) -> None:
    """Answer calls until the channel ends."""
    cpu_s = settings.get("cpu_s", CPU_SECONDS_MAX)
    memory = settings.get("memory_bytes", MEMORY_BYTES_MAX)
    signal.signal(signal.SIGPROF, _out_of_time)
    while (received := link.receive()) is not None:
        message, _fds = received
        if isinstance(message, Ping):
            link.send(Pong(message.number))
        elif isinstance(message, Call):
            _serve_call(link, message, cpu_s, memory)


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise _OutOfTime


def _serve_call(link: Link, call: Call, cpu_s: int, memory: int) -> None:
    started = time.process_time()
    try:
        _limit(cpu_s, memory)
        try:
            result = _parse(call) if call.method == "parse" else _complete(call)
        finally:
            _unlimit()
    except RpcError as error:
        link.send(Failure(call.id, error.encode()))
    except _OutOfTime:
        used = int(time.process_time() - started)
        link.send(Failure(call.id, quota("parse_time", cpu_s, used).encode()))
    except MemoryError:
        link.send(Failure(call.id, quota("parse_memory", memory, memory).encode()))
    else:
        with Parcel() as parcel:
            link.send(Reply(call.id, parcel.content(result)), parcel.fds)


def _limit(cpu_s: int, memory: int) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    # Past the timer only a kill helps: C code that does not return to the interpreter.
    spent = int(time.process_time())
    _set(resource.RLIMIT_CPU, spent + cpu_s + 2)
    _set(resource.RLIMIT_AS, _address_space() + memory)


def _unlimit() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    _set(resource.RLIMIT_CPU, resource.RLIM_INFINITY)
    _set(resource.RLIMIT_AS, resource.RLIM_INFINITY)


def _set(kind: int, soft: int) -> None:
    _soft, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
        soft = hard
    resource.setrlimit(kind, (soft, hard))


def _address_space() -> int:
    """Bytes of virtual memory in use now."""
    if sys.platform != "linux":
        return 1 << 40
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _parse(call: Call) -> bytes:
    params: ParseParams = decode_params(call.params, METHODS["parse"].decoder)
    try:
        program = parse(params.src)
        result = b'{"ast_version":%d,"ast":%b}' % (AST_VERSION, _encode_json(program))
    except ParseError as error:
        raise parse_error(error) from None
    except RecursionError:
        raise internal("internal_error", "the program nests too deeply") from None
    if len(result) + _ENVELOPE_BYTES > LINE_BYTES_MAX:
        raise quota("result_bytes", LINE_BYTES_MAX, len(result))
    return result


def _complete(call: Call) -> bytes:
    params: CompleteParams = decode_params(call.params, METHODS["complete"].decoder)
    return _encode_json(CompleteResult(complete(params.src, params.cursor)))
