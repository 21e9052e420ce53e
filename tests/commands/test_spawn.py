"""Starting programs: lookup, environment, signals, outcomes, failures (chapter 40 §5, §6)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.commands.session import PLAIN_ENVIRONMENT, Session, program
from worker.commands.gate import Admission, SpawnRequest
from worker.commands.processes import TABLE
from worker.errors import Raised, raised
from worker.evaluate.host import Authority
from worker.values.types import Span

# Prints the fields of a process that only the process itself can see.
REPORT = """
import json, os, signal, sys
fds = []
for fd in range(256):
    try:
        os.fstat(fd)
        fds.append(fd)
    except OSError:
        pass
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(json.dumps({
    "argv0": sys.argv[0], "cwd": os.getcwd(), "env": dict(os.environ), "fds": fds,
    "group": os.getpgrp(), "pid": os.getpid(), "session": os.getsid(0),
    "ignored": status["SigIgn"].strip(), "blocked": status["SigBlk"].strip(),
    "stdin": sys.stdin.read(),
}))
"""


def report(session: Session, **options: Any) -> dict[str, Any]:
    outcome = session.run(sys.executable, "-c", REPORT, **options)
    assert outcome.ok, outcome.stderr
    return json.loads(outcome.stdout)  # type: ignore[no-any-return,arg-type]


# -- outcomes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
def test_status_is_the_exit_code(session: Session, code: int) -> None:
    outcome = session.shell(f"exit {code}")
    assert (outcome.status, outcome.ok, outcome.signal) == (code, code == 0, None)


@pytest.mark.parametrize(
    "number, name",
    [
        (signal.SIGINT, "SIGINT"),
        (signal.SIGTERM, "SIGTERM"),
        (signal.SIGKILL, "SIGKILL"),
        (signal.SIGSEGV, "SIGSEGV"),
        (signal.SIGABRT, "SIGABRT"),
        (signal.SIGBUS, "SIGBUS"),
        (signal.SIGFPE, "SIGFPE"),
        (signal.SIGILL, "SIGILL"),
        (signal.SIGPIPE, "SIGPIPE"),
        (signal.SIGHUP, "SIGHUP"),
        (signal.SIGQUIT, "SIGQUIT"),
        (signal.SIGUSR1, "SIG10"),
        (signal.SIGALRM, "SIG14"),
    ],
)
def test_signal_death_has_no_status_and_a_name(session: Session, number: int, name: str) -> None:
    outcome = session.shell(f"kill -{int(number)} $$")
    assert (outcome.status, outcome.ok, outcome.signal) == (None, False, name)


def test_accepted_codes_widen_ok(session: Session) -> None:
    assert session.shell("exit 1", accepted=frozenset((0, 1))).ok
    assert not session.shell("exit 2", accepted=frozenset((0, 1))).ok
    assert not session.shell("kill -9 $$", accepted=frozenset((0, 1))).ok


def test_output_streams_are_kept_apart_and_raw(session: Session) -> None:
    outcome = session.shell(r"printf 'a\377\0b\r\n'; printf 'err\376' >&2")
    assert outcome.stdout == b"a\xff\0b\r\n"
    assert outcome.stderr == b"err\xfe"


def test_cmd_is_argv_joined_with_the_head_as_written(session: Session) -> None:
    outcome = session.run("printf", "%s", b"a b\xff", "")
    assert outcome.cmd == "printf %s a b\N{REPLACEMENT CHARACTER} "


def test_pid_and_duration_are_those_of_the_child(session: Session) -> None:
    outcome = session.shell("echo $$; sleep 0.05")
    assert int(outcome.stdout) == outcome.pid
    assert 50_000_000 <= outcome.dur_ns < 5_000_000_000


def test_outcome_remembers_the_span(session: Session) -> None:
    assert session.run("true", span=Span(3, 7)).span == Span(3, 7)


# -- lookup ----------------------------------------------------------------------------------------


def test_argv0_is_the_resolved_path(session: Session) -> None:
    assert session.run("sh", "-c", "echo $0").stdout in (b"/bin/sh\n", b"/usr/bin/sh\n")


def test_directories_of_path_are_tried_in_order(session: Session, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        program(tmp_path / folder, "tool", f"#!/bin/sh\necho {folder}\n")
    env = {**PLAIN_ENVIRONMENT, b"PATH": f"{tmp_path}/one:{tmp_path}/two".encode()}
    assert session.run("tool", env=env).stdout == b"one\n"


def test_path_of_the_child_environment_counts(session: Session, tmp_path: Path) -> None:
    program(tmp_path, "only-here", "#!/bin/sh\necho found\n")
    with pytest.raises(Raised):
        session.run("only-here")
    assert session.run("only-here", env={b"PATH": os.fsencode(tmp_path)}).stdout == b"found\n"


def test_without_path_the_worker_path_is_used(session: Session) -> None:
    assert session.run("true", env={}).ok


@pytest.mark.parametrize("path", [b"", b":/nowhere", b"/nowhere:"])
def test_empty_path_component_is_the_cwd(session: Session, tmp_path: Path, path: bytes) -> None:
    program(tmp_path, "here", "#!/bin/sh\necho here\n")
    assert session.run("here", env={b"PATH": path}).stdout == b"here\n"


def test_only_regular_executable_files_are_hits(session: Session, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "tool").mkdir()
    (first / "plain").write_text("#!/bin/sh\n")
    program(second, "tool", "#!/bin/sh\necho second\n")
    program(second, "real", "#!/bin/sh\necho linked\n")
    (first / "link").symlink_to(second / "real")
    env = {b"PATH": f"{first}:{second}".encode()}
    assert session.run("tool", env=env).stdout == b"second\n"
    assert session.run("link", env=env).stdout == b"linked\n"
    with pytest.raises(Raised) as caught:
        session.run("plain", env=env)
    assert caught.value.error.code == "not_found"


def test_relative_program_path_starts_at_the_session_directory(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "tool", '#!/bin/sh\necho "$0"\n')
    assert session.run("./bin/tool").stdout == b"./bin/tool\n"
    assert session.run("bin/tool").stdout == b"bin/tool\n"


# -- what a child is given -------------------------------------------------------------------------


def test_environment_is_exactly_the_given_one(session: Session) -> None:
    env = {b"PATH": b"/usr/bin:/bin", b"WEIRD": b"a=b\xff", b"EMPTY": b""}
    outcome = session.run("/usr/bin/env", "-0", env=env)
    assert isinstance(outcome.stdout, bytes)
    assert sorted(outcome.stdout.split(b"\0")[:-1]) == sorted(
        name + b"=" + value for name, value in env.items()
    )


def test_cwd_is_the_session_directory(session: Session, tmp_path: Path) -> None:
    assert report(session)["cwd"] == str(tmp_path.resolve())
    (tmp_path / "inner").mkdir()
    assert report(session, cwd=str(tmp_path / "inner"))["cwd"] == str(tmp_path.resolve() / "inner")


def test_only_three_descriptors_reach_the_child(session: Session, tmp_path: Path) -> None:
    leaking = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaking, True)
    try:
        # The listing itself has the file of `/proc` closed again by then.
        assert report(session)["fds"] == [0, 1, 2]
    finally:
        os.close(leaking)


def test_signals_are_default_and_unblocked_in_the_child(session: Session) -> None:
    ignored = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGQUIT})
    try:
        # A shell, unlike Python, sets no dispositions of its own.
        lines = session.run("grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status").stdout
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert isinstance(lines, bytes)
    assert [int(line.split()[1], 16) for line in lines.splitlines()] == [0, 0]


def test_sigpipe_ends_a_writer_whose_reader_is_gone(session: Session) -> None:
    outcome = session.run("bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert outcome.stdout == b"y\n141\n"


def test_child_leads_a_group_of_its_own(session: Session) -> None:
    found = report(session)
    assert found["group"] == found["pid"]
    assert found["session"] == os.getsid(0)


# -- input -----------------------------------------------------------------------------------------


def test_without_input_stdin_is_empty_and_null(session: Session) -> None:
    assert report(session)["stdin"] == ""
    target = session.run("readlink", "/proc/self/fd/0").stdout
    assert target == b"/dev/null\n"


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 65537, 3_000_000])
def test_fed_input_arrives_whole_and_is_closed(session: Session, size: int) -> None:
    data = os.urandom(size)
    assert session.run("cat", stdin=data).stdout == data


def test_child_that_answers_while_it_reads_does_not_deadlock(session: Session) -> None:
    data = b"line of text\n" * 400_000
    outcome = session.shell("tee /dev/stderr", stdin=data)
    assert outcome.stdout == data
    assert outcome.stderr == data


def test_child_that_does_not_read_its_input_is_no_error(session: Session) -> None:
    outcome = session.shell("exec <&-; echo done", stdin=b"x" * 5_000_000)
    assert (outcome.ok, outcome.stdout) == (True, b"done\n")


def test_open_descriptor_becomes_stdin_and_stays_open(session: Session, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"from file")
    fd = os.open(tmp_path / "in", os.O_RDONLY)
    try:
        assert session.run("cat", stdin=fd).stdout == b"from file"
        assert stat.S_ISREG(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


# -- words -----------------------------------------------------------------------------------------


def test_words_are_passed_as_bytes_without_a_shell(session: Session) -> None:
    words = [b"a b", b"$HOME", b"*", b"`id`", b"\xff\xfe", b"", b"-n", b"'\""]
    outcome = session.run("printf", r"%s\0", *words)
    assert isinstance(outcome.stdout, bytes)
    assert outcome.stdout.split(b"\0")[:-1] == words


def test_a_word_just_below_the_limit_passes(session: Session) -> None:
    assert len(session.run("printf", "%s", b"x" * 131_071).stdout) == 131_071


# -- the gate --------------------------------------------------------------------------------------


class PinningAuthority(Authority):
    """Admits everything through a descriptor of the file it was asked about, and remembers it."""

    def __init__(self, *, script: bool) -> None:
        self.script = script
        self.requests: list[SpawnRequest] = []

    def admit_spawn(self, request: SpawnRequest) -> Admission:
        self.requests.append(request)
        fd = os.open(os.path.join(request.cwd, request.path), os.O_RDONLY | os.O_CLOEXEC)
        folder = "/dev/fd" if self.script else "/proc/self/fd"
        env = {name: value for name, value in request.env.items() if not name.startswith(b"LD_")}
        return Admission(f"{folder}/{fd}", env, close_fds=(fd,))


class RefusingAuthority(Authority):
    def admit_spawn(self, request: SpawnRequest) -> Admission:
        raise raised("spawn_denied", f"spawn of `{request.argv0}` denied")


def test_pinned_program_runs_through_its_descriptor_which_then_closes(session: Session) -> None:
    session.run("true")
    session.host.authority = authority = PinningAuthority(script=False)
    session.env[b"LD_PRELOAD"] = b""
    before = len(os.listdir("/proc/self/fd"))
    found = report(session)
    assert found["fds"] == [0, 1, 2]
    assert "LD_PRELOAD" not in found["env"]
    assert len(os.listdir("/proc/self/fd")) == before
    (request,) = authority.requests
    assert (request.argv0, request.path) == (sys.executable, sys.executable)


def test_pinned_script_is_read_through_its_descriptor(session: Session, tmp_path: Path) -> None:
    program(tmp_path, "script", '#!/bin/sh\necho "$0 $1"\n')
    session.host.authority = PinningAuthority(script=True)
    outcome = session.run("./script", "a")
    assert isinstance(outcome.stdout, bytes)
    assert outcome.stdout.startswith(b"/dev/fd/")
    assert outcome.stdout.endswith(b" a\n")


def test_every_start_is_judged_and_a_refusal_has_the_span(session: Session) -> None:
    session.host.authority = RefusingAuthority()
    assert failure(session, "sh", "-c", "exit 0") == ("spawn_denied", "spawn of `sh` denied")


# -- failures to start -----------------------------------------------------------------------------


def failure(session: Session, *words: str | bytes, **options: Any) -> tuple[str, str]:
    with pytest.raises(Raised) as caught:
        session.run(*words, span=Span(5, 9), **options)
    error = caught.value.error
    assert error.span == Span(5, 9)
    return error.code, error.msg


def test_unknown_bare_name_is_command_not_found(session: Session) -> None:
    assert failure(session, "no-such-tool") == ("not_found", "command not found: no-such-tool")


def test_missing_program_path_is_not_found(session: Session) -> None:
    assert failure(session, "./nope") == (
        "not_found",
        "./nope: No such file or directory (os error 2)",
    )


def test_missing_directory_is_not_found_and_named(session: Session, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert failure(session, "true", cwd=gone) == (
        "not_found",
        f"{gone}: No such file or directory (os error 2)",
    )


def test_empty_program_name_is_custom(session: Session) -> None:
    code, msg = failure(session, "")
    assert code == "custom"
    assert "(os error 2)" in msg


def test_file_without_execute_bit_is_custom(session: Session, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    assert failure(session, "./plain") == ("custom", "./plain: Permission denied (os error 13)")


def test_bad_format_is_custom_and_never_given_to_a_shell(session: Session, tmp_path: Path) -> None:
    program(tmp_path, "plain", "echo from a shell\n")
    assert failure(session, "./plain") == ("custom", "./plain: Exec format error (os error 8)")


def test_script_without_its_interpreter_is_not_found(session: Session, tmp_path: Path) -> None:
    program(tmp_path, "script", "#!/no/such/interpreter\n")
    assert failure(session, "./script")[0] == "not_found"


@pytest.mark.parametrize("size", [131_072, 200_000, 5_000_000])
def test_too_long_argument_is_the_system_error(session: Session, size: int) -> None:
    code, msg = failure(session, "true", b"x" * size)
    assert code == "custom"
    assert "Argument list too long (os error 7)" in msg


def test_too_long_variable_is_the_system_error(session: Session) -> None:
    env = {**PLAIN_ENVIRONMENT, b"BIG": b"x" * 131_072}
    code, msg = failure(session, "true", env=env)
    assert code == "custom"
    assert "Argument list too long (os error 7)" in msg


def test_too_many_arguments_are_the_system_error(session: Session) -> None:
    code, msg = failure(session, "true", *[b"x" * 100_000] * 200)
    assert (code, "(os error 7)" in msg) == ("custom", True)


def test_failed_starts_leave_no_descriptors_and_no_children(session: Session) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        failure(session, "./nope")
        failure(session, "nope", stdin=b"x" * 100_000)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert TABLE.running() == []


def test_finished_commands_leave_no_descriptors_and_no_zombies(session: Session) -> None:
    session.run("true")
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        session.run("cat", stdin=b"x" * 100_000)
        session.shell("exit 3")
    assert len(os.listdir("/proc/self/fd")) == len(before)
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def test_commands_run_in_parallel_on_threads(session: Session) -> None:
    results: list[bytes] = []

    def work(index: int) -> None:
        for _ in range(10):
            outcome = session.run("cat", stdin=str(index).encode() * 1000)
            assert isinstance(outcome.stdout, bytes)
            results.append(outcome.stdout)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(str(i).encode() * 1000 for i in range(6) for _ in range(10))


@pytest.mark.parametrize("left", range(9))
def test_descriptor_shortage_is_an_error_and_leaks_nothing(session: Session, left: int) -> None:
    session.run("true")
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 32, hard))
    occupied: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                occupied.append(os.dup(0))
        for fd in occupied[:left]:
            os.close(fd)
        del occupied[:left]
        try:
            outcome = session.run("cat", stdin=b"x" * 100_000)
            assert outcome.stdout == b"x" * 100_000
        except Raised as refusal:
            assert refusal.error.code == "custom"
            assert "(os error 24)" in refusal.error.msg
    finally:
        for fd in occupied:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before
    assert TABLE.running() == []
