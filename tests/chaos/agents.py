"""A client of the agent endpoint in a chaos run, and what must be true of its history afterwards.

It prompts one session of the shell agent, turn after turn, each with a number of its own. Half of
the turns say something, wait, and say something else, so that what is killed is often in the middle
of one.

Failure: an answer that no client should ever see is kept in `failure` and ends the client; the
check gives the list of what it found wrong.
"""

from __future__ import annotations

import random
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.agent.client import Agent
from tests.chaos.clients import EXPECTED, RETRY_S
from tests.chaos.ledger import Ledger

SESSION: Final = "chaos-agent"
MARKER: Final = "[stream interrupted]"
PAUSE_S: Final = 0.02
READY_S: Final = 20.0
# What else a turn may end with when something was killed under it.
EXPECTED_HERE: Final = EXPECTED | {
    "store_failed", "turn_failed", "checkpoint_failed", "session_busy", "session_replaced",
    "session_not_found", "agent_unavailable",
}  # fmt: skip
_NUMBER: Final = re.compile(r"turn (\d+)")


@dataclass
class AgentLedger:
    """`answered` maps the numbers of turns that completed to what they said; `next` is the number
    of the next one."""

    answered: dict[int, str] = field(default_factory=dict)
    next: int = 1


def prompt_of(number: int, slow: bool) -> tuple[str, str]:
    """Source of a turn, and what it says."""
    if not slow:
        return f'"turn {number}"', f"turn {number}"
    return (
        f"sh {{ echo turn {number}; sleep 0.05; echo over {number} }}",
        f"turn {number}\nover {number}\n",
    )


class Prompter:
    # The thread owns `_agent` and the ledger; `stop` is set from outside.

    def __init__(self, path: Path, notes: Ledger, ledger: AgentLedger, seed: int) -> None:
        self._path = path
        self._notes = notes
        self._ledger = ledger
        self._random = random.Random(seed)
        self._agent: Agent | None = None
        self.stop = threading.Event()
        self.failure: str | None = None
        self.thread = threading.Thread(target=self._run, name=SESSION)

    def _run(self) -> None:
        while not self.stop.wait(PAUSE_S):
            try:
                self._turn(self._agent or self._connected())
            except (OSError, msgspec.DecodeError):
                # The connection ended, perhaps in the middle of a frame.
                self._notes.note("lost agent connection")
                self._disconnect()
                time.sleep(RETRY_S)
            except AssertionError as error:
                self.failure = f"{SESSION}: {error}"
                break
        self._disconnect()

    def _connected(self) -> Agent:
        agent = self._agent = opened(self._path)
        return agent

    def _disconnect(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _turn(self, agent: Agent) -> None:
        number, self._ledger.next = self._ledger.next, self._ledger.next + 1
        src, says = prompt_of(number, self._random.random() < 0.5)
        answer = agent.prompt(SESSION, src)
        ends = [u["params"] for u in agent.updates if u["params"].get("type") == "turn_complete"]
        agent.updates.clear()
        if "error" in answer:
            kind = answer["error"]["data"]["kind"]
            assert kind in EXPECTED_HERE, f"unexpected answer {answer['error']}"
            self._notes.note(f"turn: {kind}")
            return
        assert len(ends) == 1, f"a turn with {len(ends)} ends"
        if ends[0]["outcome"] == "completed":
            assert answer["result"]["content"] == says, f"turn {number} said {answer['result']}"
            self._ledger.answered[number] = says


def opened(path: Path) -> Agent:
    """A connection with the session of the run. Raises OSError."""
    agent = Agent(path)
    try:
        agent.initialize()
        answer = agent.request(
            "session/new", {"agent_alias": "shell", "session_id": SESSION, "keep_siblings": True}
        )
    except BaseException:
        agent.close()
        raise
    if "error" in answer:
        agent.close()
        kind = answer["error"]["data"]["kind"]
        assert kind in EXPECTED_HERE, f"no session: {answer['error']}"
        raise ConnectionError(kind)
    return agent


def history(path: Path, ledger: AgentLedger) -> list[str]:
    """Every turn that completed is in the transcript once, whole and in order; of the others there
    is nothing, or a beginning with its end marked."""
    if not ledger.answered:
        return []
    rows = _rows(path)
    if rows is None:
        return [f"{SESSION} cannot be read"]
    turns: dict[int, list[dict[str, Any]]] = {}
    order: list[int] = []
    for row in rows:
        if row["role"] == "user":
            found = _NUMBER.search(row["content"])
            assert found is not None, row
            order.append(int(found[1]))
            turns[order[-1]] = []
        elif order:
            turns[order[-1]].append(row)
    problems = []
    if order != sorted(set(order)):
        problems.append(f"{SESSION}: turns are twice there or out of order: {order[-50:]}")
    for number, says in ledger.answered.items():
        said = "".join(r["content"] for r in turns.get(number, ()) if r["role"] == "assistant")
        marked = any(r["content"] == MARKER for r in turns.get(number, ()))
        if said != says or marked:
            problems.append(f"{SESSION}: turn {number} said {says!r}, stored {turns.get(number)}")
    for number, turn in turns.items():
        kinds = [row["kind"] for row in turn]
        if kinds.count("tool_call") != kinds.count("tool_result"):
            problems.append(f"{SESSION}: turn {number} has an open call: {turn}")
    return problems


def _rows(path: Path) -> list[dict[str, Any]] | None:
    """The whole transcript; None when nobody answers."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            with opened(path) as agent:
                found: list[dict[str, Any]] = agent.result(
                    "session/messages", {"session_id": SESSION}
                )["messages"]
                return found
        except (OSError, msgspec.DecodeError):
            time.sleep(0.1)
    return None
