"""The closed vocabulary of effects, their JSON, their spelling and their one-line display.

An effect is a JSON object whose first key is `kind` (chapter 50 §2). It travels as it is between
worker, router, journal and clients, so this module works on plain dictionaries: constructors give
well-formed ones, `checked` turns what came from outside into one. Paths in effects are text, or an
object with the exact bytes when the name is not UTF-8; `os_path` and `json_path` go between those
and the strings of the operating system.

Failure: `checked` raises MalformedEffect; everything else is total over well-formed effects.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

Effect = dict[str, Any]

FS_READ: Final = "fs_read"
FS_WRITE: Final = "fs_write"
FS_DELETE: Final = "fs_delete"
PROC_SPAWN: Final = "proc_spawn"
NET_CONNECT: Final = "net_connect"
NET_LISTEN: Final = "net_listen"
ENV_READ: Final = "env_read"
ENV_WRITE: Final = "env_write"
SECRET_USE: Final = "secret_use"
SESSION_WRITE: Final = "session_write"
JOURNAL_READ: Final = "journal_read"
TIME: Final = "time"
OPAQUE: Final = "opaque"

FS_KINDS: Final = (FS_READ, FS_WRITE, FS_DELETE)
NAME_KINDS: Final = (ENV_READ, ENV_WRITE, SECRET_USE)
UNIT_KINDS: Final = (SESSION_WRITE, JOURNAL_READ, TIME, OPAQUE)
# Every kind, in the order of chapter 50 §2.1.
KINDS: Final = (
    *FS_KINDS,
    PROC_SPAWN,
    NET_CONNECT,
    NET_LISTEN,
    *NAME_KINDS,
    *UNIT_KINDS,
)

# "any or all" among names, and an unknown host.
ANY: Final = "*"
PORT_MAX: Final = 65535
_HASH: Final = re.compile(r"(?:[0-9a-f]{64})?")


class MalformedEffect(ValueError):
    """Not an effect of the vocabulary."""


# --- making effects ------------------------------------------------------------------------------


def files(kind: str, paths: Iterable[str]) -> Effect:
    """A file effect on absolute, normalised OS paths, in argument order."""
    return {"kind": kind, "paths": [json_path(path) for path in paths]}


def names(kind: str, values: Iterable[str]) -> Effect:
    return {"kind": kind, "names": list(values)}


def unit(kind: str) -> Effect:
    return {"kind": kind}


def spawn(bin_hash: str, argv0: str) -> Effect:
    return {"kind": PROC_SPAWN, "bin_hash": bin_hash, "argv0": argv0}


def connect(host: str, port: int) -> Effect:
    return {"kind": NET_CONNECT, "host": host, "port": port}


def listen(port: int) -> Effect:
    return {"kind": NET_LISTEN, "port": port}


# --- paths ---------------------------------------------------------------------------------------


def json_path(path: str) -> Any:
    """An OS path as it stands in an effect."""
    raw = os.fsencode(path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {
            "display": raw.decode("utf-8", "replace"),
            "raw": base64.b64encode(raw).decode("ascii"),
        }


def os_path(path: Any) -> str:
    """The OS path of one in an effect."""
    if isinstance(path, str):
        return path
    return os.fsdecode(base64.b64decode(path["raw"]))


def normal_path(path: str) -> str:
    """An absolute path normalised lexically: no `.`, no `..`, no trailing or doubled slash."""
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


# --- reading effects -----------------------------------------------------------------------------


def request_kind(text: str) -> str:
    """A kind as clients name it: `fs.write` and `fs_write` are the same."""
    return text.replace(".", "_")


def kinds_of(effects: Iterable[Mapping[str, Any]]) -> list[str]:
    """The distinct kinds, in order."""
    return list(dict.fromkeys(effect["kind"] for effect in effects))


def identity(effect: Mapping[str, Any]) -> str:
    """A text that equal effects share: what duplicates are found by."""
    return json.dumps(effect, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _path_ok(path: Any) -> bool:
    if isinstance(path, str):
        return path.startswith("/")
    if not isinstance(path, dict) or not isinstance(path.get("display"), str):
        return False
    try:
        return base64.b64decode(path["raw"], validate=True).startswith(b"/")
    except (KeyError, TypeError, ValueError, binascii.Error):
        return False


def _all(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(test(item) for item in value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _port(value: Any) -> bool:
    return type(value) is int and 0 <= value <= PORT_MAX


def _digest(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


_MEMBERS: Final[dict[str, dict[str, Callable[[Any], bool]]]] = {
    **{kind: {"paths": _all(_path_ok)} for kind in FS_KINDS},
    PROC_SPAWN: {"bin_hash": _digest, "argv0": _text},
    NET_CONNECT: {"host": _text, "port": _port},
    NET_LISTEN: {"port": _port},
    **{kind: {"names": _all(_text)} for kind in NAME_KINDS},
    **{kind: {} for kind in UNIT_KINDS},
}


def checked(value: Any) -> Effect:
    """An effect that came from outside, exactly its own members. Raises MalformedEffect."""
    kind = value.get("kind") if isinstance(value, dict) else None
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    if members is None:
        raise MalformedEffect(f"no such effect: {str(kind)[:40]}")
    if len(value) != len(members) + 1:
        raise MalformedEffect(f"unexpected members in {kind}")
    for name, test in members.items():
        if name not in value or not test(value[name]):
            raise MalformedEffect(f"bad `{name}` in {kind}")
    return {"kind": kind, **{name: value[name] for name in members}}


# --- display -------------------------------------------------------------------------------------


def _path_text(path: Any) -> str:
    return path if isinstance(path, str) else str(path["display"])


def _operands(effect: Mapping[str, Any]) -> str:
    listed: Sequence[Any] = effect["paths"] if "paths" in effect else effect["names"]
    return ", ".join(map(_path_text, listed))


def _listing(verb: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda effect: f"{verb} {_operands(effect)}"


_LINES: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    FS_READ: _listing("read"),
    FS_WRITE: _listing("write"),
    FS_DELETE: _listing("delete"),
    PROC_SPAWN: lambda effect: f"spawn {effect['argv0']}",
    NET_CONNECT: lambda effect: f"connect {effect['host']}:{effect['port']}",
    NET_LISTEN: lambda effect: f"listen {effect['port']}",
    ENV_READ: _listing("env-read"),
    ENV_WRITE: _listing("env-write"),
    SECRET_USE: _listing("secret-use"),
    SESSION_WRITE: lambda effect: "session-write",
    JOURNAL_READ: lambda effect: "journal-read",
    TIME: lambda effect: "read-clock",
    OPAQUE: lambda effect: "opaque (effects unknown)",
}


def line(effect: Mapping[str, Any]) -> str:
    """The one-line display (chapter 50 §2.3)."""
    return _LINES[effect["kind"]](effect)


_SUBJECTS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    **dict.fromkeys((*FS_KINDS, *NAME_KINDS), _operands),
    PROC_SPAWN: lambda effect: f"`{effect['argv0']}`",
    NET_CONNECT: lambda effect: f"{effect['host']}:{effect['port']}",
    NET_LISTEN: lambda effect: str(effect["port"]),
    SESSION_WRITE: lambda effect: "session state",
    JOURNAL_READ: lambda effect: "history",
    TIME: lambda effect: "the clock",
    OPAQUE: lambda effect: "unknown effects",
}


def subject(effect: Mapping[str, Any]) -> str:
    """What an effect is about, for a refusal."""
    return _SUBJECTS[effect["kind"]](effect)
