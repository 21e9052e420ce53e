"""`shoal fmt`: source in its canonical form (chapter 81, section 7.18).

The text is made in a fork of this process: the command line itself never loads the language.

Failure: exit 1 for a source that cannot be read or does not parse, and for `--check` when something
would change.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

from ipc.local_run import FORMAT_MODULE, Formatted, LocalRunBroken, decode_formatted
from supervisor.cli.call import Call
from supervisor.cli.diagnostic import STDIN_NAME
from supervisor.cli.execute import decode_source, read_source
from supervisor.cli.failure import Exit, Failure


def run(call: Call) -> int:
    check = call.flag("check")
    if not call.operands:
        source = decode_source(STDIN_NAME, sys.stdin.buffer.read())
        text = _format(STDIN_NAME, source)
        if not check:
            call.out.text(text)
        return Exit.FAILED if check and text != source else Exit.SUCCESS
    changed = False
    for file in call.operands:
        source = read_source(file)
        text = _format(file, source)
        if text != source:
            changed = True
            if not check:
                _rewrite(Path(file), text)
    return Exit.FAILED if check and changed else Exit.SUCCESS


def _format(name: str, source: str) -> str:
    try:
        result = _in_fork(source)
    except LocalRunBroken as error:
        raise Failure(f"{name}: {error}") from error
    if result.text is None:
        raise Failure(f"{name}: {result.error}")
    return result.text


def _in_fork(source: str) -> Formatted:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            result = importlib.import_module(FORMAT_MODULE).formatted(source)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(result.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return decode_formatted(data)


def _rewrite(path: Path, text: str) -> None:
    """Replace a file in one step, with its mode kept."""
    mode = path.stat().st_mode & 0o7777
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(text.encode())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
