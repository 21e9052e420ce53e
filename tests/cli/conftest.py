"""A kernel that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program, with a kernel running at its default socket."""
    # The pytest directory's name can be too long for a socket path.
    root = Path(tmp_path_factory.mktemp("k"))
    program = Program(root)
    with program.kernel():
        yield program
