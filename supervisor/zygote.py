"""Starting the zygote, and being the only one who can talk to it.

It is `multiprocess`'s forkserver: a process with everything loaded that forks a copy of itself for
whoever connects to its socket and sends it a function.

Failure: OSError when no process can be made. A zygote that ended is replaced by the next
`ensure_running`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from multiprocess import forkserver, resource_tracker, spawn, util


class Zygote(forkserver.ForkServer):  # type: ignore[misc]
    """The forkserver, listening on a socket that has no name.

    Whoever can connect to it has code run as the daemon, outside of every sandbox, and the kernel
    shows everybody the names of sockets. So the name is taken away again before the zygote runs:
    the socket can be reached through a descriptor of its file alone, which only the router has.
    """

    # The process, its address and its pipe are in the base class, under its lock.

    def __init__(self, place: Path, preload: list[str]) -> None:
        """`place` is a private directory for the socket while it has a name."""
        super().__init__()
        self._forkserver_address: str | None = None
        self._forkserver_alive_fd: int | None = None
        self._forkserver_pid: int | None = None
        self._place = place
        self._preload = preload
        # Refers to the socket's file; the address is a path through it.
        self._door = -1

    def ensure_running(self) -> None:
        """Start the zygote unless it runs."""
        with self._lock:
            resource_tracker.ensure_running()
            if self._forkserver_pid is not None:
                if not _ended(self._forkserver_pid):
                    return
                self._forget()
            self._launch()

    def _launch(self) -> None:
        alive_read, alive_write = os.pipe()
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                door, address = _listen(listener, self._place / "zygote")
                command = (
                    "from multiprocess.forkserver import main; "
                    f"main({listener.fileno()}, {alive_read}, {self._preload!r}, **{_paths()!r})"
                )
                interpreter = spawn.get_executable()
                words = [interpreter, *util._args_from_interpreter_flags(), "-c", command]
                pid = util.spawnv_passfds(interpreter, words, [listener.fileno(), alive_read])
        except BaseException:
            os.close(alive_write)
            raise
        finally:
            os.close(alive_read)
        self._door = door
        self._forkserver_address = address
        self._forkserver_alive_fd = alive_write
        self._forkserver_pid = pid

    def _forget(self) -> None:
        if self._forkserver_alive_fd is not None:
            os.close(self._forkserver_alive_fd)
        if self._door >= 0:
            os.close(self._door)
        self._door = -1
        self._forkserver_address = None
        self._forkserver_alive_fd = None
        self._forkserver_pid = None

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Meanwhile neither a zygote nor its resource tracker is started."""
        with self._lock:
            yield

    def stop(self) -> None:
        """End the zygote and wait for it; processes it forked are not touched."""
        with self._lock:
            pid = self._forkserver_pid
            if pid is not None:
                self._forget()
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _ended(pid: int) -> bool:
    """Whether a child has ended, also when somebody else has collected it already."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _listen(listener: socket.socket, path: Path) -> tuple[int, str]:
    """Listen without a name; a descriptor of the socket's file, and the address through it."""
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    listener.listen()
    if sys.platform != "linux":
        # Descriptors have no paths there: the name stays, in a directory of ours alone.
        return -1, str(path)
    try:
        door = os.open(path, os.O_PATH | os.O_CLOEXEC)
    finally:
        path.unlink()
    return door, f"/proc/self/fd/{door}"


def _paths() -> dict[str, object]:
    """What the zygote needs to import its preloaded module."""
    found = spawn.get_preparation_data("zygote")
    return {name: found[name] for name in ("main_path", "sys_path") if name in found}
