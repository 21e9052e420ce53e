"""The service manager's protocol: readiness, status, watchdog, and a socket it has opened for us.

`Notifier` writes the messages of sd_notify; without a notify socket every call does nothing.
`activated_listener` gives the listening socket of socket activation, when there is one for us.
Both take the environment as an argument and are used once, at start; the daemon removes the
variables from the environment of its workers (`VARIABLES`).

Failure: a message that cannot be sent is dropped, because the service manager decides by itself
what a missing one means. `ActivationError` says why a socket that was passed cannot be served.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

# Meant for this process alone; a child that inherits them would speak for it.
VARIABLES: Final = frozenset(
    {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
)

FIRST_ACTIVATED_FD: Final = 3
STATUS_INTERVAL_S: Final = 5.0


class ActivationError(Exception):
    """The descriptor passed by the service manager is not a socket that can be served."""


class Notifier:
    """One process's line to its service manager."""

    # The socket, or None without a manager; the status last sent and when, to keep it quiet.
    _socket: socket.socket | None
    _status: str
    _status_at: float

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._socket = _notify_socket(environ.get("NOTIFY_SOCKET", ""))
        self._status = ""
        self._status_at = -STATUS_INTERVAL_S
        self.watchdog_s = _watchdog_s(environ)

    @property
    def active(self) -> bool:
        return self._socket is not None

    def ready(self, status: str) -> None:
        self._status, self._status_at = status, time.monotonic()
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        """Say how things are: when it changed, and at most every STATUS_INTERVAL_S seconds."""
        now = time.monotonic()
        if text == self._status or now - self._status_at < STATUS_INTERVAL_S:
            return
        self._status, self._status_at = text, now
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Feed the watchdog; to be called every half `watchdog_s`, by what has to stay alive."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send("\n".join(lines).encode())


def _notify_socket(address: str) -> socket.socket | None:
    if not address or address[0] not in "/@":
        return None
    connection = socket.socket(
        socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)
    )
    # A manager that does not read must not hold up the main loop.
    connection.setblocking(False)
    try:
        # "@" stands for the NUL byte of an abstract address.
        connection.connect("\0" + address[1:] if address[0] == "@" else address)
    except OSError:
        connection.close()
        return None
    return connection


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """The time within which the manager wants a sign of life, when it watches this process."""
    micros = environ.get("WATCHDOG_USEC", "")
    watched = environ.get("WATCHDOG_PID", "")
    if not micros.isdigit() or int(micros) == 0 or (watched and watched != str(os.getpid())):
        return None
    return int(micros) / 1_000_000


def activated_listener(environ: Mapping[str, str]) -> socket.socket | None:
    """The listening Unix stream socket passed at descriptor 3, or None when none is for us.

    Raises ActivationError when something else was passed. The socket is the manager's: it is not
    unlinked, not locked and not re-created by us.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()) or environ.get("LISTEN_FDS") != "1":
        return None
    try:
        passed = socket.socket(fileno=FIRST_ACTIVATED_FD)
    except OSError as error:
        raise ActivationError(f"descriptor 3 is not a socket: {error.strerror}") from error
    listens = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM or not listens:
        passed.detach()
        raise ActivationError("descriptor 3 is not a listening Unix stream socket")
    passed.set_inheritable(False)
    return passed
