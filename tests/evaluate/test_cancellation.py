"""Cancellation tokens, and what a cancelled evaluation does (chapter 30 §13)."""

from __future__ import annotations

import os
import select
import threading
import time

import pytest

from tests.evaluate.session import Session
from worker.errors import Cancelled
from worker.evaluate.cancel import CancelToken
from worker.evaluate.threads import evaluator_thread

SEEN_WITHIN_S = 0.05
# What a loaded machine may add to that.
SLACK_S = 1.0

WAITS = {
    "an endless loop": "while true { 1 }",
    "an endless for": "for i in 0..9000000000000000000 { i }",
    "recursion without end": "fn f(n) { f(n) catch f(n) }\nwhile true { f(1) }",
    "a map over much": "(0..1000000000).map(x => x + 1)",
    "a channel take": 'channel("a").take()',
    "an await": 'let t = spawn { channel("a").take() }\nt.await()',
    "a parallel": 'parallel(() => channel("a").take())',
    "a stream pull": "every(1h).each(x => x)",
    "a retry delay": "retry(2, delay: 1h) { 1 / 0 }",
    "a try that catches everything": 'try { channel("a").take() } catch { 1 }',
    "a postfix catch": 'channel("a").take() catch 1',
    "a sleep before another statement": "sleep 1h\n1",
    "a sleep in a block": "{ sleep 1h; 1 }",
}


def cancel_while_running(
    session: Session, src: str, ready: threading.Event
) -> tuple[object, float]:
    """What the program ended with, and how long after the cancellation."""
    token = session.fresh_token()
    ended: list[object] = []

    def run() -> None:
        ready.set()
        try:
            ended.append(session.evaluator.evaluate_source(src))
        except Cancelled:
            ended.append(Cancelled)

    thread = evaluator_thread(run, "evaluator")
    ready.wait()
    token.wait(0.1)
    at = time.monotonic()
    token.cancel()
    thread.join(30)
    return ended[0], time.monotonic() - at


@pytest.mark.parametrize("src", WAITS.values(), ids=WAITS)
def test_cancelled_evaluation_ends_at_once_and_cannot_be_caught(session: Session, src: str) -> None:
    ended, elapsed = cancel_while_running(session, src, threading.Event())
    assert ended is Cancelled
    assert elapsed < SEEN_WITHIN_S + SLACK_S


def test_cancelled_sleep_returns_null_early(session: Session) -> None:
    ended, elapsed = cancel_while_running(session, "sleep 1h", threading.Event())
    assert getattr(ended, "structured", 0) is None
    assert elapsed < SEEN_WITHIN_S + SLACK_S


def test_cancelled_token_stops_before_the_first_statement(session: Session) -> None:
    session.fresh_token().cancel()
    with pytest.raises(Cancelled):
        session.run("let never = 1")
    session.fresh_token()
    assert session.error("never.x").code == "undefined_var"


def test_next_program_is_not_affected(session: Session) -> None:
    session.fresh_token().cancel()
    session.fresh_token()
    assert session.text("1 + 1") == "2"


def test_cancelling_a_task_leaves_its_parent_running(session: Session) -> None:
    src = 'let t = spawn { channel("a").take() }\nt.cancel()\nlet u = spawn { 4 }\nu.await()'
    assert session.text(src) == "4"


def test_side_effects_before_the_cancellation_stay(session: Session) -> None:
    ended, _ = cancel_while_running(session, "var n = 0\nwhile true { n += 1 }", threading.Event())
    assert ended is Cancelled
    session.fresh_token()
    assert session.run("n") > 0


# -- tokens ----------------------------------------------------------------------------------------


def test_cancelling_reaches_every_token_below() -> None:
    root = CancelToken()
    child = root.child()
    grandchild = child.child()
    other = root.child()
    child.cancel()
    assert grandchild.cancelled and child.cancelled
    assert not root.cancelled and not other.cancelled
    assert child.child().cancelled


def test_check_raises_only_when_cancelled() -> None:
    token = CancelToken()
    token.check()
    token.cancel()
    with pytest.raises(Cancelled):
        token.check()


def test_wait_ends_with_the_time_or_with_the_token() -> None:
    token = CancelToken()
    assert token.wait(0) is False
    assert token.wait(0.001) is False
    threading.Thread(target=token.cancel).start()
    assert token.wait(30) is True
    assert token.wait(None) is True
    # Longer than any lock can wait.
    assert token.wait(1e12) is True


def test_callbacks_run_once_and_can_be_taken_back() -> None:
    token = CancelToken()
    ran: list[str] = []
    token.on_cancel(lambda: ran.append("kept"))
    with token.on_cancel(lambda: ran.append("taken back")):
        pass
    token.cancel()
    token.cancel()
    assert ran == ["kept"]
    token.on_cancel(lambda: ran.append("late"))
    assert ran == ["kept", "late"]


def test_a_failing_callback_does_not_keep_others_from_running() -> None:
    token = CancelToken()
    child = token.child()

    def fail() -> None:
        raise ValueError("broken")

    token.on_cancel(fail)
    ran: list[int] = []
    token.on_cancel(lambda: ran.append(1))
    with pytest.raises(ValueError, match="broken"):
        token.cancel()
    assert ran == [1] and child.cancelled


def test_wait_descriptor_becomes_readable() -> None:
    token = CancelToken()
    fd = token.wait_fd
    assert select.select([fd], [], [], 0)[0] == []
    token.cancel()
    assert select.select([fd], [], [], 5)[0] == [fd]
    assert select.select([token.wait_fd], [], [], 0)[0] == [fd]
    late = CancelToken()
    late.cancel()
    assert select.select([late.wait_fd], [], [], 0)[0]


def test_wait_descriptor_is_closed_with_its_token() -> None:
    token = CancelToken()
    fd = token.wait_fd
    del token
    with pytest.raises(OSError):
        os.fstat(fd)


def is_cancelled(token: CancelToken) -> bool:
    return token.cancelled


def test_tokens_that_were_handed_over_hang_on_the_other_one() -> None:
    submission, session = CancelToken(), CancelToken()
    task = submission.child()
    submission.hand_over(session)
    submission.cancel()
    assert not is_cancelled(task)
    session.cancel()
    assert is_cancelled(task)
    late = CancelToken()
    orphan = late.child()
    late.hand_over(session)
    assert is_cancelled(orphan)
