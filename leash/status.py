"""What is really enforced for a principal on this host, dimension by dimension (chapter 50 §9.11).

`status` is the object clients see; `caps_enforced` the one flag they see first. Both are derived
from what the principal is to be confined to and from what the host can do, never from one another,
so that no flag stands for a dimension it does not cover.

Failure: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from leash.confinement import Confinement, Ports
from leash.landlock import NET_ABI, SCOPE_ABI, abi
from leash.platform import sandbox_tier

LANDLOCK: Final = "A"
SEATBELT: Final = "C"
NONE: Final = "none"
NOT_APPLIED: Final = "sandbox was requested but not applied — child runs WITHOUT OS confinement"
_UNAVAILABLE: Final = {
    "A": "Landlock is available, enforcement of host names and UDP unavailable; nothing is "
    "confined for this principal",
    "B": "Landlock is unavailable on this kernel",
    "C": "Seatbelt profile is not installed: nothing is confined for this principal",
    "D": "no backend on this platform: policy is advisory",
}
_FILE_CAVEAT: Final = (
    "stat, chmod, chown, utime and xattr outside the roots, UNIX sockets with a path, and the "
    "names of processes in /proc are not confined"
)
_NETWORK_CAVEAT: Final = "host names, UDP and raw sockets are not confined"
_SCOPE_CAVEAT: Final = "signals and abstract sockets are not confined by this kernel"


@dataclass(frozen=True, slots=True)
class Backend:
    """What the host offers."""

    tier: str
    landlock_abi: int = 0

    @property
    def files(self) -> bool:
        return self.tier in (LANDLOCK, SEATBELT)

    @property
    def network(self) -> bool:
        return self.tier == SEATBELT or (self.tier == LANDLOCK and self.landlock_abi >= NET_ABI)

    @property
    def scopes(self) -> bool:
        return self.tier == LANDLOCK and self.landlock_abi >= SCOPE_ABI

    @property
    def descriptor_exec(self) -> bool:
        """Whether a program can be executed by the descriptor it was judged by."""
        return self.tier in ("A", "B")


def this_host() -> Backend:
    return Backend(sandbox_tier(), abi())


def status(confined: Confinement, backend: Backend) -> dict[str, Any]:
    """The status object of a principal with that confinement."""
    dimensions = _dimensions(confined, backend)
    filesystem = dimensions["filesystem"]["enforced"]
    requested = [
        dimension
        for name in ("network_connect", "network_listen")
        if (dimension := dimensions[name])["requested"]
    ]
    network = bool(requested) and all(dimension["enforced"] for dimension in requested)
    enforced = any(
        dimensions[name]["enforced"]
        for name in ("filesystem", "network_connect", "network_listen", "spawn_identity")
    )
    return {
        "available_tier": backend.tier,
        "active_tier": backend.tier if enforced else None,
        "enforced": enforced,
        "detail": _detail(confined, backend, enforced),
        "landlock_abi": backend.landlock_abi or None,
        "filesystem_enforced": filesystem,
        "spawn_exec_enforced": dimensions["spawn_identity"]["enforced"],
        "network_enforced": network,
        "dimensions": dimensions,
    }


def caps_enforced(confined: Confinement, backend: Backend) -> bool:
    """Whether the operating system holds this principal in the file system or in a network
    dimension."""
    if backend.tier not in (LANDLOCK, SEATBELT):
        return False
    ports = (confined.connect, confined.listen)
    return (confined.filesystem and backend.files) or any(
        port.held is not None and backend.network for port in ports
    )


def shortfall(confined: Confinement, backend: Backend) -> str | None:
    """What a hermetic principal asks for and this host cannot hold, None when it holds all."""
    missing = [
        name
        for name, dimension in _dimensions(confined, backend).items()
        if name in ("filesystem", "network_connect", "network_listen", "spawn_identity")
        and dimension["requested"]
        and not dimension["enforced"]
    ]
    return ", ".join(missing) + " not enforced" if missing else None


def _dimension(requested: bool, possible: bool, mode: str, **extra: Any) -> dict[str, Any]:
    enforced = requested and possible
    return {
        "requested": requested,
        "enforced": enforced,
        "mode": mode if enforced else NONE,
        **extra,
    }


def _dimensions(confined: Confinement, backend: Backend) -> dict[str, Any]:
    landlock = backend.tier == LANDLOCK
    ports_mode = "landlock_tcp" if landlock else "seatbelt"
    evaluator = landlock and (confined.filesystem or confined.connect.held is not None)
    return {
        "filesystem": _dimension(
            confined.filesystem,
            backend.files,
            "landlock" if landlock else "seatbelt",
            read=list(confined.read),
            write=list(confined.write),
            delete=list(confined.delete),
            write_includes_delete=True,
        ),
        "network_connect": _ports(
            confined.connect, backend, ports_mode, hosts_enforced=False, udp_enforced=False
        ),
        "network_listen": _ports(confined.listen, backend, ports_mode),
        "spawn_identity": _dimension(
            confined.pinned,
            backend.descriptor_exec,
            "exec_descriptor",
            entries=len(confined.programs),
        ),
        "ipc_scope": _dimension(confined.any, backend.scopes, "landlock_scope"),
        "signal_scope": _dimension(confined.any, backend.scopes, "landlock_scope"),
        "privileges": _dimension(confined.any, backend.tier in ("A", "B"), "no_new_privs"),
        # The checks of chapter 50 §8 act on every confined principal, wherever it runs.
        "evaluator": _dimension(confined.any, True, "landlock_thread" if evaluator else "checks"),
        "resources": {
            "requested": False,
            "enforced": False,
            "mode": NONE,
            "cpu": False,
            "memory": False,
            "pids": False,
        },
    }


def _ports(ports: Ports, backend: Backend, mode: str, **extra: bool) -> dict[str, Any]:
    unheld = not ports.requested or ports.every
    return _dimension(
        ports.requested,
        backend.network and not ports.every,
        mode,
        ports="any" if unheld else list(ports.numbers),
        **extra,
    )


def _detail(confined: Confinement, backend: Backend, enforced: bool) -> str:
    if not confined.any:
        return _UNAVAILABLE[backend.tier]
    if not enforced:
        return f"{_UNAVAILABLE[backend.tier]}; {NOT_APPLIED}"
    caveats = []
    if confined.filesystem:
        caveats.append(_FILE_CAVEAT)
    if confined.connect.requested or confined.listen.requested:
        caveats.append(_NETWORK_CAVEAT)
        if not backend.network:
            caveats.append("TCP ports are not confined by this kernel")
    if confined.connect.every:
        caveats.append("connecting to any TCP port is granted for some host")
    if not backend.scopes:
        caveats.append(_SCOPE_CAVEAT)
    return "; ".join(caveats)
