"""`rm` and the trash (chapter 31 §3.5, chapter 50 §13.2).

Without `--permanent` a path is renamed into `TMP/shoal-trash/PID/N-NAME`, from where `undo` brings
it back. The trash of this process is private; the folder above it is shared between users and
sticky, like the temporary directory itself. When the trash lies on another filesystem the content
is copied there first and then removed.

Failure: `no_matches` when no path is left, `arg_error` for a directory without the recursive flag,
`custom` `remove PATH: ...` for a missing path and permanent removal, `custom` `trash PATH: ...` for
a move into the trash.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat as stat_bits
import threading
from typing import Final

from leash import private
from worker.builtins.authority import check_delete
from worker.builtins.effects import Operands, Rule
from worker.builtins.listing import as_os_error, path_components
from worker.builtins.readers import os_failure
from worker.builtins.registry import Call, Undo, builtin
from worker.builtins.undo_records import record_trash_move
from worker.errors import arg_error, raised
from worker.values.types import Path, Value

_SHARED_MODE: Final = 0o1777
_PRIVATE_MODE: Final = 0o700

# The longest file name of the usual filesystems; a long name loses its end in the trash.
NAME_BYTES_MAX: Final = 255


class Trash:
    """The trash directory of this process and its running number.

    Numbers only grow, so that a path once recorded for undo is never reused for something else.
    """

    # The last number given out and the directory it belongs to; both change under the lock.
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._directory = ""
        self._last = 0

    def place(self, name: str) -> str:
        """A free path for something called `name`; raises OSError."""
        with self._lock:
            directory = self._ready()
            self._last += 1
            whole = os.fsencode(f"{self._last}-{name}")
            return os.path.join(directory, os.fsdecode(whole[:NAME_BYTES_MAX]))

    def directory(self) -> str:
        """The trash directory, made when it is not there yet; raises OSError."""
        with self._lock:
            return self._ready()

    def _ready(self) -> str:
        shared = os.path.join(private.base(), private.TRASH)
        directory = os.path.join(shared, str(os.getpid()))
        if directory != self._directory:
            try:
                os.mkdir(shared)
                os.chmod(shared, _SHARED_MODE)
            except FileExistsError:
                pass
            self._last = 0 if self._private(directory) else _highest_number(directory)
            self._directory = directory
        elif not os.path.isdir(directory):
            self._directory = ""
            return self._ready()
        return directory

    @staticmethod
    def _private(directory: str) -> bool:
        """Make the directory, or accept it only when it is ours alone; whether it is new."""
        try:
            os.mkdir(directory, _PRIVATE_MODE)
        except FileExistsError:
            found = os.lstat(directory)
            if not stat_bits.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from None
            os.chmod(directory, _PRIVATE_MODE)
            return False
        return True


def _highest_number(directory: str) -> int:
    """The highest number in use: process ids come back, and so may their directories."""
    heads = (name.partition("-")[0] for name in os.listdir(directory))
    return max((int(head) for head in heads if head.isascii() and head.isdigit()), default=0)


TRASH: Final = Trash()


@builtin(
    "rm",
    usage="rm PATH... -> outcome of list<record {path, trash}>\n"
    "rm --permanent [-r|-R|--recursive] PATH... -> outcome of list<path>",
    structured=True,
    effects=(Rule("fs_delete", Operands.PATHS, irreversible_flags=("permanent",)),),
    undo=Undo.TRASH,
)
def rm(call: Call) -> list[Value]:
    """Move paths into the trash, with `--permanent` remove them for good."""
    paths = [path.raw for path in call.args.paths()]
    if not paths:
        raise raised("no_matches", "rm requires at least one path; an empty glob deletes nothing")
    permanent = call.args.flag("permanent")
    recursive = call.args.flag("r", "R", "recursive")
    done: list[Value] = []
    for path in paths:
        # A trailing slash would make the system follow a symlink.
        path = path.rstrip("/") or "/"
        check_delete(call.ev, path)
        try:
            info = os.lstat(path)
        except (OSError, ValueError) as error:
            raise os_failure("remove", path, as_os_error(error)) from None
        if permanent:
            _remove(path, stat_bits.S_ISDIR(info.st_mode), recursive)
            done.append(Path(path))
        else:
            trash = _to_trash(path)
            record_trash_move(call.ev, path, trash)
            done.append({"path": Path(path), "trash": Path(trash)})
    return done


def _remove(path: str, directory: bool, recursive: bool) -> None:
    if directory and not recursive:
        raise arg_error("rm: directory requires --recursive")
    try:
        if directory:
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        raise os_failure("remove", path, error) from None


def _to_trash(path: str) -> str:
    parts = path_components(path)
    try:
        if not parts or parts[-1] == ".." or path.endswith("/."):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        place = TRASH.place(parts[-1])
        try:
            os.rename(path, place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_to_trash(path, place)
    except shutil.Error as error:
        raise os_failure("trash", path, _first_cause(error)) from None
    except OSError as error:
        raise os_failure("trash", path, error) from None
    return place


def _copy_to_trash(path: str, place: str) -> None:
    """The move across filesystems: whole copy, then removal; a failed copy leaves no remains."""
    real = os.path.realpath(path)
    if os.path.realpath(place).startswith(real.rstrip("/") + "/"):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    directory = os.path.isdir(path) and not os.path.islink(path)
    try:
        if directory:
            shutil.copytree(path, place, symlinks=True)
        else:
            shutil.copy2(path, place, follow_symlinks=False)
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
        if os.path.lexists(place):
            os.unlink(place)
        raise
    if directory:
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _first_cause(error: shutil.Error) -> OSError:
    """copytree collects its failures as texts; the first one stands for all."""
    causes = error.args[0] if error.args else []
    text = str(causes[0][2]) if causes else str(error)
    return OSError(errno.EIO, text)
