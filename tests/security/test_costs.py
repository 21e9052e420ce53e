"""What the confinement costs: the start of a session at most 3 ms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from leash.verdict import Standing
from tests.arrows.rules import ROOT
from worker.sandbox import Sandbox

START_S_MAX: Final = 0.003
ATTEMPTS: Final = 80

# A small process that has loaded what the zygote has, forks, and lets the fork confine itself as a
# worker does: after it has read its policies. Time of the processor: nothing waits there, and
# neighbours of a test must not count.
ENTERING: Final = """
import gc, os, struct, sys, time
import msgspec
import worker.zygote
from ipc.messages import PolicyEntry
from leash.policy import parse
from worker.authority import Policies
from worker.sandbox import SANDBOX

policy = msgspec.json.encode(parse(sys.argv[1], None).of("a").as_json())
gc.freeze()
best = 1.0
for _ in range(int(sys.argv[2])):
    receive, send = os.pipe()
    if os.fork() == 0:
        environment = dict(os.environb)
        policies = Policies()
        policies.update([PolicyEntry("a", policy)])
        standing = policies.standing("a")
        start = time.process_time()
        SANDBOX.enter(standing, environment)
        os.write(send, struct.pack("d", time.process_time() - start))
        os._exit(0)
    os.close(send)
    best = min(best, *struct.unpack("d", os.read(receive, 8)))
    os.close(receive)
    os.wait()
print(best)
"""


def test_a_worker_is_confined_within_three_milliseconds(tmp_path: Path) -> None:
    policy = (
        f'[principal."a"]\nfs.read = ["{tmp_path}/**"]\nfs.write = ["{tmp_path}/**"]\nnet = ["h:1"]'
    )
    done = subprocess.run(
        [sys.executable, "-c", ENTERING, policy, str(ATTEMPTS)],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < START_S_MAX


def test_the_local_human_pays_nothing() -> None:
    from leash.policy import PERMISSIVE

    sandbox = Sandbox()
    sandbox.enter(Standing("uid:0", PERMISSIVE), {})
    assert sandbox.base is None
    assert sandbox.domain(Standing("uid:0", PERMISSIVE)) is None
