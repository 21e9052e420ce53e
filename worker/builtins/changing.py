"""`mkdir`, `touch`, `ln`: making directories, files and links (chapter 31 §3.1, §3.2, §3.6).

Failure: `custom` `OP PATH: ...` with OP `mkdir`, `touch`, `link` or `symlink`. Arguments are worked
off in order; what was made before a failure stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from worker.builtins.authority import check_read, check_write
from worker.builtins.effects import Operands, Rule, writes
from worker.builtins.listing import as_os_error
from worker.builtins.readers import os_failure, path_value
from worker.builtins.registry import Call, builtin
from worker.errors import arg_error
from worker.values.types import Path, Record, Value

_NEW_FILE_MODE: Final = 0o666
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def attempt(operation: str, path: str, act: Callable[..., object], *args: object) -> None:
    """Do one system operation; its failure is the builtin's error."""
    try:
        act(*args)
    except (OSError, ValueError) as error:
        raise os_failure(operation, path, as_os_error(error)) from None


def _make_all(raw: str) -> None:
    os.makedirs(raw, exist_ok=True)


@builtin(
    "mkdir",
    usage="mkdir [-p|--parents] PATH... -> outcome of list<path>",
    structured=True,
    effects=writes(Operands.PATHS),
)
def mkdir(call: Call) -> list[Value]:
    """Create directories; with the flag also missing parents, and existing ones are fine."""
    paths = call.args.paths(at_least=1)
    parents = call.args.flag("p", "parents")
    for path in paths:
        check_write(call.ev, path.raw)
        if parents:
            attempt("mkdir", path.raw, _make_all, path.raw)
        else:
            attempt("mkdir", path.raw, os.mkdir, path.raw)
    return list(paths)


def _touch(raw: str) -> None:
    try:
        os.utime(raw)
    except FileNotFoundError:
        os.close(os.open(raw, _CREATE, _NEW_FILE_MODE))


@builtin(
    "touch",
    usage="touch PATH... -> outcome of list<path>",
    structured=True,
    effects=writes(Operands.PATHS),
)
def touch(call: Call) -> list[Value]:
    """Create missing files; update the modification time of the others."""
    paths = call.args.paths(at_least=1)
    for path in paths:
        check_write(call.ev, path.raw)
        attempt("touch", path.raw, _touch, path.raw)
    return list(paths)


@builtin(
    "ln",
    usage="ln [-s|--symbolic] TARGET LINK -> outcome of record {target, link, symbolic}",
    structured=True,
    effects=(
        Rule("fs_read", Operands.FIRST, unless_flags=("s", "symbolic")),
        Rule("fs_write", Operands.SECOND),
    ),
)
def ln(call: Call) -> Record:
    """Make a hard link, with the flag a symbolic one whose target is stored as given."""
    values = call.args.values()
    if len(values) != 2:
        raise arg_error("ln requires a target and a link name")
    given = path_value(values[0])
    link = call.ev.absolute(path_value(values[1]))
    symbolic = call.args.flag("s", "symbolic")
    target = given.raw if symbolic else call.ev.absolute(given)
    if not symbolic:
        check_read(call.ev, target)
    check_write(call.ev, link)
    if symbolic:
        attempt("symlink", link, os.symlink, target, link)
    else:
        attempt("link", link, os.link, target, link)
    return {"target": Path(target), "link": Path(link), "symbolic": symbolic}
