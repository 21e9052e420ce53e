"""Landlock: holding a thread and its children to files and TCP ports (chapter 50 §9.3 to §9.6).

A `Rules` value lists what stays allowed; `apply` restricts the calling thread to it, for good.
Restrictions stack: a thread that is restricted again has the intersection. Threads and processes
started from then on inherit it, threads that run already do not, so a process restricts itself
while it has one thread.

The numbers come from the `landlock` package, the calls are made here: the package knows file rules
only, not ports and scopes.

Failure: `LandlockError` when a call fails; the caller must then not go on with what should have
been confined. A path of the rules that does not exist (any more) is left out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from landlock.plumbing import (
    CREATE_RULESET_VERSION,
    SYSCALL_ADD_RULE,
    SYSCALL_CREATE_RULESET,
    SYSCALL_RESTRICT_SELF,
)

from leash.confinement import Confinement

# File system rights by bit, and the ABI that brought the newer ones.
EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15
_FIRST_RIGHTS: Final = (1 << 13) - 1
_NEWER_RIGHTS: Final = ((2, 1 << 13), (3, TRUNCATE), (5, IOCTL_DEV))
# What a rule on something that is no directory can hold.
_FILE_RIGHTS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

NET_ABI: Final = 4
SCOPE_ABI: Final = 6
BIND_TCP: Final = 1 << 0
CONNECT_TCP: Final = 1 << 1
SCOPE_ABSTRACT_UNIX: Final = 1 << 0
SCOPE_SIGNAL: Final = 1 << 1

_RULE_PATH: Final = 1
_RULE_PORT: Final = 2
# struct landlock_path_beneath_attr is packed.
_PATH_RULE: Final = struct.Struct("=Qi")
_PORT_RULE: Final = struct.Struct("=QQ")
_WORD_BYTES: Final = 8

GRANT_READ: Final = EXECUTE | READ_FILE | READ_DIR
GRANT_DELETE: Final = REMOVE_DIR | REMOVE_FILE
GRANT_WRITE: Final = _FIRST_RIGHTS | (1 << 13) | TRUNCATE | IOCTL_DEV
BASE_READ: Final = READ_FILE | READ_DIR
BASE_DEVICE: Final = READ_FILE | WRITE_FILE | IOCTL_DEV

# What every confined child may use, as far as it exists. `/proc` as a whole: what a rule on
# `/proc/self` would name is the process that makes the rule, never the child. What a process keeps
# private there (memory, environment, descriptors) stays out of reach of a confined one, which may
# not trace anything outside its domain.
CHILD_BASE: Final[tuple[tuple[str, int], ...]] = (
    *(
        (path, GRANT_READ)
        for path in (
            "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
        )
    ),
    *(
        (path, BASE_READ)
        for path in (
            "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
            "/etc/alternatives", "/etc/localtime", "/proc",
        )
    ),
    *(
        (path, BASE_DEVICE)
        for path in (
            "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
            "/dev/ptmx", "/dev/pts",
        )
    ),
)  # fmt: skip

# What the worker itself needs beyond that.
WORKER_BASE: Final[tuple[tuple[str, int], ...]] = tuple(
    (path, BASE_READ)
    for path in (
        "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf",
        "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/mime.types",
    )
)  # fmt: skip

_libc: Final = ctypes.CDLL(None, use_errno=True)
_syscall: Final[Any] = getattr(_libc, "syscall", None)


class LandlockError(OSError):
    """A call of the Landlock interface failed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays allowed. `paths` None: files are not restricted; `connect` and `listen` None: that
    direction is not; `scoped`: abstract sockets and signals outside the domain are out of reach."""

    paths: tuple[tuple[str, int], ...] | None = None
    connect: tuple[int, ...] | None = None
    listen: tuple[int, ...] | None = None
    scoped: bool = True


@cache
def abi() -> int:
    """The ABI version of the running kernel, 0 when there is none."""
    if _syscall is None or os.uname().sysname != "Linux":
        return 0
    version = _syscall(SYSCALL_CREATE_RULESET, None, ctypes.c_size_t(0), CREATE_RULESET_VERSION)
    return max(int(version), 0)


def rules_for(
    confined: Confinement, base: Iterable[tuple[str, int]], private: Sequence[str] = ()
) -> Rules:
    """The rules of a confinement on top of a base set. `private` are directories of the session
    that may be used without restriction."""
    paths: tuple[tuple[str, int], ...] | None = None
    if confined.filesystem:
        paths = (
            *base,
            *((path, GRANT_WRITE) for path in private),
            *((root, GRANT_READ) for root in confined.read),
            *((root, GRANT_WRITE) for root in confined.write),
            *((root, GRANT_DELETE) for root in confined.delete),
        )
    return Rules(paths, confined.connect.held, confined.listen.held)


def distinct(base: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The same base with fewer rules: without what does not exist, and without what another of its
    directories holds already, by the place it really is. What is no directory has the rights of a
    file only. Every rule costs each session time at its start."""
    there = [
        (path, access if os.path.isdir(path) else access & _FILE_RIGHTS)
        for path, access in base
        if os.path.exists(path)
    ]
    places = [(os.path.realpath(path), access) for path, access in there]
    return tuple(
        entry
        for number, (entry, (place, access)) in enumerate(zip(there, places, strict=True))
        if (place, access) not in places[:number]
        and not any(
            access & ~wider == 0 and place.startswith(above + "/") for above, wider in places
        )
    )


def handled_rights(version: int) -> int:
    """Every file system right an ABI knows."""
    return _FIRST_RIGHTS | sum(right for since, right in _NEWER_RIGHTS if version >= since)


def apply(rules: Rules) -> None:
    """Restrict the calling thread. The thread must have no_new_privs. Raises LandlockError."""
    ruleset = create(rules)
    if ruleset < 0:
        return
    try:
        restrict(ruleset)
    finally:
        os.close(ruleset)


def create(rules: Rules) -> int:
    """A ruleset descriptor, or -1 when the rules restrict nothing this kernel knows."""
    version = abi()
    fs = handled_rights(version) if rules.paths is not None and version > 0 else 0
    net = 0
    if version >= NET_ABI:
        net |= 0 if rules.listen is None else BIND_TCP
        net |= 0 if rules.connect is None else CONNECT_TCP
    scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL if rules.scoped and version >= SCOPE_ABI else 0
    if not (fs or net or scoped):
        return -1
    words = 3 if version >= SCOPE_ABI else 2 if version >= NET_ABI else 1
    attribute = struct.pack(f"={words}Q", *(fs, net, scoped)[:words])
    ruleset = _call(
        "create_ruleset", SYSCALL_CREATE_RULESET, attribute, ctypes.c_size_t(len(attribute)), 0
    )
    try:
        if fs:
            for path, access in rules.paths or ():
                _allow_path(ruleset, path, access & fs)
        if net & CONNECT_TCP:
            _allow_ports(ruleset, CONNECT_TCP, rules.connect or ())
        if net & BIND_TCP:
            _allow_ports(ruleset, BIND_TCP, rules.listen or ())
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def restrict(ruleset: int) -> None:
    """Restrict the calling thread to a ruleset. Raises LandlockError."""
    _call("restrict_self", SYSCALL_RESTRICT_SELF, ruleset, 0)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as failure:
        if failure.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENXIO):
            return
        raise LandlockError(failure.errno, f"{path}: {failure.strerror}") from None
    try:
        _add_path(ruleset, fd, access)
    except LandlockError as failure:
        # Rights of directories on something else; most rules are about directories.
        if failure.errno != errno.EINVAL or not access & ~_FILE_RIGHTS:
            raise
        _add_path(ruleset, fd, access & _FILE_RIGHTS)
    finally:
        os.close(fd)


def _add_path(ruleset: int, fd: int, access: int) -> None:
    if access:
        _call("add_rule", SYSCALL_ADD_RULE, ruleset, _RULE_PATH, _PATH_RULE.pack(access, fd), 0)


def _allow_ports(ruleset: int, access: int, ports: Iterable[int]) -> None:
    for port in ports:
        _call("add_rule", SYSCALL_ADD_RULE, ruleset, _RULE_PORT, _PORT_RULE.pack(access, port), 0)


def _call(name: str, number: int, *arguments: Any) -> int:
    result = int(_syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise LandlockError(code, f"landlock_{name}: {os.strerror(code)}")
    return result
