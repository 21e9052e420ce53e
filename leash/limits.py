"""Resource limits of a worker and everything it starts.

Always: limits of the process (open files, no core dumps), and being the first to go when memory
runs out, so that a session that eats everything takes itself down and not the daemon. Where the
control groups are delegated to the daemon, each worker has a group of its own with limits of
memory, processes and a share of the processor; what it starts stays in it.

Failure: `CgroupTree.open` gives None where nothing is delegated. A limit the kernel refuses raises
OSError from `enter`; a group that cannot be removed yet is left for the next `sweep`.
"""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = ("memory", "pids", "cpu")
# Between nothing (0) and "take me first" (1000).
_OOM_SCORE: Final = 500
_CPU_WEIGHT_DEFAULT: Final = 100


def limit_process(open_files: int) -> None:
    """Limit this process and what it starts. An open file limit of 0 leaves it as it is."""
    if open_files:
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = open_files if hard == resource.RLIM_INFINITY else min(open_files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """0 means no limit."""

    memory_bytes: int = 0
    pids: int = 0
    cpu_weight: int = _CPU_WEIGHT_DEFAULT


class CgroupTree:
    """The groups of the workers, below the daemon's own group."""

    def __init__(self, root: Path, controllers: frozenset[str]) -> None:
        self._workers = root / "workers"
        self.controllers = controllers

    @classmethod
    def open(cls, own: Path | None = None) -> CgroupTree | None:
        """The tree below the daemon's own group, None when no controller is delegated to it.

        Moves the daemon into a group of its own: one with processes in it has no limited children.
        """
        own = own if own is not None else _own_group()
        if own is None:
            return None
        try:
            offered = frozenset((own / "cgroup.controllers").read_text().split())
            usable = offered & frozenset(CONTROLLERS)
            if not usable or not os.access(own / "cgroup.subtree_control", os.W_OK):
                return None
            router = own / "router"
            router.mkdir(exist_ok=True)
            (router / "cgroup.procs").write_text(str(os.getpid()))
            workers = own / "workers"
            workers.mkdir(exist_ok=True)
            enabled = " ".join(f"+{name}" for name in sorted(usable))
            for group in (own, workers):
                (group / "cgroup.subtree_control").write_text(enabled)
        except OSError:
            return None
        return cls(own, usable)

    def enter(self, pid: int, limits: GroupLimits) -> Path:
        """Put a process that has not started anything into a group of its own."""
        group = self._workers / str(pid)
        group.mkdir(exist_ok=True)
        for controller, file, value in (
            ("memory", "memory.max", limits.memory_bytes),
            ("pids", "pids.max", limits.pids),
            ("cpu", "cpu.weight", limits.cpu_weight),
        ):
            if controller in self.controllers and value:
                (group / file).write_text(str(value))
        (group / "cgroup.procs").write_text(str(pid))
        return group

    def sweep(self) -> None:
        """Remove the groups that are empty."""
        with contextlib.suppress(OSError):
            for group in self._workers.iterdir():
                with contextlib.suppress(OSError):
                    group.rmdir()


def _own_group() -> Path | None:
    """The directory of the daemon's own group in the unified hierarchy."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("0::"):
            own = CGROUP_ROOT / line[3:].lstrip("/")
            return own if (own / "cgroup.controllers").exists() else None
    return None
