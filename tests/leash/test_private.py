"""What workers have for themselves below the directory for temporary files, and what stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leash import private

_MAKES_ONE = """
import os, sys
from leash import private
path = private.make(int(sys.argv[1]) or os.getpid())
os.makedirs(os.path.join(private.base(), private.TRASH, str(os.getpid())))
print(path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@contextmanager
def worker(pid: int = 0) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a private directory and a trash; killed without a word at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MAKES_ONE, str(pid)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def test_the_directory_of_a_worker_has_its_number_and_is_its_own(below: Path) -> None:
    with worker() as (process, path):
        assert path == below / f"shoal-{process.pid}"
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_name_that_is_taken_gets_something_behind_it(below: Path) -> None:
    (below / "shoal-77").mkdir()

    with worker(77) as (_, path):
        assert path.parent == below
        assert path.name.startswith("shoal-77-")


def test_what_a_living_worker_holds_is_not_swept_away(below: Path) -> None:
    with worker() as (process, path):
        private.sweep()

        assert path.is_dir()
        assert (below / "shoal-trash" / str(process.pid)).is_dir()


def test_what_a_killed_worker_left_is_swept_away_with_its_content(below: Path) -> None:
    with worker() as (_, path):
        (path / "folder").mkdir()
        (path / "folder" / "file").write_text("left")
        path.chmod(0o755)

    private.sweep()

    assert not path.exists()
    assert list((below / "shoal-trash").iterdir()) == []


def test_a_trash_with_something_in_it_stays(below: Path) -> None:
    with worker() as (process, path):
        kept = below / "shoal-trash" / str(process.pid) / "1-file"
        kept.write_text("to be brought back")

    private.sweep()

    assert not path.exists()
    assert kept.read_text() == "to be brought back"


def test_a_folder_that_only_looks_like_one_of_ours_stays(below: Path) -> None:
    folder = below / "shoal-2024"
    folder.mkdir(mode=0o700)
    elsewhere = below / "shoal-7-elsewhere"
    elsewhere.mkdir(mode=0o700)
    (below / "shoal-trash" / "7").mkdir(parents=True)
    (below / "shoal-7").symlink_to(folder)

    private.sweep()

    assert folder.is_dir()
    assert elsewhere.is_dir()


def test_removing_one_worker_leaves_the_others(below: Path) -> None:
    with worker() as (_, other):
        with worker() as (process, path):
            pass
        private.remove(process.pid)

        assert not path.exists()
        assert not (below / "shoal-trash" / str(process.pid)).exists()
        assert other.is_dir()
