"""`ls` and `stat`: what is in a directory, what a path is (chapter 31 §2.1, §2.2).

Rows are built straight from one directory scan plus one lstat per entry, and sorted bytewise by
name, because a listing of twenty thousand files must cost little more than the system calls.

Failure: `custom` `stat PATH: ...` for a missing path, `custom` `list PATH: ...` for a directory
that cannot be read. An entry that disappears between the scan and its lstat is left out.
"""

from __future__ import annotations

import gc
import os
import stat as stat_bits
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from typing import Final

from worker.builtins.authority import check_read
from worker.builtins.effects import Operands, reads
from worker.builtins.readers import os_failure
from worker.builtins.registry import Call, builtin
from worker.evaluate.cancel import CancelToken
from worker.values import temporal
from worker.values.types import DateTime, Path, Record, Size, Table, display_name

_KINDS: Final = {
    stat_bits.S_IFDIR: "dir",
    stat_bits.S_IFLNK: "symlink",
    stat_bits.S_IFREG: "file",
}

_KIND_BITS: Final = 0o170000

# How many entries may pass between two looks at the cancel token.
_BATCH: Final = 4096

# A row with its sort key, see `bytewise`.
Keyed = tuple[str, Record]


def path_components(raw: str) -> tuple[str, ...]:
    """The components of an absolute path that count when paths are ordered."""
    return tuple(part for part in raw.split("/") if part not in ("", "."))


def bytewise(name: str) -> str:
    """A text that orders like the bytes of an OS string. ASCII is its own; sorting texts of one
    byte per character is what Python does fastest."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


def row(raw: str, name: str, info: os.stat_result) -> Record:
    """The five columns of one path."""
    known = temporal.NS_MIN <= info.st_mtime_ns <= temporal.NS_MAX
    return {
        "path": Path(raw),
        "name": name if name.isascii() else display_name(name),
        "type": _KINDS.get(info.st_mode & _KIND_BITS, "other"),
        "size": Size(info.st_size),
        "modified": DateTime(info.st_mtime_ns, temporal.system_zone()) if known else None,
    }


def stat_row(raw: str) -> Record:
    """The row of one path, itself when it is a symlink."""
    try:
        info = os.lstat(raw)
    except (OSError, ValueError) as error:
        raise os_failure("stat", raw, as_os_error(error)) from None
    parts = path_components(raw)
    return row(raw, parts[-1] if parts else "", info)


def as_os_error(error: OSError | ValueError) -> OSError:
    """A NUL inside a path is ValueError in Python and EINVAL everywhere else."""
    return error if isinstance(error, OSError) else OSError(22, os.strerror(22))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Make many objects at once without the cycle collector looking at all of them again and again.

    None of them can be part of a cycle. Threads that pause at the same time are harmless: the first
    one to end switches the collector on again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _directory_rows(directory: str, hidden: bool, cancel: CancelToken) -> list[Keyed]:
    """Rows of the direct entries, unsorted, each with the bytes of its name."""
    rows: list[Keyed] = []
    prefix = directory if directory.endswith("/") else directory + "/"
    with _collector_paused(), os.scandir(directory) as entries:
        while batch := list(islice(entries, _BATCH)):
            cancel.check()
            _append_rows(rows, batch, prefix, hidden)
    return rows


def _append_rows(
    rows: list[Keyed], batch: list[os.DirEntry[str]], prefix: str, hidden: bool
) -> None:
    # The columns of `row`, written out: this is the loop that a long listing consists of.
    zone = temporal.system_zone()
    kind_of, first_ns, last_ns = _KINDS.get, temporal.NS_MIN, temporal.NS_MAX
    for entry in batch:
        name = entry.name
        if name[0] == "." and not hidden:
            continue
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        ns = info.st_mtime_ns
        plain = name.isascii()
        rows.append(
            (
                name if plain else bytewise(name),
                {
                    "path": Path(prefix + name),
                    "name": name if plain else display_name(name),
                    "type": kind_of(info.st_mode & _KIND_BITS, "other"),
                    "size": Size(info.st_size),
                    "modified": DateTime(ns, zone) if first_ns <= ns <= last_ns else None,
                },
            )
        )


def _is_directory(raw: str) -> bool:
    try:
        return stat_bits.S_ISDIR(os.stat(raw).st_mode)
    except (OSError, ValueError):
        return False


@builtin(
    "ls",
    usage="ls [-a|--all] [PATH...] -> outcome of table {path, name, type, size, modified}",
    structured=True,
    effects=reads(Operands.PATHS_OR_CWD),
)
def ls(call: Call) -> Table:
    """List directories entry by entry, any other path as one row; sorted by path."""
    targets = [path.raw for path in call.args.paths()] or [call.ev.cwd]
    hidden = call.args.flag("a", "all")
    check_read(call.ev, *targets)
    groups: list[tuple[tuple[str, ...], list[Keyed]]] = []
    for target in targets:
        parts = tuple(map(bytewise, path_components(target)))
        if _is_directory(target):
            try:
                groups.append((parts, _directory_rows(target, hidden, call.ev.cancel)))
            except OSError as error:
                raise os_failure("list", target, error) from None
        else:
            groups.append((parts[:-1], [(parts[-1] if parts else "", stat_row(target))]))
    if len(groups) == 1:
        rows = groups[0][1]
        rows.sort(key=itemgetter(0))
        return Table([record for _, record in rows])
    whole = [((*parts, name), record) for parts, rows in groups for name, record in rows]
    whole.sort(key=itemgetter(0))
    return Table([record for _, record in whole])


@builtin(
    "stat",
    usage="stat PATH -> outcome of record {path, name, type, size, modified}\n"
    "stat PATH PATH... -> outcome of table, in argument order",
    structured=True,
    effects=reads(Operands.PATHS_OR_CWD),
)
def stat(call: Call) -> Record | Table:
    """Describe paths with the columns of `ls`; symlinks are not followed."""
    targets = [path.raw for path in call.args.paths(at_least=1)]
    check_read(call.ev, *targets)
    rows = [stat_row(target) for target in targets]
    return rows[0] if len(rows) == 1 else Table(rows)
