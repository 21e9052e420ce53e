"""The file methods of a path, and writing for `save` and `append` (chapter 21 §3.3, §7.2).

Relative paths belong to the session's directory, which the process itself never enters. Every
access asks the authority first; an overwritten file leaves its prior content with the undo records.

Failure: reading raises `not_found` for a missing file, `custom` for any other I/O problem,
`utf8_error` for text that is not UTF-8; writing raises `custom`. Messages start with the absolute
path. Refusals of the authority go through, except for the probes, which answer false.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from worker.errors import Raised, not_found, os_text, raised
from worker.values.methods.registry import (
    PROBES_RECEIVER,
    READS_RECEIVER,
    TAKES_NOTHING_NAMED,
    method,
)
from worker.values.methods.strings import text_lines
from worker.values.temporal import datetime_at, system_zone
from worker.values.types import Path, Size, Value, display_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

PATH: Final = ("path",)

_NEW_FILE_MODE: Final = 0o666
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY

Write = Callable[[bytes], None]


def _failure(path: str, error: OSError) -> Raised:
    message = f"{display_name(path)}: {os_text(error)}"
    if isinstance(error, FileNotFoundError):
        return not_found(message)
    return raised("custom", message)


def _readable(ev: Evaluator, recv: Path) -> str:
    from worker.builtins.authority import check_read

    path = ev.absolute(recv)
    check_read(ev, path)
    return path


def _content(ev: Evaluator, recv: Path) -> tuple[str, bytes]:
    from worker.builtins.authority import check_opened
    from worker.builtins.reading import content

    path = _readable(ev, recv)
    try:
        return path, content(path, ev.cancel, partial(check_opened, ev))
    except OSError as error:
        raise _failure(path, error) from None
    except ValueError:
        raise raised("custom", f"{display_name(path)}: path holds a NUL byte") from None


def _text(ev: Evaluator, recv: Path) -> str:
    path, data = _content(ev, recv)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise raised("utf8_error", f"{display_name(path)}: not valid UTF-8") from None


@method(
    "read",
    on=PATH,
    result="str",
    doc="The whole file, which must be UTF-8.",
    refuses=TAKES_NOTHING_NAMED,
    effects=READS_RECEIVER,
)
def read(ev: Evaluator, recv: Path) -> Value:
    return _text(ev, recv)


@method(
    "read_bytes",
    on=PATH,
    result="bytes",
    doc="The whole file.",
    refuses=TAKES_NOTHING_NAMED,
    effects=READS_RECEIVER,
)
def read_bytes(ev: Evaluator, recv: Path) -> Value:
    return _content(ev, recv)[1]


@method(
    "lines",
    on=PATH,
    result="list of str",
    doc="The lines of the file, without their ends.",
    refuses=TAKES_NOTHING_NAMED,
    effects=PROBES_RECEIVER,
)
def lines(ev: Evaluator, recv: Path) -> Value:
    return text_lines(_text(ev, recv))


def _mode(ev: Evaluator, recv: Path) -> int | None:
    """The kind and mode bits of what a path leads to; None when that cannot be seen."""
    try:
        return os.stat(_readable(ev, recv)).st_mode
    except (OSError, ValueError):
        return None
    except Raised as error:
        if error.error.code == "leash_denied":
            return None
        raise


@method(
    "exists",
    on=PATH,
    result="bool",
    doc="Whether the path leads to something.",
    refuses=TAKES_NOTHING_NAMED,
    effects=PROBES_RECEIVER,
)
def exists(ev: Evaluator, recv: Path) -> Value:
    return _mode(ev, recv) is not None


@method(
    "is_dir",
    on=PATH,
    result="bool",
    doc="Whether the path leads to a directory.",
    refuses=TAKES_NOTHING_NAMED,
    effects=PROBES_RECEIVER,
)
def is_dir(ev: Evaluator, recv: Path) -> Value:
    mode = _mode(ev, recv)
    return mode is not None and stat.S_ISDIR(mode)


@method(
    "is_file",
    on=PATH,
    result="bool",
    doc="Whether the path leads to a regular file.",
    refuses=TAKES_NOTHING_NAMED,
    effects=PROBES_RECEIVER,
)
def is_file(ev: Evaluator, recv: Path) -> Value:
    mode = _mode(ev, recv)
    return mode is not None and stat.S_ISREG(mode)


def _stat(ev: Evaluator, recv: Path) -> os.stat_result:
    path = _readable(ev, recv)
    try:
        return os.stat(path)
    except OSError as error:
        raise _failure(path, error) from None
    except ValueError:
        raise raised("custom", f"{display_name(path)}: path holds a NUL byte") from None


@method(
    "size",
    on=PATH,
    result="size",
    doc="The file's length.",
    refuses=TAKES_NOTHING_NAMED,
    effects=PROBES_RECEIVER,
)
def size(ev: Evaluator, recv: Path) -> Value:
    return Size(_stat(ev, recv).st_size)


@method(
    "modified",
    on=PATH,
    result="datetime or null",
    doc="When the file was last modified, in the system zone.",
    refuses=TAKES_NOTHING_NAMED,
    effects=PROBES_RECEIVER,
)
def modified(ev: Evaluator, recv: Path) -> Value:
    try:
        return datetime_at(_stat(ev, recv).st_mtime_ns, system_zone())
    except Raised as error:
        if error.error.code == "overflow":
            return None
        raise


# --- writing --------------------------------------------------------------------------------------


@contextmanager
def _open_writing(ev: Evaluator, path: str, flag: int) -> Iterator[Write]:
    """A function that writes to the file. I/O failures inside become `custom` PATH: REASON."""
    from worker.builtins.authority import check_write
    from worker.builtins.undo_records import overwriting

    check_write(ev, path)
    with overwriting(ev, path):
        try:
            fd = os.open(path, _WRITE | flag, _NEW_FILE_MODE)
        except OSError as error:
            raise raised("custom", f"{display_name(path)}: {os_text(error)}") from None
        except ValueError:
            raise raised("custom", f"{display_name(path)}: path holds a NUL byte") from None

        def write(data: bytes) -> None:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(fd, view) :]
            except OSError as error:
                raise raised("custom", f"{display_name(path)}: {os_text(error)}") from None

        try:
            yield write
        finally:
            os.close(fd)


@contextmanager
def open_appending(ev: Evaluator, path: str) -> Iterator[Write]:
    with _open_writing(ev, path, os.O_APPEND) as write:
        yield write


def write_file(ev: Evaluator, target: str, data: bytes, *, append: bool) -> None:
    """Create or truncate, or append to, the file `target` of the session's directory."""
    path = ev.absolute(target)
    with _open_writing(ev, path, os.O_APPEND if append else os.O_TRUNC) as write:
        write(data)
