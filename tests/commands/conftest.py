from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(str(tmp_path))
