"""What `pip install .` gives: every module, its data, and the command."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from supervisor.version import VERSION
from tests.arrows.rules import PACKAGES, ROOT

DATA_SUFFIXES = {".toml", ".json", ".sql", ".txt"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A copy, so that building leaves nothing in the tree.
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE", "shoal.py"):
        shutil.copy(ROOT / name, tree)
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", out, tree], check=True, capture_output=True)
    [found] = out.glob("*.whl")
    return found


def test_wheel_holds_every_module_and_data_file_and_no_tests(wheel: Path) -> None:
    expected = {"shoal.py"}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.suffix in {".py", *DATA_SUFFIXES} and "__pycache__" not in path.parts:
                expected.add(str(path.relative_to(ROOT)))
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_installed_command_runs_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--ignore-installed", "--no-warn-script-location"]
    subprocess.run([*command, "--prefix", prefix, wheel], check=True, capture_output=True)
    [site] = prefix.glob("lib/python3*/site-packages")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(site)}

    def output(*command: str | Path) -> str:
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert output(prefix / "bin" / "shoal", "--version") == f"shoal {VERSION}"
    assert output(sys.executable, "-m", "shoal", "--version") == f"shoal {VERSION}"
    refused = subprocess.run(
        [prefix / "bin" / "shoal-sandbox-exec"], env=environ, capture_output=True, check=False
    )
    assert (refused.returncode, refused.stderr) == (126, b"shoal-sandbox-exec: missing command\n")
    code = "import ipc.client.autostart as a; print(a.PROGRAM, a.PROGRAM.exists())"
    assert output(sys.executable, "-c", code) == f"{site / 'shoal.py'} True"


def test_every_dependency_is_pinned_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for lock, extras in (("dev.lock", ["dev"]), ("bench.lock", ["dev", "bench"])):
        pinned = {}
        name = ""
        for line in (ROOT / "requirements" / lock).read_text().splitlines():
            if "==" in line:
                name = line.split("==")[0].lower()
                pinned[name] = 0
            elif "--hash=sha256:" in line:
                pinned[name] += 1
        assert all(pinned.values()), lock
        wanted = list(project["dependencies"])
        for extra in extras:
            wanted += project["optional-dependencies"][extra]
        for requirement in wanted:
            bare = requirement.split(";")[0].split(">=")[0].strip()
            assert bare.lower().replace("_", "-") in pinned, (lock, requirement)
