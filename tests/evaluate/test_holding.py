"""Holding evaluation at its next cancellation point (chapter 60 §5.12)."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from worker.errors import Cancelled
from worker.evaluate.cancel import CancelToken
from worker.evaluate.tasks import ProcessGroups

WAIT_S = 10.0


class Reader:
    """A thread that reads `cancelled` once."""

    def __init__(self, token: CancelToken) -> None:
        self.seen: list[bool] = []
        self.thread = threading.Thread(target=lambda: self.seen.append(token.cancelled))
        self.thread.start()

    def result(self) -> bool:
        self.thread.join(WAIT_S)
        assert self.seen, "still waiting"
        return self.seen[0]


def held(token: CancelToken) -> threading.Event:
    """Hold the token; the event is set once somebody waits at it."""
    standing = threading.Event()
    token.hold(standing.set)
    return standing


def test_reading_a_held_token_waits_until_it_is_released() -> None:
    token = CancelToken()
    standing = held(token)
    reader = Reader(token)
    assert standing.wait(WAIT_S)
    assert reader.seen == []
    token.release()
    assert reader.result() is False
    assert type(token) is CancelToken


def test_cancelling_releases_first_and_does_not_wait() -> None:
    token = CancelToken()
    standing = held(token)
    reader = Reader(token)
    assert standing.wait(WAIT_S)
    token.cancel()
    assert reader.result() is True
    with pytest.raises(Cancelled):
        token.check()


def test_tokens_below_are_held_too_also_those_made_later() -> None:
    token = CancelToken()
    before = token.child()
    standing = held(token)
    after = before.child()
    readers = [Reader(one) for one in (before, after)]
    assert standing.wait(WAIT_S)
    assert [reader.seen for reader in readers] == [[], []]
    token.release()
    assert [reader.result() for reader in readers] == [False, False]


def test_cancelling_one_token_below_leaves_the_others_held() -> None:
    token = CancelToken()
    one, other = token.child(), token.child()
    standing = held(token)
    readers = Reader(one), Reader(other)
    assert standing.wait(WAIT_S)
    one.cancel()
    assert readers[0].result() is True
    assert readers[1].seen == []
    token.release()
    assert readers[1].result() is False


def test_a_cancelled_token_cannot_be_held() -> None:
    token = CancelToken()
    token.cancel()
    token.hold(lambda: None)
    assert Reader(token).result() is True


def test_waits_and_registrations_say_that_evaluation_waits() -> None:
    token = CancelToken()
    seen = [token.waiting]
    with token.on_cancel(lambda: None):
        seen.append(token.waiting)
    seen.append(token.waiting)
    assert seen == [False, True, False]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stopped(pid: int) -> bool:
    deadline = threading.Event()
    for _ in range(1000):
        if state(pid) == "T":
            return True
        deadline.wait(0.005)
    return False


def test_groups_of_nested_tasks_stop_and_later_programs_stop_at_once() -> None:
    groups = ProcessGroups()
    nested = ProcessGroups(groups)
    with (
        subprocess.Popen(["sleep", "600"], start_new_session=True) as early,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as late,
    ):
        try:
            nested.add(early.pid)
            told = threading.Event()
            assert groups.stop(told.set) == [early.pid]
            assert stopped(early.pid)
            ProcessGroups(nested).add(late.pid)
            assert told.is_set()
            assert stopped(late.pid)
            groups.go_on()
            assert state(early.pid) != "T"
        finally:
            early.kill()
            late.kill()
