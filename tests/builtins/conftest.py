from __future__ import annotations

from pathlib import Path

import pytest

from tests.builtins.support import Shell, shell_in


@pytest.fixture(autouse=True)
def private_temporary_directory(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trash and tool views stay inside the test's own directories."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return shell_in(tmp_path)
