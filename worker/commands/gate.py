"""The seams of a spawn: tool resolution before it, and the spawn gate.

Chapter 40 §13 has the order, chapter 50 §8 and §9.8 what the gate does.

`host.reef` may say which file a bare name means; `host.authority.admit_spawn` decides whether the
program may start, and may hand back an open descriptor of exactly the file it judged.

Failure: a refusing resolver raises its `reef_*` error, a refusing gate `spawn_denied` or
`leash_denied`; both carry the span they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from worker.evaluate.evaluator import Evaluator
from worker.values.types import Span


@dataclass(frozen=True, slots=True)
class ToolFile:
    """What a bare name means under tool resolution: the file, its content hash, the
    child's PATH."""

    path: str
    content_hash: str | None = None
    search_path: bytes | None = None


class ToolResolver(Protocol):
    """`resolve` gives None for a name no scope constrains; it then comes from PATH."""

    def resolve(
        self, ev: Evaluator, name: str, env: Mapping[bytes, bytes], span: Span | None
    ) -> ToolFile | None: ...


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A program about to start. `argv0` is the head as written, `path` the resolved file, relative
    to `cwd` when it has no leading slash, `content_hash` what the tool resolver vouches for."""

    argv0: str
    path: str
    content_hash: str | None
    argv: list[bytes]
    env: Mapping[bytes, bytes]
    cwd: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class Admission:
    """How an admitted program starts: the file to execute, the environment, and the descriptors to
    close in the worker once it runs.

    A pinned program is executed through the descriptor that was judged: `/proc/self/fd/N` for a
    binary, `/dev/fd/N` for a script, which its interpreter must be able to open.
    """

    program: str
    env: Mapping[bytes, bytes]
    close_fds: tuple[int, ...] = ()
    # Looks once more at what was judged, right before the start; raises when it has changed.
    check: Callable[[], None] | None = None


def admit(ev: Evaluator, request: SpawnRequest) -> Admission:
    """The gate's answer; without an authority that pins, the request as it is."""
    admission = ev.host.authority.admit_spawn(request)
    if isinstance(admission, Admission):
        return admission
    return Admission(request.path, request.env)
