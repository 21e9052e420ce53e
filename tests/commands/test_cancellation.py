"""Cancelling a running command: who gets which signal, when, and what is left (chapter 40 §11)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.processes import alive, eventually, pids_in, state
from tests.commands.session import Session
from worker.commands.processes import TABLE, Ladder, ProcessTable
from worker.evaluate.cancel import CancelToken
from worker.values.types import Outcome

STEP_S = 0.3


@pytest.fixture
def quick_ladder() -> Iterator[None]:
    """The patient ladder with short steps."""
    before = TABLE.ladder
    TABLE.ladder = Ladder.patient(STEP_S, STEP_S)
    yield
    TABLE.ladder = before


class Started:
    """A command running on a thread of its own, which can be cancelled from the test."""

    def __init__(self, session: Session, *words: str, **options: Any) -> None:
        self.outcome: Outcome | None = None
        self.ended_s = 0.0
        self.session = session

        def work() -> None:
            self.outcome = session.run(*words, **options)
            self.ended_s = time.monotonic()

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def cancel(self) -> tuple[Outcome, float]:
        """Cancel and wait; the outcome and how long it took."""
        started = time.monotonic()
        self.session.cancel.cancel()
        self.thread.join(20)
        assert self.outcome is not None
        return self.outcome, self.ended_s - started


def shell(session: Session, script: str, ready: Path, **options: Any) -> Started:
    """Start a shell script and wait until it has written `ready`."""
    started = Started(session, "sh", "-c", script, **options)
    assert eventually(ready.exists)
    return started


def test_the_default_ladder_is_interrupt_then_terminate_then_kill() -> None:
    assert ProcessTable().ladder.steps == (
        (0.0, signal.SIGINT),
        (3.0, signal.SIGTERM),
        (3.0, signal.SIGKILL),
    )


def test_cancelled_command_dies_of_sigint_at_once(session: Session, tmp_path: Path) -> None:
    running = shell(session, "touch ready; exec sleep 600", tmp_path / "ready")
    outcome, elapsed = running.cancel()
    assert (outcome.status, outcome.signal, outcome.ok) == (None, "SIGINT", False)
    # Seen within 50 ms; the rest is scheduling on a busy machine.
    assert elapsed < 1.0


def test_token_cancelled_before_the_start_ends_it_right_after(session: Session) -> None:
    session.cancel.cancel()
    outcome = session.run("sleep", "600")
    assert outcome.signal == "SIGINT"


def test_handler_that_exits_with_zero_gives_an_ok_outcome(session: Session, tmp_path: Path) -> None:
    running = shell(
        session,
        "trap 'echo bye; exit 0' INT; touch ready; while :; do sleep 0.02; done",
        tmp_path / "ready",
    )
    outcome, _ = running.cancel()
    assert (outcome.status, outcome.ok, outcome.stdout) == (0, True, b"bye\n")


@pytest.mark.usefixtures("quick_ladder")
def test_sigterm_follows_when_sigint_is_ignored(session: Session, tmp_path: Path) -> None:
    running = shell(
        session, "trap '' INT; touch ready; while :; do sleep 0.02; done", tmp_path / "ready"
    )
    outcome, elapsed = running.cancel()
    assert outcome.signal == "SIGTERM"
    assert STEP_S <= elapsed < STEP_S + 2


@pytest.mark.usefixtures("quick_ladder")
def test_sigkill_follows_when_both_are_ignored(session: Session, tmp_path: Path) -> None:
    running = shell(
        session, "trap '' INT TERM; touch ready; while :; do sleep 0.02; done", tmp_path / "ready"
    )
    outcome, elapsed = running.cancel()
    assert outcome.signal == "SIGKILL"
    assert 2 * STEP_S <= elapsed < 2 * STEP_S + 2


def test_signals_reach_the_whole_group(session: Session, tmp_path: Path) -> None:
    # The shell does not pass signals on: its child dies of the one sent to the group.
    script = "trap : INT; sh -c 'echo $$ > pid; exec sleep 600'; exit 4"
    running = Started(session, "sh", "-c", script)
    (pid,) = pids_in(tmp_path / "pid")
    outcome, _ = running.cancel()
    assert outcome.status == 4
    assert eventually(lambda: not alive(pid))


@pytest.mark.usefixtures("quick_ladder")
def test_group_members_that_ignore_sigint_end_by_the_later_steps(
    session: Session, tmp_path: Path
) -> None:
    # A shell starts background commands with SIGINT ignored.
    running = Started(session, "sh", "-c", "sleep 600 & echo $! > pid; wait")
    (pid,) = pids_in(tmp_path / "pid")
    outcome, elapsed = running.cancel()
    assert outcome.signal == "SIGINT"
    # The answer does not wait for what is left behind.
    assert elapsed < STEP_S + 1
    assert eventually(lambda: not alive(pid))


@pytest.mark.usefixtures("quick_ladder")
@pytest.mark.parametrize(
    "launcher", ["setsid sleep 600", "setsid sh -c 'trap \"\" TERM; sleep 600'"]
)
def test_descendants_that_left_the_group_are_ended_too(
    session: Session, tmp_path: Path, launcher: str
) -> None:
    running = Started(session, "sh", "-c", f"{launcher} & echo $! > pid; wait")
    (pid,) = pids_in(tmp_path / "pid")
    assert eventually(lambda: os.getsid(pid) == pid)
    running.cancel()
    assert eventually(lambda: not alive(pid))


def adopting(script: str, folder: Path) -> None:
    """Run Python in a process that adopts orphans, as a session worker does; it must succeed."""
    import subprocess

    prelude = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from tests.commands.processes import alive, eventually, pids_in, state\n"
        "from tests.commands.session import Session\n"
        "from tests.commands.test_cancellation import Started\n"
        "from worker.commands.processes import TABLE, Ladder, kill_descendants\n"
        "TABLE.adopt()\n"
        "TABLE.ladder = Ladder.patient(0.2, 0.2)\n"
        f"folder = Path({str(folder)!r})\n"
        "session = Session(str(folder))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", prelude + script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


DAEMON = "(setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $! > {name})"


def test_daemon_that_forked_twice_ends_with_its_cancelled_command(tmp_path: Path) -> None:
    adopting(
        f"""
running = Started(session, "sh", "-c", {DAEMON.format(name="pid")!r} + "; sleep 600")
(pid,) = pids_in(folder / "pid")
# Its parent is gone: it was adopted.
assert eventually(lambda: Path(f"/proc/{{pid}}/stat").read_text().split()[3] == str(os.getpid()))
running.cancel()
assert eventually(lambda: not alive(pid))
""",
        tmp_path,
    )


def test_daemon_of_another_command_survives_a_cancellation(tmp_path: Path) -> None:
    adopting(
        f"""
session.run("sh", "-c", {DAEMON.format(name="other")!r})
(other,) = pids_in(folder / "other")
running = Started(session, "sh", "-c", "touch ready; sleep 600")
assert eventually((folder / "ready").exists)
running.cancel()
assert alive(other)
kill_descendants()
assert eventually(lambda: not alive(other))
""",
        tmp_path,
    )


def test_adopted_processes_are_reaped_when_they_end(tmp_path: Path) -> None:
    adopting(
        """
session.run("sh", "-c", "(sh -c 'while [ ! -e go ]; do sleep 0.01; done' & echo $! > pid)")
(pid,) = pids_in(folder / "pid")
assert alive(pid)
(folder / "go").touch()
assert eventually(lambda: state(pid) == "")
""",
        tmp_path,
    )


def test_reaping_adopted_processes_never_takes_the_status_of_a_command(tmp_path: Path) -> None:
    adopting(
        """
import threading
statuses = []
def work(code):
    for _ in range(15):
        outcome = session.run("sh", "-c", f"(sleep 0 &) ; (true &) ; exit {code}")
        statuses.append((code, outcome.status))
threads = [threading.Thread(target=work, args=(code,)) for code in (3, 4, 5, 6)]
for thread in threads: thread.start()
while any(thread.is_alive() for thread in threads):
    TABLE.reap_adopted()
    time.sleep(0.001)
assert len(statuses) == 60
assert all(code == status for code, status in statuses), statuses
""",
        tmp_path,
    )


def test_killing_everything_ends_groups_daemons_and_their_children(tmp_path: Path) -> None:
    adopting(
        """
daemon = "sleep 600 & echo $! > child; wait"
session.run("sh", "-c", f"(setsid sh -c '{daemon}' >/dev/null 2>&1 & echo $! > daemon)")
session.run("sh", "-c", "sleep 600 & echo $! > group")
found = [pids_in(folder / name)[0] for name in ("child", "daemon", "group")]
kill_descendants()
assert eventually(lambda: not any(map(alive, found)))
""",
        tmp_path,
    )


def suspend(session: Session, pids: list[int]) -> None:
    """Stop a running command; asked again, since it may run before its thread has noted it."""

    def stopped() -> bool:
        session.groups.signal(signal.SIGTSTP)
        return all(state(pid) == "T" for pid in pids)

    assert eventually(stopped)


def test_suspended_command_is_continued_by_its_cancellation(
    session: Session, tmp_path: Path
) -> None:
    running = shell(session, "echo $$ > pid; touch ready; exec sleep 600", tmp_path / "ready")
    (pid,) = pids_in(tmp_path / "pid")
    suspend(session, [pid])
    outcome, elapsed = running.cancel()
    assert outcome.signal == "SIGINT"
    assert elapsed < 1.0


def test_suspending_and_resuming_go_to_the_whole_group(session: Session, tmp_path: Path) -> None:
    running = Started(session, "sh", "-c", "sleep 600 & echo $! > pid; echo $$ >> pid; wait")
    found = pids_in(tmp_path / "pid", 2)
    suspend(session, found)
    session.groups.signal(signal.SIGCONT)
    assert eventually(lambda: all(state(pid) == "S" for pid in found))
    running.cancel()
    session.run("kill", "-9", str(found[0]), accepted=frozenset((0, 1)))


def test_a_drain_shortens_a_ladder_that_has_begun(session: Session, tmp_path: Path) -> None:
    before = TABLE.ladder
    running = shell(
        session, "trap '' INT TERM; touch ready; while :; do sleep 0.02; done", tmp_path / "ready"
    )
    try:
        session.cancel.cancel()
        TABLE.shorten(0.2)
        running.thread.join(20)
    finally:
        TABLE.ladder = before
    assert running.outcome is not None
    assert running.outcome.signal == "SIGKILL"
    assert running.outcome.dur_ns < 2_500_000_000


def test_cancelling_one_token_leaves_other_commands_alone(tmp_path: Path) -> None:
    first, second = Session(str(tmp_path)), Session(str(tmp_path))
    one = shell(first, "touch one; sleep 600", tmp_path / "one")
    two = shell(second, "touch two; while [ ! -e go ]; do sleep 0.01; done", tmp_path / "two")
    one.cancel()
    (tmp_path / "go").touch()
    two.thread.join(20)
    assert two.outcome is not None
    assert two.outcome.ok


def test_a_token_below_a_cancelled_one_cancels_too(session: Session, tmp_path: Path) -> None:
    parent = session.cancel
    session.cancel = CancelToken(parent)
    running = shell(session, "touch ready; sleep 600", tmp_path / "ready")
    parent.cancel()
    running.thread.join(20)
    assert running.outcome is not None
    assert running.outcome.signal == "SIGINT"


def test_abandoned_child_is_killed_and_reaped(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from worker.commands import capture

    def broken(_collector: Any, _chunk: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(capture.Collector, "add", broken)
    with pytest.raises(KeyboardInterrupt):
        session.shell("echo $$ > pid; echo out; sleep 600")
    (pid,) = pids_in(tmp_path / "pid")
    assert state(pid) == ""
    assert TABLE.running() == []


def test_end_without_pidfd_is_seen_through_a_pipe(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    assert session.shell("exec >&- 2>&-; sleep 0.1; exit 5").status == 5
