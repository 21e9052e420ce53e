"""The package stands on the standard library and three others; every name it offers is there."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import journal

FOLDER = Path(journal.__file__).parent
ALLOWED = sys.stdlib_module_names | {"journal", "blake3", "msgspec", "zstandard"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_module_imports_only_what_the_package_may(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        assert {name.partition(".")[0] for name in names} <= ALLOWED, names


def test_every_offered_name_is_there() -> None:
    assert all(hasattr(journal, name) for name in journal.__all__)
