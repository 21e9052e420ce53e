"""`shoal doctor`: is everything there that a kernel and its clients need? (Chapter 81, 7.13.)

Each check looks at one thing and says what it found; they run in the order of `CHECKS`, always all
of them. `--fix` first makes missing directories, tightens modes and removes a stale socket, and
changes nothing else.

Failure: none of its own; a check that cannot look says so as its finding. Exit 2 with any failure,
1 with any warning, else 0.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from ipc.client import Client, ClientError, RpcError
from ipc.client.autostart import answers
from journal import schema
from journal.errors import StoreError
from journal.records import Probe
from journal.store import Store, StoreConfig
from leash.platform import landlock_abi, sandbox_tier
from supervisor.cli.call import Call
from supervisor.cli.doctor_host import cgroup, disk, nofile, python, service, sqlite
from supervisor.cli.failure import Failure
from supervisor.cli.finding import FAIL, OK, WARN, Finding
from supervisor.cli.policy_check import check_policy
from supervisor.config import Config, ConfigError, Loaded, load
from supervisor.config.load import USER_FILE
from supervisor.token_writer import read_tokens
from supervisor.tokens import TokenStoreBroken
from supervisor.version import VERSION

_LEVEL_TEXTS: Final = {OK: "ok", WARN: "warn", FAIL: "FAIL"}
_EXITS: Final = {OK: 0, WARN: 1, FAIL: 2}


def run(call: Call) -> int:
    try:
        call.config  # noqa: B018 - looked at for its failure
    except Failure:
        # The check of the configuration says what is wrong; all others go on with the defaults.
        call.loaded = Loaded(Config(), (), (), (), {}, {})
    if call.flag("fix"):
        for text in _fix(call):
            call.out.note(f"fixed: {text}")
    findings = [(name, check(call)) for name, check in CHECKS]
    code = max(_EXITS[finding.level] for _, finding in findings)
    if call.out.json:
        checks = [
            {"name": name, "level": finding.level, "detail": finding.detail}
            for name, finding in findings
        ]
        call.out.document({"checks": checks})
        return code
    for name, finding in findings:
        call.out.line(f"{_LEVEL_TEXTS[finding.level]:<4} {name:<20} {finding.detail}")
    call.out.line(f"exit: {code}")
    return code


# --- the host's sandbox, terminal and tools ----------------------------------------------------


def _leash(call: Call) -> Finding:
    tier = sandbox_tier()
    backends = {"A": f"Landlock ABI {landlock_abi()}", "C": "Seatbelt"}
    backend = backends.get(tier)
    if backend is None:
        return Finding(WARN, f"available {tier}; no sandbox backend")
    return Finding(OK, f"available {tier}; {backend}; network enforcement unavailable")


def _tty(call: Call) -> Finding:
    return Finding(OK, "stdin is a terminal") if os.isatty(0) else Finding(WARN, "stdin is none")


def _pty(call: Call) -> Finding:
    there = Path("/dev/ptmx").exists()
    return Finding(OK, "/dev/ptmx") if there else Finding(FAIL, "/dev/ptmx is missing")


def _tool(name: str, missing: str) -> Callable[[Call], Finding]:
    def check(call: Call) -> Finding:
        if shutil.which(name, path=call.environ.get("PATH")):
            return Finding(OK, "available")
        return Finding(missing, "not found on PATH")

    return check


# --- places ------------------------------------------------------------------------------------


def _directory(path: Path | None) -> Finding:
    if path is None:
        return Finding(FAIL, "no place: neither the XDG variable nor HOME is set")
    try:
        with tempfile.TemporaryFile(dir=path):
            return Finding(OK, str(path))
    except OSError as error:
        return Finding(FAIL, f"{path}: {error.strerror}")


def _runtime_dir(call: Call) -> Finding:
    return _directory(call.paths.runtime_dir)


def _state_dir(call: Call) -> Finding:
    return _directory(call.paths.state_dir)


def _config_dir(call: Call) -> Finding:
    return _directory(call.paths.config_dir)


# --- the kernel --------------------------------------------------------------------------------


def _kernel_socket(call: Call) -> Finding:
    path = call.paths.socket
    if answers(path):
        return Finding(OK, f"reachable: {path}")
    return Finding(WARN, f"not reachable: {path}")


def _kernel_version(call: Call) -> Finding:
    try:
        with Client.connect(call.paths.socket) as client:
            call.attached(client)
            version = client.call("server.info")["version"]
    except (ClientError, RpcError) as error:
        return Finding(WARN, str(error))
    same = version == VERSION
    return Finding(OK if same else WARN, version if same else f"{version}, this is {VERSION}")


def _kernel_lock(call: Call) -> Finding:
    path = call.paths.state_dir / "lock"
    if not _is_locked(path):
        return Finding(OK, f"free: {path}")
    if answers(call.paths.socket):
        return Finding(OK, f"held: {path}")
    return Finding(WARN, f"held, but nothing listens at {call.paths.socket}")


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# --- what is stored ----------------------------------------------------------------------------


def _journal(call: Call) -> Finding:
    """Whether a store can be made and written, in a directory of its own."""
    try:
        with tempfile.TemporaryDirectory(prefix="shoal-doctor-") as scratch:
            store = Store.open(StoreConfig(path=Path(scratch)))
            with closing(store):
                store.apply(Probe())
    except (StoreError, OSError) as error:
        return Finding(FAIL, str(error))
    return Finding(OK, "SQLite open/write probe passed")


def _journal_schema(call: Call) -> Finding:
    path = call.paths.state_dir / "journal.db"
    if not path.exists():
        return Finding(OK, f"{path} absent")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        return Finding(FAIL, f"{path}: {error}")
    if version > schema.SCHEMA_VERSION:
        return Finding(FAIL, f"version {version} is newer than {schema.SCHEMA_VERSION}")
    if version < schema.SCHEMA_VERSION:
        return Finding(WARN, f"version {version}, migrated at the next start of the kernel")
    return Finding(OK, f"version {version}")


def _tokens(call: Call) -> Finding:
    path = call.paths.token_store
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        tokens = read_tokens(path).tokens
    except FileNotFoundError:
        return Finding(OK, f"{path} absent")
    except (OSError, TokenStoreBroken) as error:
        return Finding(FAIL, str(error))
    if mode != 0o600:
        return Finding(FAIL, f"{path} has mode {mode:04o}, not 0600")
    active = sum(token.valid_at(time.time_ns()) for token in tokens)
    level = WARN if tokens and not active else OK
    return Finding(level, f"{len(tokens)} tokens, {active} active")


def _secrets(call: Call) -> Finding:
    path = call.paths.secret_dir
    if not path.exists():
        return Finding(OK, f"{path} absent")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Finding(FAIL, f"{path} has mode {mode:04o}, not 0700")
    return Finding(OK, str(path))


def _config(call: Call) -> Finding:
    home = call.paths.config_dir
    named = call.environ.get("SHOAL_CONFIG")
    path = Path(named) if named else home / USER_FILE if home else None
    try:
        loaded = load(call.environ)
    except ConfigError as error:
        return Finding(FAIL, str(error))
    if loaded.warnings:
        return Finding(WARN, "; ".join(loaded.warnings))
    if path is None or not path.exists():
        return Finding(WARN, f"{path or USER_FILE} absent")
    return Finding(OK, f"{path} valid")


def _policy(call: Call) -> Finding:
    path = call.paths.policy
    if path is None:
        home = call.paths.config_dir
        return Finding(WARN, f"{home / 'leash.toml' if home else 'leash.toml'} absent")
    try:
        check_policy(path, call.environ)
    except Failure as failure:
        return Finding(FAIL, str(failure))
    return Finding(OK, f"{path} valid")


CHECKS: Final[tuple[tuple[str, Callable[[Call], Finding]], ...]] = (
    ("leash", _leash),
    ("tty", _tty),
    ("pty", _pty),
    ("runtime dir", _runtime_dir),
    ("state dir", _state_dir),
    ("config dir", _config_dir),
    ("kernel socket", _kernel_socket),
    ("kernel version", _kernel_version),
    ("kernel lock", _kernel_lock),
    ("tool sh", _tool("sh", FAIL)),
    ("tool git", _tool("git", WARN)),
    ("tool rg", _tool("rg", WARN)),
    ("tool python3", _tool("python3", WARN)),
    ("journal", _journal),
    ("journal schema", _journal_schema),
    ("tokens", _tokens),
    ("secrets", _secrets),
    ("config", _config),
    ("policy", _policy),
    ("python", python),
    ("sqlite", sqlite),
    ("cgroup", cgroup),
    ("nofile", nofile),
    ("disk", disk),
    ("service", service),
)


def _fix(call: Call) -> Iterator[str]:
    paths = call.paths
    for directory in (paths.runtime_dir, paths.state_dir, paths.config_dir):
        if directory is not None and not directory.exists():
            directory.mkdir(mode=0o700, parents=True)
            yield f"created {directory}"
    for directory in (paths.runtime_dir, paths.state_dir):
        yield from _tighten(directory, 0o700)
    yield from _tighten(paths.token_store, 0o600)
    with suppress(FileNotFoundError):
        status = paths.socket.lstat()
        ours = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()
        if ours and not answers(paths.socket):
            paths.socket.unlink()
            yield f"removed stale socket {paths.socket}"


def _tighten(path: Path, mode: int) -> Iterator[str]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & ~mode & 0o777:
        path.chmod(mode)
        yield f"mode of {path} is {mode:04o}"
