"""`shoal agent chat` on a real terminal: prompts, Ctrl-C, approvals, questions."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Self

import pytest

from tests.agent.chat_server import ChatServer, called, said
from tests.agent.client import Agent
from tests.system.daemon import ROOT, Daemon

SHOWN_S = 30.0
POLICY = """
[principal."uid:{uid}"]
fs_read = ["/**"]
fs_write = ["/**"]
opaque = "allow"
auto_apply = "in-grant"

[principal."agent:careful"]
fs_read = ["/**"]
fs_write = ["/**"]
opaque = "deny"
auto_apply = "never"
"""


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture(scope="module")
def daemon(chat: ChatServer) -> Iterator[Daemon]:
    running = Daemon()
    policy = running.directory / ".config" / "shoal" / "leash.toml"
    policy.parent.mkdir(parents=True)
    policy.write_text(POLICY.format(uid=os.geteuid()))
    with running:
        with Agent(running.state / "daemon.sock") as setup:
            setup.initialize()
            sets = {
                "agents.careful.leash": "agent:careful",
                "providers.desk.kind": "openai",
                "providers.desk.base_url": chat.url,
                "providers.desk.model": "m-1",
                "agents.scribe.provider": "desk",
                "agents.scribe.leash": f"uid:{os.geteuid()}",
            }
            setup.result(
                "config/set-many",
                {"sets": [{"prop": prop, "value": value} for prop, value in sets.items()]},
            )
        yield running


class Terminal:
    """A chat as the leader of a session on a terminal of its own."""

    def __init__(self, daemon: Daemon, *words: str) -> None:
        environ = {n: v for n, v in os.environ.items() if not n.startswith("SHOAL_")}
        environ |= {"HOME": str(daemon.directory), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            command = ["-m", "shoal", "agent", "chat", "--state-dir", str(daemon.state), *words]
            os.execve(sys.executable, [sys.executable, *command], environ)
        self.screen = ""
        self._status: int | None = None

    def shows(self, text: str) -> None:
        """Read until the text appears behind what was waited for before."""
        deadline = time.monotonic() + SHOWN_S
        while text not in self.screen:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._terminal], [], [], max(left, 0))
            assert ready, f"`{text}` never came: {self.screen!r}"
            self.screen += self._read()
        self.screen = self.screen.partition(text)[2]

    def _read(self) -> str:
        try:
            data = os.read(self._terminal, 65536)
        except OSError:
            data = b""
        assert data, f"the chat ended: {self.screen!r}"
        return data.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        if self._status is None:
            _, self._status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(self._status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.ended()
        os.close(self._terminal)


def test_a_conversation_goes_on_until_the_end_of_input(daemon: Daemon) -> None:
    with Terminal(daemon, "shell") as terminal:
        terminal.shows("session ")
        terminal.shows("shell> ")
        terminal.type("let n = 41\n")
        terminal.shows("» shoal")
        terminal.shows("shell> ")
        terminal.type("n + 1\n")
        terminal.shows("\n42\r\n")
        terminal.shows("shell> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_ctrl_c_cancels_the_turn_and_not_the_conversation(daemon: Daemon) -> None:
    with Terminal(daemon, "shell") as terminal:
        terminal.shows("shell> ")
        terminal.type("sh { echo begun; sleep 60 }\n")
        terminal.shows("\nbegun")
        terminal.type("\x03")
        terminal.shows("(cancelled)")
        terminal.shows("shell> ")
        terminal.type("'still here'\n")
        terminal.shows("\nstill here")
        terminal.type("\x04")
        assert terminal.ended() == 0


@pytest.mark.parametrize(
    ("typed", "text"), [("y", "wrote"), ("n", "denied"), ("", "denied"), ("nonsense", "denied")]
)
def test_an_approval_is_asked_and_anything_but_yes_is_no(
    daemon: Daemon, typed: str, text: str
) -> None:
    target = daemon.work / "approved"
    target.unlink(missing_ok=True)
    with Terminal(daemon, "careful") as terminal:
        terminal.shows("careful> ")
        terminal.type(f"'x'.save('{target}'); 'wrote'\n")
        terminal.shows("? shoal: ")
        terminal.shows("allow? [y]es, [a]lways, [n]o, [e]dit: ")
        terminal.type(f"{typed}\n")
        terminal.shows(text)
        assert target.exists() == (typed == "y")
        terminal.shows("careful> ")
        terminal.type("\x04")
        terminal.ended()


def test_a_question_is_asked_with_its_choices(daemon: Daemon, chat: ChatServer) -> None:
    chat.requests.clear()
    chat.say(called("ask_user", '{"question":"Which branch?","choices":["main","next"]}'))
    chat.say(said("next it is"))
    with Terminal(daemon, "scribe") as terminal:
        terminal.shows("scribe> ")
        terminal.type("choose\n")
        terminal.shows("? Which branch?")
        terminal.shows("2. next")
        terminal.shows("answer (empty declines): ")
        terminal.type("2\n")
        terminal.shows("next it is")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert chat.requests[1]["messages"][-1]["content"] == "next"
