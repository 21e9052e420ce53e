"""The packages import each other only along the arrows."""

import sys
from pathlib import Path

import pytest

from tests.arrows.rules import ROOT, violations


def test_no_package_imports_against_the_arrows() -> None:
    assert violations(ROOT, sys.stdlib_module_names) == []


@pytest.mark.parametrize(
    ("package", "source", "reason"),
    [
        ("supervisor", "import worker.session", "no arrow from supervisor to worker"),
        ("worker", "from supervisor import daemon", "no arrow from worker to supervisor"),
        ("worker", "def f():\n    import journal", "no arrow from worker to journal"),
        ("ipc", "import leash", "no arrow from ipc to leash"),
        ("journal", "import ipc.framing", "no arrow from journal to ipc"),
        (
            "journal",
            "import structlog",
            "journal depends on blake3, msgspec, zstandard and nothing else",
        ),
        ("supervisor", "from pickle import loads", "supervisor must not be able to unpickle"),
    ],
)
def test_each_kind_of_broken_arrow_is_found(
    tmp_path: Path, package: str, source: str, reason: str
) -> None:
    module = tmp_path / package / "deep" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"import os\n{source}\n")
    [found] = violations(tmp_path, sys.stdlib_module_names)
    assert found.startswith(f"{package}/deep/module.py:")
    assert reason in found


def test_allowed_imports_are_quiet(tmp_path: Path) -> None:
    for package, source in (
        ("supervisor", "import ipc, leash, journal, structlog\nfrom . import x\n"),
        ("worker", "import ipc.framing\nimport leash, dill\n"),
        ("ipc", "import msgspec, orjson, socket\n"),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").write_text(source)
    assert violations(tmp_path, sys.stdlib_module_names) == []
