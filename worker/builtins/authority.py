"""The check at the moment of an effect, as the builtins make it (chapter 50 §8).

Each function hands one effect, in the JSON shape of chapter 50 §2.1, to the authority of the host.
Paths are absolute and lexically normalised; the authority also looks at the real path.

Failure: `leash_denied` from the authority. The local human without a policy is never refused.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from worker.values.types import display_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


def path_json(path: str) -> Any:
    """A normalised path in an effect: text, or an object when the name is not UTF-8."""
    path = os.path.normpath(path)
    if path.startswith("//"):
        path = path[1:]
    raw = os.fsencode(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"display": display_name(path), "raw": base64.b64encode(raw).decode("ascii")}


def _check_paths(ev: Evaluator, kind: str, paths: Iterable[str]) -> None:
    ev.host.authority.check({"kind": kind, "paths": [path_json(path) for path in paths]})


def check_read(ev: Evaluator, *paths: str) -> None:
    _check_paths(ev, "fs_read", paths)


def check_opened(ev: Evaluator, fd: int) -> None:
    """Judge the file that was opened: a name may have come to mean another one since it was
    checked. Where the system does not tell names of open files, the first check has to do."""
    if not ev.host.authority.restricted or not os.fstat(fd).st_nlink:
        return
    with contextlib.suppress(FileNotFoundError):
        real = os.readlink(f"/proc/self/fd/{fd}")
        # Pipes, sockets and files in memory have no path.
        if real.startswith("/") and os.path.lexists(real):
            check_read(ev, real)


def check_write(ev: Evaluator, *paths: str) -> None:
    _check_paths(ev, "fs_write", paths)


def check_delete(ev: Evaluator, *paths: str) -> None:
    _check_paths(ev, "fs_delete", paths)


def check_env_read(ev: Evaluator, *names: str) -> None:
    ev.host.authority.check({"kind": "env_read", "names": list(names)})


def check_env_write(ev: Evaluator, name: str) -> None:
    ev.host.authority.check({"kind": "env_write", "names": [name]})


def check_secret(ev: Evaluator, name: str) -> None:
    ev.host.authority.check({"kind": "secret_use", "names": [name]})


def check_connect(ev: Evaluator, host: str, port: int) -> None:
    ev.host.authority.check({"kind": "net_connect", "host": host, "port": port})


def check_session_write(ev: Evaluator) -> None:
    ev.host.authority.check({"kind": "session_write"})


def check_journal_read(ev: Evaluator) -> None:
    ev.host.authority.check({"kind": "journal_read"})


def check_opaque(ev: Evaluator) -> None:
    ev.host.authority.check({"kind": "opaque"})
