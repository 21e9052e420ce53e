"""What judging costs: the verdict before a run, and a check at the moment of an effect.

The verdict is part of every `exec`, so there is no run without it to compare with: its work is
measured by itself and set in relation to the median of `exec 6 * 7` of the same run.

Failure: a daemon that does not start fails the benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from tests.system.daemon import Daemon
from worker.authority import Hosts, Policies
from worker.evaluate.host import Host
from worker.verdicts import verdict_of

ROUNDS: Final = 2000
REPEATS: Final = 5
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
    return rows


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
