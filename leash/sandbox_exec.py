"""`shoal-sandbox-exec`: confine this process, then become a command (chapter 50 §9.8).

    shoal-sandbox-exec [--read PATH]... [--write PATH]... [--delete PATH]...
                       [--connect PORT]... [--listen PORT]... -- COMMAND [ARG]...

The command gets what every confined child gets, and the named roots and TCP ports on top. The file
system is always confined; the network is left alone unless a port option is given, and then both
directions are held to the ports that were named. Signals, abstract sockets, set-uid programs and
other people's processes are out of reach as for any child of a confined session. No descriptor but
the standard ones is passed on. What comes after `--` is never looked at.

Failure: one line `shoal-sandbox-exec: TEXT` on standard error and status 126, before anything of
the command has run: for a usage fault, when the host cannot confine, when confining fails, and when
the command cannot be executed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from leash import landlock, seatbelt, seccomp
from leash.confinement import Confinement, Ports
from leash.platform import sandbox_tier
from leash.privileges import drop_capabilities, no_new_privs

NAME: Final = "shoal-sandbox-exec"
REFUSED: Final = 126
PORT_MAX: Final = 65535
END_OF_OPTIONS: Final = "--"
_PATHS: Final = ("--read", "--write", "--delete")
_PORTS: Final = ("--connect", "--listen")
_FIRST_CLOSED_FD: Final = 3


class Refused(Exception):
    """Why the command does not run."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to confine to, and what to run."""

    confined: Confinement
    command: tuple[str, ...]


def main() -> NoReturn:
    """The program."""
    try:
        order = parse(sys.argv[1:])
        confine(order.confined)
        become(order.command)
    except Refused as refusal:
        text = f"{NAME}: {refusal}\n"
        os.write(2, text.encode("utf-8", "surrogateescape"))
    os._exit(REFUSED)


def parse(words: Sequence[str]) -> Order:
    """The order of a command line. Raises Refused."""
    paths: dict[str, list[str]] = {option: [] for option in _PATHS}
    ports: dict[str, list[int]] = {option: [] for option in _PORTS}
    at = 0
    while at < len(words) and words[at] != END_OF_OPTIONS:
        option = words[at]
        value = words[at + 1] if at + 1 < len(words) else END_OF_OPTIONS
        if option in paths:
            if value == END_OF_OPTIONS or not value:
                raise Refused("sandbox option requires path")
            paths[option].append(os.path.abspath(value))
        elif option in ports:
            ports[option].append(_port(value))
        else:
            raise Refused(f"unknown sandbox option {option}")
        at += 2
    command = tuple(words[at + 1 :])
    if not command:
        raise Refused("missing command")
    held = any(ports.values())
    read, write, delete = (_existing(paths[option]) for option in _PATHS)
    connect, listen = (Ports(held, False, tuple(sorted({*ports[option]}))) for option in _PORTS)
    return Order(Confinement(True, read, write, delete, connect, listen), command)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= PORT_MAX):
        raise Refused("sandbox option requires port")
    return int(text)


def _existing(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({path for path in paths if os.path.exists(path)}))


def confine(confined: Confinement) -> None:
    """Hold this process to the order. Raises Refused."""
    apply = _BACKENDS.get(sandbox_tier())
    if apply is None:
        raise Refused("sandbox enforcement failed: this host has no sandbox")
    try:
        apply(confined)
    except (OSError, seatbelt.SeatbeltError) as failure:
        raise Refused(f"sandbox enforcement failed: {failure}") from None


def _by_landlock(confined: Confinement) -> None:
    no_new_privs()
    drop_capabilities()
    seccomp.restrict()
    landlock.apply(landlock.rules_for(confined, landlock.CHILD_BASE))


def _by_seatbelt(confined: Confinement) -> None:
    seatbelt.install(seatbelt.profile(confined))


_BACKENDS: Final[dict[str, Callable[[Confinement], None]]] = {
    "A": _by_landlock,
    "C": _by_seatbelt,
}


def become(command: Sequence[str]) -> NoReturn:
    """Execute the command, found on PATH. Raises Refused."""
    os.closerange(_FIRST_CLOSED_FD, os.sysconf("SC_OPEN_MAX"))
    try:
        os.execvp(command[0], list(command))
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else str(failure)
        raise Refused(f"exec failed: {command[0]}: {reason}") from None


if __name__ == "__main__":
    main()
