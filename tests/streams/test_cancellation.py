"""A cancelled token ends every wait at once (chapter 30 §13)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.methods.support import evaluator
from worker.errors import Cancelled
from worker.evaluate.host import Host

# Chapter 30 asks for 50 ms; the rest is for a machine that is busy with other tests.
SOON_S = 2.0


WAITS = [
    "every(1h).take(1).collect()",
    "every(1h).each(t => t)",
    'channel("c").take()',
    'channel("c").take(timeout: 1h)',
    'channel("c").events().take(1).len()',
    'watch(".").take(1).len()',
    'tail("log").take(1).len()',
    "every(1h).debounce(1h).take(1).len()",
    "every(1h).throttle(1s).take(1).len()",
    "every(1h).merge(every(1h)).take(1).len()",
    "every(1h).zip(every(1h)).take(1).len()",
    "every(1h).take_until(every(1h)).take(1).len()",
    "every(1h).tee()[0].take(1).len()",
    'every(1h).into(channel("c"))',
    'every(1h).save("out")',
    "(0..9000000000000000000).stream().where(n => false).len()",
    "(0..9000000000000000000).stream().each(n => n)",
    "(0..9000000000000000000).stream().debounce(1h).len()",
    "(0..9000000000000000000).stream().throttle(1h).len()",
    "(0..9000000000000000000).each(n => n)",
    "(0..9000000000000000000).any(n => false)",
    "(0..9000000000000000000).reduce(0, (a, n) => a)",
]


@pytest.mark.parametrize("source", WAITS)
def test_cancelled_while_waiting(source: str, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    started = threading.Event()
    ev = evaluator(str(tmp_path), Host(sink=lambda value: started.set()))
    ended: list[float] = []
    outcome: list[BaseException] = []

    def work() -> None:
        try:
            # The first statement is shown once the program runs.
            ev.evaluate_source(f'"running"\n{source}')
        except Cancelled as error:
            outcome.append(error)
        ended.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(20)
    asked = time.monotonic()
    ev.cancel.cancel()
    thread.join(20)
    assert not thread.is_alive()
    assert len(outcome) == 1
    assert ended[0] - asked < SOON_S


def test_a_cancellation_is_no_error_a_program_can_catch(tmp_path: Path) -> None:
    ev = evaluator(str(tmp_path))
    ev.cancel.cancel()
    with pytest.raises(Cancelled):
        ev.evaluate_source("every(1h).take(1).len() catch e { 1 }")
