"""Checks of `shoal doctor` that look at the host alone: interpreter, limits, disk, service manager.

Failure: none; see `doctor`.
"""

from __future__ import annotations

import resource
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from supervisor.cli.call import Call
from supervisor.cli.finding import FAIL, OK, WARN, Finding
from supervisor.cli.status import size

PYTHON_MIN: Final = (3, 11)
SQLITE_MIN: Final = (3, 37, 0)
NOFILE_WANTED: Final = 4_096
NOFILE_MIN: Final = 256
DISK_WANTED_BYTES: Final = 1024**3
DISK_MIN_BYTES: Final = 64 * 1024**2


def python(call: Call) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(OK if sys.version_info[:2] >= PYTHON_MIN else FAIL, version)


def sqlite(call: Call) -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        return Finding(FAIL, f"{version} is older than {'.'.join(map(str, SQLITE_MIN))}")
    with tempfile.TemporaryDirectory(prefix="shoal-doctor-") as scratch:
        connection = sqlite3.connect(Path(scratch) / "probe.db")
        with closing(connection):
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        return Finding(FAIL, f"{version}, no write-ahead log")
    return Finding(OK, f"{version}, WAL works")


def cgroup(call: Call) -> Finding:
    """Controllers delegated to the group this process is in."""
    none = Finding(WARN, "none: worker limits fall back to rlimits")
    try:
        [line] = [
            each for each in Path("/proc/self/cgroup").read_text().splitlines() if each[:3] == "0::"
        ]
        group = Path("/sys/fs/cgroup") / line[3:].lstrip("/")
        controllers = (group / "cgroup.controllers").read_text().split()
        writable = (group / "cgroup.procs").stat().st_uid != 0
    except (OSError, ValueError):
        return none
    wanted = [name for name in ("cpu", "memory", "pids") if name in controllers]
    return Finding(OK, " ".join(wanted)) if wanted and writable else none


def nofile(call: Call) -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= NOFILE_WANTED:
        return Finding(OK, str(soft))
    return Finding(FAIL if soft < NOFILE_MIN else WARN, f"{soft}, {NOFILE_WANTED} wanted")


def disk(call: Call) -> Finding:
    place = call.paths.state_dir
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(FAIL, f"{place}: {error.strerror}")
    level = OK if free >= DISK_WANTED_BYTES else WARN if free >= DISK_MIN_BYTES else FAIL
    return Finding(level, f"{size(free)} free in {place}")


def unit_program(unit: str, home: str) -> str | None:
    """The program that a unit starts, as a path."""
    for line in unit.splitlines():
        if line.startswith("ExecStart="):
            return line.removeprefix("ExecStart=").split()[0].replace("%h", home)
    return None


def service(call: Call) -> Finding:
    """Whether an installed unit starts a program that exists."""
    home = Path(call.environ.get("HOME", "/"))
    unit = home / ".config" / "systemd" / "user" / "shoal.service"
    if not unit.exists():
        return Finding(OK, "not installed")
    program = unit_program(unit.read_text(errors="replace"), str(home))
    if program is None or not Path(program).exists():
        return Finding(WARN, f"{unit}: {program or 'its program'} does not exist")
    return Finding(OK, str(unit))
