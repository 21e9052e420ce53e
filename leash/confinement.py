"""What a principal's grants ask the operating system to hold (chapter 50 §9.1, §9.2).

A `Confinement` says, per dimension, whether it is confined and to what: roots of the file system,
TCP ports, pinned programs. It is derived from a standing alone, that is from a policy narrowed by
token caps, and says nothing about what the host can do; the backends turn it into rules.

Failure: none. A principal without a policy is confined to nothing at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from leash.effects import ANY
from leash.patterns import concrete_root
from leash.policy import PATH_KEYS, Policy, roots
from leash.verdict import Standing, caps_admit

EVERYWHERE: Final = "/"
NET_KEYS: Final = ("net_connect", "net_listen")


@dataclass(frozen=True, slots=True)
class Ports:
    """One TCP direction. `every`: at least one grant is for any port, so that ports cannot be held;
    `numbers` are the others, sorted."""

    requested: bool = False
    every: bool = False
    numbers: tuple[int, ...] = ()

    @property
    def held(self) -> tuple[int, ...] | None:
        """The ports to hold it to, None when there is nothing to hold."""
        return self.numbers if self.requested and not self.every else None


@dataclass(frozen=True, slots=True)
class Confinement:
    """`read`, `write` and `delete` are roots that exist now, sorted. `programs` are the entries of
    the spawn list, `hermetic` whether a child must not start confined less than asked."""

    filesystem: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    connect: Ports = Ports()
    listen: Ports = Ports()
    programs: tuple[str, ...] = ()
    hermetic: bool = False

    @property
    def pinned(self) -> bool:
        return bool(self.programs)

    @property
    def any(self) -> bool:
        """Whether any dimension is confined: then scopes, signals and privileges are too."""
        return self.filesystem or self.connect.requested or self.listen.requested or self.pinned


NOTHING_CONFINED: Final = Confinement()
_NOTHING_GRANTED: Final = Policy(given=frozenset((*PATH_KEYS, *NET_KEYS)))


def confinement(standing: Standing) -> Confinement:
    """What the standing's work is to be confined to."""
    asked = _asked(standing.policy or _NOTHING_GRANTED, standing.caps)
    return replace(
        asked,
        read=_existing(asked.read),
        write=_existing(asked.write),
        delete=_existing(asked.delete),
    )


@lru_cache(maxsize=256)
def _asked(policy: Policy, caps: tuple[str, ...]) -> Confinement:
    """The same with all roots, whether they exist now or not."""
    granted = {
        key: getattr(policy, key) if caps_admit(caps, key) else ()
        for key in (*PATH_KEYS, *NET_KEYS)
    }
    filesystem = (_present(policy, PATH_KEYS) or policy.hermetic) and not all(
        _everywhere(granted[key]) for key in PATH_KEYS
    )
    network = filesystem or _present(policy, NET_KEYS) or policy.hermetic
    read, write, delete = (tuple(roots(granted[key])) if filesystem else () for key in PATH_KEYS)
    return Confinement(
        filesystem=filesystem,
        read=read,
        write=write,
        delete=delete,
        connect=_connect(network, granted["net_connect"]),
        listen=_listen(network, granted["net_listen"]),
        programs=policy.proc_spawn,
        hermetic=policy.hermetic,
    )


def _existing(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if os.path.exists(path))


def _present(policy: Policy, keys: Iterable[str]) -> bool:
    return any(key in policy.given or getattr(policy, key) for key in keys)


def _everywhere(patterns: Iterable[str]) -> bool:
    return any(concrete_root(pattern) == EVERYWHERE for pattern in patterns)


def _connect(confined: bool, grants: tuple[str, ...]) -> Ports:
    if not confined or "*:*" in grants:
        return Ports()
    ports = {grant.rpartition(":")[2] for grant in grants}
    numbers = sorted(int(port) for port in ports - {ANY})
    return Ports(True, ANY in ports, tuple(numbers))


def _listen(confined: bool, grants: tuple[int | str, ...]) -> Ports:
    if not confined or ANY in grants:
        return Ports()
    return Ports(True, False, tuple(sorted({port for port in grants if type(port) is int})))
