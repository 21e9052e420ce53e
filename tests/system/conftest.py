"""One daemon for a test module; tests keep apart by session names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.daemon import Daemon, Wire


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon() as running:
        yield running


@pytest.fixture
def wire(daemon: Daemon) -> Iterator[Wire]:
    with daemon.wire() as connection:
        yield connection


@pytest.fixture
def attached(wire: Wire, request: pytest.FixtureRequest) -> Wire:
    """A bare connection attached to a session of the test's own."""
    wire.result("session.attach", {"session": request.node.name[:100].replace("/", "|")})
    return wire
