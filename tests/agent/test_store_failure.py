"""What turns do while the store cannot write (chapter 70 §10.1, 61 §8.2)."""

from __future__ import annotations

import sqlite3

from tests.agent.client import Agent
from tests.system.daemon import Daemon


def test_a_prompt_is_refused_while_the_store_is_locked_and_works_afterwards() -> None:
    """Another process holds the database; the wait is short so that the test is."""
    config = "[journal]\nbusy_timeout_ms = 100\n"
    with Daemon(config=config) as daemon, Agent(daemon.state / "daemon.sock") as client:
        client.initialize()
        client.result("session/new", {"agent_alias": "shell", "session_id": "s"})
        client.prompt("s", "let kept = 40")
        client.kinds()
        with sqlite3.connect(daemon.state / "journal.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            answer = client.prompt("s", "kept + 1")
            other.execute("ROLLBACK")

        assert answer["error"]["code"] == -32603
        assert answer["error"]["data"]["kind"] in ("store_failed", "journal_unavailable")
        assert client.until("turn_complete")["outcome"] == "failed"
        assert client.prompt("s", "kept + 2")["result"]["content"] == "42"
