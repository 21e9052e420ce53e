"""What a client can make grow has a limit: records and values a session keeps."""

from __future__ import annotations

from tests.system.daemon import Daemon

KEPT = 3
# The stored form of a long text is a little longer than the text.
TEXT = "x" * 200_000


def test_finished_task_records_are_kept_to_the_newest() -> None:
    with Daemon(config=f"[quotas]\ntasks_kept = {KEPT}\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        tasks = []
        for number in range(KEPT + 1):
            task = wire.result("exec", {"src": str(number), "async": True})["task"]
            wire.result("task.await", {"task": task})
            tasks.append(task)
            # Up to the limit every one is there.
            assert ("result" in wire.request("task.get", {"task": tasks[0]})) is (number < KEPT)
        error = wire.error("task.get", {"task": tasks[0]})
        assert (error["code"], error["message"]) == (-32021, "unknown task ref")
        for task in tasks[1:]:
            assert wire.result("task.get", {"task": task})["state"] == "completed"


def test_a_transcript_keeps_the_newest_bytes() -> None:
    limit = 3 * len(TEXT)
    with Daemon(config=f"[quotas]\ntranscript_bytes = {limit}\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        for _ in range(2):
            wire.result("exec", {"src": f'"{TEXT}"'})
        # At the limit nothing is gone yet.
        assert wire.result("value.get", {"ref": "out:1"})
        for _ in range(2):
            wire.result("exec", {"src": f'"{TEXT}"'})
        error = wire.error("value.get", {"ref": "out:1"})
        assert (error["code"], error["data"]["kind"]) == (-32004, "expired_ref")
        assert wire.result("value.get", {"ref": "out:4"})


def test_the_greed_of_one_session_is_not_anothers_loss() -> None:
    with Daemon(config=f"[quotas]\ntasks_kept = {KEPT}\n") as daemon:
        greedy, quiet = daemon.wire(), daemon.wire()
        greedy.result("session.attach", {"session": "greedy"})
        quiet.result("session.attach", {"session": "quiet"})
        kept = quiet.result("exec", {"src": "1", "async": True})["task"]
        quiet.result("task.await", {"task": kept})
        for _ in range(KEPT + 2):
            task = greedy.result("exec", {"src": "1", "async": True})["task"]
            greedy.result("task.await", {"task": task})
        assert quiet.result("task.get", {"task": kept})["state"] == "completed"
