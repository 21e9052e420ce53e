"""The `shoal` command: find the subcommand, run it, turn its end into an exit code.

Every import that only some commands need happens inside them, so that `shoal exec` pays for
nothing but itself.

Failure: none gets out. Errors become a line on stderr (or a JSON object on stdout in JSON mode)
and the exit codes of chapter 81, section 2.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Final, NoReturn

from ipc.client import ClientError, RpcError
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure, Terminated, as_error_object, exit_code
from supervisor.cli.help import help_text, top_help, usage
from supervisor.cli.options import Command, HelpAsked, UsageError, parse
from supervisor.cli.output import Output
from supervisor.cli.registry import COMMANDS, LOCAL, named
from supervisor.version import VERSION

# Names under which the program means one subcommand; `shoal-<word>` means <word> otherwise.
_RENAMED: Final[Mapping[str, str]] = {"history": "journal"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; `argv` without the program's name. Returns the exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        words = [*_word_of_program(sys.argv[0]), *words]
    try:
        code = _dispatch(words, dict(os.environ))
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
        return Exit.BROKEN_PIPE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Terminated:
        return Exit.TERMINATED
    return code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _word_of_program(program: str) -> list[str]:
    name = os.path.basename(program)
    if not name.startswith("shoal-"):
        return []
    word = name.removeprefix("shoal-")
    word = _RENAMED.get(word, word)
    return [word] if named(word) else []


def _dispatch(words: list[str], environ: Mapping[str, str]) -> int:
    if not words:
        return _without_words(environ)
    first, rest = words[0], words[1:]
    if first in ("-h", "--help", "-V", "--version"):
        return _about(first, rest)
    if first in ("-c", "--command") or first.startswith("--command="):
        return _run_local("source", _source_words(first, rest), environ)
    if first == "--":
        if not rest:
            return _usage_error(UsageError("-- must be followed by a script path"))
        return _run_local("file", rest, environ)
    command = named(first)
    if command is not None:
        return run(command, rest, environ)
    if first.startswith("-"):
        return _usage_error(UsageError(f"unknown option {first}"))
    return _run_local("file", words, environ)


def _without_words(environ: Mapping[str, str]) -> int:
    if not os.isatty(0):
        return _run_local("stdin", [], environ)
    sys.stderr.write(top_help(COMMANDS))
    return Exit.USAGE


def _about(first: str, rest: list[str]) -> int:
    if rest:
        return _usage_error(UsageError(f"{first} takes no operand"))
    sys.stdout.write(top_help(COMMANDS) if first in ("-h", "--help") else f"shoal {VERSION}\n")
    return Exit.SUCCESS


def _source_words(first: str, rest: list[str]) -> list[str]:
    _, attached, source = first.partition("=")
    return [source, *rest] if attached else rest


def _run_local(what: str, words: list[str], environ: Mapping[str, str]) -> int:
    """A run without a kernel; `words` are the source or file, then its arguments."""
    if what == "source" and not words:
        return _usage_error(UsageError("-c/--command requires source"))
    runner: Callable[[str, list[str], Mapping[str, str]], int] = _load(LOCAL)
    return runner(what, words, environ)


def run(command: Command, words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run one command with the words after its name."""
    try:
        arguments = parse(command, words)
    except HelpAsked as asked:
        sys.stdout.write(help_text(asked.command))
        return Exit.SUCCESS
    except UsageError as error:
        return _usage_error(error, command)
    call = Call(arguments, environ)
    body: Callable[[Call], int] = _load(arguments.command.run)
    try:
        code = body(call)
        call.out.flush()
    except UsageError as error:
        return _usage_error(error, command)
    except (Failure, RpcError, ClientError) as error:
        return _failed(call, command, error)
    except BrokenPipeError:
        raise
    except OSError as error:
        named_file = f"{error.filename}: " if error.filename else ""
        return _failed(call, command, Failure(f"{named_file}{error.strerror or error}"))
    return code


def _load(where: str) -> Callable[..., int]:
    module, _, function = where.partition(":")
    found: Callable[..., int] = getattr(importlib.import_module(module), function)
    return found


def _failed(call: Call, command: Command, error: Exception) -> int:
    if call.flag("json"):
        # The configuration may be what failed, so nothing here depends on it.
        Output(json=True).document({"error": as_error_object(error)})
    else:
        lines = [str(error)]
        hint = error.data.get("hint") if isinstance(error, RpcError) else None
        if hint:
            lines.append(f"hint: {hint}")
        prefix = command.prefix or f"shoal {command.name}"
        sys.stderr.write("".join(f"{prefix}: {line}\n" for line in lines))
    return exit_code(error)


def _usage_error(error: UsageError, command: Command | None = None) -> int:
    prefix = (command.prefix or f"shoal {command.name}") if command else "shoal"
    sys.stderr.write(f"{prefix}: {error}\n")
    about = error.command or command
    sys.stderr.write((usage(about) if about else _top_usage()) + "\n")
    return Exit.USAGE


def _top_usage() -> str:
    return top_help(COMMANDS).split("\n\n", 1)[0]


def _abandon_stdout() -> None:
    """Keep the interpreter's last flush from complaining about a closed pipe."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
