"""Background and timed submissions (chapter 60 §5.12)."""

from __future__ import annotations

import pytest

from tests.system.daemon import Daemon, Wire


def _start(wire: Wire, source: str) -> str:
    answer = wire.result("exec", {"src": source, "async": True})
    assert set(answer) == {"task", "events"}
    assert answer["events"] == answer["task"].replace(":", ".")
    return str(answer["task"])


def test_a_task_completes_with_its_result(attached: Wire) -> None:
    task = _start(attached, "6 * 7")
    record = attached.result("task.await", {"task": task})
    assert record["state"] == "completed"
    assert record["error"] is None
    assert record["finished_ns"] >= record["started_ns"]
    value = attached.result("value.get", {"ref": record["result_ref"]})["value"]
    assert value == {"$": "int", "v": 42}
    assert attached.result("task.get", {"task": task}) == record
    assert record in attached.result("task.list")


def test_background_is_an_alias_of_async(attached: Wire) -> None:
    assert set(attached.result("exec", {"src": "1", "background": True})) == {"task", "events"}


def test_errors_of_a_task_are_in_its_record(attached: Wire) -> None:
    raised = attached.result("task.await", {"task": _start(attached, "1 / 0")})
    assert (raised["state"], raised["error"]["code"]) == ("failed", -32002)
    assert raised["error"]["data"]["code"] == "div_zero"
    syntax = attached.result("task.await", {"task": _start(attached, "1 < 2 < 3")})
    assert (syntax["state"], syntax["error"]["code"]) == ("failed", -32001)
    assert syntax["result_ref"] is None


def test_a_failed_outcome_fails_the_task_and_keeps_its_result(attached: Wire) -> None:
    answer = attached.result("exec", {"src": "sh -c 'exit 2'", "position": "value", "async": True})
    record = attached.result("task.await", {"task": answer["task"]})
    assert (record["state"], record["result_ref"], record["error"]) == ("failed", "out:1", None)


def test_fast_work_with_a_timeout_answers_inline(attached: Wire) -> None:
    result = attached.result("exec", {"src": "1 + 1", "timeout_ms": 10_000})
    assert result["render"] == "2"
    assert [task["state"] for task in attached.result("task.list")] == ["completed"]


def test_slow_work_with_a_timeout_answers_with_the_running_task(attached: Wire) -> None:
    answer = attached.result("exec", {"src": "sleep 300ms; 5", "timeout_ms": 1})
    assert answer["timed_out"] is True
    record = attached.result("task.await", {"task": answer["task"]})
    assert record["state"] == "completed"


def test_a_timeout_of_zero_answers_at_once(attached: Wire) -> None:
    answer = attached.result("exec", {"src": "sleep 300ms", "timeout_ms": 0})
    assert answer["timed_out"] is True
    attached.result("task.await", {"task": answer["task"]})


def test_await_gives_the_record_at_its_timeout(attached: Wire) -> None:
    task = _start(attached, "sleep 10s")
    record = attached.result("task.await", {"task": task, "timeout_ms": 20})
    assert (record["state"], record["finished_ns"]) == ("running", None)
    attached.result("task.cancel", {"task": task})


def test_cancel_ends_a_running_command_and_its_record(attached: Wire) -> None:
    task = _start(attached, "sleep 30s; 1")
    assert attached.result("task.cancel", {"task": task}) == {
        "task": task,
        "cancel_requested": True,
    }
    record = attached.result("task.await", {"task": task})
    assert record["state"] == "cancelled"
    assert record["error"]["data"]["code"] == "cancelled"


def test_a_task_cancelled_in_the_queue_never_runs(attached: Wire) -> None:
    attached.result("exec", {"src": "var ran = false"})
    first = _start(attached, "sleep 30s")
    second = _start(attached, "ran = true")
    attached.result("task.cancel", {"task": second})
    attached.result("task.cancel", {"task": first})
    record = attached.result("task.await", {"task": second})
    assert record["state"] == "cancelled"
    assert (record["error"]["code"], record["error"]["data"]["code"]) == (-32002, "cancelled")
    assert attached.result("exec", {"src": "ran"})["value"] == {"$": "bool", "v": False}


def test_cancel_of_a_finished_task_changes_nothing(attached: Wire) -> None:
    task = _start(attached, "1")
    record = attached.result("task.await", {"task": task})
    attached.result("task.cancel", {"task": task})
    assert attached.result("task.get", {"task": task}) == record


@pytest.mark.parametrize("method", ["task.get", "task.await", "task.cancel", "task.suspend"])
@pytest.mark.parametrize("ref", ["task:999999", "task:0", "task:x", "1", ""])
def test_unknown_tasks(attached: Wire, method: str, ref: str) -> None:
    error = attached.error(method, {"task": ref})
    assert (error["code"], error["message"]) == (-32021, "unknown task ref")
    assert error["data"]["kind"] == "unknown_task"


def test_a_finished_task_cannot_be_held(attached: Wire) -> None:
    task = _start(attached, "1")
    attached.result("task.await", {"task": task})
    for method in ("task.suspend", "task.resume"):
        error = attached.error(method, {"task": task})
        assert (error["code"], error["data"]["task"]) == (-32020, task)


def test_tasks_of_another_session_are_unknown(daemon: Daemon, attached: Wire) -> None:
    task = _start(attached, "1")
    with daemon.wire() as other:
        other.result("session.attach", {"session": "tasks-elsewhere"})
        assert other.error("task.get", {"task": task})["code"] == -32021
        assert other.result("task.list") == []


def test_task_events_come_in_two_and_the_record_is_final_by_then(attached: Wire) -> None:
    task = _start(attached, "7")
    number = task.split(":")[1]
    attached.result("task.await", {"task": task})
    events = attached.result("events.read", {"channel": f"task.{number}"})["events"]
    assert [event["seq"] for event in events] == [0, 1]
    assert events[0]["payload"] == {"$": "str", "v": "started"}
    assert events[1]["payload"]["v"] == {
        "state": {"$": "str", "v": "completed"},
        "ref": {"$": "str", "v": "out:1"},
    }


def test_running_tasks_have_a_quota(attached: Wire) -> None:
    # The statement behind the sleep never runs, so that the end can only be the cancellation.
    tasks = [_start(attached, "sleep 60s; 1") for _ in range(64)]
    error = attached.error("exec", {"src": "1", "async": True})
    assert error["data"] == {
        "kind": "quota",
        "reason": "quota",
        "quota": "quotas.tasks_per_session",
        "limit": 64,
        "used": 64,
    }
    for task in reversed(tasks):
        attached.result("task.cancel", {"task": task})
    assert attached.result("task.await", {"task": tasks[0]})["state"] == "cancelled"


def test_the_wall_limit_cancels_a_submission() -> None:
    with Daemon(config="[limits]\nexec_wall_s = 1\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        error = wire.error("exec", {"src": "while true { }"})
        assert (error["code"], error["data"]["code"]) == (-32002, "cancelled")
        assert wire.result("exec", {"src": "1"})["render"] == "1"
