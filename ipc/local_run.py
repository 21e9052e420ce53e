"""What a local run is asked to do and how it ended: between the command line and its worker.

The worker is a fork of the command, so the request crosses as an object. Everything else crosses in
control frames: the worker asks for secrets and says how it ended, the command cancels and answers.
The end of the channel means that the other side is gone.

Failure: `Messages.feed` raises LocalRunBroken for bytes that are no message.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from ipc.framing import FrameSplitter, FrameTooLarge, control_frame
from ipc.messages import PolicyEntry

# The module that runs in the fork. The command line never imports it itself.
WORKER_MODULE: Final = "worker.local_run"


class LocalRunBroken(Exception):
    """The worker ended without saying how."""


class LocalRun(msgspec.Struct, frozen=True, kw_only=True):
    """One program to run without a kernel."""

    source: str
    # Value of the binding `script`; None for a source given on the command line.
    script: str | None
    arguments: tuple[str, ...]
    cwd: str
    # Who runs it, and what that principal may do.
    policy: PolicyEntry
    # `quiet`, `commands` or `all`.
    echo: str
    width: int
    color: bool
    # The configuration as the language sees it; its `env` and `aliases` shape the start.
    config: dict[str, Any]
    capture_bytes: int
    spill_bytes: int


class LocalEnd(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """How it ended. `kind` is `done`, `parse`, `raised`, `denied`, `approval`, `failed`,
    `cancelled` or `pipe` (stdout is gone)."""

    kind: str
    # `done`: what `exit` asked for, modulo 256. `raised`: the error's status, None without one.
    status: int | None = None
    code: str = ""
    message: str = ""
    start: int | None = None
    end: int | None = None
    hint: str | None = None
    stderr: str | None = None
    # `denied`, `approval`: what the program would do.
    effects: tuple[dict[str, Any], ...] = ()


class SecretAsk(msgspec.Struct, frozen=True, tag="secret"):
    """The program wants the material of a secret."""

    id: int
    name: str


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop the statement that runs."""


class SecretAnswer(msgspec.Struct, frozen=True, tag="secret"):
    """`material` None: there is no such secret, or `error` says why it is not given. `denied`: the
    policy does not grant it."""

    id: int
    material: bytes | None
    error: str = ""
    denied: bool = False


FromWorker = LocalEnd | SecretAsk
ToWorker = Cancel | SecretAnswer
M = TypeVar("M")


class Messages(Generic[M]):
    """The messages in a stream of bytes."""

    def __init__(self, kinds: Any) -> None:
        self._frames = FrameSplitter()
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kinds)

    def feed(self, data: bytes) -> list[M]:
        """The messages that these bytes complete. Raises LocalRunBroken."""
        try:
            return [self._decoder.decode(payload) for payload, _ in self._frames.feed(data)]
        except (FrameTooLarge, msgspec.MsgspecError) as error:
            raise LocalRunBroken("the worker ended without a result") from error


def encode_message(message: FromWorker | ToWorker) -> bytes:
    return control_frame(msgspec.msgpack.encode(message))


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
