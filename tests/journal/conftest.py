"""Fixtures of the store's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal import Store
from tests.journal.support import open_store


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory that does not exist yet."""
    return tmp_path / "state"


@pytest.fixture
def store(state: Path) -> Iterator[Store]:
    with open_store(state) as opened:
        yield opened


@pytest.fixture(params=["file", "memory"])
def any_store(request: pytest.FixtureRequest, state: Path) -> Iterator[Store]:
    """The same store twice: on disk and in memory."""
    with open_store(state if request.param == "file" else None) as opened:
        yield opened
