"""`ls` and `stat`: what is in a directory, what a path is (chapter 31 §2.1, §2.2).

Rows are built straight from one directory scan plus one lstat per entry, and sorted bytewise by
name, because a listing of twenty thousand files must cost little more than the system calls.

Failure: `custom` `stat PATH: ...` for a missing path, `custom` `list PATH: ...` for a directory
that cannot be read. An entry that disappears between the scan and its lstat is left out.
"""

from __future__ import annotations

import os
import stat as stat_bits
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

# How many entries may pass between two looks at the cancel token.
_CANCEL_EVERY: Final = 4096

Keyed = tuple[bytes, Record]


def path_components(raw: str) -> tuple[bytes, ...]:
    """The components of an absolute path that count when paths are ordered."""
    return tuple(part for part in os.fsencode(raw).split(b"/") if part not in (b"", b"."))


def row(raw: str, name: str, info: os.stat_result) -> Record:
    """The five columns of one path."""
    known = temporal.NS_MIN <= info.st_mtime_ns <= temporal.NS_MAX
    return {
        "path": Path(raw),
        "name": name if name.isascii() else display_name(name),
        "type": _KINDS.get(stat_bits.S_IFMT(info.st_mode), "other"),
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
    return row(raw, os.fsdecode(parts[-1]) if parts else "", info)


def as_os_error(error: OSError | ValueError) -> OSError:
    """A NUL inside a path is ValueError in Python and EINVAL everywhere else."""
    return error if isinstance(error, OSError) else OSError(22, os.strerror(22))


def _directory_rows(directory: str, hidden: bool, cancel: CancelToken) -> list[Keyed]:
    """Rows of the direct entries, unsorted, each with the bytes of its name."""
    zone = temporal.system_zone()
    prefix = directory if directory.endswith("/") else directory + "/"
    kinds, kind_bits, encode = _KINDS, stat_bits.S_IFMT, os.fsencode
    rows: list[Keyed] = []
    with os.scandir(directory) as entries:
        for entry in entries:
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
                    name.encode() if plain else encode(name),
                    {
                        "path": Path(prefix + name),
                        "name": name if plain else display_name(name),
                        "type": kinds.get(kind_bits(info.st_mode), "other"),
                        "size": Size(info.st_size),
                        "modified": DateTime(ns, zone)
                        if temporal.NS_MIN <= ns <= temporal.NS_MAX
                        else None,
                    },
                )
            )
            if len(rows) % _CANCEL_EVERY == 0:
                cancel.check()
    return rows


def _name_of(keyed: Keyed) -> bytes:
    return keyed[0]


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
    groups: list[tuple[tuple[bytes, ...], list[Keyed]]] = []
    for target in targets:
        parts = path_components(target)
        if _is_directory(target):
            try:
                groups.append((parts, _directory_rows(target, hidden, call.ev.cancel)))
            except OSError as error:
                raise os_failure("list", target, error) from None
        else:
            groups.append((parts[:-1], [(parts[-1] if parts else b"", stat_row(target))]))
    if len(groups) == 1:
        rows = groups[0][1]
        rows.sort(key=_name_of)
        return Table([record for _, record in rows])
    whole = [((*parts, name), record) for parts, rows in groups for name, record in rows]
    whole.sort(key=lambda item: item[0])
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
