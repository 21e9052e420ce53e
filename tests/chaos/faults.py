"""What goes wrong in a chaos run: kills, pauses, a full disk.

Failure: none; a fault whose victim is gone already does nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.chaos.world import World

PAUSE_S: Final = (0.02, 0.3)
# How often each strikes, in proportion.
WEIGHTS: Final[Mapping[str, int]] = {
    "kill_worker": 5,
    "kill_zygote": 2,
    "kill_router": 3,
    "pause": 3,
    "fill_disk": 2,
}
# Names of the workers that have work in a run.
WORKERS: Final = ("shoal:chaos", "shoal:agent")
# More deaths within a minute than this and the daemon rightly holds the session back.
WORKER_KILLS_PER_MINUTE: Final = 3


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[1]) == pid:
                    found.append(int(entry.name))
    return found


def descendants(pid: int) -> list[int]:
    found = children(pid)
    for child in list(found):
        found += descendants(child)
    return found


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


class Faults:
    # `_kills` are the times of worker kills, by process name, since the last start of the daemon.

    def __init__(
        self, world: World, chance: random.Random, weights: Mapping[str, int] = WEIGHTS
    ) -> None:
        self._world = world
        self._random = chance
        self._weights = dict(weights)
        if not world.small_disk:
            self._weights.pop("fill_disk", None)
        self._kills: dict[str, list[float]] = {}

    def one(self) -> str:
        """Let one thing go wrong; says which."""
        faults: dict[str, Callable[[], str]] = {
            "kill_worker": self.kill_worker,
            "kill_zygote": self.kill_zygote,
            "kill_router": self.kill_router,
            "pause": self.pause,
            "fill_disk": self.fill_disk,
        }
        (name,) = self._random.choices(list(self._weights), list(self._weights.values()))
        return faults[name]()

    def kill_worker(self) -> str:
        now = time.monotonic()
        victims = []
        for pid in self._processes():
            name = name_of(pid)
            recent = [at for at in self._kills.get(name, []) if now - at < 60]
            if name.startswith(WORKERS) and len(recent) < WORKER_KILLS_PER_MINUTE:
                victims.append((pid, name))
        if not victims:
            return "no worker to kill"
        pid, name = self._random.choice(victims)
        self._kills.setdefault(name, []).append(now)
        self._signal(pid, signal.SIGKILL)
        return f"killed worker {name}"

    def kill_zygote(self) -> str:
        for pid in self._processes():
            if name_of(pid) == "shoal:zygote":
                self._signal(pid, signal.SIGKILL)
                return "killed zygote"
        return "no zygote to kill"

    def kill_router(self) -> str:
        self._kills.clear()
        self._world.kill_router()
        self._world.start_router()
        return "killed router"

    def pause(self) -> str:
        router = self._world.router_pid
        victims = [pid for pid in (router, *self._processes()) if pid]
        if not victims:
            return "nobody to pause"
        pid = self._random.choice(victims)
        name = name_of(pid)
        self._signal(pid, signal.SIGSTOP)
        time.sleep(self._random.uniform(*PAUSE_S))
        self._signal(pid, signal.SIGCONT)
        return f"paused {name}"

    def fill_disk(self) -> str:
        filler = self._world.state.parent / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * (1 << 16))
                file.flush()
        time.sleep(self._random.uniform(0.05, 0.4))
        filler.unlink(missing_ok=True)
        return "filled the disk"

    def _processes(self) -> list[int]:
        router = self._world.router_pid
        return descendants(router) if router else []

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
