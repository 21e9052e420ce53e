"""What a well-typed configuration value must also satisfy, and the text when it does not.

A rule looks at one value (or one item of an array, or one name of a free table) and returns the
reason why it is refused, or None. Source: chapter 81, section 6.2.

Failure: none; refusals are returned.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

Rule = Callable[[object], str | None]

FRAME_BYTES_FLOOR: Final = 64 * 1024
FRAME_BYTES_CEILING: Final = 64 * 1024 * 1024
SESSION_NAME_BYTES_MAX: Final = 128

ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _positive(value: object) -> str | None:
    return None if isinstance(value, int) and value > 0 else "must be greater than 0"


def _one_of(allowed: Collection[str], text: str) -> Rule:
    return lambda value: None if value in allowed else text


def _version(value: object) -> str | None:
    return None if value == 1 else f"unsupported config version {value} (expected 1)"


def _frame_bytes(value: object) -> str | None:
    if isinstance(value, int) and FRAME_BYTES_FLOOR <= value <= FRAME_BYTES_CEILING:
        return None
    return "must be between 64 KiB and 64 MiB"


def is_session_name(name: str) -> bool:
    """1 to 128 bytes, no control characters (chapter 60, section 5.1)."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    control = any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in name)
    return 1 <= size <= SESSION_NAME_BYTES_MAX and not control


def _session_name(value: object) -> str | None:
    return None if isinstance(value, str) and is_session_name(value) else "invalid session name"


def _uid(value: object) -> str | None:
    digits = isinstance(value, str) and value.isascii() and value.isdigit()
    return None if digits else "must be a decimal uid"


def _loopback(value: object) -> str | None:
    text = str(value)
    if text.startswith("unix:/"):
        return None
    host, _, port = text.rpartition(":")
    try:
        near = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        near = host == "localhost"
    fits = port.isascii() and port.isdigit() and int(port) <= 65535
    return None if near and fits else "must be `unix:/path` or a loopback address with a port"


def _pattern(value: object) -> str | None:
    return None if value else "pattern must not be empty"


# Rules of whole values, by dotted path.
VALUE_RULES: Final[Mapping[str, Rule]] = {
    "version": _version,
    "history.max_entries": _positive,
    "completion.max_results": _positive,
    "editor.mode": _one_of(("emacs", "vi"), "must be `emacs` or `vi`"),
    "render.paging": _one_of(("never", "auto"), "must be `never` or `auto`"),
    "render.echo": _one_of(("quiet", "commands", "all"), "must be `quiet`, `commands`, or `all`"),
    "logging.level": _one_of(
        ("error", "warn", "info", "debug"), "must be error, warn, info, or debug"
    ),
    "logging.format": _one_of(("text", "json"), "must be `text` or `json`"),
    "journal.sync": _one_of(("normal", "full"), "must be `normal` or `full`"),
    "journal.on_failure": _one_of(("refuse", "continue"), "must be `refuse` or `continue`"),
    "kernel.session": _session_name,
    "mcp.session": _session_name,
    "limits.max_frame_bytes": _frame_bytes,
    "limits.inline_bytes": _positive,
    "limits.inline_raw_bytes": _positive,
    "limits.hard_cap_bytes": _positive,
    "limits.page_bytes": _positive,
    "limits.capture_bytes": _positive,
    "limits.spill_bytes": _positive,
    "limits.event_ring": _positive,
    "limits.event_queue": _positive,
    "plans.approval_ttl_s": _positive,
    "metrics.listen": _loopback,
}

# Rules of each item of an array of strings.
ITEM_RULES: Final[Mapping[str, Rule]] = {
    "history.ignore": _pattern,
    "kernel.peer_uids": _uid,
}


def alias_name(name: str) -> str | None:
    if not name:
        return "alias name must not be empty"
    if any(char.isspace() for char in name):
        return f"alias name `{name}` must not contain whitespace"
    return None


def environment_name(name: str) -> str | None:
    return None if name else "environment variable name must not be empty"


# Rules of the names in a free table. These texts name their subject, so they stand without the key.
NAME_RULES: Final[Mapping[str, Callable[[str], str | None]]] = {
    "aliases": alias_name,
    "env": environment_name,
}


def caps_in_order(inline_bytes: int, hard_cap_bytes: int) -> str | None:
    """The one rule between two keys."""
    return None if hard_cap_bytes >= inline_bytes else "must not be below limits.inline_bytes"
