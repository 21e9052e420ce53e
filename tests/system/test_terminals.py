"""Terminals over the kernel endpoint, with real programs on them (chapter 40 §14)."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.daemon import Daemon, Wire, alive, wait_gone

WITHIN_S = 40.0


class Terminal:
    """One open terminal, as a client sees it."""

    def __init__(self, wire: Wire, *words: str, **options: Any) -> None:
        self.wire = wire
        self.opened = wire.result("pty.open", {"cmd": words[0], "args": list(words[1:]), **options})
        self.id = {"pty_id": self.opened["pty_id"]}

    def read(self) -> Any:
        return self.wire.result("pty.read", self.id)

    def send(self, *items: Any) -> int:
        return int(self.wire.result("pty.send", {**self.id, "input": list(items)})["sent"])

    def shows(self, text: str) -> bool:
        """Whether the text stands on the screen, now or soon."""
        return self.until(lambda view: any(text in row for row in view["screen"]))

    def until(self, condition: Any) -> bool:
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            if condition(self.read()):
                return True
            time.sleep(0.02)
        return False

    def ended(self) -> bool:
        return self.until(lambda view: not view["alive"])


@pytest.fixture
def terminals(attached: Wire) -> Iterator[Any]:
    """Opens terminals in the test's session; they are closed afterwards."""

    def opened(*words: str, **options: Any) -> Terminal:
        return Terminal(attached, *words, **options)

    yield opened
    for row in attached.result("pty.list")["ptys"]:
        attached.result("pty.close", {"pty_id": row["pty_id"]})


def key(name: str) -> dict[str, str]:
    return {"key": name}


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


# -- methods -------------------------------------------------------------------------------------


def test_open_answers_with_what_took_effect(terminals: Any) -> None:
    opened = terminals("sleep", "600", cols=0, rows=65535).opened
    assert set(opened) == {"pty_id", "pid", "cols", "rows", "cmd"}
    assert (opened["cols"], opened["rows"], opened["cmd"]) == (1, 1000, "sleep 600")
    defaults = terminals("sleep", "600", cols=None, rows=None).opened
    assert (defaults["cols"], defaults["rows"]) == (80, 24)


@pytest.mark.parametrize(
    ("asked", "got"), [((0, 65535), (1, 1000)), ((1000, 1), (1000, 1)), ((1001, 0), (1000, 1))]
)
def test_resize_clamps_each_axis_and_reports_the_size_in_force(
    terminals: Any, asked: tuple[int, int], got: tuple[int, int]
) -> None:
    terminal = terminals("sleep", "600")
    size = {"cols": asked[0], "rows": asked[1]}
    answer = terminal.wire.result("pty.resize", {**terminal.id, **size})
    assert answer == {**terminal.id, "cols": got[0], "rows": got[1]}
    screen = terminal.wire.result("pty.read", terminal.id)
    assert (screen["cols"], screen["rows"]) == got
    over = {"cols": 65536, "rows": 1}
    assert terminal.wire.error("pty.resize", {**terminal.id, **over})["code"] == -32602


def test_numbers_count_up_for_the_whole_daemon_and_failures_take_none() -> None:
    with Daemon() as own, own.wire() as one, own.wire() as two:
        one.result("session.attach", {"session": "one"})
        two.result("session.attach", {"session": "two"})
        assert one.result("pty.open", {"cmd": "sleep", "args": ["600"]})["pty_id"] == "pty:1"
        assert two.error("pty.open", {"cmd": "no-such-program"})["code"] == -32023
        assert two.result("pty.open", {"cmd": "sleep", "args": ["600"]})["pty_id"] == "pty:2"
        one.result("pty.close", {"pty_id": "pty:1"})
        assert one.result("pty.open", {"cmd": "sleep", "args": ["600"]})["pty_id"] == "pty:3"
        # Another session's terminal is unknown.
        for method in ("pty.read", "pty.close"):
            assert one.error(method, {"pty_id": "pty:2"})["code"] == -32022
        assert [row["pty_id"] for row in two.result("pty.list")["ptys"]] == ["pty:2"]


BAD_PARAMS = [
    ("pty.open", {}),
    ("pty.open", {"cmd": 5}),
    ("pty.open", {"cmd": ""}),
    ("pty.open", {"cmd": "sh", "cols": -1}),
    ("pty.open", {"cmd": "sh", "rows": 65536}),
    ("pty.open", {"cmd": "sh", "rows": 1.5}),
    ("pty.open", {"cmd": "sh", "args": ["a", 1]}),
    ("pty.open", {"cmd": "sh", "env": {"A": 1}}),
    ("pty.send", {"pty_id": "pty:999"}),
    ("pty.send", {"input": "x"}),
    ("pty.resize", {"pty_id": "pty:999", "cols": 10}),
    ("pty.resize", {"pty_id": "pty:999", "cols": 10, "rows": None}),
    ("pty.read", {}),
]


@pytest.mark.parametrize("method, params", BAD_PARAMS)
def test_params_are_checked_before_the_reference(
    attached: Wire, method: str, params: dict[str, Any]
) -> None:
    error = attached.error(method, params)
    assert (error["code"], error["data"]["kind"]) == (-32602, "invalid_params")


def test_the_reference_is_checked_before_the_content_of_input(attached: Wire) -> None:
    error = attached.error("pty.send", {"pty_id": "pty:999", "input": {"key": "NoKey"}})
    assert error == {
        "code": -32022,
        "message": "unknown or closed pty_id",
        "data": {"kind": "unknown_pty"},
    }
    for ref in ("pty:0", "pty:01", "pty:x", "task:1", "", "pty:" + "9" * 30):
        assert attached.error("pty.read", {"pty_id": ref})["code"] == -32022


@pytest.mark.parametrize(
    "item, message",
    [
        ({"key": "NoKey"}, 'unknown key name "NoKey" in pty.send input'),
        ({"bytes": "?"}, "pty.send bytes is not valid base64: "),
        ({}, "pty.send input object must have one of `key`, `text`, or `bytes`"),
        (None, "pty.send input must be a string, object, or array; got null"),
        (["typed", 5], "pty.send input must be a string, object, or array; got 5"),
    ],
)
def test_bad_input_is_refused_whole(
    terminals: Any, attached: Wire, item: Any, message: str
) -> None:
    terminal = terminals("cat")
    error = attached.error("pty.send", {**terminal.id, "input": item})
    assert error["code"] == -32602
    assert error["message"].startswith(message)
    assert terminal.send("after") == 5
    assert terminal.shows("after")
    assert "typed" not in "".join(terminal.read()["screen"])


def test_programs_that_cannot_start_answer_with_the_command(attached: Wire) -> None:
    error = attached.error("pty.open", {"cmd": "/no/such/file", "args": ["x"]})
    assert (error["code"], error["data"]) == (
        -32023,
        {"kind": "pty_spawn_failed", "cmd": "/no/such/file"},
    )
    assert attached.result("pty.list") == {"ptys": []}


def test_environment_and_directory_are_the_sessions(terminals: Any, attached: Wire) -> None:
    attached.result("exec", {"src": 'env.FROM_SESSION = "kept"; cd /usr'})
    terminal = terminals(
        "sh", "-c", 'echo "$FROM_SESSION $GIVEN $PWD"; sleep 600', env={"GIVEN": "given"}
    )
    assert terminal.shows("kept given /usr")


def test_more_terminals_than_the_quota_are_refused() -> None:
    with Daemon(config="[quotas]\nptys_per_session = 2\n") as own, own.wire() as wire:
        wire.result("session.attach", {"session": "few"})
        for _ in range(2):
            wire.result("pty.open", {"cmd": "sh", "args": ["-c", "exit"]})
        error = wire.error("pty.open", {"cmd": "sh"})
        assert (error["code"], error["data"]["kind"]) == (-32603, "quota")
        assert (error["data"]["quota"], error["data"]["limit"], error["data"]["used"]) == (
            "quotas.ptys_per_session",
            2,
            2,
        )
        wire.result("pty.close", {"pty_id": "pty:1"})
        wire.result("pty.open", {"cmd": "sh"})


def test_a_terminal_that_ended_stays_until_closed(terminals: Any, attached: Wire) -> None:
    terminal = terminals("sh", "-c", "echo last words; exit 7")
    assert terminal.ended()
    view = terminal.read()
    assert (view["screen"][0], view["exit"]) == ("last words", {"status": 7, "signal": None})
    [row] = attached.result("pty.list")["ptys"]
    assert row["alive"] is False
    error = attached.error("pty.send", {**terminal.id, "input": "x"})
    assert (error["code"], error["data"]["kind"]) == (-32603, "pty_io")
    assert error["message"].startswith("pty write failed: ")
    closed = attached.result("pty.close", terminal.id)
    assert closed == {**terminal.id, "closed": True, "exit": {"status": 7, "signal": None}}
    assert attached.error("pty.close", terminal.id)["code"] == -32022


def test_terminals_end_with_session_and_worker(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "ending"})
        pids = [wire.result("pty.open", {"cmd": "sleep", "args": ["600"]})["pid"] for _ in "ab"]
        rows = wire.result("session.list")["sessions"]
        assert next(row for row in rows if row["session"] == "ending")["ptys"] == 2
        closed = wire.result("session.close", {"force": True})
        assert closed["ptys_closed"] == 2
    assert wait_gone(pids) == []
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "dying"})
        opened = wire.result("pty.open", {"cmd": "sleep", "args": ["600"]})
        rows = wire.result("session.list")["sessions"]
        worker = next(row for row in rows if row["session"] == "dying")["pid"]
        os.kill(worker, signal.SIGKILL)
        assert wait_gone([opened["pid"]]) == []
        deadline = time.monotonic() + 5
        # A call that was on its way when the worker ended says that; the next ones know better.
        while (
            wire.request("pty.read", {"pty_id": opened["pty_id"]}).get("error", {}).get("code")
            != -32022
        ):
            assert time.monotonic() < deadline
        assert wire.result("pty.list") == {"ptys": []}


def test_a_leaving_client_closes_nothing(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "left"})
        opened = wire.result("pty.open", {"cmd": "cat"})
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "left"})
        assert alive(opened["pid"])
        assert wire.result("pty.read", {"pty_id": opened["pty_id"]})["alive"]
        wire.result("pty.close", {"pty_id": opened["pty_id"]})


def test_changes_are_published_and_the_end_is_the_last(terminals: Any, attached: Wire) -> None:
    terminal = terminals("sh", "-c", "echo one; read x; echo two; read x")
    channel = terminal.id["pty_id"].replace(":", ".")
    assert terminal.shows("one")
    terminal.send(key("Enter"))
    assert terminal.shows("two")
    terminal.send(key("Enter"))
    assert terminal.ended()

    def payloads() -> list[Any]:
        events = attached.result("events.read", {"channel": channel})["events"]
        return [
            (e["payload"]["v"]["changed"]["v"], e["payload"]["v"]["alive"]["v"]) for e in events
        ]

    deadline = time.monotonic() + WITHIN_S
    while payloads()[-1:] != [(True, False)]:
        assert time.monotonic() < deadline
    assert set(payloads()[:-1]) == {(True, True)}


def test_a_busy_terminal_is_published_at_most_thirty_times_a_second(
    terminals: Any, attached: Wire
) -> None:
    terminal = terminals("sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done")
    assert terminal.ended()
    channel = terminal.id["pty_id"].replace(":", ".")
    stamps = [e["ts"] for e in attached.result("events.read", {"channel": channel})["events"]]
    assert stamps
    assert all(sum(s <= t < s + 10**9 for t in stamps) <= 31 for s in stamps)


def test_a_flood_on_a_terminal_does_not_stall_its_session(terminals: Any, attached: Wire) -> None:
    terminal = terminals("sh", "-c", "yes 'some longer text that scrolls' | head -c 20000000; echo")
    slowest = 0.0
    while terminal.read()["alive"]:
        before = time.monotonic()
        assert attached.result("exec", {"src": "6 * 7"})["render"] == "42"
        slowest = max(slowest, time.monotonic() - before)
    assert slowest < 2.0
    assert all("some longer text"[:5] in row or len(row) < 33 for row in terminal.read()["screen"])


# -- real programs -------------------------------------------------------------------------------


@needs("vim")
def test_vim_edits_a_file(terminals: Any, attached: Wire, tmp_path: Any) -> None:
    target = tmp_path / "poem.txt"
    terminal = terminals("vim", "-u", "NONE", "-i", "NONE", "-n", str(target))
    assert terminal.shows("~")
    terminal.send("i", "first line", key("Enter"), "wide 日本", key("Escape"))
    assert terminal.shows("wide 日本")
    terminal.send("gg", "0", "x", ":wq", key("Enter"))
    assert terminal.ended()
    assert target.read_text() == "irst line\nwide 日本\n"
    assert terminal.read()["exit"] == {"status": 0, "signal": None}


@needs("nano")
def test_nano_edits_a_file(terminals: Any, tmp_path: Any) -> None:
    target = tmp_path / "note.txt"
    target.write_text("old line\n")
    terminal = terminals("nano", "--ignorercfiles", str(target), env={"TERM": "xterm-256color"})
    assert terminal.shows("old line")
    terminal.send("new line", key("Enter"))
    assert terminal.shows("new line")
    terminal.send(key("End"), " 日本", key("Ctrl-o"))
    assert terminal.shows("File Name to Write")
    terminal.send(key("Enter"))
    assert terminal.shows("Wrote 2 lines")
    terminal.send(key("Ctrl-x"))
    assert terminal.ended()
    assert target.read_text() == "new line\nold line 日本\n"
    assert terminal.read()["exit"] == {"status": 0, "signal": None}


@needs("less")
def test_less_pages_and_gives_the_screen_back(terminals: Any, tmp_path: Any) -> None:
    book = tmp_path / "book.txt"
    book.write_text("".join(f"line {n}\n" for n in range(1, 201)))
    script = f"echo before; less {book}; echo after; read x"
    terminal = terminals("sh", "-c", script, rows=10, env={"LESS": ""})
    assert terminal.shows("line 9")
    terminal.send(key("Space"))
    assert terminal.shows("line 18")
    terminal.send("/line 150", key("Enter"))
    assert terminal.shows("line 150")
    terminal.send("q")
    assert terminal.shows("after")
    screen = terminal.read()["screen"]
    assert screen[0] == "before"
    assert not any("line 150" in row for row in screen)


@needs("top")
def test_top_draws_and_quits(terminals: Any) -> None:
    terminal = terminals("top", "-d", "0.5", cols=100, rows=20)
    assert terminal.shows("PID")
    terminal.send("q")
    assert terminal.ended()


def test_python_answers_and_is_interrupted(terminals: Any) -> None:
    terminal = terminals(sys.executable, "-q", "-i", env={"PYTHON_BASIC_REPL": "1"})
    assert terminal.shows(">>>")
    terminal.send("6 * 7", key("Enter"))
    assert terminal.shows("42")
    terminal.send("while True: pass", key("Enter"), key("Enter"))
    terminal.send(key("Ctrl-C"))
    assert terminal.shows("KeyboardInterrupt")
    terminal.send(key("Ctrl-D"))
    assert terminal.ended()


@needs("tmux")
def test_tmux_shows_its_panes_and_follows_a_resize(terminals: Any, tmp_path: Any) -> None:
    socket = str(tmp_path / "tmux")
    terminal = terminals(
        "tmux", "-f", "/dev/null", "-S", socket, "new-session", "sh", cols=60, rows=12
    )
    assert terminal.shows("[0]")
    terminal.send("echo in''side", key("Enter"))
    assert terminal.shows("inside")
    terminal.send(key("Ctrl-B"), "%")
    assert terminal.shows("│")
    terminal.wire.result("pty.resize", {**terminal.id, "cols": 90, "rows": 20})
    assert terminal.until(lambda view: "[0]" in view["screen"][19])
    terminal.send(key("Ctrl-B"), ":")
    assert terminal.until(lambda view: view["screen"][19].startswith(":"))
    terminal.send("kill-server", key("Enter"))
    assert terminal.ended()
