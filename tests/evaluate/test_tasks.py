# ruff: noqa: E501 - a program of one row stays on one line
"""Tasks, `parallel`, `retry`, `on`, and what nested evaluation shares (chapter 30 §12)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.evaluate.session import Session
from worker.errors import Cancelled
from worker.evaluate.tasks import Task

VALUES = {
    "await gives the block's value": ("(spawn { 4 }).await()", "4"),
    "await may be repeated": ("let t = spawn { 4 }\n[t.await(), t.wait()]", "[4, 4]"),
    "& is the same with a command": ("(echo hi &).await().out", '"hi"'),
    "tasks render with their id": ("[spawn { 1 }, spawn { 2 }]", "[task(1), task(2)]"),
    "tasks compare by identity": (
        "let t = spawn { 1 }\n[t == t, t == spawn { 1 }]",
        "[true, false]",
    ),
    "a finished task is done": ("let t = spawn { 1 }\nt.await()\nt.is_done()", "true"),
    "cancel yields null": ("let t = spawn { 1 }\nt.await()\nt.cancel()", "null"),
    "suspend and resume set the flag": (
        "let t = spawn { 1 }\nlet a = t.suspend().is_suspended()\nlet b = t.resume().is_suspended()\n[a, b]",
        "[true, false]",
    ),
    "the table shows every task": (
        "let t = spawn { 1 }\nt.await()\njobs.map(j => [j.id, j.desc, j.state, j.done, j.suspended])",
        '[[1, "spawn block", "done", true, false]]',
    ),
    "a task shares the scope": ("var n = 1\n(spawn { n += 4 }).await()\nn", "5"),
    "a task declares in its own scope": (
        "let t = spawn { let inner = 1 }\nt.await()\nlet x = inner catch 7\nx",
        "7",
    ),
    "a task sees captured variables": ("fn f(x) { (spawn { x + 1 }).await() }\nf(4)", "5"),
    "a task's directory and environment are its own": (
        'let t = spawn { cd /; env.SHOAL_T = "x"; pwd }\nlet there = t.await()\n'
        "[there, pwd == there, (env SHOAL_T).out]",
        "[/, false, null]",
    ),
    "a task starts with the caller's environment": (
        'env.SHOAL_T = "y"\n(spawn { env.SHOAL_T }).await()',
        '"y"',
    ),
    "a task of a task is in the same table": (
        "(spawn { spawn { 1 } }).await().await()\njobs.len()",
        "2",
    ),
    "an exit in a task stays there": ("(spawn { exit 4 }).await()\n5", "5"),
    "cd works in a spawn body inside a function": (
        "fn f() { (spawn { cd /; pwd }).await() }\nf()",
        "/",
    ),
    "parallel keeps the order": (
        "parallel(() => 1, () => { sleep 10ms; 2 }, () => 3)",
        "[1, 2, 3]",
    ),
    "parallel of nothing": ("parallel()", "[]"),
    "parallel settles": (
        "parallel(() => 1, () => 1 / 0, settle: true).map(r => match r { error e => e.code; _ => r })",
        '[1, "div_zero"]',
    ),
    "parallel runs at the same time": (
        'parallel(() => channel("a").take(timeout: 5s), () => { sleep 50ms; channel("a").emit(4) })[0]',
        "4",
    ),
    "retry gives the first success": (
        "var n = 0\nretry(5) { n += 1; if n < 3 { 1 / 0 } else { n } }",
        "3",
    ),
    "retry waits between attempts": (
        "var n = 0\nretry(2, delay: 1ms) { n += 1; if n < 2 { 1 / 0 } else { n } }",
        "2",
    ),
    "a task's error is caught where it is awaited": (
        "let e = (spawn { 1 / 0 }).await() catch e { e.code }\ne",
        '"div_zero"',
    ),
}

ERRORS = {
    "await raises the task's error": ("let t = spawn { 1 / 0 }\nt.await()", "div_zero", ""),
    "await takes nothing": ("(spawn { 1 }).await(1)", "arg_error", "method takes no arguments"),
    "await of another type": ("5.await()", "type_error", ".await expects a task, found int"),
    "parallel raises the first error in argument order": (
        'parallel(() => { sleep 20ms; 1 / 0 }, () => "x" + 1)',
        "div_zero",
        "",
    ),
    "parallel of something else": ("parallel(4)", "type_error", "int is not callable"),
    "parallel bodies count as closure bodies": ("parallel(() => { cd / })", "custom", "top level"),
    "retry raises the last error": (
        'var n = 0\nretry(2) { n += 1; assert(false, "{n}") }',
        "assert_failed",
        "2",
    ),
    "retry of no attempts": (
        "retry(0) { 1 }",
        "arg_error",
        "retry expects a positive attempt count",
    ),
    "retry without a count": (
        'retry("x") { 1 }',
        "arg_error",
        "retry expects a positive attempt count",
    ),
    "retry without a thunk": ("retry(2)", "arg_error", "retry expects a thunk"),
    "on without a channel": ("on(4, e => 1)", "arg_error", "on expects a channel"),
    "on without a handler": ('on("a")', "arg_error", "on expects a handler"),
}


@pytest.mark.parametrize(("src", "wanted"), VALUES.values(), ids=VALUES)
def test_tasks(session: Session, src: str, wanted: str) -> None:
    assert session.text(src) == wanted


@pytest.mark.parametrize(("src", "code", "phrase"), ERRORS.values(), ids=ERRORS)
def test_task_errors(session: Session, src: str, code: str, phrase: str) -> None:
    error = session.error(src)
    assert error.code == code
    assert phrase in error.msg


def test_on_replays_the_ring_and_then_gets_live_events(session: Session) -> None:
    src = (
        'channel("q").emit(1)\nchannel("q").emit(2)\nvar seen = []\n'
        'let t = on("q", ev => { seen += [ev.payload]; channel("done").emit(seen) })\n'
        'for _ in channel("done").events().take(2).collect() { }\n'
        'channel("q").emit(3)\nchannel("done").events(since: 1).take(1).collect()[0].payload'
    )
    assert session.text(src) == "[1, 2, 3]"
    assert session.text("jobs.first().desc") == '"on channel(q)"'
    assert session.text("t.is_done()") == "false"
    task = next(iter(session.evaluator.tasks))
    task.cancel()
    session.fresh_token()
    with pytest.raises(Cancelled):
        session.run("t.await()")


def test_on_ends_with_the_first_error_of_its_handler(session: Session) -> None:
    src = 'let t = on(channel("q"), ev => 1 / ev.payload)\nchannel("q").emit(0)\nt.await()'
    assert session.error(src).code == "div_zero"


def test_running_task_hangs_on_the_session_after_its_submission(session: Session) -> None:
    token = session.fresh_token()
    task = session.run('spawn { channel("never").take() }')
    assert isinstance(task, Task)
    token.hand_over(session.evaluator.session_cancel)
    token.cancel()
    assert not task.done
    session.evaluator.session_cancel.cancel()
    session.fresh_token()
    with pytest.raises(Cancelled):
        task.wait(session.evaluator)


def test_child_inherits_what_it_must_and_copies_what_it_may_change(session: Session) -> None:
    parent = session.evaluator
    parent.reef_overrides = {"jq": "1"}
    parent.entry = object()
    child = parent.child()
    assert child.host is parent.host and child.channels is parent.channels
    assert child.tasks is parent.tasks and child.modules is parent.modules
    assert child.root is parent.root and child.entry is parent.entry
    assert child.reef_overrides == parent.reef_overrides
    child.env[b"SHOAL_CHILD"] = b"1"
    child.dir_stack.append("/")
    assert b"SHOAL_CHILD" not in parent.env and parent.dir_stack == []
    parent.cancel.cancel()
    assert child.cancel.cancelled
    assert parent.child(fresh_scope=True).root is not parent.root


def test_suspending_stops_the_processes_of_the_task_only(session: Session) -> None:
    os.mkfifo(session.cwd / "fifo")
    task = session.run("spawn { sh { echo $$ > pid; read -r _ < fifo; } }")
    pid = _wait_for_pid(session)

    def stands() -> bool:
        # The program may be seen before its group is registered, so ask until it took.
        task.suspend()
        return _state_of(pid) == "T"

    _until(session, stands)
    task.resume()
    _until(session, lambda: _state_of(pid) != "T")
    task.cancel()


def _wait_for_pid(session: Session) -> int:
    path = session.cwd / "pid"
    _until(session, lambda: path.exists() and path.read_text().strip() != "")
    return int(path.read_text())


def _until(session: Session, holds: Callable[[], bool]) -> None:
    """Look again and again: the kernel tells nobody when a foreign process stops."""
    for _ in range(2000):
        if holds():
            return
        session.evaluator.cancel.wait(0.005)
    raise AssertionError("it never came to be")


def _state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
