"""What a local run is asked to do and how it ended: between the command line and its worker.

The worker is a fork of the command, so the request crosses as an object. The end comes back as one
control frame, and `CANCEL` is the only thing the command ever sends meanwhile; the end of the
channel means that the command is gone.

Failure: `decode_end` raises LocalRunBroken for bytes that are no end.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipc.framing import FrameSplitter, FrameTooLarge, control_frame

# The module that runs in the fork. The command line never imports it itself.
WORKER_MODULE: Final = "worker.local_run"
CANCEL: Final = b"c"


class LocalRunBroken(Exception):
    """The worker ended without saying how."""


class LocalRun(msgspec.Struct, frozen=True, kw_only=True):
    """One program to run without a kernel."""

    source: str
    # Value of the binding `script`; None for a source given on the command line.
    script: str | None
    arguments: tuple[str, ...]
    cwd: str
    principal: str
    # `quiet`, `commands` or `all`.
    echo: str
    width: int
    color: bool
    # The configuration as the language sees it; its `env` and `aliases` shape the start.
    config: dict[str, Any]
    capture_bytes: int
    spill_bytes: int


class LocalEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. `kind` is `done`, `parse`, `raised`, `cancelled` or `pipe` (stdout is gone)."""

    kind: str
    # `done`: what `exit` asked for, modulo 256. `raised`: the error's status, None without one.
    status: int | None = None
    code: str = ""
    message: str = ""
    start: int | None = None
    end: int | None = None
    hint: str | None = None
    stderr: str | None = None


def encode_end(end: LocalEnd) -> bytes:
    return control_frame(msgspec.msgpack.encode(end))


def decode_end(data: bytes) -> LocalEnd:
    try:
        [(payload, _)] = FrameSplitter().feed(data)
        return msgspec.msgpack.decode(payload, type=LocalEnd)
    except (ValueError, FrameTooLarge, msgspec.MsgspecError) as error:
        raise LocalRunBroken("the worker ended without a result") from error


FORMAT_MODULE: Final = "worker.formatting"


class Formatted(msgspec.Struct, frozen=True, kw_only=True):
    """A source in its canonical form, or the message why it does not parse."""

    text: str | None = None
    error: str | None = None

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


def decode_formatted(data: bytes) -> Formatted:
    try:
        return msgspec.msgpack.decode(data, type=Formatted)
    except msgspec.MsgspecError as error:
        raise LocalRunBroken("the worker ended without a result") from error
