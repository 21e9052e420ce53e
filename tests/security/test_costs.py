"""What the confinement costs: the start of a session at most 3 ms."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Final

from leash.policy import parse
from leash.verdict import Standing
from worker.sandbox import Sandbox

START_S_MAX: Final = 0.003
ATTEMPTS: Final = 15


def _entering(standing: Standing) -> float:
    """Seconds that a fresh process needs to confine itself."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        sandbox = Sandbox()
        start = time.perf_counter()
        sandbox.enter(standing, dict(os.environb))
        os.write(send, struct.pack("d", time.perf_counter() - start))
        os._exit(0)
    os.close(send)
    (seconds,) = struct.unpack("d", os.read(receive, 8))
    os.close(receive)
    os.waitpid(child, 0)
    (Path(os.environ.get("TMPDIR", "/tmp")) / f"shoal-{child}").rmdir()
    return float(seconds)


def test_a_worker_is_confined_within_three_milliseconds(tmp_path: Path) -> None:
    text = (
        f'[principal."a"]\nfs.read = ["{tmp_path}/**"]\nfs.write = ["{tmp_path}/**"]\nnet = ["h:1"]'
    )
    standing = Standing("a", parse(text, None).of("a"))
    assert min(_entering(standing) for _ in range(ATTEMPTS)) < START_S_MAX


def test_the_local_human_pays_nothing() -> None:
    from leash.policy import PERMISSIVE

    sandbox = Sandbox()
    sandbox.enter(Standing("uid:0", PERMISSIVE), {})
    assert sandbox.base is None
    assert sandbox.domain(Standing("uid:0", PERMISSIVE)) is None
