"""`cp` and `mv` (chapter 31 §3.3, §3.4).

Both take sources and a destination; in an existing directory the target keeps the source's name.
Contents are copied in pieces with a look at the cancel token in between. Symlinks are followed and
copied as what they point to; a directory that contains itself that way ends with ELOOP.

Failure: `arg_error` for what the arguments cannot mean, `custom` `copy PATH: ...` and
`move PATH: ...` for the system's refusals. Sources are worked off in order; what was done before a
failure stays.
"""

from __future__ import annotations

import errno
import os
import select
import stat as stat_bits
from functools import partial
from typing import TYPE_CHECKING, Final

from worker.builtins.authority import check_delete, check_opened, check_read, check_write
from worker.builtins.effects import Operands, Rule
from worker.builtins.listing import as_os_error, path_components
from worker.builtins.readers import os_failure
from worker.builtins.reading import chunks
from worker.builtins.registry import Call, Undo, builtin
from worker.builtins.undo_records import (
    overwriting,
    record_move_back,
    record_restore,
    take_snapshot,
)
from worker.errors import arg_error
from worker.values.types import Path, Value

if TYPE_CHECKING:
    from worker.errors import Raised
    from worker.evaluate.evaluator import Evaluator

# Without O_NONBLOCK opening a FIFO for writing would wait for its reader.
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def _failure(operation: str, path: str, number: int) -> Raised:
    return os_failure(operation, path, OSError(number, os.strerror(number)))


def pairs(call: Call, head: str) -> list[tuple[str, str]]:
    """Source and target of every move or copy, by the rules that `cp` and `mv` share."""
    paths = [path.raw for path in call.args.paths()]
    if len(paths) < 2:
        raise arg_error(f"{head} requires source and destination")
    *sources, destination = paths
    if not os.path.isdir(destination):
        if len(sources) > 1:
            raise arg_error("destination must be a directory for multiple sources")
        return [(sources[0], destination)]
    return [(source, os.path.join(destination, _name(source))) for source in sources]


def _name(source: str) -> str:
    parts = path_components(source)
    if not parts or parts[-1] == "..":
        raise arg_error("source has no name")
    return parts[-1]


@builtin(
    "cp",
    usage="cp [-r|-R|--recursive] SRC... DEST -> outcome of list<path>",
    structured=True,
    effects=(Rule("fs_read", Operands.SOURCES), Rule("fs_write", Operands.TARGETS)),
    undo=Undo.RESTORE_BYTES,
)
def cp(call: Call) -> list[Value]:
    """Copy files, with the flag directories; an existing file is overwritten."""
    recursive = call.args.flag("r", "R", "recursive")
    done: list[Value] = []
    for source, target in pairs(call, "cp"):
        check_read(call.ev, source)
        check_write(call.ev, target)
        _copy_one(call.ev, source, target, recursive)
        done.append(Path(target))
    return done


def _copy_one(ev: Evaluator, source: str, target: str, recursive: bool) -> None:
    try:
        info = os.stat(source)
    except (OSError, ValueError) as error:
        raise os_failure("copy", source, as_os_error(error)) from None
    if _same_file(info, target):
        raise _failure("copy", source, errno.EINVAL)
    if not stat_bits.S_ISDIR(info.st_mode):
        copy_file(ev, source, target, stat_bits.S_IMODE(info.st_mode))
        return
    if not recursive:
        raise arg_error("cp: directory requires --recursive")
    if _lies_in(os.path.realpath(target), os.path.realpath(source)):
        raise _failure("copy", source, errno.EINVAL)
    _copy_tree(ev, source, target, info, ())


def _same_file(info: os.stat_result, target: str) -> bool:
    try:
        other = os.stat(target)
    except (OSError, ValueError):
        return False
    return (info.st_dev, info.st_ino) == (other.st_dev, other.st_ino)


def _lies_in(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _copy_tree(
    ev: Evaluator,
    source: str,
    target: str,
    info: os.stat_result,
    above: tuple[tuple[int, int], ...],
) -> None:
    """Copy a directory into `target`, merging with what is there; `above` guards against loops."""
    identity = (info.st_dev, info.st_ino)
    if identity in above:
        raise _failure("copy", source, errno.ELOOP)
    try:
        names = sorted(os.listdir(source), key=os.fsencode)
    except OSError as error:
        raise os_failure("copy", source, error) from None
    try:
        os.mkdir(target)
        made = True
    except FileExistsError:
        made = False
    except OSError as error:
        raise os_failure("copy", target, error) from None
    for name in names:
        ev.cancel.check()
        inner, copied = os.path.join(source, name), os.path.join(target, name)
        try:
            found = os.stat(inner)
        except OSError as error:
            raise os_failure("copy", inner, error) from None
        if stat_bits.S_ISDIR(found.st_mode):
            _copy_tree(ev, inner, copied, found, (*above, identity))
        else:
            copy_file(ev, inner, copied, stat_bits.S_IMODE(found.st_mode))
    if made:
        # Last: a source without write permission must not lock its own copy while it is filled.
        try:
            os.chmod(target, stat_bits.S_IMODE(info.st_mode))
        except OSError as error:
            raise os_failure("copy", target, error) from None


def copy_file(ev: Evaluator, source: str, target: str, mode: int) -> None:
    """Copy one file's content and mode over `target`, snapshotting what it replaces."""
    with overwriting(ev, target):
        out: int | None = None
        blame = source
        try:
            pieces = chunks(source, ev.cancel, partial(check_opened, ev))
            # The first piece proves that the source can be read before the target is cut.
            piece = next(pieces, b"")
            blame = target
            out = os.open(target, _CREATE, mode)
            while piece:
                _write_all(ev, out, piece)
                blame = source
                piece = next(pieces, b"")
                blame = target
            if stat_bits.S_ISREG(os.fstat(out).st_mode):
                os.fchmod(out, mode)
        except (OSError, ValueError) as error:
            raise os_failure("copy", blame, as_os_error(error)) from None
        finally:
            if out is not None:
                os.close(out)


def _write_all(ev: Evaluator, fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            poller.register(ev.cancel.wait_fd, select.POLLIN)
            poller.poll()
            ev.cancel.check()


@builtin(
    "mv",
    usage="mv SRC... DEST -> outcome of list<path>",
    structured=True,
    effects=(
        Rule("fs_read", Operands.SOURCES),
        Rule("fs_write", Operands.TARGETS),
        Rule("fs_delete", Operands.SOURCES),
    ),
    undo=Undo.MOVE,
)
def mv(call: Call) -> list[Value]:
    """Rename within one filesystem; an existing file is replaced."""
    done: list[Value] = []
    for source, target in pairs(call, "mv"):
        check_read(call.ev, source)
        check_write(call.ev, target)
        check_delete(call.ev, source)
        _move_one(call.ev, source, target)
        done.append(Path(target))
    return done


def _move_one(ev: Evaluator, source: str, target: str) -> None:
    existed = os.path.lexists(target)
    onto_itself = existed and _is_one_path(source, target)
    snapshot = None if onto_itself else take_snapshot(ev, target)
    try:
        os.rename(source, target)
    except (OSError, ValueError) as error:
        raise os_failure("move", source, as_os_error(error)) from None
    if onto_itself:
        return
    if existed:
        record_restore(ev, snapshot)
    else:
        record_move_back(ev, target, source)


def _is_one_path(source: str, target: str) -> bool:
    """Whether both are names of one file: the system then renames nothing."""
    try:
        return os.path.samestat(os.lstat(source), os.lstat(target))
    except OSError:
        return False
