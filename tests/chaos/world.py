"""The daemon of a chaos run, its directory, and everything that could be left behind.

The state lies on a small file system of its own where that can be mounted, so that a full disk is
one of the things that can happen; elsewhere that fault is left out.

Failure: a daemon that does not start again fails the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

from tests.chaos.clients import CAPTURE_BYTES
from tests.system.daemon import Daemon

MARK: Final = "SHOAL_TEST_CHAOS"
DISK_BYTES: Final = 256 * 1024 * 1024
ENVIRONMENT: Final = {
    "SHOAL_CAPTURE_CAP_BYTES": str(CAPTURE_BYTES),
    "SHOAL_CAPTURE_SPILL_CAP_BYTES": "3000000",
}


class World:
    # `_daemon` is there from the first start on; `router_pid` is None while there is no router.

    def __init__(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="shoal-chaos-"))
        self.small_disk = _mount(self._scratch)
        self._daemon = Daemon(
            "--log-level", "error",
            directory=self._scratch,
            environ=ENVIRONMENT | {MARK: self._scratch.name},
        )  # fmt: skip
        self.state = self._daemon.state
        self.socket = self._daemon.socket
        self.agent_socket = self.state / "daemon.sock"
        self.log = b""

    def __enter__(self) -> Self:
        self.start_router()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_router()
        if self.small_disk:
            subprocess.run(["umount", "-l", str(self._scratch)], check=False)
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def daemon(self) -> Daemon:
        return self._daemon

    @property
    def router_pid(self) -> int | None:
        process = self._daemon.process
        return None if process is None or process.poll() is not None else process.pid

    def start_router(self) -> None:
        self._daemon.start()

    def kill_router(self) -> None:
        self._daemon.kill()

    def stop_router(self) -> int:
        return self._daemon.stop()

    # -- what may be left --------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Processes that were started below a daemon of this world."""
        mark = f"{MARK}={self._scratch.name}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def leftovers(self) -> list[str]:
        """Files that a stopped daemon should not leave: sockets, temporary files, spills."""
        found = []
        for folder, folders, files in os.walk(self._scratch):
            for name in (*folders, *files):
                path = Path(folder, name)
                temporary = name.endswith(".tmp") or ".gc-" in name or ".shoal-zygote" in name
                spilled = path.parent.name == "spill"
                with contextlib.suppress(FileNotFoundError):
                    if temporary or spilled or path.is_socket():
                        found.append(str(path.relative_to(self._scratch)))
        return found


def _mount(place: Path) -> bool:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(place)],
        check=False, capture_output=True,
    )  # fmt: skip
    return mounted.returncode == 0
