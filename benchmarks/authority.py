"""What authority costs: the verdict before a run, a check at the moment of an effect, confinement.

The verdict is part of every `exec`, so there is no run without it to compare with: its work is
measured by itself and set in relation to the median of `exec 6 * 7` of the same run. What a program
costs is measured in a confined and in a free session of one daemon, in turns.

Failure: a daemon that does not start fails the benchmark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from benchmarks import echo
from benchmarks.daemon_calls import EXEC, WARM_UP
from benchmarks.report import Row, median
from ipc.messages import Call, Caller, PolicyEntry
from leash.effects import files
from leash.plan import NOTHING
from leash.policy import PERMISSIVE, Policy
from supervisor.token_writer import create_token
from tests.system.daemon import ROOT, Daemon
from worker.authority import Hosts, Policies
from worker.evaluate.host import Host
from worker.verdicts import verdict_of

ROUNDS: Final = 2000
PROGRAMS: Final = 300
WARM_UP_PROGRAMS: Final = 20
CONFINED: Final = """
[principal."uid:{uid}"]
opaque = "allow"
auto_apply = "in-grant"
[principal.agent]
opaque = "allow"
auto_apply = "in-grant"
fs.read = ["{place}/**"]
fs.write = ["{place}/**"]
net_connect = ["127.0.0.1:443"]
"""
REPEATS: Final = 5
ENTERINGS: Final = 80
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
AGENT: Final = Policy(
    fs_read=("/srv/app/**",),
    fs_write=("/srv/app/build/**",),
    auto_apply="reversible",
    opaque="ask",
    given=frozenset(("fs_read", "fs_write", "auto_apply", "opaque")),
)


def judging() -> list[Row]:
    """The verdict on a computation against the whole call, and one check of a file."""
    with Daemon("--log-level", "warn") as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "bench"})
        echo.round_trips(wire.socket, EXEC, WARM_UP)
        whole_s = median(echo.round_trips(wire.socket, EXEC, ROUNDS))
    rows = []
    for name, policy in (("permissive", PERMISSIVE), ("an agent", AGENT)):
        session, call = _session(policy), Call(1, "exec", b"", Caller(name, 1))

        def verdict(session: Any = session, call: Call = call) -> None:
            session.hosts.of(call.caller.principal, call.caller.caps)
            verdict_of(session, call, NOTHING)

        verdict_s = _seconds(verdict)
        rows.append(
            Row("authority", f"verdict of 6 * 7, {name}", verdict_s * 1e6, "µs", "exec 6 * 7",
                verdict_s / whole_s, "at most", 0.15)
        )  # fmt: skip
    host = _session(AGENT).hosts.of("an agent", ())
    effect = files("fs_read", ["/srv/app/src/main.c"])
    check_s = _seconds(lambda: host.authority.check(effect))
    rows.append(Row("authority", "check of one file, an agent", check_s * 1e6, "µs"))
    return [*rows, *_programs(), _entering()]


def _programs() -> list[Row]:
    """A program of a confined principal against the same one of the local human."""
    with tempfile.TemporaryDirectory() as place:
        policy = Path(place) / "leash.toml"
        policy.write_text(CONFINED.format(uid=os.geteuid(), place=place))
        with Daemon("--policy", str(policy), "--log-level", "warn") as daemon:
            bearer, _ = create_token(
                daemon.state / "tokens.json", "agent", "", [], now_ns=time.time_ns(), ttl_s=None
            )
            free, confined = daemon.wire(), daemon.wire()
            free.result("session.attach", {"session": "free"})
            confined.result("session.attach", {"session": "confined", "token": bearer})
            samples: dict[str, list[float]] = {"free": [], "confined": []}
            for number in range(PROGRAMS + WARM_UP_PROGRAMS):
                for name, wire in (("free", free), ("confined", confined)):
                    started = time.perf_counter()
                    wire.result("exec", {"src": "^true"})
                    if number >= WARM_UP_PROGRAMS:
                        samples[name].append(time.perf_counter() - started)
    free_s, confined_s = median(samples["free"]), median(samples["confined"])
    return [
        Row("authority", "a program, confined", confined_s * 1e6, "µs", "the same, free",
            confined_s / free_s, "at most", 1.1)
    ]  # fmt: skip


def _entering() -> Row:
    """What confining adds to the start of a session, in time of the processor."""
    with tempfile.TemporaryDirectory() as place:
        policy = (
            f'[principal."a"]\nfs.read = ["{place}/**"]\nfs.write = ["{place}/**"]\nnet = ["h:1"]'
        )
        done = subprocess.run(
            [sys.executable, "-c", ENTERING, policy, str(ENTERINGS)],
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TMPDIR": place},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    spent_ms = float(done.stdout) * 1e3
    return Row("authority", "confining a session", spent_ms, "ms", "3 ms", spent_ms / 3,
               "at most", 1)  # fmt: skip


def _session(policy: Policy) -> Any:
    """As much of a session as judging looks at, with two principals of that policy."""
    policies = Policies()
    data = msgspec.json.encode(policy.as_json())
    policies.update([PolicyEntry(name, data) for name in ("permissive", "an agent")])
    owner = "permissive" if policy is PERMISSIVE else "an agent"
    return SimpleNamespace(
        policies=policies, hosts=Hosts(Host(), policies, owner, lambda _standing: None)
    )


def _seconds(work: Callable[[], None]) -> float:
    """The best of several averages."""
    averages = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        for _ in range(ROUNDS):
            work()
        averages.append((time.perf_counter() - started) / ROUNDS)
    return min(averages)
