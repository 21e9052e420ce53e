"""Programs run through a daemon: what they leave behind, how they stop, bad ones (chapter 40)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.daemon import Daemon, Wire, alive, wait_gone

# Far below the time the background programs of these tests would run, far above any answer.
SOON_S = 5.0


@pytest.fixture
def here(attached: Wire, tmp_path: Path) -> Wire:
    """The test's session in a directory of its own."""
    attached.result("exec", {"src": f'cd "{tmp_path}"'})
    return attached


def text(wire: Wire, src: str) -> str:
    """The text a command printed."""
    value = wire.result("exec", {"src": src, "position": "value"})["value"]
    return str(value["out"]["v"])


def start(wire: Wire, src: str) -> str:
    return str(wire.result("exec", {"src": src, "async": True})["task"])


def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> bool:
    """Whether the condition holds, now or soon."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def pid_in(path: Path) -> int:
    """The pid a program wrote into a file, once it has."""
    assert eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# -- what programs leave behind ------------------------------------------------------------------


def test_a_background_server_does_not_hold_up_the_answer(here: Wire, tmp_path: Path) -> None:
    before = time.monotonic()
    assert text(here, "sh { sleep 60 & echo $! > pid; echo started }") == "started"
    assert time.monotonic() - before < SOON_S
    assert alive(pid_in(tmp_path / "pid"))


def test_later_output_of_a_server_shows_nowhere_else(here: Wire, tmp_path: Path) -> None:
    server = (
        "sh { (while ! test -e go; do sleep 0.02; done; echo LATE; echo LATE >&2; : > said) & }"
    )
    text(here, server)
    (tmp_path / "go").touch()
    assert text(here, "sh { while ! test -e said; do sleep 0.02; done; echo mine }") == "mine"
    result = here.result("exec", {"src": "sh { echo own }", "position": "value"})
    assert result["value"]["out"]["v"] == "own"
    raw = here.result("value.get", {"ref": result["ref"], "path": "stderr", "format": "raw"})
    assert raw["raw_base64"] == ""


def test_a_server_ends_with_its_session(daemon: Daemon, tmp_path: Path) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "with-servers"})
        wire.result("exec", {"src": f'cd "{tmp_path}"'})
        text(wire, "sh { sleep 600 & echo $! > plain }")
        text(wire, "sh { setsid sleep 600 & echo $! > own_session }")
        text(wire, "sh { (setsid sh -c 'sleep 600 & echo $! > twice; wait' &) }")
        pids = [pid_in(tmp_path / name) for name in ("plain", "own_session", "twice")]
        assert all(map(alive, pids))
        wire.result("session.close", {"force": True})
    assert wait_gone(pids) == []


def test_standard_input_is_empty_and_eats_nobody_elses(here: Wire) -> None:
    assert text(here, "sh { cat }") == ""
    assert text(here, 'sh { read x; echo "got:$x"; }') == "got:"
    assert text(here, '"fed".feed(cat)') == "fed"


def test_grandchildren_are_gone_after_a_cancel(here: Wire, tmp_path: Path) -> None:
    task = start(here, "sh { sh -c 'echo $$ > one; sleep 600 | sh -c \"echo \\$\\$ > two; cat\"' }")
    pids = [pid_in(tmp_path / name) for name in ("one", "two")]
    here.result("task.cancel", {"task": task})
    record = here.result("task.await", {"task": task, "timeout_ms": 10_000})
    assert record["state"] == "cancelled"
    assert wait_gone(pids) == []


def test_a_tree_that_ignores_signals_or_forked_twice_is_gone_after_a_cancel(
    here: Wire, tmp_path: Path
) -> None:
    task = start(
        here,
        "sh { trap '' INT TERM; (setsid sh -c 'trap \"\" INT TERM HUP; echo $$ > far;"
        " while :; do sleep 0.1; done' &); echo $$ > near; while :; do sleep 0.1; done }",
    )
    pids = [pid_in(tmp_path / name) for name in ("near", "far")]
    here.result("task.cancel", {"task": task})
    record = here.result("task.await", {"task": task, "timeout_ms": 15_000})
    assert record["state"] == "cancelled"
    assert wait_gone(pids, 10.0) == []


def test_a_task_whose_program_vanished_ends(here: Wire, tmp_path: Path) -> None:
    task = start(here, "sh { echo $$ > pid; exec sleep 600 }")
    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
    record = here.result("task.await", {"task": task, "timeout_ms": 5000})
    assert record["state"] == "failed"
    assert "SIGKILL" in record["error"]["message"]


def test_a_task_whose_worker_vanished_ends(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "losing"})
        task = start(wire, "sh { sleep 600 }")
        assert eventually(lambda: _row(wire, "losing")["state"] == "busy")
        os.kill(_row(wire, "losing")["pid"], signal.SIGKILL)
        record = wire.result("task.await", {"task": task, "timeout_ms": 5000})
        assert (record["state"], record["error"]["data"]["kind"]) == ("failed", "worker_lost")


def _row(wire: Wire, session: str) -> Any:
    rows = wire.result("session.list")["sessions"]
    return next(row for row in rows if row["session"] == session)


def test_files_have_the_permissions_of_the_user(daemon: Daemon, tmp_path: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "permissions"})
        wire.result("exec", {"src": f'cd "{tmp_path}"; touch built; sh {{ : > spawned }}'})
    for name in ("built", "spawned"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~umask
    assert daemon.state.stat().st_mode & 0o077 == 0


# -- suspending ----------------------------------------------------------------------------------


def test_suspend_stops_the_programs_of_a_task_and_resume_continues_them(
    here: Wire, tmp_path: Path
) -> None:
    task = start(here, "sh { echo $$ > pid; while ! test -e go; do sleep 0.01; done; echo end }")
    pid = pid_in(tmp_path / "pid")
    assert here.result("task.suspend", {"task": task}) == {"task": task, "suspended": True}
    # A shell that is just starting a program waits for it uninterruptibly: it stands as well.
    assert state(pid) in ("T", "D")
    record = here.result("task.get", {"task": task})
    assert (record["state"], record["suspended"]) == ("running", True)
    assert here.result("task.suspend", {"task": task})["suspended"] is True
    (tmp_path / "go").touch()
    assert here.result("task.await", {"task": task, "timeout_ms": 200})["finished_ns"] is None
    assert here.result("task.resume", {"task": task}) == {"task": task, "suspended": False}
    assert here.result("task.await", {"task": task, "timeout_ms": 5000})["state"] == "completed"


def test_suspend_holds_evaluation_that_runs_no_program(here: Wire, tmp_path: Path) -> None:
    task = start(here, 'var n = 0\nwhile true { n = n + 1; "{n}\\n".save("count") }')
    assert eventually(lambda: (tmp_path / "count").exists())
    assert here.result("task.suspend", {"task": task})["suspended"] is True
    before = (tmp_path / "count").read_text()
    time.sleep(0.1)
    assert (tmp_path / "count").read_text() == before
    assert here.result("task.resume", {"task": task})["suspended"] is False
    assert eventually(lambda: (tmp_path / "count").read_text() != before)
    here.result("task.cancel", {"task": task})
    assert here.result("task.await", {"task": task})["state"] == "cancelled"


def test_a_program_started_while_its_task_is_held_is_stopped(here: Wire, tmp_path: Path) -> None:
    task = start(here, "for i in 1..=100000 { sh { : > alive } }")
    assert eventually(lambda: (tmp_path / "alive").exists())
    assert here.result("task.suspend", {"task": task})["suspended"] is True
    (tmp_path / "alive").unlink()
    time.sleep(0.2)
    assert not (tmp_path / "alive").exists()
    here.result("task.resume", {"task": task})
    assert eventually(lambda: (tmp_path / "alive").exists())
    here.result("task.cancel", {"task": task})
    assert here.result("task.await", {"task": task, "timeout_ms": 10_000})["state"] == "cancelled"


@pytest.mark.parametrize("src", ["sh { : > ready; sleep 600 }", "touch ready; while true { }"])
def test_cancel_continues_a_suspended_task_and_ends_it(
    here: Wire, tmp_path: Path, src: str
) -> None:
    task = start(here, src)
    assert eventually(lambda: (tmp_path / "ready").exists())
    assert here.result("task.suspend", {"task": task})["suspended"] is True
    here.result("task.cancel", {"task": task})
    record = here.result("task.await", {"task": task, "timeout_ms": 5000})
    assert record["state"] == "cancelled"
    assert "suspended" not in record
    assert text(here, "sh { echo again }") == "again"


def test_control_of_waiting_and_finished_tasks_is_unavailable(here: Wire, tmp_path: Path) -> None:
    running = start(here, "sh { : > ready; sleep 600 }")
    waiting = start(here, "1")
    assert eventually(lambda: (tmp_path / "ready").exists())
    for method in ("task.suspend", "task.resume"):
        error = here.error(method, {"task": waiting})
        assert (error["code"], error["data"]["task"]) == (-32020, waiting)
    here.result("task.cancel", {"task": running})
    here.result("task.await", {"task": waiting})
    assert here.error("task.suspend", {"task": waiting})["code"] == -32020
    assert here.error("task.suspend", {"task": "task:999999"})["code"] == -32021


def test_a_held_task_keeps_its_place(here: Wire, tmp_path: Path) -> None:
    first = start(here, "sh { : > ready; sleep 0.3 }")
    second = start(here, "2")
    assert eventually(lambda: (tmp_path / "ready").exists())
    here.result("task.suspend", {"task": first})
    assert here.result("task.await", {"task": second, "timeout_ms": 500})["finished_ns"] is None
    here.result("task.resume", {"task": first})
    assert here.result("task.await", {"task": second, "timeout_ms": 5000})["state"] == "completed"


def test_a_drain_ends_a_suspended_task(tmp_path: Path) -> None:
    config = "[kernel]\ndrain_timeout_s = 1\nkill_grace_ms = 300\n"
    with Daemon(config=config) as own, own.wire() as wire:
        wire.result("session.attach", {"session": "drained"})
        wire.result("exec", {"src": f'cd "{tmp_path}"'})
        task = start(wire, "sh { trap '' INT TERM; echo $$ > pid; while :; do sleep 0.05; done }")
        pid = pid_in(tmp_path / "pid")
        wire.result("task.suspend", {"task": task})
        before = time.monotonic()
        assert own.stop() == 0
        assert time.monotonic() - before < 1 + 2 * 0.3 + 2 + 1
        assert not alive(pid)


# -- live output ---------------------------------------------------------------------------------


def test_output_of_a_watched_task_is_published(here: Wire, tmp_path: Path) -> None:
    task = start(
        here,
        "sh { echo unseen; while ! test -e go; do sleep 0.01; done;"
        " printf '\\033[31mred\\033[0m\\n'; echo bad >&2; sleep 0.2 }",
    )
    channel = task.replace(":", ".") + ".output"
    assert here.result("events.read", {"channel": channel})["events"] == []
    (tmp_path / "go").touch()
    here.result("task.await", {"task": task})
    events = [e["payload"]["v"] for e in here.result("events.read", {"channel": channel})["events"]]
    said = {event["stream"]["v"]: event for event in events}
    assert said["stdout"]["tail"]["v"].endswith("red\n")
    assert said["stdout"]["bytes"]["v"] == len("unseen\n\033[31mred\033[0m\n")
    assert said["stderr"]["tail"] == {"$": "str", "v": "bad\n"}


def test_busy_output_is_published_at_most_twenty_times_a_second(here: Wire, tmp_path: Path) -> None:
    task = start(
        here,
        "sh { while ! test -e go; do sleep 0.01; done;"
        " i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i + 1)); sleep 0.004; done }",
    )
    channel = task.replace(":", ".") + ".output"
    here.result("events.read", {"channel": channel})
    (tmp_path / "go").touch()
    here.result("task.await", {"task": task})
    events = here.result("events.read", {"channel": channel})["events"]
    stamps = [event["ts"] for event in events]
    assert len(stamps) >= 3
    assert all(sum(s <= t < s + 10**9 for t in stamps) <= 20 for s in stamps)
    assert events[-1]["payload"]["v"]["tail"]["v"].endswith("line 299\n")
    assert all(len(e["payload"]["v"]["tail"]["v"].encode()) <= 4096 for e in events)


def test_nothing_is_published_while_nobody_watches(here: Wire) -> None:
    task = start(here, "sh { echo out; sleep 0.1 }")
    here.result("task.await", {"task": task})
    channel = task.replace(":", ".") + ".output"
    assert here.result("events.read", {"channel": channel})["events"] == []


# -- bad programs --------------------------------------------------------------------------------


@pytest.fixture
def bad(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "plain").write_text("echo\n")
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    (tmp_path / "data").write_bytes(b"\x00\x01\x02")
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "folder").mkdir()
    yield tmp_path


UNSTARTABLE = [
    ("no-such-program", "not_found", "command not found: no-such-program"),
    ("./missing", "not_found", "os error 2"),
    ("./plain", "custom", "os error 13"),
    ("./folder", "custom", "os error 13"),
    ("./broken", "not_found", "os error 2"),
    ("./data", "custom", "os error 8"),
]


@pytest.mark.parametrize("src, code, words", UNSTARTABLE, ids=[src for src, *_ in UNSTARTABLE])
@pytest.mark.parametrize("position", ["statement", "value"])
def test_programs_that_cannot_start_raise_in_both_positions(
    here: Wire, bad: Path, src: str, code: str, words: str, position: str
) -> None:
    error = here.error("exec", {"src": src, "position": position})
    assert (error["code"], error["data"]["code"]) == (-32002, code)
    assert words in error["message"]
    assert error["data"]["span"] is not None


def test_a_program_killed_by_a_signal_says_so(here: Wire) -> None:
    error = here.error("exec", {"src": "sh { kill -SEGV $$ }; 1"})
    assert error["message"].endswith("died from SIGSEGV")
    assert error["data"]["status"] is None


def test_a_flood_is_bounded_and_the_session_answers_meanwhile(daemon: Daemon) -> None:
    with daemon.wire() as wire, daemon.wire() as other:
        wire.result("session.attach", {"session": "flooded"})
        other.result("session.attach", {"session": "flooded"})
        task = start(wire, "(sh { yes | head -c 200000000 }).stdout.len")
        assert other.result("session.cwd")["display"]
        record = wire.result("task.await", {"task": task})
        assert record["state"] == "completed"
        value = wire.result("value.get", {"ref": record["result_ref"]})["value"]
        assert value == {"$": "int", "v": 200_000_000}
        status = Path(f"/proc/{_row(wire, 'flooded')['pid']}/status").read_text()
        peak_kib = next(
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
        )
        assert peak_kib < 400 * 1024


def test_a_program_that_closes_its_input_is_no_error(here: Wire) -> None:
    unread = "x" * 1_000_000
    assert text(here, f'"{unread}".feed(sh {{ exec 0<&-; echo done }})') == "done"


def test_a_program_in_raw_mode_that_dies_leaves_the_session_fine(here: Wire) -> None:
    opened = here.result("pty.open", {"cmd": "sh", "args": ["-c", "stty raw -echo; kill -9 $$"]})
    read = {"pty_id": opened["pty_id"]}
    assert eventually(lambda: not here.result("pty.read", read)["alive"])
    assert here.result("pty.close", read)["exit"] == {"status": None, "signal": "SIGKILL"}
    assert text(here, "sh { echo fine }") == "fine"


def test_names_and_output_that_are_no_text_survive(here: Wire, tmp_path: Path) -> None:
    here.result("exec", {"src": "sh { printf x > \"$(printf 'b\\377d')\" }; 1"})
    assert (os.fsencode(tmp_path) + b"/b\xffd") in [
        os.fsencode(tmp_path) + b"/" + name for name in os.listdir(os.fsencode(tmp_path))
    ]
    assert text(here, "wc -c b*").startswith("1 ")
    value = here.result("exec", {"src": "sh { printf 'a\\377' }", "position": "value"})["value"]
    assert value["out"]["v"] == "a\ufffd"


# -- adapters and tools in sessions ----------------------------------------------------------------


def test_adapters_are_on_in_sessions(here: Wire) -> None:
    value = here.result("exec", {"src": "df", "position": "value"})["value"]["out"]
    assert value["$"] == "table"


def test_adapters_can_be_switched_off_and_added(tmp_path: Path) -> None:
    with Daemon(config="[adapters]\nenabled = false\n") as own, own.wire() as wire:
        wire.result("session.attach", {"session": "raw"})
        value = wire.result("exec", {"src": "df", "position": "value"})["value"]["out"]
        assert value["$"] == "str"
    (tmp_path / "mine.toml").write_text('[cmd.greet]\nbin = "echo"\ninvoke = ["hello"]\n')
    config = f'[adapters]\ndirs = ["{tmp_path}"]\n'
    with Daemon(config=config) as own, own.wire() as wire:
        wire.result("session.attach", {"session": "own"})
        assert text(wire, "greet you") == "hello you"
    with Daemon(environ={"SHOAL_ADAPTER_PATH": str(tmp_path)}) as own, own.wire() as wire:
        wire.result("session.attach", {"session": "own"})
        assert text(wire, "greet you") == "hello you"
        assert wire.result("exec", {"src": "df", "position": "value"})["value"]["out"]["$"] == "str"


def test_tool_scopes_are_read_and_enforced(here: Wire, tmp_path: Path) -> None:
    assert here.result("session.reef") == {"active_scope": None, "bindings": []}
    (tmp_path / ".reef.toml").write_text('[tools]\ncat = "*"\n')
    assert here.result("session.reef") == {
        "active_scope": f"{tmp_path}/.reef.toml",
        "bindings": [
            {
                "tool": "cat",
                "version": None,
                "provider": None,
                "scope": "reef",
                "constrained": True,
            }
        ],
    }
    assert (
        here.error("exec", {"src": "sh { cat }; ''.feed(cat)"})["data"]["code"] == "reef_unlocked"
    )
    here.result("exec", {"src": "reef lock"})
    here.result("exec", {"src": "''.feed(cat)"})
    binding = here.result("session.reef")["bindings"][0]
    assert (binding["version"], binding["provider"]) == ("unknown", "system")


def test_visited_directories_outlive_the_session(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "a-place-to-find").mkdir()
    for session, src in (
        ("walker", f'cd "{tmp_path}/a-place-to-find"'),
        ("jumper", "j to-find; pwd"),
    ):
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": session})
            result = wire.result("exec", {"src": src})
    assert result["value"]["v"] == f"{tmp_path}/a-place-to-find"
    assert "a-place-to-find" in (daemon.state / "jump.frecency").read_text()
