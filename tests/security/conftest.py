"""One fortress for a test module; tests keep apart by session names."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.security.attacker import Fortress

HUMAN = f"uid:{os.getuid()}"


@pytest.fixture(scope="module")
def fortress() -> Iterator[Fortress]:
    with Fortress(HUMAN) as running:
        yield running
