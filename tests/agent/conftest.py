"""One daemon for a test module, and an initialized client of its agent endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.agent.client import FORM, Agent
from tests.system.daemon import Daemon


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon() as running:
        yield running


@pytest.fixture
def connect(daemon: Daemon) -> Iterator[Callable[[], Agent]]:
    """Opens connections that end with the test."""
    opened: list[Agent] = []

    def connect() -> Agent:
        opened.append(Agent(daemon.state / "daemon.sock"))
        return opened[-1]

    yield connect
    for agent in opened:
        agent.close()


@pytest.fixture
def agent(connect: Callable[[], Agent]) -> Agent:
    client = connect()
    client.initialize(clientCapabilities=FORM)
    return client


@pytest.fixture
def session(agent: Agent, request: pytest.FixtureRequest) -> str:
    """A shell session of the test's own."""
    name = request.node.name[:100]
    agent.result("session/new", {"agent_alias": "shell", "session_id": name})
    return str(name)
