"""File names as text: components, order, parts, joining (chapter 20 §2.3, chapter 21 §7.1). No I/O.

Works on the raw OS string of a path (`Path.raw`). Repeated slashes and a trailing slash carry no
meaning, `.` only as the first component, `..` is never resolved.

Failure: nothing here raises.
"""

from __future__ import annotations

import os

from worker.values.types import display_name

ROOT = "/"


def components(raw: str) -> list[str]:
    """The components in order; an absolute path starts with `/`. `a//./b/` gives `['a', 'b']`."""
    parts = [part for part in raw.split("/") if part and part != "."]
    if raw.startswith("/"):
        parts.insert(0, ROOT)
    elif raw == "." or raw.startswith("./"):
        parts.insert(0, ".")
    return parts


def sort_key(raw: str) -> list[bytes]:
    """Key of the order by components, bytewise within one; absolute paths come first."""
    return [b"" if part == ROOT else os.fsencode(part) for part in components(raw)]


def same(a: str, b: str) -> bool:
    return a == b or components(a) == components(b)


def raw_name(raw: str) -> str | None:
    """The last component, or None for `/`, the empty path, `.` and anything ending in `..`."""
    parts = components(raw)
    if not parts or parts[-1] in (ROOT, ".", ".."):
        return None
    return parts[-1]


def _split_extension(name: str) -> tuple[str, str | None]:
    at = name.rfind(".")
    if at <= 0:
        return name, None
    return name[:at], name[at + 1 :]


def name(raw: str) -> str | None:
    """The last component as lossy text."""
    found = raw_name(raw)
    return None if found is None else display_name(found)


def stem(raw: str) -> str | None:
    """The name without its extension, as lossy text."""
    found = raw_name(raw)
    return None if found is None else display_name(_split_extension(found)[0])


def ext(raw: str) -> str | None:
    """The text after the last dot of the name (`""` for `x.`); None without one or for `.env`."""
    found = raw_name(raw)
    if found is None:
        return None
    extension = _split_extension(found)[1]
    return None if extension is None else display_name(extension)


def _without_trailing_dots(raw: str) -> str:
    """`raw` without trailing slashes and `/.` pieces; `/` for a root, unchanged for a lone `.`."""
    text = raw
    while True:
        shorter = text.rstrip("/")
        if shorter.endswith("/."):
            shorter = shorter[:-2]
        if shorter == text:
            return text
        if not shorter:
            return "/" if raw.startswith("/") else ""
        text = shorter


def parent(raw: str) -> str | None:
    """The path without its last component; None for `/`, `""` and one relative component."""
    if len(components(raw)) < 2:
        return None
    text = _without_trailing_dots(raw)
    head = text[: text.rfind("/")]
    return _without_trailing_dots(head) if head else "/"


def join(raw: str, segment: str) -> str:
    """`segment` below `raw`; an absolute segment replaces it, an empty one appends a slash."""
    if segment.startswith("/") or not raw:
        return segment
    return raw + segment if raw.endswith("/") else f"{raw}/{segment}"
