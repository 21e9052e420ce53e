"""`cat` and `head`: file contents as bytes and as first lines (chapter 31 §2.3, §2.4).

Regular files are read in pieces. Anything else that can be read (a FIFO, a terminal, a device) is
waited for together with the cancel token, so that a reader of a silent FIFO can be cancelled.

Failure: `custom` `read PATH: ...` with the system's text; past FILE_BYTES_MAX the text is that of
EFBIG, since the worker's memory is no place for an endless device. `Cancelled` when cancelled.
"""

from __future__ import annotations

import errno
import os
import select
import stat as stat_bits
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from worker.builtins.authority import check_opened, check_read
from worker.builtins.effects import Operands, reads
from worker.builtins.listing import as_os_error
from worker.builtins.readers import line_count, os_failure
from worker.builtins.registry import Call, builtin
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.cancel import CancelToken

CHUNK_BYTES: Final = 1 << 20
FILE_BYTES_MAX: Final = 1 << 30
HEAD_LINES: Final = 10

_NEWLINE: Final = b"\n"

Judge = Callable[[int], None]


def _accept(_fd: int) -> None:
    """Whatever was opened."""


@contextmanager
def _opened(path: str, judge: Judge) -> Iterator[tuple[int, bool]]:
    """A descriptor to read from, and whether reading it may block for ever.

    Opening without O_NONBLOCK would already wait for the other end of a FIFO.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(fd).st_mode
        if stat_bits.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        judge(fd)
        yield fd, not stat_bits.S_ISREG(mode)
    finally:
        os.close(fd)


def chunks(path: str, cancel: CancelToken, judge: Judge = _accept) -> Iterator[bytes]:
    """The content of a file piece by piece; raises OSError. `judge` is told what was opened before
    anything is read, and may raise."""
    with _opened(path, judge) as (fd, may_block):
        poller: select.poll | None = None
        if may_block:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            poller.register(cancel.wait_fd, select.POLLIN)
        while True:
            cancel.check()
            if poller is not None:
                poller.poll()
                cancel.check()
            try:
                chunk = os.read(fd, CHUNK_BYTES)
            except BlockingIOError:
                continue
            if not chunk:
                return
            yield chunk


def content(path: str, cancel: CancelToken, judge: Judge = _accept) -> bytes:
    """The whole content; raises OSError, EFBIG past FILE_BYTES_MAX."""
    parts: list[bytes] = []
    total = 0
    for chunk in chunks(path, cancel, judge):
        total += len(chunk)
        if total > FILE_BYTES_MAX:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        parts.append(chunk)
    return b"".join(parts)


def read_file(path: str, cancel: CancelToken, judge: Judge = _accept) -> bytes:
    """The whole content; raises `custom` `read PATH: ...`."""
    try:
        return content(path, cancel, judge)
    except (OSError, ValueError) as error:
        raise os_failure("read", path, as_os_error(error)) from None


@builtin(
    "cat",
    usage="cat PATH... -> outcome of bytes",
    structured=True,
    effects=reads(Operands.PATHS_OR_CWD),
)
def cat(call: Call) -> bytes:
    """Concatenate files, with nothing in between."""
    paths = [path.raw for path in call.args.paths(at_least=1)]
    check_read(call.ev, *paths)
    judge = partial(check_opened, call.ev)
    return b"".join(read_file(path, call.ev.cancel, judge) for path in paths)


@builtin(
    "head",
    usage="head PATH [N = 10] -> outcome of list<str>",
    structured=True,
    effects=reads(Operands.FIRST_OR_CWD),
)
def head(call: Call) -> list[Value]:
    """The first N lines of a file, decoded lossily, without their line ends."""
    call.args.require("path", at_least=1)
    (target, span), *rest = call.args.located()
    path = call.args.as_path(target, span).raw
    wanted = line_count(rest[0][0]) if rest else HEAD_LINES
    check_read(call.ev, path)
    return first_lines(path, wanted, call.ev.cancel, partial(check_opened, call.ev))


def first_lines(path: str, wanted: int, cancel: CancelToken, judge: Judge = _accept) -> list[Value]:
    """At most `wanted` lines; reads no further than the piece that holds the last of them."""
    data = bytearray()
    found = 0
    try:
        # Taking no lines still reports a file that cannot be opened.
        for chunk in chunks(path, cancel, judge):
            data += chunk
            found += chunk.count(_NEWLINE)
            if found >= wanted:
                break
            if len(data) > FILE_BYTES_MAX:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    except (OSError, ValueError) as error:
        raise os_failure("read", path, as_os_error(error)) from None
    lines = bytes(data).split(_NEWLINE)
    if lines[-1] == b"":
        lines.pop()
        unfinished = None
    else:
        # A carriage return belongs to the line end only right before the newline.
        unfinished = len(lines) - 1
    return [
        (line if i == unfinished else line.removesuffix(b"\r")).decode("utf-8", "replace")
        for i, line in enumerate(lines[:wanted])
    ]
