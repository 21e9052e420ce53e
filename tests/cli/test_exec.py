"""`shoal exec` and `shoal task` against a real kernel: streams and exit codes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import WAIT_S, Program


@pytest.fixture
def session(live: Program, request: pytest.FixtureRequest) -> Program:
    """The shared kernel, seen through a session of this test's own."""
    own = Program(live.root)
    # The session names the socket too, unless that is given.
    own.environ |= {"SHOAL_SESSION": request.node.name[:100], "SHOAL_SOCKET": str(live.socket)}
    return own


def test_rendering_and_a_newline(session: Program) -> None:
    ran = session.run("exec", "6 * 7")
    assert (ran.code, ran.out, ran.err) == (0, "42\n", "")


def test_nothing_is_printed_for_null(session: Program) -> None:
    ran = session.run("exec", "let a = 1")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_bindings_stay_for_the_next_call(session: Program) -> None:
    session.run("exec", "let a = 20")
    assert session.run("exec", "a + 2").out == "22\n"


def test_json_has_exactly_ref_value_and_render(session: Program) -> None:
    ran = session.run("exec", "--json", "--position", "value", "[1, 2]")
    assert ran.code == 0
    assert list(ran.document) == ["ref", "value", "render"]
    assert ran.document["value"]["v"] == [{"$": "int", "v": 1}, {"$": "int", "v": 2}]
    assert ran.out.startswith('{\n  "ref": "out:1"')
    assert ran.out.endswith("}\n")


def test_budgets_shape_the_json_value(session: Program) -> None:
    ran = session.run("exec", "--json", "--max-items", "1", "[1, 2]")
    assert ran.document["value"]["$"] == "ref"
    timed = session.run("exec", "--json", "--timeout-ms", "60000", "--max-items", "1", "[1, 2]")
    assert timed.document["value"]["$"] == "ref"


def test_source_from_stdin_and_file(session: Program, tmp_path: Path) -> None:
    assert session.run("exec", "-", stdin="'naïve'\n").out == "naïve\n"
    file = tmp_path / "tool.shl"
    file.write_text("let x = 2\nx * 3\n")
    assert session.run("exec", "-f", str(file)).out == "6\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [(["exec", "1 +"], "<repl>"), (["exec", "-"], "<stdin>")],
)
def test_parse_error_is_shown_at_its_place_and_exits_2(
    session: Program, words: list[str], name: str
) -> None:
    ran = session.run(*words, stdin="1 +")
    assert (ran.code, ran.out) == (2, "")
    header, line, caret = ran.err.splitlines()[:3]
    assert header.startswith(f"{name}:1:")
    assert ": parse error: " in header
    assert line == "  1 +"
    assert caret.strip() == "^"


def test_source_that_cannot_be_read_exits_1(session: Program, tmp_path: Path) -> None:
    ran = session.run("exec", "-f", str(tmp_path / "none.shl"))
    assert ran.code == 1
    assert "cannot read" in ran.err
    ran = session.run("exec", "-", stdin=b"\xff")
    assert ran.code == 1
    assert "not UTF-8" in ran.err


def test_failed_command_gives_its_own_status_and_is_stored(session: Program) -> None:
    ran = session.run("exec", "sh -c 'echo trouble >&2; exit 3'")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("trouble\n<repl>:1:1: cmd_failed: ")
    assert ran.err.endswith("stored as out:1\n")


def test_language_error_exits_1(session: Program) -> None:
    ran = session.run("exec", "1 / 0")
    assert ran.code == 1
    assert "div_zero" in ran.err


def test_failed_command_in_value_position_is_a_value(session: Program) -> None:
    ran = session.run("exec", "--json", "--position", "value", "sh -c 'exit 3'")
    assert ran.code == 0
    assert ran.document["value"]["status"] == 3


def test_json_error_is_the_kernels_error_object(session: Program) -> None:
    ran = session.run("exec", "--json", "1 / 0")
    assert (ran.code, ran.err) == (1, "")
    error = ran.document["error"]
    assert error["code"] == -32002
    assert error["data"]["code"] == "div_zero"


def test_raw_is_exact_and_paged(session: Program) -> None:
    assert session.run("exec", "--raw", "'abc'").out == "abc"
    text = "0123456789" * 20_000
    assert session.run("exec", "--raw", "-", stdin=f"'{text}'").out == text


def test_quiet_prints_no_result_but_keeps_the_exit_code(session: Program) -> None:
    ran = session.run("exec", "--quiet", "6 * 7")
    assert (ran.code, ran.out) == (0, "")
    assert session.run("exec", "--quiet", "sh -c 'exit 4'").code == 4


def test_no_color_means_no_escape_and_colour_means_one(session: Program) -> None:
    assert "\x1b" not in session.run("exec", "1 / 0").err
    assert "\x1b[1;31m" in session.run("exec", "--color", "always", "1 / 0").err
    assert "\x1b" not in session.run("exec", "--color", "auto", "1 / 0").err


def test_background_prints_the_task_and_its_value_can_be_fetched(session: Program) -> None:
    ran = session.run("exec", "--background", "6 * 7")
    assert ran.code == 0
    task = ran.out.strip()
    assert task.startswith("task:")
    done = session.run("task", "wait", "--json", task)
    assert (done.code, done.document["state"]) == (0, "completed")
    assert session.run("task", "output", task.removeprefix("task:")).out == "42\n"
    assert [row["task"] for row in session.run("task", "list", "--json").document] == [task]


def test_failed_task_exits_1_in_wait_and_output(session: Program) -> None:
    task = session.run("exec", "--background", "1 / 0").out.strip()
    assert session.run("task", "wait", task).code == 1
    ran = session.run("task", "output", task)
    assert ran.code == 1
    assert "failed" in ran.out


def test_timeout_leaves_the_work_running(session: Program) -> None:
    ran = session.run("exec", "--timeout-ms", "50", "sh -c 'sleep 60'")
    task = ran.out.strip()
    assert (ran.code, ran.err) == (0, f"still running: {task}\n")
    assert session.run("task", "wait", "--timeout", "0", task).code == 75
    ran = session.run("task", "cancel", "--wait", task)
    assert (ran.code, ran.out) == (0, "cancelled\n")
    assert session.run("task", "wait", task).code == 130


def test_unknown_task_exits_1(session: Program) -> None:
    ran = session.run("task", "show", "999999")
    assert ran.code == 1
    assert "unknown task ref" in ran.err


def wait_for(condition: Callable[[], bool]) -> None:
    """Poll another process's files, which say nothing when they change."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_cancels_the_work_and_waits_for_its_end(
    session: Program, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pid_file = tmp_path / "pid"
    source = f"sh -c 'echo $$ > {pid_file}; exec sleep 60'"
    with session.started("exec", source) as child:
        wait_for(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        sleeper = int(pid_file.read_text())
        child.send_signal(number)
        out, err = child.communicate(timeout=WAIT_S)
    assert (child.returncode, out, err) == (code, "", "")
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)
    [record] = session.run("task", "list", "--json").document
    assert record["state"] == "cancelled"


def test_kernel_is_started_when_none_listens_and_serves_the_next_call(tmp_path: Path) -> None:
    program = Program(tmp_path)
    del program.environ["SHOAL_NO_AUTOSTART"]
    program.configure("[kernel]\nidle_exit_s = 600\n")
    try:
        assert program.run("exec", "let a = 41").code == 0
        assert program.run("exec", "--no-autostart", "a + 1").out == "42\n"
    finally:
        lock = tmp_path / ".local" / "state" / "shoal" / "lock"
        pid = json.loads(lock.read_text())["pid"]
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not program.socket.exists())


def test_no_autostart_option_and_key_forbid_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    del program.environ["SHOAL_NO_AUTOSTART"]
    assert program.run("exec", "--no-autostart", "1").code == 69
    program.configure("[kernel]\nautostart = false\n")
    assert program.run("exec", "1").code == 69


def test_session_is_found_in_its_own_kernel_first_then_in_the_common_one(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with program.kernel():
        assert program.run("exec", "--session", "build", "let where = 'common'").code == 0
        assert program.run("exec", "--session", "build", "where").out == "common\n"
        own = ("--session", "build", "--in-memory")
        with program.started("kernel", *own) as kernel:
            assert kernel.stderr is not None
            assert kernel.stderr.readline().endswith("/run/shoal/build.sock\n")
            assert program.run("exec", "--session", "build", "where").code == 1
            kernel.terminate()
            kernel.communicate(timeout=WAIT_S)
        assert program.run("exec", "--session", "build", "where").out == "common\n"
