"""Programs that are judged by content and executed through the descriptor that was judged."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from leash.pins import PinnedFile, open_pinned, sealed

GENUINE = b"#!/bin/sh\necho genuine\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_bytes(GENUINE)
    path.chmod(0o755)
    return path


@pytest.fixture
def copy(program: Path) -> Iterator[PinnedFile]:
    file = open_pinned(str(program))
    found = sealed(file)
    os.close(file.fd)
    yield found
    os.close(found.fd)


def test_a_sealed_copy_is_what_was_judged_whatever_becomes_of_the_file(
    program: Path, copy: PinnedFile
) -> None:
    program.write_bytes(b"#!/bin/sh\necho evil\n")
    program.unlink()
    assert copy.digest == blake3(GENUINE).hexdigest()
    assert copy.script
    assert copy.unchanged()
    ran = subprocess.run([copy.program], pass_fds=[copy.fd], capture_output=True, check=True)
    assert ran.stdout == b"genuine\n"


def test_a_sealed_copy_cannot_be_changed(copy: PinnedFile) -> None:
    for flags in (os.O_WRONLY, os.O_RDWR):
        with pytest.raises(PermissionError):
            os.write(os.open(f"/proc/self/fd/{copy.fd}", flags), b"evil")
    with pytest.raises(OSError, match=r"not permitted|Invalid argument|Bad file"):
        os.truncate(f"/proc/self/fd/{copy.fd}", 0)


def test_a_sealed_binary_runs(tmp_path: Path) -> None:
    file = open_pinned("/bin/true")
    found = sealed(file)
    try:
        assert (found.digest, found.script) == (file.digest, False)
        assert subprocess.run([found.program], pass_fds=[found.fd], check=False).returncode == 0
    finally:
        os.close(found.fd)
        os.close(file.fd)


def test_large_programs_are_copied_whole(tmp_path: Path) -> None:
    path = tmp_path / "large"
    data = os.urandom((1 << 20) * 3 + 1)
    path.write_bytes(data)
    file = open_pinned(str(path))
    found = sealed(file)
    assert found.digest == file.digest == blake3(data).hexdigest()
    os.close(found.fd)
    os.close(file.fd)
