"""Starting processes: the zygote, and workers forked from it.

The zygote is `multiprocess`'s forkserver with `worker.zygote` preloaded (see supervisor.zygote).
Launching blocks (it talks to the zygote), so it happens on one thread of its own; that thread lives
as long as the router, which matters because the zygote's parent-death signal is bound to the thread
that started it. A dead zygote is replaced at the next launch, also when it dies in the middle of
one; workers it forked live on.

`Launcher` is the seam for other places to run workers: it gives back one end of a control channel.

Failure: `launch` raises LaunchFailed when no process could be made.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import multiprocess
from multiprocess import forkserver, reduction, resource_tracker, spawn
from multiprocess.context import set_spawning_popen

from ipc.launch import enter
from supervisor.orphans import children
from supervisor.zygote import Zygote

PRELOAD: Final = ["worker.zygote"]
_STATUS: Final = struct.Struct("q")


class LaunchFailed(Exception):
    """The zygote did not come up or did not fork."""


@dataclass(slots=True)
class Launched:
    """A started process: its pid, the router's end of its channel, and its exit status pipe."""

    pid: int
    channel: socket.socket
    status_fd: int
    forget: Callable[[int], object]

    def exit_status(self) -> int | None:
        """The exit code (negative for a signal), None while unknown; never blocks."""
        try:
            data = os.read(self.status_fd, _STATUS.size)
        except (BlockingIOError, OSError):
            return None
        return int(_STATUS.unpack(data)[0]) if len(data) == _STATUS.size else None

    def close(self) -> None:
        """The process has ended, or is of no interest any more."""
        self.forget(self.pid)
        with contextlib.suppress(OSError):
            os.close(self.status_fd)


@contextlib.contextmanager
def _own_imports() -> Iterator[None]:
    """Let a started interpreter import this installation only, never from its directory.

    A zygote started with `-c` would look into the daemon's working directory first: whatever lies
    there under the name of one of our packages would run in every session.
    """
    wanted = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Spawning:
    """Stands in for multiprocess's Popen while a process object is pickled: collects
    descriptors."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(fd)
        return len(self.fds) - 1

    class DupFd:
        """Placeholder, replaced below by the forkserver's own class."""


class Launcher:
    # The zygote's state is touched by the one thread of `_thread` only. `_launched` are the pids of
    # what was launched and not closed; added to on that thread, taken from by whoever closes.

    def __init__(self, place: Path) -> None:
        """`place` is a private directory for the zygote's socket; it is removed at the end."""
        self._place = place
        # Where multiprocess puts sockets; without this it leaves a directory behind when killed.
        multiprocess.process.current_process()._config["tempdir"] = str(place)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="launcher")
        self._context = multiprocess.get_context("forkserver")
        self._zygote = Zygote(place, PRELOAD)
        self._launched: set[int] = set()

    def warm_up(self) -> asyncio.Future[None]:
        """Start the zygote without waiting for it."""
        return asyncio.get_running_loop().run_in_executor(self._thread, self._ensure_zygote)

    async def launch(self, role: str, title: str, settings: dict[str, int]) -> Launched:
        """Fork a process that enters `role`."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._thread, self._launch_surely, role, title, settings
            )
        except (OSError, EOFError) as error:
            raise LaunchFailed(str(error)) from error

    def _ensure_zygote(self) -> None:
        with _own_imports():
            self._zygote.ensure_running()

    def _launch_surely(self, role: str, title: str, settings: dict[str, int]) -> Launched:
        """Once more when the zygote ended on the way."""
        try:
            return self._launch(role, title, settings)
        except (OSError, EOFError):
            return self._launch(role, title, settings)

    def _launch(self, role: str, title: str, settings: dict[str, int]) -> Launched:
        self._ensure_zygote()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            child = self._context.Process(
                target=enter, args=(role, title, theirs, settings), name=title, daemon=False
            )
            pid, status_fd = _fork(self._zygote, child)
            self._launched.add(pid)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return Launched(pid, ours, status_fd, self._launched.discard)

    def strangers(self) -> list[int]:
        """Our children that are neither helpers nor launched by us: orphans of ended workers."""
        with self._zygote.still():
            known = self._launched | self.helper_pids()
            return [pid for pid in children() if pid not in known]

    def helper_pids(self) -> set[int]:
        """Pids of our own children that are no workers: the zygote and its resource tracker."""
        candidates = (
            getattr(self._zygote, "_forkserver_pid", None),
            getattr(resource_tracker._resource_tracker, "_pid", None),
        )
        return {pid for pid in candidates if pid is not None}

    def close(self) -> None:
        """End the zygote; processes it forked are not touched."""
        self._thread.submit(self._zygote.stop).result()
        self._thread.shutdown()
        shutil.rmtree(self._place, ignore_errors=True)


def _fork(zygote: Zygote, child: Any) -> tuple[int, int]:
    """Have the zygote fork `child`; returns its pid and the descriptor its exit status comes on.

    As multiprocess does it, except that the child is not told to import the router's main module.
    """
    from multiprocess.popen_forkserver import _DupFd

    preparation = spawn.get_preparation_data(child._name)
    for key in ("init_main_from_name", "init_main_from_path"):
        preparation.pop(key, None)
    spawning = _Spawning()
    spawning.DupFd = _DupFd
    message = io.BytesIO()
    set_spawning_popen(spawning)
    try:
        reduction.dump(preparation, message)
        reduction.dump(child, message)
    finally:
        set_spawning_popen(None)
    status_fd, sending_fd = zygote.connect_to_new_process(spawning.fds)
    try:
        with os.fdopen(sending_fd, "wb") as pipe:
            pipe.write(message.getbuffer())
        pid = int(forkserver.read_signed(status_fd))
    except BaseException:
        os.close(status_fd)
        raise
    os.set_blocking(status_fd, False)
    return pid, status_fd
