"""Redirects of a command: the file that becomes its input, the files that get its output.

Inputs are opened before a program starts, outputs are written after it ended (chapter 40 §3), each
with the whole output, also when that was spilled. Overwritten files can be restored by undo.

Failure: `arg_error` for a target that is no path, `not_found` for a missing input, `custom` for an
output that cannot be written, `leash_denied` from the policy; all with the span of the target.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from worker.commands.capture import pieces
from worker.commands.site import CommandSite, RedirectSite
from worker.commands.spawn import open_input
from worker.errors import Raised, os_text, raised
from worker.values.types import LazyBytes, Path, Value, display_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_MODE = 0o666


def input_descriptor(ev: Evaluator, frame: Any, site: CommandSite) -> int | None:
    """Open the inputs of a command in order; the last one is its standard input."""
    opened: int | None = None
    for redirect in site.redirects:
        if redirect.kind != "in":
            continue
        try:
            target = _target(ev, frame, redirect)
            found = open_input(ev, target, redirect.span)
        except BaseException:
            if opened is not None:
                os.close(opened)
            raise
        if opened is not None:
            os.close(opened)
        opened = found
    return opened


def write_outputs(ev: Evaluator, frame: Any, site: CommandSite, data: bytes | LazyBytes) -> bool:
    """Write the output to every `>` and `>>` target in order; whether there was one."""
    written = False
    for redirect in site.redirects:
        if redirect.kind == "in":
            continue
        written = True
        target = ev.absolute(_target(ev, frame, redirect))
        try:
            _write(ev, target, pieces(data), append=redirect.kind == "append")
        except Raised as refusal:
            raise refusal.at(redirect.span) from None
        except OSError as failure:
            raise raised(
                "custom", f"{display_name(target)}: {os_text(failure)}", span=redirect.span
            ) from None
    return written


def _target(ev: Evaluator, frame: Any, redirect: RedirectSite) -> Path | str:
    argument = redirect.target.run(ev, frame)
    value: Value = argument.value
    if type(value) is not str and type(value) is not Path:
        raise raised("arg_error", "redirect target must be a path", span=argument.span)
    return value


def _write(ev: Evaluator, path: str, data: Iterable[bytes], *, append: bool) -> None:
    from worker.builtins.authority import check_write
    from worker.builtins.undo_records import overwriting

    check_write(ev, path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else os.O_TRUNC)
    with overwriting(ev, path):
        fd = os.open(path, flags, _MODE)
        try:
            for piece in data:
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
