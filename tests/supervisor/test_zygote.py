"""The zygote is there when needed, whatever happened to the one before (supervisor.zygote)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.zygote import Zygote


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    started = Zygote(tmp_path, [])
    started.ensure_running()
    yield started
    started.stop()


def _pid(zygote: Zygote) -> int:
    pid = zygote._forkserver_pid
    assert pid is not None
    return pid


def test_a_running_zygote_is_kept(zygote: Zygote) -> None:
    first = _pid(zygote)
    zygote.ensure_running()
    assert _pid(zygote) == first


def test_a_zygote_that_somebody_else_collected_is_replaced(zygote: Zygote) -> None:
    first = _pid(zygote)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    zygote.ensure_running()
    assert _pid(zygote) != first
    os.kill(_pid(zygote), 0)


def test_a_zygote_that_somebody_else_collected_can_be_stopped(zygote: Zygote) -> None:
    os.kill(_pid(zygote), signal.SIGKILL)
    os.waitpid(_pid(zygote), 0)
    zygote.stop()
    zygote.ensure_running()
    os.kill(_pid(zygote), 0)
