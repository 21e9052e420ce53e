"""The single place that starts programs (chapter 40 §6, §13).

Command heads, adapters, runners, fed commands, interpreter blocks, tool probes and terminals all
come through here, so that every child is resolved, judged, registered and reaped the same way.

`spawn` runs a program to its end and gives its outcome, failed or not; whether a failed outcome
raises is a matter of position and decided by the caller. `start` is the part that everything
shares: lookup, tool resolution, the gate, the launch.

Failure: a program that cannot start raises in every position, with the span it was given:
`not_found` (no such program, file or directory), `custom` (any other reason of the system),
`spawn_denied`, `leash_denied`, `reef_*`. A started child is reaped on every path out of here.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from worker.commands import launch
from worker.commands.capture import Collector, Conversation, Feed, collector, pieces
from worker.commands.gate import Admission, SpawnRequest, admit
from worker.commands.lookup import find_program
from worker.commands.outcome import ending_fields
from worker.commands.processes import TABLE, Running
from worker.errors import Raised, os_text, raised
from worker.values.types import LazyBytes, Outcome, Path, Span, display_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

SUCCESS: Final = frozenset((0,))


def spawn(
    ev: Evaluator,
    argv: list[bytes],
    *,
    stdin: bytes | LazyBytes | int | None = None,
    env: Mapping[bytes, bytes] | None = None,
    cwd: str | None = None,
    span: Span | None = None,
    accepted: Collection[int] = SUCCESS,
    resolve_tool: bool = True,
) -> Outcome:
    """Run a program to its end with captured output.

    `argv[0]` is the program as written: a path, or a bare name to be looked up. `stdin`: content to
    feed, an open descriptor (which stays the caller's), or None for an empty input. `accepted` are
    the exit codes of an ok outcome.
    """
    pipes = _Pipes()
    try:
        output, output_end = pipes.open()
        error, error_end = pipes.open()
        feed: Feed | None = None
        if stdin is None:
            source = _null()
        elif isinstance(stdin, int):
            source = stdin
        else:
            source, feed_end = pipes.open()
            feed = Feed(stdin, feed_end)
            if not feed.advance():
                pipes.close(feed_end)
                feed = None

        def start_captured(
            program: bytes, words: list[bytes], environment: Mapping[bytes, bytes], directory: str
        ) -> int:
            return launch.launch(
                program, words, environment, directory, (source, output_end, error_end)
            )

        running, started_ns = start(
            ev, argv, start_captured, env=env, cwd=cwd, span=span, resolve_tool=resolve_tool
        )
        # Our ends belong to the conversation now; the child's ends must not stay open here.
        pipes.keep(output, error, *(() if feed is None else (feed.fd,)))
    except OSError as failure:
        raise start_failure(argv[0], failure, span) from None
    finally:
        pipes.close_all()
    limits = ev.host.limits
    stdout = collector(ev.tail, "stdout", limits.capture_bytes, ev.host.journal, limits.spill_bytes)
    stderr = collector(ev.tail, "stderr", limits.capture_bytes)
    try:
        ending = Conversation(
            TABLE, running, ev.groups, {output: stdout, error: stderr}, feed, ev.cancel
        ).run()
    except OSError as failure:
        stdout.abandon()
        raise start_failure(argv[0], failure, span) from None
    except BaseException:
        stdout.abandon()
        raise
    status, signal = ending_fields(ending)
    return Outcome(
        status=status,
        ok=status is not None and status in accepted,
        cmd=display_command(argv),
        stdout=stdout.result(),
        stderr=_resident(stderr),
        signal=signal,
        dur_ns=ending.ended_ns - started_ns,
        pid=running.pid,
        span=span,
    )


def start(
    ev: Evaluator,
    argv: list[bytes],
    launch_program: launch.Launch,
    *,
    env: Mapping[bytes, bytes] | None = None,
    cwd: str | None = None,
    span: Span | None = None,
    resolve_tool: bool = True,
) -> tuple[Running, int]:
    """Resolve, judge and launch a program; the registered child and its start (monotonic ns).

    The child's argv[0] is the resolved path; a name the tool scopes resolve is replaced in `argv`
    itself. The caller must see to it that the child is reaped.
    """
    environment = ev.env if env is None else env
    directory = ev.cwd if cwd is None else cwd
    request = _request(ev, argv, environment, directory, span, resolve_tool)
    try:
        admission = admit(ev, request)
    except Raised as refusal:
        raise refusal.at(span) from None
    try:
        words = [os.fsencode(request.path), *argv[1:]]
        with TABLE.starting() as register:
            started_ns = time.monotonic_ns()
            pid = _launch(ev, admission, words, directory, launch_program)
            return register(pid), started_ns
    except OSError as failure:
        raise start_failure(argv[0], failure, span) from None
    finally:
        for fd in admission.close_fds:
            os.close(fd)


def _launch(
    ev: Evaluator,
    admission: Admission,
    words: list[bytes],
    directory: str,
    launch_program: launch.Launch,
) -> int:
    """Launch from where the principal's programs are started."""
    if admission.check is not None:
        admission.check()
    program = os.fsencode(admission.program)
    domain = None if ev.host.domain is None else ev.host.domain()
    if domain is None:
        return launch_program(program, words, admission.env, directory)
    pid: int = domain.launch(
        lambda env: launch_program(program, words, env, directory), admission.env
    )
    return pid


def _request(
    ev: Evaluator,
    argv: list[bytes],
    env: Mapping[bytes, bytes],
    cwd: str,
    span: Span | None,
    resolve_tool: bool,
) -> SpawnRequest:
    """Which file the program is; `not_found` for a bare name that is nowhere."""
    name = os.fsdecode(argv[0])
    content_hash: str | None = None
    path: str | None = None
    bare = "/" not in name
    if bare and name and resolve_tool and ev.host.reef is not None:
        tool = ev.host.reef.resolve(ev, name, env, span)
        if tool is not None:
            path, content_hash = tool.path, tool.content_hash
            # What the outcome shows is the tool that ran (chapter 41 §B4).
            argv[0] = os.fsencode(path)
            if tool.search_path is not None:
                env = {**env, b"PATH": tool.search_path}
    if path is None:
        path = find_program(name, env, cwd) if name else ""
    if path is None:
        raise command_not_found(ev, name, span)
    return SpawnRequest(name, path, content_hash, argv, env, cwd, span)


def command_not_found(ev: Evaluator, name: str, span: Span | None) -> Raised:
    """The error of a bare head that nothing provides, with a near miss as its hint."""
    from worker.commands.suggest import near_miss

    suggestion = near_miss(ev, name)
    return raised(
        "not_found",
        f"command not found: {display_name(name)}",
        hint=None if suggestion is None else f"did you mean '{suggestion}'?",
        span=span,
    )


def start_failure(argv0: bytes, failure: OSError, span: Span | None) -> Raised:
    """The error of a program that the system did not start (chapter 40 §6.2)."""
    missing = failure.errno == errno.ENOENT and argv0 != b""
    subject = failure.filename if failure.filename else os.fsdecode(argv0)
    return raised(
        "not_found" if missing else "custom",
        f"{display_name(os.fsdecode(subject))}: {os_text(failure)}",
        span=span,
    )


def display_command(argv: list[bytes]) -> str:
    """argv as built, joined by single spaces, lossy text."""
    return b" ".join(argv).decode("utf-8", "replace")


def open_input(ev: Evaluator, path: Path | str, span: Span | None) -> int:
    """Open the target of `<`; the descriptor is the caller's.

    A FIFO nobody writes to yet is waited for, unless the evaluation is cancelled.
    """
    import stat

    from worker.builtins.authority import check_opened, check_read

    absolute = ev.absolute(path)
    try:
        check_read(ev, absolute)
        fd = os.open(absolute, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except Raised as refusal:
        raise refusal.at(span) from None
    except OSError as failure:
        code = "not_found" if failure.errno == errno.ENOENT else "custom"
        raise raised(code, f"{display_name(absolute)}: {os_text(failure)}", span=span) from None
    try:
        check_opened(ev, fd)
    except Raised as refusal:
        os.close(fd)
        raise refusal.at(span) from None
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        _wait_for_writer(ev, fd)
    os.set_blocking(fd, True)
    return launch.safe_descriptor(fd)


def _wait_for_writer(ev: Evaluator, fd: int) -> None:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.register(ev.cancel.wait_fd, select.POLLIN)
    poller.poll()


_null_fd: int | None = None


def _null() -> int:
    """One descriptor of the empty input for all children."""
    global _null_fd
    if _null_fd is None:
        _null_fd = launch.safe_descriptor(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    return _null_fd


class _Pipes:
    """The pipe ends of one start that are still ours to close."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: set[int] = set()

    def open(self) -> tuple[int, int]:
        """Read end and write end, both above the standard descriptors."""
        ends = os.pipe()
        self._open.update(ends)
        if min(ends) > 2:
            return ends
        moved = []
        for end in ends:
            self._open.discard(end)
            moved.append(launch.safe_descriptor(end))
            self._open.add(moved[-1])
        return moved[0], moved[1]

    def close(self, fd: int) -> None:
        self._open.discard(fd)
        os.close(fd)

    def keep(self, *fds: int) -> None:
        """These are somebody else's from now on."""
        self._open.difference_update(fds)

    def close_all(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open.clear()


def _resident(collector: Collector) -> bytes:
    return b"".join(pieces(collector.result()))
