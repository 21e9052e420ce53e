"""`os` and `config`: facts of the machine, the process and the session (chapter 31 §10.6, §10.7).

Failure: `arg_error` for arguments to `os` functions and for a key that is no string.
"""

from __future__ import annotations

import os
import platform
import pwd
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

from worker.builtins.authority import check_env_read
from worker.builtins.effects import Rule
from worker.builtins.environment import environment_record, environment_text
from worker.builtins.namespaces.model import MemberBody, MemberCall, Namespace
from worker.errors import arg_error
from worker.values.types import Duration, Record, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_PLATFORMS: Final = {"darwin": "macos", "win32": "windows"}
_ARCHITECTURES: Final = {"arm64": "aarch64", "amd64": "x86_64"}
_USER_VARIABLES: Final = ("USER", "LOGNAME", "USERNAME")
_UNKNOWN: Final = "unknown"

OS: Final = Namespace("os")


def _without_arguments(body: MemberBody) -> MemberBody:
    def checked(call: MemberCall) -> Value:
        if call.pos or call.named:
            raise arg_error(f"{call.name} takes no arguments")
        return body(call)

    checked.__doc__ = body.__doc__
    return checked


@OS.function("platform", usage="os.platform() -> str")
@_without_arguments
def os_platform(call: MemberCall) -> str:
    """The operating system: `linux`, `macos`, ..."""
    return _PLATFORMS.get(sys.platform, sys.platform.rstrip("0123456789"))


@OS.function("arch", usage="os.arch() -> str")
@_without_arguments
def os_arch(call: MemberCall) -> str:
    """The processor architecture: `x86_64`, `aarch64`, ..."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine.lower(), machine) or _UNKNOWN


@OS.function("pid", usage="os.pid() -> int")
@_without_arguments
def os_pid(call: MemberCall) -> int:
    """The process id of the worker."""
    return os.getpid()


@OS.function("hostname", usage="os.hostname() -> str")
@_without_arguments
def os_hostname(call: MemberCall) -> str:
    """The name of the machine."""
    try:
        return socket.gethostname() or _UNKNOWN
    except OSError:
        return _UNKNOWN


@OS.function("username", usage="os.username() -> str")
@_without_arguments
def os_username(call: MemberCall) -> str:
    """The user by the session's variables, else by the account."""
    for name in _USER_VARIABLES:
        found = environment_text(call.ev, name)
        if found:
            return found
    try:
        return pwd.getpwuid(os.geteuid()).pw_name or _UNKNOWN
    except KeyError:
        return _UNKNOWN


@OS.function("cpus", usage="os.cpus() -> int")
@_without_arguments
def os_cpus(call: MemberCall) -> int:
    """How many processors the worker may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@OS.function("uptime", usage="os.uptime() -> duration|null")
@_without_arguments
def os_uptime(call: MemberCall) -> Duration | None:
    """The time since the machine started."""
    ns = time.monotonic_ns()
    return Duration(ns) if ns >= 0 else None


@OS.function("env", usage="os.env() -> record", effects=(Rule("env_read", names=("*",)),))
@_without_arguments
def os_env(call: MemberCall) -> Record:
    """The session environment as a record."""
    check_env_read(call.ev, "*")
    return environment_record(call.ev)


class ConfigNamespace(Namespace):
    """The resolved configuration of the session; its keys are fields."""

    def field(self, ev: Evaluator, member: str) -> Value:
        if member in ev.host.config:
            return ev.host.config[member]
        return super().field(ev, member) if member in self.functions else None


CONFIG: Final = ConfigNamespace("config")


@CONFIG.function("all", usage="config.all() -> record")
def config_all(call: MemberCall) -> Record:
    """The whole configuration given to the session."""
    return dict(call.ev.host.config)


@CONFIG.function("get", usage="config.get(key) -> value|null")
def config_get(call: MemberCall) -> Value:
    """One top-level key; null when it is not there."""
    return call.ev.host.config.get(call.text())
