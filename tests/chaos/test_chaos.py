"""A short chaos run with a fixed seed; `make chaos` runs a long one."""

from __future__ import annotations

import sys

import pytest

from tests.chaos.run import run

SEED = 20
ROUNDS = 4


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_promises_are_kept_whatever_is_killed() -> None:
    summary = run(ROUNDS, SEED)
    assert summary.promises > 20
    assert any(fault.startswith("killed") for fault in summary.faults)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_promises_are_kept_on_a_disk_that_fills_up_again_and_again() -> None:
    summary = run(3, 1, weights={"fill_disk": 1, "kill_worker": 1})
    assert summary.promises > 20
