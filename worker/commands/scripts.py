"""`run`, its runners, and scripts of the shell language (chapter 40 §1.4, §1.5).

A target that looks like a file is a script and goes to what its extension or its `#!` line names;
anything else is an external program. Scripts of the language run in a nested evaluator with a fresh
root scope, so nothing they declare or change reaches the caller.

Failure: `arg_error`/`type_error` for a missing or wrong target, `runner_not_found` for a file that
nothing runs, `io_error` and `parse_error` for language scripts, `cmd_failed` for a program that
does not compile; spawn errors as everywhere. A runner that ends badly is an outcome, not an error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from worker.commands.lookup import find_program
from worker.commands.site import expand_home
from worker.commands.spawn import spawn
from worker.errors import Raised, os_text, raised
from worker.language.diagnostics import ParseError
from worker.values.convert import argv_word
from worker.values.types import Outcome, Path, Span, Value, display_name, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# The runner table without manifests: it decides which bare names are scripts. `self` is the
# language.
SELF: Final = "self"
DEFAULT_RUNNERS: Final[dict[str, list[str]]] = {
    "py": ["python"],
    "js": ["node"],
    "ts": ["deno", "run"],
    "sh": ["sh"],
    "shl": [SELF],
    "rb": ["ruby"],
    "lua": ["lua"],
}
# What runs a file while no manifest is in scope.
FIXED_RUNNERS: Final[dict[str, list[str]]] = {
    "sh": ["sh"],
    "py": ["python3"],
    "js": ["node"],
    "shl": [SELF],
}
RUNNER_HINT: Final = "runners exist for the extensions " + " ".join(DEFAULT_RUNNERS)
RUST: Final = "rs"
_LANGUAGE_INTERPRETERS: Final = frozenset(("shoal", "shl"))
_SHEBANG_BYTES_MAX: Final = 512


def run_target(
    ev: Evaluator, values: Sequence[Value], span: Span | None, *, stdin: int | None = None
) -> Value:
    """`run TARGET ARG...` with evaluated arguments: an outcome, or the value of a language script.

    Position is the caller's business: a failed outcome is returned.
    """
    if not values:
        raise raised("arg_error", "run expects a path or command name", span=span)
    target, arguments = values[0], list(values[1:])
    if type(target) is not str and type(target) is not Path:
        raise raised(
            "type_error", f"run expects a str or path, found {type_name(target)}", span=span
        )
    text = target if isinstance(target, str) else target.raw
    if is_script(ev, text):
        return run_script(ev, Path(expand_home(ev, text)), arguments, span, stdin=stdin)
    return _external(ev, [os.fsencode(text)], arguments, span, stdin)


def is_script(ev: Evaluator, text: str) -> bool:
    """Whether a target of `run` is a file: by its looks, or a known kind of file that exists."""
    if "/" in text or text.startswith((".", "~")):
        return True
    extension = _extension(text)
    known = extension == RUST or extension in (_scope_runners(ev) or DEFAULT_RUNNERS)
    return known and os.path.isfile(ev.absolute(text))


def run_script(
    ev: Evaluator,
    script: Path,
    arguments: list[Value],
    span: Span | None,
    *,
    stdin: int | None = None,
) -> Value:
    """Run a script file by its extension, else by its `#!` line."""
    path = ev.absolute(script)
    runner = _runner(ev, path)
    if runner == [SELF]:
        return run_language_script(ev, script, [(value, span) for value in arguments], span)
    if runner is not None:
        words = [os.fsencode(word) for word in runner]
        return _external(ev, [*words, os.fsencode(path)], arguments, span, stdin)
    if _extension(path) == RUST:
        return _run_rust(ev, path, arguments, span, stdin)
    raise raised(
        "runner_not_found", f"no runner for {display_name(path)}", hint=RUNNER_HINT, span=span
    )


def _runner(ev: Evaluator, path: str) -> list[str] | None:
    """The words before the path of a script; None when nothing runs it."""
    extension = _extension(path)
    scoped = _scope_runners(ev)
    if not extension:
        shebang = _shebang(path, by_name=scoped is not None)
        foreign = shebang and os.path.basename(shebang[0]) not in _LANGUAGE_INTERPRETERS
        return shebang if foreign else [SELF]
    found = (FIXED_RUNNERS if scoped is None else scoped).get(extension)
    if found is not None:
        return found
    if extension == RUST:
        return ["rust-script"] if find_program("rust-script", ev.env, ev.cwd) else None
    return _shebang(path, by_name=scoped is not None)


def _scope_runners(ev: Evaluator) -> dict[str, list[str]] | None:
    """The runner table of the tool scopes; None when none is active."""
    if ev.host.reef is None:
        return None
    table: dict[str, list[str]] | None = ev.host.reef.runners(ev)
    return table


def _extension(path: str) -> str:
    return os.path.splitext(path)[1][1:].lower()


def _shebang(path: str, *, by_name: bool) -> list[str] | None:
    """The interpreter words of a `#!` line. `by_name`: only its base name, for tool resolution."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        line = os.read(fd, _SHEBANG_BYTES_MAX).split(b"\n", 1)[0]
    except OSError:
        return None
    finally:
        os.close(fd)
    if not line.startswith(b"#!"):
        return None
    words = [os.fsdecode(word) for word in line[2:].split()]
    if words and os.path.basename(words[0]) == "env":
        words = words[1:]
        if words and words[0] == "-S":
            words = words[1:]
    if not words:
        return None
    return [os.path.basename(words[0])] if by_name else words


def _external(
    ev: Evaluator,
    argv: list[bytes],
    arguments: Sequence[Value],
    span: Span | None,
    stdin: int | None,
) -> Outcome:
    try:
        words = [argv_word(value) for value in arguments]
    except Raised as error:
        raise error.at(span) from None
    return spawn(ev, [*argv, *words], stdin=stdin, span=span)


def _run_rust(
    ev: Evaluator, path: str, arguments: list[Value], span: Span | None, stdin: int | None
) -> Outcome:
    """Compile with `rustc` into a temporary folder and run the result."""
    folder = tempfile.mkdtemp(prefix="shoal-rs-")
    try:
        program = os.fsencode(os.path.join(folder, "program"))
        compiled = spawn(ev, [b"rustc", os.fsencode(path), b"-o", program], span=span)
        if not compiled.ok:
            reason = compiled.stderr.decode("utf-8", "replace").strip()
            raise raised(
                "cmd_failed",
                f"rustc failed to compile {display_name(path)}: {reason}",
                status=compiled.status,
                span=span,
            )
        return _external(ev, [program], arguments, span, stdin)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- scripts of the language -----------------------------------------------------------------------


def run_language_script(
    ev: Evaluator,
    script: Path,
    arguments: Sequence[tuple[Value, Span | None]],
    span: Span | None,
) -> Value:
    """Run a `.shl` file in a nested evaluator; the value is that of its last statement."""
    path = Path(ev.absolute(script))
    source = read_source(ev, path, span)
    nested = ev.child(fresh_scope=True)
    nested.root.declare("args", [value for value, _ in arguments])
    nested.root.declare("script", path)
    try:
        return nested.evaluate_source(source)
    except ParseError as error:
        raise parse_failure(error) from None


def source_file(ev: Evaluator, path: Path, span: Span | None) -> Value:
    """Evaluate a file as top-level statements in the current scope (`source`)."""
    from worker.evaluate.program import run_in_place
    from worker.language import parse

    source = read_source(ev, path, span)
    try:
        program = parse(source)
    except ParseError as error:
        raise parse_failure(error) from None
    return run_in_place(ev, program, source)


def read_source(ev: Evaluator, path: Path, span: Span | None) -> str:
    """The text of a script or sourced file. Raises io_error `cannot read script: ...`."""
    from worker.builtins.authority import check_opened, check_read

    absolute = ev.absolute(path)
    try:
        check_read(ev, absolute)
        with open(absolute, "rb") as file:
            check_opened(ev, file.fileno())
            return file.read().decode()
    except Raised as refusal:
        raise refusal.at(span) from None
    except OSError as failure:
        reason = os_text(failure)
    except UnicodeDecodeError:
        reason = "the file is not valid UTF-8"
    raise raised("io_error", f"cannot read script: {display_name(absolute)}: {reason}", span=span)


def parse_failure(error: ParseError) -> Raised:
    """Bad source in a file as a language error; its span is an offset into that file."""
    return raised(
        "parse_error",
        error.message,
        hint=error.hint,
        span=Span(error.span.start, error.span.end),
    )
